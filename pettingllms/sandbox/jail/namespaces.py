"""Tier A: new namespaces and a root in which there is nothing; and roots for tiers B and C."""

from __future__ import annotations

import os
import socket

from . import kernel

_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC = 1, 2, 4, 8
_MS_REC, _MS_PRIVATE = 16384, 1 << 18
_MNT_DETACH = 2
_STAGES = ("/tmp", "/var/tmp", "/mnt", "/run")

_HOST_NAME = "jail"

_SYSTEM = (
    kernel.CLONE_NEWNS
    | kernel.CLONE_NEWNET
    | kernel.CLONE_NEWIPC
    | kernel.CLONE_NEWUTS
    | kernel.CLONE_NEWCGROUP
)


def _write_map(process: int, name: str, text: str) -> None:
    descriptor = os.open(name, os.O_WRONLY | os.O_CLOEXEC, dir_fd=process)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def _map_own_ids(process: int, uid: int, gid: int) -> None:
    # The kernel lets an unprivileged process map its group only after this.
    _write_map(process, "setgroups", "deny")
    _write_map(process, "uid_map", f"{uid} {uid} 1")
    _write_map(process, "gid_map", f"{gid} {gid} 1")


def _empty_root(pivot_root_number: int) -> None:
    """Make an empty read-only tmpfs the root, and forget the old one."""
    # Private, or the host would see what is mounted here.
    kernel.mount("none", "/", "", _MS_REC | _MS_PRIVATE)
    stage = next(path for path in _STAGES if os.path.isdir(path))
    flags = _MS_RDONLY | _MS_NOSUID | _MS_NODEV | _MS_NOEXEC
    kernel.mount("jail", stage, "tmpfs", flags, "size=4k,nr_inodes=2,mode=755")
    os.chdir(stage)
    kernel.syscall(pivot_root_number, b".\0", b".\0")
    # Detached: it is busy, since this very process was started from it.
    kernel.umount(".", _MNT_DETACH)
    os.chdir("/")


def enter(jail_uid: int | None, pivot_root_number: int) -> None:
    """Move this process into new namespaces and its next child to pid 1 of a new pid namespace.

    Root mounts first, becomes `jail_uid`, and only then enters a user namespace, so that no
    process of the jail is the kernel's uid 0. An ordinary user enters everything at once.

    Args:
        jail_uid: What root becomes; None for an ordinary user, who stays the same.
        pivot_root_number: Number of pivot_root(2).

    Raises:
        OSError: The machine does not allow it.
    """
    process = os.open("/proc/self", os.O_RDONLY | os.O_CLOEXEC)
    try:
        if jail_uid is None:
            uid, gid = os.getuid(), os.getgid()
            kernel.unshare(_SYSTEM | kernel.CLONE_NEWUSER | kernel.CLONE_NEWPID)
            _map_own_ids(process, uid, gid)
            socket.sethostname(_HOST_NAME)
            _empty_root(pivot_root_number)
        else:
            kernel.unshare(_SYSTEM)
            socket.sethostname(_HOST_NAME)
            _empty_root(pivot_root_number)
            become(jail_uid)
            kernel.unshare(kernel.CLONE_NEWUSER | kernel.CLONE_NEWPID)
            _map_own_ids(process, jail_uid, jail_uid)
    finally:
        os.close(process)


def become(uid: int) -> None:
    """Change from root to the unprivileged `uid`, with the group of the same number only."""
    # Groups before the user: afterwards they could not be given up any more.
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    # Changing ids made /proc/self root's, and with it the id maps.
    kernel.prctl(kernel.PR_SET_DUMPABLE, 1)


def hide_files() -> bool:
    """Make a folder that does not exist any more the root, in tiers without a mount namespace.

    Nothing can be found in such a folder and nothing can be made in it. Root may change its root;
    an ordinary user may in a user namespace, where the machine allows one. This matters because the
    filter cannot tell `fstat` from a look at a path (see `filter.py`).

    Returns:
        Whether it was possible.
    """
    try:
        if os.geteuid() != 0:
            process = os.open("/proc/self", os.O_RDONLY | os.O_CLOEXEC)
            try:
                uid, gid = os.getuid(), os.getgid()
                kernel.unshare(kernel.CLONE_NEWUSER)
                _map_own_ids(process, uid, gid)
            finally:
                os.close(process)
        stage = next(path for path in _STAGES if os.access(path, os.W_OK))
        above = os.open(stage, os.O_PATH | os.O_CLOEXEC)
        name = f"pettingllms-jail-{os.getpid()}"
        os.mkdir(name, 0o700, dir_fd=above)
        try:
            os.chroot(os.path.join(stage, name))
            os.chdir("/")
        finally:
            os.rmdir(name, dir_fd=above)
            os.close(above)
    except (OSError, StopIteration):
        return False
    return True
