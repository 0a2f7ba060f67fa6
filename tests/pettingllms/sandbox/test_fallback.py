"""Machines that offer less: the best that is left is taken, and nothing is lowered in silence."""

import json
import os
import subprocess
import sys

import pytest

from pettingllms.sandbox.syscalls import syscall_numbers

NUMBERS = syscall_numbers()
UNSHARE = NUMBERS["unshare"]
LANDLOCK = 444
SECCOMP = NUMBERS["seccomp"]

SCRIPT = """
import errno, json, struct, sys
from pettingllms.sandbox.jail import kernel

denied = json.loads(sys.argv[1])
code = struct.pack("=HBBI", 0x20, 0, 0, 0)
for index, number in enumerate(denied):
    code += struct.pack("=HBBI", 0x15, len(denied) - index, 0, number)
code += struct.pack("=HBBI", 6, 0, 0, 0x7FFF0000)
code += struct.pack("=HBBI", 6, 0, 0, 0x00050000 | errno.EPERM)
kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
kernel.Filter(int(sys.argv[2]), code).load()

from pettingllms.errors import SandboxError
from pettingllms.sandbox import Sandbox, probe
try:
    with Sandbox(isolation=sys.argv[3], workers=1) as sandbox:
        facts = sandbox.describe()
        output = sandbox.run("print(6 * 7)").stdout
        print(json.dumps([facts["isolation"], facts["not_available"], output]))
except SandboxError as error:
    print(json.dumps([None, {}, str(error)]))
"""


@pytest.fixture
def machine(any_jail):
    """Run a sandbox on a machine where some system calls are denied, as in a container."""

    def run(denied, isolation="auto"):
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, json.dumps(denied), str(SECCOMP), isolation],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        return json.loads(done.stdout)

    return run


def test_without_namespaces(machine):
    isolation, reasons, output = machine([UNSHARE])
    if isolation == "sealed":
        pytest.skip("this machine has no Landlock")
    assert (isolation, output) == ("landlock", "42\n")
    assert "unshare" in reasons["namespaces"]


def test_without_namespaces_and_landlock(machine):
    isolation, reasons, output = machine([UNSHARE, LANDLOCK])
    assert (isolation, output) == ("sealed", "42\n")
    assert list(reasons) == ["namespaces", "landlock"]


def test_without_anything(machine):
    isolation, _, message = machine([UNSHARE, LANDLOCK, SECCOMP])
    assert isolation is None
    for tier in ("namespaces", "landlock", "sealed"):
        assert f"{tier}: " in message
    assert "pettingllms doctor" in message


@pytest.mark.parametrize("tier", ["namespaces", "landlock"])
def test_a_demanded_tier_is_not_lowered(machine, tier):
    isolation, _, message = machine([UNSHARE, LANDLOCK], tier)
    assert isolation is None
    assert f"isolation='{tier}'" in message
