"""The shared sandbox of a process, and what `pettingllms doctor` says about this machine."""

from __future__ import annotations

import os
import sys
import threading
from dataclasses import dataclass
from typing import Any

from pettingllms.errors import SandboxError
from pettingllms.sandbox.api import Flavour, Sandbox
from pettingllms.sandbox.isolation import JAILS, Tier, check_platform
from pettingllms.sandbox.opening import open_jail

_shared: dict[str, Sandbox] = {}
_shared_lock = threading.Lock()
if hasattr(os, "register_at_fork"):
    # So that no forked process begins with the lock held by a thread that it does not have.
    os.register_at_fork(
        before=_shared_lock.acquire,
        after_in_parent=_shared_lock.release,
        after_in_child=_shared_lock.release,
    )


def default_sandbox(flavour: Flavour = "lean") -> Sandbox:
    """The sandbox that this process shares, one per flavour.

    Made at the first call, with servers from the first run on; a forked process gets servers of
    its own; all end with their process. Environments use it, so that thousands of them need no
    more processes than one.
    """
    with _shared_lock:
        if flavour not in _shared:
            _shared[flavour] = Sandbox(flavour=flavour)
        return _shared[flavour]


@dataclass(frozen=True, slots=True)
class TierReport:
    """Whether one tier works on this machine."""

    isolation: str
    is_available: bool
    reason: str
    """Why it does not work; empty if it does."""
    facts: dict[str, Any]
    """What a server of this tier says about itself."""


def probe() -> tuple[TierReport, ...]:
    """Try every tier by running a canary in it, strongest first. Takes less than a second."""
    return tuple(map(_try, JAILS))


def _try(tier: Tier) -> TierReport:
    try:
        check_platform()
        pool = open_jail(tier, "lean", 1)
    except SandboxError as error:
        return TierReport(str(tier), False, str(error), {"platform": sys.platform})
    facts = dict(pool.facts)
    pool.close()
    return TierReport(str(tier), True, "", facts)
