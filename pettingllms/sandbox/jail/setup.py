"""Setting a fork server up: import, shut oneself in, and say what it came to."""

from __future__ import annotations

import base64
import contextlib
import os
import resource
import signal
import socket
from typing import Any, NoReturn

from . import child, kernel, landlock, modules, namespaces, program, warm


def _wait_for(inner: int, parent: socket.socket) -> NoReturn:
    """Outer half of a server with a pid namespace: live as long as the inner half, no longer."""
    parent.close()
    _, status = os.waitpid(inner, 0)
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


def _become_jail_user(uid: int, readable: list[str], capset_number: int) -> bool:
    """Leave root. Returns whether files still have to be read as their owner root would."""
    keeps_files = not _readable_by(uid, readable)
    kernel.prctl(kernel.PR_SET_KEEPCAPS, keeps_files)
    namespaces.become(uid)
    if keeps_files:
        kernel.keep_capabilities(capset_number, kernel.CAP_SETUID_MASK)
        kernel.set_filesystem_uid(0)
    kernel.keep_capabilities(capset_number, 0)
    return keeps_files


def _readable_by(uid: int, paths: list[str]) -> bool:
    """Whether `uid`, of no group, can read all `paths` (an interpreter may lie under /root)."""
    pid = os.fork()
    if pid == 0:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
        os._exit(0 if all(os.access(path, os.R_OK) for path in paths) else 1)
    return os.waitpid(pid, 0)[1] == 0


def _prefer_us_when_memory_runs_out() -> None:
    """Tell the kernel to end a program of ours rather than the trainer."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("500")


def _virtual_memory_bytes() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[0]) * resource.getpagesize()


def _enter_namespaces(config: dict[str, Any], readable: list[str], parent: socket.socket) -> int:
    namespaces.enter(readable, config["jail_uid"], config["numbers"]["pivot_root"])
    inner = os.fork()
    if inner:
        _wait_for(inner, parent)
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    return os.pidfd_open(os.getpid())


def _use_memory_files_as_standard_streams() -> None:
    """Children get files of this kind, so stream objects made for these fit those."""
    for descriptor in (0, 1):
        file = os.memfd_create("empty", os.MFD_CLOEXEC)
        os.dup2(file, descriptor, inheritable=False)
        os.close(file)


def set_up(
    config: dict[str, Any], parent: socket.socket
) -> tuple[child.Locks, int, dict[str, Any]]:
    """Import what programs import, and lock this process up as far as forking allows.

    Args:
        config: As `isolation.server_config` makes it.
        parent: The socket; the outer half of a server with a pid namespace closes its own.

    Returns:
        What children lock up with; a descriptor of this process, by which it finds its pid
        namespace again, or -1; and facts about the locks.

    Raises:
        OSError: The machine does not offer what is wanted.
        ImportError: A package of the flavour cannot be imported.
    """
    _prefer_us_when_memory_runs_out()
    packages = [(name, folder) for name, folder in config["packages"]]
    modules.install(packages)
    may_read_files = config["may_read_files"]
    modules.preload([name for name, _ in packages], may_read_files=may_read_files)
    if config["warm_up"]:
        warm.science()
    _use_memory_files_as_standard_streams()
    program.prepare()
    modules.settle(may_read_files=may_read_files)
    readable = modules.readable_paths(packages)
    base_memory_bytes = _virtual_memory_bytes()
    facts: dict[str, Any] = {"landlock": 0, "reads_as_root": False, "uid": os.getuid()}
    own_pids = -1
    if config["namespaces"]:
        own_pids = _enter_namespaces(config, readable, parent)
    elif config["jail_uid"] is not None:
        facts["reads_as_root"] = _become_jail_user(
            config["jail_uid"], readable, config["numbers"]["capset"]
        )
    facts["uid"] = os.getuid()
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    for kind in (resource.RLIMIT_CORE, resource.RLIMIT_MEMLOCK, resource.RLIMIT_MSGQUEUE):
        resource.setrlimit(kind, (0, 0))
    if config["landlock"]:
        facts["landlock"] = landlock.restrict(readable)
    locks = child.Locks(
        base64.b64decode(config["filter"]),
        tuple(config["pid_offsets"]),
        config["numbers"]["seccomp"],
        config["numbers"]["capset"],
        base_memory_bytes,
        0 if own_pids >= 0 else os.getpid(),
    )
    return locks, own_pids, facts
