"""Machines that offer less: the best that is left is taken, and nothing is lowered in silence."""

import json
import os
import platform
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from pettingllms.errors import SandboxError
from pettingllms.sandbox import Sandbox, isolation, probe
from pettingllms.sandbox.filter import syscall_numbers

NUMBERS = syscall_numbers() | {"landlock": 444}
NUMBERS["memfd_create"] = {"x86_64": 319, "aarch64": 279}[platform.machine()]
TIERS = ("namespaces", "landlock", "sealed")

SCRIPTS = tomllib.loads(Path(__file__).with_name("scripts.toml").read_text(encoding="utf-8"))


def ran(code, *arguments):
    """Run a script in a process of its own that finds this package and these tests."""
    paths = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "PYTHONPATH": paths},
    )


def on_a_machine(denied, isolation="auto"):
    """Run a sandbox where some system calls are denied, as in a container."""
    numbers = [NUMBERS[name] for name in denied]
    done = ran(SCRIPTS["denied"], json.dumps([numbers, NUMBERS["seccomp"], isolation]))
    return json.loads(done.stdout)


@pytest.mark.parametrize("lacks", [("unshare",), ("unshare", "landlock")])
def test_the_best_tier_that_is_left_is_taken(any_jail, lacks):
    isolation, reasons, output = on_a_machine(lacks)
    if isolation == "sealed" and len(lacks) == 1:
        pytest.skip("this machine has no Landlock")
    assert (isolation, output) == (TIERS[len(lacks)], "42\n")
    assert list(reasons) == list(TIERS[: len(lacks)])
    assert "unshare" in reasons["namespaces"]


@pytest.mark.parametrize(
    ("lacks", "isolation", "told"),
    [
        (
            ("unshare", "landlock", "seccomp"),
            "auto",
            [*(f"{tier}: " for tier in TIERS), "pettingllms doctor"],
        ),
        (("memfd_create",), "auto", ["no memfd_create here", "seccomp profile"]),
        (("unshare", "landlock"), "namespaces", ["isolation='namespaces'"]),
        (("unshare", "landlock"), "landlock", ["isolation='landlock'"]),
    ],
)
def test_nothing_is_lowered_in_silence(any_jail, lacks, isolation, told):
    found, _, message = on_a_machine(lacks, isolation)
    assert found is None
    assert all(text in message for text in told), message


def test_a_python_without_memory_files(monkeypatch):
    monkeypatch.delattr(os, "memfd_create")
    with pytest.raises(SandboxError, match=r"no memfd_create here.*Use Linux 3\.17"):
        Sandbox(workers=1).run("print(1)")
    assert all("no memfd_create here" in report.reason for report in probe())


def test_a_root_that_is_alone_in_its_namespace():
    done = ran(SCRIPTS["alone"])
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
