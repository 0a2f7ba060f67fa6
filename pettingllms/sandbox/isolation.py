"""The tiers of isolation: what each consists of, and a canary that shows that it holds."""

from __future__ import annotations

import base64
import enum
import importlib.util
import os
import sys
from typing import Any

from pettingllms.errors import InvalidArgument, MissingDependency, SandboxError
from pettingllms.sandbox.filter import build_filter
from pettingllms.sandbox.syscalls import syscall_numbers


class Tier(enum.StrEnum):
    """How a program is shut in, strongest first."""

    NAMESPACES = "namespaces"
    """Tier A: a root with nothing in it but Python, pid 1 of its own pid namespace; and B's."""
    LANDLOCK = "landlock"
    """Tier B: Landlock, the system-call filter, resource limits, an unprivileged user."""
    SEALED = "sealed"
    """Tier C: the filter without `open`; what is not imported already cannot be imported."""
    UNSAFE = "unsafe"
    """No jail at all: another process with resource limits. Never chosen automatically."""


JAILS = (Tier.NAMESPACES, Tier.LANDLOCK, Tier.SEALED)

_FLAVOURS: dict[str, tuple[str, ...]] = {
    "lean": (),
    "science": ("numpy", "mpmath", "sympy"),
}
_FIRST_JAIL_UID, _NUM_JAIL_UIDS = 61184, 4335  # the range that systemd keeps for dynamic users

NOT_COVERED = (
    "bugs of the kernel in the calls that are allowed (adversarial training belongs in a VM)",
    "timing and cache side channels",
    "use of the processor and memory up to the limits",
)

# Each name is printed if what it names was possible. In a whole jail nothing is printed but "end".
CANARY = """
import os, socket, sys, threading

def possible(name, action, *arguments):
    try:
        action(*arguments)
    except OSError:
        return
    print(name)

possible("read a file of the host", open, "/etc/passwd")
possible("look a file of the host up", os.stat, "/etc/passwd")
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
if set(os.environ) - {"LC_ALL", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "PATH",
                      "PYTHONHASHSEED", "TZ", "LD_LIBRARY_PATH", "LC_CTYPE"}:
    print("see the environment")
threading.Thread(target=lambda: None).start()
print("end")
"""


def packages_of(flavour: str) -> list[tuple[str, str]]:
    """Names and folders of the packages of a flavour.

    Raises:
        InvalidArgument: There is no such flavour.
        MissingDependency: One of its packages is not installed.
    """
    if flavour not in _FLAVOURS:
        raise InvalidArgument("flavour", flavour, " or ".join(map(repr, _FLAVOURS)))
    found: list[tuple[str, str]] = []
    for name in _FLAVOURS[flavour]:
        spec = importlib.util.find_spec(name)
        if spec is None or not spec.submodule_search_locations:
            raise MissingDependency(f"the sandbox flavour {flavour!r}", name, "math")
        found.append((name, os.path.abspath(spec.submodule_search_locations[0])))
    return found


def check_platform() -> None:
    """Refuse where there is no jail.

    Raises:
        SandboxError: This is not Linux.
    """
    if sys.platform != "linux":
        raise SandboxError(
            f"model-written code can be jailed on Linux only; this is {sys.platform!r}. Run in a "
            "Linux container, in WSL 2 or in a virtual machine (the default settings of Docker "
            "are enough)."
        )


def jail_uid(seed: int) -> int | None:
    """The user that root becomes in the jail; None for an ordinary user, who stays who he is."""
    return _FIRST_JAIL_UID + seed % _NUM_JAIL_UIDS if os.geteuid() == 0 else None


def server_config(tier: Tier, flavour: str, slots: int, uid: int | None) -> dict[str, Any]:
    """The first message to a fork server (see `jail.server`)."""
    may_read_files = tier is not Tier.SEALED
    program = build_filter(may_read_files=may_read_files)
    numbers = syscall_numbers()
    return {
        "namespaces": tier is Tier.NAMESPACES,
        "landlock": tier in (Tier.NAMESPACES, Tier.LANDLOCK),
        "may_read_files": may_read_files,
        "jail_uid": uid,
        "packages": packages_of(flavour),
        "warm_up": flavour == "science",
        "filter": base64.b64encode(program.code).decode(),
        "pid_offsets": program.pid_offsets,
        "numbers": {name: numbers[name] for name in ("pivot_root", "capset", "seccomp")},
        "slots": slots,
    }
