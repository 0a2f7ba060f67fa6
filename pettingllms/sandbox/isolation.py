"""The tiers of isolation: what each consists of, and how its servers are started.

Before anything runs in a jail, a canary in it shows that it holds.
"""

from __future__ import annotations

import base64
import enum
import itertools
import logging
import os
import sys
from pathlib import Path
from typing import Any

from pettingllms.errors import SandboxError
from pettingllms.sandbox.filter import build_filter, syscall_numbers
from pettingllms.sandbox.library import FLAVOURS, archive, versions_of
from pettingllms.sandbox.outcome import MAX_OPEN_FILES, Limits, Status
from pettingllms.sandbox.pool import Pool
from pettingllms.sandbox.worker import ExecutionRequest, Worker


class Tier(enum.StrEnum):
    """How a program is shut in, strongest first."""

    NAMESPACES = "namespaces"
    """Tier A: namespaces, a root with nothing in it, pid 1 of its own pid namespace; and B's."""
    LANDLOCK = "landlock"
    """Tier B: Landlock without access to any file; and C's."""
    SEALED = "sealed"
    """Tier C: the system-call filter, resource limits, no capabilities, an unprivileged user."""
    UNSAFE = "unsafe"
    """No jail at all: another process with resource limits. Never chosen automatically."""


JAILS = (Tier.NAMESPACES, Tier.LANDLOCK, Tier.SEALED)

_FIRST_JAIL_UID, _NUM_JAIL_UIDS = 61184, 4335  # the range that systemd keeps for dynamic users

_PROCESS = Path("/proc/self")

NOT_COVERED: tuple[str, ...] = (
    "bugs of the kernel in the calls that are allowed (adversarial training belongs in a VM)",
    "timing and cache side channels",
    "use of the processor and memory up to the limits",
)
FILES_NOT_HIDDEN = (
    "existence, size, owner and times of files of the host (this user may not change its root)"
)

STARVATION_NOT_SEEN = (
    "time-outs of a busy machine (this kernel does not say how long a program waited)"
)

LOOKS_UP_FILES = "look files up by path"
"""What the canary prints where the root could not be hidden (see `jail.namespaces.hide_files`)."""

# Each name is printed if what it names was possible. In a whole jail nothing is printed but "end".
CANARY = f"""
import ctypes, os, socket, sys, threading

def possible(name, action, *arguments):
    try:
        action(*arguments)
    except OSError:
        return
    print(name)

possible("read a file of the host", open, "/etc/passwd")
possible("look a file of the host up", os.stat, "/etc/passwd")
possible("get a handle on a file of the host", os.open, "/etc/passwd", os.O_PATH)
possible("list the host's root", os.listdir, "/")
possible("see processes", os.listdir, "/proc")
possible("write a file", open, "/tmp/canary", "w")
possible("write a device", open, "/dev/null", "w")
possible("make a socket", socket.socket)
possible("signal its parent", os.kill, os.getppid(), 0)
possible("signal everyone", os.kill, -1, 0)
possible("become root", os.setuid, 0)
if hasattr(os, "fork"):
    try:
        if os.fork() == 0:
            os._exit(0)
        print("fork")
    except OSError:
        pass
for descriptor in range(3, 64):
    possible("use an inherited descriptor", os.fstat, descriptor)
if 0 in (os.getuid(), os.geteuid()):
    print("be root")
newfstatat, statx = map(int, input().split())
libc, buffer = ctypes.CDLL(None), ctypes.create_string_buffer(512)
for path in (b"/etc/passwd", b"/proc/self", b"/usr", os.fsencode(os.__file__)):
    if not libc.syscall(newfstatat, -100, path, buffer, 0x1000):
        print({LOOKS_UP_FILES!r})
        break
if not libc.syscall(statx, -100, b"/usr", 0x1000, 0xFFF, buffer):
    print("look up a file with statx")
if set(os.environ) - {{"LC_ALL", "MALLOC_ARENA_MAX", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS",
                      "PATH", "PYTHONHASHSEED", "TZ", "LD_LIBRARY_PATH", "LC_CTYPE"}}:
    print("see the environment")
threading.Thread(target=lambda: None).start()
print("end")
"""


def check_platform() -> None:
    """Refuse where there is no jail.

    Raises:
        SandboxError: This is not Linux, it has no memory files, or root cannot become anyone else.
    """
    if sys.platform != "linux":
        raise SandboxError(
            f"model-written code can be jailed on Linux only; this is {sys.platform!r}. Run in a "
            "Linux container, in WSL 2 or in a virtual machine (the default settings of Docker "
            "are enough)."
        )
    _check_memory_files()
    if os.geteuid() == 0:
        _check_that_root_can_become_another()


def _check_memory_files() -> None:
    try:
        os.close(os.memfd_create("probe", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING))
    except (AttributeError, OSError) as error:  # a Python without it, or a machine that refuses it
        raise SandboxError(
            f"programs are handed over in memory files, and there is no memfd_create here: {error}."
            " Use Linux 3.17 or later with a Python that was built for glibc 2.27 or later or musl "
            "1.1.20 or later, such as those of python.org's images; in a container, allow the call "
            "memfd_create in its seccomp profile."
        ) from error


def _check_that_root_can_become_another() -> None:
    """Refuse where root is alone in its user namespace: no program is run as root."""
    can_drop_groups = _read(_PROCESS / "setgroups").strip() != "deny"
    maps = {name: _read(_PROCESS / name) for name in ("uid_map", "gid_map")}
    if can_drop_groups and all(_maps_jail_uids(text) for text in maps.values()):
        return
    given = "; ".join(f"{name}: {' '.join(text.split())}" for name, text in maps.items())
    last = _FIRST_JAIL_UID + _NUM_JAIL_UIDS - 1
    raise SandboxError(
        "no program runs as root, and the root of this user namespace can become none of the users "
        f"{_FIRST_JAIL_UID} to {last} ({given}). Run as an ordinary user (`--user 1000` of docker "
        "and podman), or give the container 65,536 ids: a range for you in /etc/subuid and "
        "/etc/subgid, as rootless docker and podman ask for."
    )


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:  # a kernel without user namespaces
        return ""


def _maps_jail_uids(text: str) -> bool:
    """Whether an id map covers the users of jails; without a map there is nothing in the way."""
    ranges = [tuple(map(int, line.split())) for line in text.splitlines()]
    last = _FIRST_JAIL_UID + _NUM_JAIL_UIDS - 1
    return not ranges or any(
        first <= _FIRST_JAIL_UID and last < first + count for first, _, count in ranges
    )


def jail_uid(seed: int) -> int | None:
    """The user that root becomes in the jail; None for an ordinary user, who stays the same."""
    return _FIRST_JAIL_UID + seed % _NUM_JAIL_UIDS if os.geteuid() == 0 else None


def server_config(
    tier: Tier, flavour: str, slots: int, uid: int | None, open_files: int
) -> dict[str, Any]:
    """The first message to a fork server (see `jail.server`)."""
    programs = [build_filter(has_fstat=has_fstat) for has_fstat in (True, False)]
    numbers = syscall_numbers()
    return {
        "namespaces": tier is Tier.NAMESPACES,
        "landlock": tier in (Tier.NAMESPACES, Tier.LANDLOCK),
        "jail_uid": uid,
        "packages": FLAVOURS[flavour],
        "versions": versions_of(flavour),
        "flavour": flavour,
        # The stricter one first; the server takes it if its C library can do with it.
        "filters": [(base64.b64encode(code).decode(), pids) for code, pids in programs],
        "numbers": {name: numbers[name] for name in ("pivot_root", "capset", "seccomp", "exit")},
        "slots": slots,
        "max_open_files": open_files,
    }


_MAX_SERVERS = 16
_PIPE_BUDGET = Path("/proc/sys/fs/pipe-user-pages-soft")
_PAGES_PER_PIPE = 16
_CALLERS_SHARE = 4
_logger = logging.getLogger(__name__)
_instances = itertools.count()


def open_jail(tier: Tier, flavour: str, workers: int) -> Pool:
    """Start a pool of one tier and show by a canary that it holds.

    Raises:
        SandboxError: The machine does not offer the tier, or the canary got out.
    """
    uid = jail_uid(os.getpid() * 31 + next(_instances))
    num_servers = min(workers, _MAX_SERVERS)
    slots = -(-workers // num_servers)
    config = server_config(tier, flavour, slots, uid, open_files_of(workers))
    library = archive(flavour)
    pool = Pool(lambda: Worker(config, library), num_servers, slots)
    try:
        _check_canary(pool, tier)
    except BaseException:
        pool.close()
        raise
    return pool


def open_files_of(workers: int) -> int:
    """How many descriptors each of so many runs may have.

    The kernel counts the pages of all pipes of a user; beyond a budget, every further pipe of that
    user holds two pages instead of 16, whoever makes it. All runs together stay below it, with a
    quarter left for the caller.
    """
    try:
        pages = int(_PIPE_BUDGET.read_text())
    except (OSError, ValueError):
        pages = 16_384  # the kernel's own choice
    if not pages:
        return MAX_OPEN_FILES
    pipes = (pages - pages // _CALLERS_SHARE) // _PAGES_PER_PIPE // workers
    # Besides them the standard streams, and the file of a called function.
    number = min(MAX_OPEN_FILES, 2 * pipes + 4)
    if number < Limits().max_open_files:
        _logger.warning(
            "each of workers=%d can open %d descriptors only, so that their pipes do not use up "
            "the budget of this user. Raise fs.pipe-user-pages-soft (now %d) for more.",
            *(workers, number, pages),
        )
    return number


def _check_canary(pool: Pool, tier: Tier) -> None:
    numbers = syscall_numbers()
    stdin = f"{numbers['newfstatat']} {numbers['statx']}".encode()
    result, _ = pool.submit(ExecutionRequest(CANARY.encode(), stdin, Limits())).result()
    if result.status is not Status.OK:
        last_line = result.stderr.strip().rpartition("\n")[2]
        raise SandboxError(f"a canary in the jail ended with {result.status}: {last_line}")
    *possible, end = result.stdout.splitlines()
    if not pool.facts["hides_files"]:
        possible = [name for name in possible if name != LOOKS_UP_FILES]
    if possible or end != "end":
        raise SandboxError(f"the jail {tier!s} does not hold; in it one can {', '.join(possible)}")
