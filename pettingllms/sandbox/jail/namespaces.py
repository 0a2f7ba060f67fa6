"""Tier A: new namespaces and a root that holds the readable folders and nothing else."""

from __future__ import annotations

import os
import socket
import struct

from . import kernel

_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC = 1, 2, 4, 8
_MS_REMOUNT, _MS_BIND, _MS_REC, _MS_PRIVATE = 32, 4096, 16384, 1 << 18
_MNT_DETACH = 2
_MOUNT_SETATTR = 442
_AT_RECURSIVE = 0x8000
_ATTR_RDONLY_NOSUID_NODEV = 1 | 2 | 4
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
    _write_map(process, "setgroups", "deny")
    _write_map(process, "uid_map", f"{uid} {uid} 1")
    _write_map(process, "gid_map", f"{gid} {gid} 1")


def _bind(source: int, target: str, is_folder: bool) -> None:
    os.makedirs(target if is_folder else os.path.dirname(target), mode=0o755, exist_ok=True)
    if not is_folder:
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
    kernel.mount(f"/proc/self/fd/{source}", target, "", _MS_BIND | _MS_REC)
    attributes = struct.pack("=QQQQ", _ATTR_RDONLY_NOSUID_NODEV, 0, 0, 0)
    kernel.syscall(_MOUNT_SETATTR, -100, os.fsencode(target) + b"\0", _AT_RECURSIVE, attributes, 32)


def _new_root(readable: list[str], pivot_root_number: int) -> None:
    """Make a tmpfs with read-only binds of `readable` the root, and forget the old one."""
    kernel.mount("none", "/", "", _MS_REC | _MS_PRIVATE)
    # Opened before the tmpfs covers the stage: an interpreter may well live under /tmp.
    sources = [(path, os.open(path, os.O_PATH | os.O_CLOEXEC)) for path in readable]
    stage = next(path for path in _STAGES if os.path.isdir(path))
    flags = _MS_NOSUID | _MS_NODEV | _MS_NOEXEC
    kernel.mount("jail", stage, "tmpfs", flags, "size=1m,nr_inodes=4096,mode=755")
    for path, source in sources:
        _bind(source, stage + path, os.path.isdir(path))
        os.close(source)
    os.chdir(stage)
    kernel.syscall(pivot_root_number, b".\0", b".\0")
    kernel.umount(".", _MNT_DETACH)
    os.chdir("/")
    kernel.mount("none", "/", "", _MS_REMOUNT | _MS_BIND | _MS_RDONLY | flags)


def enter(readable: list[str], jail_uid: int | None, pivot_root_number: int) -> None:
    """Move this process into new namespaces and its next child to pid 1 of a new pid namespace.

    Root mounts first, becomes `jail_uid`, and only then enters a user namespace, so that no
    process of the jail is the kernel's uid 0. An ordinary user enters everything at once.

    Args:
        readable: Absolute paths that the new root shows, read-only.
        jail_uid: What root becomes; None for an ordinary user, who stays who he is.
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
            _new_root(readable, pivot_root_number)
        else:
            kernel.unshare(_SYSTEM)
            socket.sethostname(_HOST_NAME)
            _new_root(readable, pivot_root_number)
            become(jail_uid)
            kernel.unshare(kernel.CLONE_NEWUSER | kernel.CLONE_NEWPID)
            _map_own_ids(process, jail_uid, jail_uid)
    finally:
        os.close(process)


def become(uid: int) -> None:
    """Change from root to the unprivileged `uid`, with the group of the same number only."""
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    # Changing ids made /proc/self root's, and with it the id maps.
    kernel.prctl(kernel.PR_SET_DUMPABLE, 1)
