"""Installs what a run sees where a part of Python is missing, and again where it is there."""

import http.client
import os
import random
import threading
import time

from pettingllms.workflows.isolation import Scope

NAMES = ((time, "time"), (random, "random"), (os, "urandom"), (threading.Thread, "start"))
before = [getattr(owner, name) for owner, name in NAMES]
put = http.client.HTTPConnection.putrequest
scope = Scope(base_url="http://x/1/v1", api_key="k", seed=1, clock_s=5.0, environ={})
del http.client.HTTPConnection.putrequest
try:
    scope.run(time.time)
except AttributeError:
    assert before == [getattr(owner, name) for owner, name in NAMES]
else:
    raise AssertionError("nothing was missing")
http.client.HTTPConnection.putrequest = put
assert scope.run(lambda: time.time()) == 5.0
assert time.time.__wrapped__ is before[0], "wrapped twice"
