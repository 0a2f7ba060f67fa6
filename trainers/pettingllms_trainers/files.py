"""Directories that a crash leaves old or new; see `pettingllms.files` for files."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import resource
import shutil
from collections.abc import Generator
from pathlib import Path

from pettingllms.files import PARTIAL, fsync_path

# Errors of torch.save and of safetensors that come from a failed write.
_WRITING = re.compile(
    r"inline_container|PytorchStreamWriter|SafetensorError: .*I/O error", re.DOTALL
)
_NUMBER = re.compile(r"os error (\d+)")


def partial_of(final: Path) -> Path:
    """The hidden directory beside a directory in which that is written."""
    return final.with_name(f".{final.name}{PARTIAL}")


@contextlib.contextmanager
def whole_directory(final: Path) -> Generator[Path]:
    """Write a directory so that a crash leaves none of that name or a whole one.

    Args:
        final: Its path; a directory that is there is replaced.

    Yields:
        An empty hidden directory beside it to write into, which is moved there at the end of the
        context, and removed after an error.
    """
    partial, old = partial_of(final), partial_of(final.with_name(f"{final.name}.old"))
    for leftover in (partial, old):
        if leftover.exists():
            shutil.rmtree(leftover)
    partial.mkdir(parents=True)
    try:
        yield partial
        # The move may reach the disk before the bytes do; then a crash leaves empty files.
        for path in (*partial.rglob("*"), partial):
            fsync_path(path)
    except BaseException as error:
        number = _disk_error(error, partial)
        shutil.rmtree(partial, ignore_errors=True)
        if number is not None:
            raise OSError(number, os.strerror(number), str(final)) from error
        raise
    if final.exists():
        os.replace(final, old)  # a directory can only be moved to where none or an empty one is
    os.replace(partial, final)
    fsync_path(final.parent)
    shutil.rmtree(old, ignore_errors=True)


def _disk_error(error: BaseException, directory: Path) -> int | None:
    """Number of the system's error behind one of a library; None for another.

    Neither torch nor safetensors raises `OSError` when it cannot write.
    """
    text = str(error)
    if isinstance(error, OSError) or not _WRITING.search(f"{type(error).__name__}: {text}"):
        return None
    if found := _NUMBER.search(text):
        return int(found[1])
    try:
        # The library hides the number: whether the disk is full shows in another write.
        (directory / "probe").write_bytes(bytes(1 << 16))
    except OSError as probed:
        return probed.errno
    # The probe fits: either room has been made since, or one file alone was too long.
    is_limited = resource.getrlimit(resource.RLIMIT_FSIZE)[0] != resource.RLIM_INFINITY
    return errno.EFBIG if is_limited else errno.ENOSPC
