"""Files that a crash leaves old or new, or whole up to a line, and that no link leads elsewhere.

A folder may be a stranger's, and links survive copying: what is written into it must not end up in
a file outside.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, TypeVar

from pettingllms.errors import InvalidArgument, RunFolderError

EntryT = TypeVar("EntryT")

PARTIAL = ".partial"
"""Suffix of what is being written; a crash may leave such names behind."""
_logger = logging.getLogger(__name__)


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


def open_to_append(path: Path, *, is_of_lines: bool = True) -> IO[bytes]:
    """Open a file for appending, which is created if need be.

    Args:
        path: The file.
        is_of_lines: Whether an unfinished last line, of a process that was stopped while it wrote,
            is cut off, which is logged.

    Raises:
        InvalidArgument: The path is a link.
    """
    if path.is_symlink():
        raise InvalidArgument(
            "file", str(path), "a file", "It is a link, which may lead anywhere: remove it."
        )
    file = path.open("a+b")
    if is_of_lines and (size := file.seek(0, os.SEEK_END)):
        # One byte tells: the whole file, which may be large, is read only after a crash.
        file.seek(size - 1)
        if file.read(1) != b"\n":
            file.seek(0)
            whole = file.read().rfind(b"\n") + 1
            _logger.warning("%s: dropping an unfinished last line (%d bytes)", path, size - whole)
            file.truncate(whole)
    return file


def iter_lines(
    path: Path, read: Callable[[Any], EntryT] = lambda value: value, hint: str = ""
) -> Iterator[EntryT]:
    """Yield the entries of a file of JSON lines; none if there is no file.

    An unfinished last line, which is being written or was when the process stopped, is left out.

    Args:
        path: The file.
        read: Makes an entry of the JSON value of a line; may raise ValueError, KeyError, TypeError.
        hint: What to do about a damaged line, for the error.

    Raises:
        RunFolderError: If a whole line is damaged.
    """
    if not path.is_file():
        return
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                return
            try:
                entry = read(json.loads(line))
            except (ValueError, KeyError, TypeError) as error:
                raise RunFolderError(
                    f"{path}, line {number} is damaged ({type(error).__name__}: {error}). {hint}"
                ) from error
            yield entry


def read_lines(path: Path) -> list[Any]:
    """Read a file of JSON lines at once; see `iter_lines`."""
    return list(iter_lines(path))


def fsync_path(path: Path) -> None:
    """Make a file, or the names in a directory, durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
