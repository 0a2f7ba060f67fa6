"""Setting a fork server up: import modules, lock the process up, and report the result."""

from __future__ import annotations

import base64
import contextlib
import os
import resource
import signal
import socket
import sys
import threading
from typing import Any, NoReturn

from . import (
    child,
    kernel,
    landlock,
    mappings,
    modules,
    namespaces,
    pairs,
    program,
    rehearsal,
    warm,
)

_STACK_BYTES = 64 << 20
_THREAD_STACK_BYTES = 8 << 20
"""What a thread gets on most machines. Without this, it would depend on `ulimit -s` of the host,
and with an unlimited or large one a few threads would use up a program's memory limit."""


def _wait_for(inner: int, parent: socket.socket) -> NoReturn:
    """Outer half of a server with a pid namespace: live as long as the inner half, no longer."""
    parent.close()
    _, status = os.waitpid(inner, 0)
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


def _prefer_us_when_memory_runs_out() -> None:
    """Tell the kernel to end a program of ours rather than the trainer."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("500")


def _virtual_memory_bytes() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[0]) * resource.getpagesize()


def _set_limits() -> None:
    for kind in (resource.RLIMIT_CORE, resource.RLIMIT_MEMLOCK, resource.RLIMIT_MSGQUEUE):
        resource.setrlimit(kind, (0, 0))
    # The stack is counted as memory; programs may raise this limit as they do elsewhere.
    soft = min(_STACK_BYTES, _hard_limit(resource.RLIMIT_STACK))
    resource.setrlimit(resource.RLIMIT_STACK, (soft, resource.getrlimit(resource.RLIMIT_STACK)[1]))


def _hard_limit(kind: int) -> int:
    _, hard = resource.getrlimit(kind)
    return sys.maxsize if hard == resource.RLIM_INFINITY else hard


def _enter_namespaces(config: dict[str, Any], parent: socket.socket) -> int:
    namespaces.enter(config["jail_uid"], config["numbers"]["pivot_root"])
    # A new pid namespace begins with the next child: this process stays outside of it.
    inner = os.fork()
    if inner:
        _wait_for(inner, parent)
    # Otherwise the inner half would outlive an outer one that is killed.
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    return os.pidfd_open(os.getpid())


def _use_memory_files_as_standard_streams() -> None:
    """Children get files of this kind, so stream objects made for these fit those."""
    for descriptor in (0, 1):
        file = os.memfd_create("empty", os.MFD_CLOEXEC)
        os.dup2(file, descriptor, inheritable=False)
        os.close(file)


def _has_fstat(strict: kernel.Filter) -> bool:
    """Whether the C library can ask about an open file under a filter that allows fstat(2) only."""
    pid = os.fork()
    if pid == 0:
        try:
            strict.load()
            os.fstat(0)
        except OSError:
            os._exit(1)
        os._exit(0)
    return os.waitpid(pid, 0)[1] == 0


def _prepare_interpreter(config: dict[str, Any], library: int) -> None:
    """Import what programs import, and make the interpreter what they expect."""
    _prefer_us_when_memory_runs_out()
    # Imports come first of all: later there are no files.
    finder = modules.install(library)
    modules.preload(finder, config["packages"], config["versions"])
    if warm_up := warm.WARM_UPS.get(config["flavour"]):
        warm_up()
    _use_memory_files_as_standard_streams()
    program.prepare()
    pairs.install()
    threading.stack_size(_THREAD_STACK_BYTES)
    # Last: every mapping there is by now is copied into each child.
    mappings.merge()
    modules.settle(finder)


def set_up(
    config: dict[str, Any], library: int, parent: socket.socket
) -> tuple[child.Locks, int, dict[str, Any]]:
    """Import what programs import, and lock this process up as far as forking allows.

    Args:
        config: As `isolation.server_config` makes it.
        library: Memory file with everything that can be imported.
        parent: The socket; the outer half of a server with a pid namespace closes its own.

    Returns:
        What children lock up with; a descriptor of this process, by which it finds its pid
        namespace again, or -1; and facts about the locks.

    Raises:
        OSError: The machine does not offer what is needed.
        ImportError: A package of the flavour cannot be imported.
    """
    _prepare_interpreter(config, library)
    # The limit of a program is on top of this: the server's own memory is not its fault.
    base_memory_bytes = _virtual_memory_bytes()
    own_pids = -1
    hides_files = True
    if config["namespaces"]:
        own_pids = _enter_namespaces(config, parent)
    else:
        hides_files = namespaces.hide_files()
        if config["jail_uid"] is not None:
            namespaces.become(config["jail_uid"])
        kernel.keep_no_capabilities(config["numbers"]["capset"])
    # From here nothing can be gained back, as a filter of an unprivileged process requires.
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
    _set_limits()
    numbers = config["numbers"]
    strict, usual = config["filters"]
    has_fstat = _has_fstat(kernel.Filter(numbers["seccomp"], base64.b64decode(strict[0])))
    code, pid_offsets = strict if has_fstat else usual
    facts = {
        "landlock": landlock.deny_files() if config["landlock"] else 0,
        "hides_files": hides_files or has_fstat,
        "uid": os.getuid(),
        "max_open_files": min(config["max_open_files"], _hard_limit(resource.RLIMIT_NOFILE)),
    }
    locks = child.Locks(
        kernel.Filter(numbers["seccomp"], base64.b64decode(code)),
        tuple(pid_offsets),
        numbers["capset"],
        base_memory_bytes,
        (*map(_hard_limit, child.LIMITED[:-1]), facts["max_open_files"]),
        0 if own_pids >= 0 else os.getpid(),
    )
    # A machine on which a usual program dies of the locks is found now, not in a reward.
    rehearsal.rehearse(locks)
    return locks, own_pids, facts
