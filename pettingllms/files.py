"""Files that a crash leaves old or new, and that no link leads elsewhere.

A folder may be a stranger's, and links survive copying: what is written into it must not end up in
a file outside.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from pettingllms.errors import InvalidArgument

PARTIAL = ".partial"
"""Suffix of what is being written; a crash may leave such names behind."""


@contextmanager
def whole_file(path: Path, mode: str = "w", *, is_durable: bool = True) -> Generator[IO[Any]]:
    """Write a file beside its place and move it there: a reader sees the old or the new one.

    Args:
        path: The file; a link in its place is replaced, and what it leads to stays.
        mode: `"w"` for text (UTF-8), `"wb"` for bytes.
        is_durable: Whether it is on the disk at the end, whatever happens to the machine.
    """
    partial = path.with_name(f".{path.name}{PARTIAL}")
    partial.unlink(missing_ok=True)
    encoding = None if "b" in mode else "utf-8"
    try:
        # "x": a file that is not there yet, not even as a link.
        with partial.open(mode.replace("w", "x"), encoding=encoding) as file:
            yield file
            file.flush()
            if is_durable:
                os.fsync(file.fileno())
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    if is_durable:
        fsync_path(path.parent)


def write_whole(path: Path, text: str, *, is_durable: bool = True) -> None:
    """Write a text file; see `whole_file`."""
    with whole_file(path, is_durable=is_durable) as file:
        file.write(text)


def open_to_append(path: Path) -> IO[bytes]:
    """Open a file for appending, which is made if need be.

    Raises:
        InvalidArgument: It is a link.
    """
    if path.is_symlink():
        raise InvalidArgument(
            "file", str(path), "a file", "It is a link, which may lead anywhere: remove it."
        )
    return path.open("ab")


def fsync_path(path: Path) -> None:
    """Make a file, or the names in a directory, durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
