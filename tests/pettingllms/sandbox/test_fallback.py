"""Machines that offer less: the best that is left is taken, and nothing is lowered in silence."""

import json
import os
import platform
import subprocess
import sys

import pytest

from pettingllms.errors import SandboxError
from pettingllms.sandbox import Sandbox, isolation, probe
from pettingllms.sandbox.syscalls import syscall_numbers

NUMBERS = syscall_numbers()
UNSHARE = NUMBERS["unshare"]
LANDLOCK = 444
SECCOMP = NUMBERS["seccomp"]
MEMFD_CREATE = {"x86_64": 319, "aarch64": 279}[platform.machine()]

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
            timeout=300,
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


def test_without_memory_files(machine):
    isolation, _, message = machine([MEMFD_CREATE])
    assert isolation is None
    assert "no memfd_create here" in message
    assert "seccomp profile" in message


def test_a_python_without_memory_files(monkeypatch):
    monkeypatch.delattr(os, "memfd_create")
    with pytest.raises(SandboxError, match=r"no memfd_create here.*Use Linux 3\.17"):
        Sandbox(workers=1).run("print(1)")
    assert all("no memfd_create here" in report.reason for report in probe())


ALONE = """
import os, sys
from pettingllms.sandbox.jail import kernel

uid, gid = os.getuid(), os.getgid()
try:
    kernel.unshare(kernel.CLONE_NEWUSER)
except OSError as error:
    sys.exit(f"no user namespace: {error}")
for name, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
    with open(f"/proc/self/{name}", "w") as file:
        file.write(text)

from pettingllms.errors import SandboxError
from pettingllms.sandbox import Sandbox
try:
    print(Sandbox(workers=1).run("print(6 * 7)"))
except SandboxError as error:
    print(error)
"""


def test_a_root_that_is_alone_in_its_namespace():
    path = os.pathsep.join(sys.path)
    done = subprocess.run(
        [sys.executable, "-c", ALONE],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "PYTHONPATH": path},
    )
    if "no user namespace" in done.stderr:
        pytest.skip(done.stderr)
    assert "the root of this user namespace can become none of" in done.stdout, done.stderr
    assert "Run as an ordinary user" in done.stdout


@pytest.mark.parametrize(
    ("text", "is_covered"),
    [
        ("0 0 4294967295", True),
        ("0 1000 1\n1 100000 65536\n", True),  # rootless docker and podman
        ("", True),  # a kernel without user namespaces
        ("0 1000 1", False),
        ("0 1000 1\n1 100000 1000\n", False),
    ],
)
def test_which_ids_of_a_container_are_enough(monkeypatch, tmp_path, text, is_covered):
    for name, written in (("uid_map", text), ("gid_map", "0 0 65536"), ("setgroups", "allow")):
        (tmp_path / name).write_text(written)
    monkeypatch.setattr(isolation, "_PROCESS", tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    if is_covered:
        isolation.check_platform()
    else:
        with pytest.raises(SandboxError, match="65,536 ids"):
            isolation.check_platform()


@pytest.mark.parametrize("tier", ["namespaces", "landlock"])
def test_a_demanded_tier_is_not_lowered(machine, tier):
    isolation, _, message = machine([UNSHARE, LANDLOCK], tier)
    assert isolation is None
    assert f"isolation='{tier}'" in message
