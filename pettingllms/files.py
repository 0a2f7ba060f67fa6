"""Files that a crash leaves old or new, or whole up to a line, and that no link leads elsewhere.

A folder may be a stranger's, and links survive copying: what is written into it must not end up in
a file outside.
"""

from __future__ import annotations

import errno
import json
import logging
import math
import os
import shlex
import socket
import sys
import tomllib
import zlib
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import IO, Any, TypeVar

from filelock import FileLock, Timeout

from pettingllms.errors import InvalidArgument, RunFolderError, counted, data_problem

EntryT = TypeVar("EntryT")

PARTIAL = ".partial"
"""Suffix of what is being written; a crash may leave such names behind."""
LOCK = ".lock"
"""Name of the file by which a process holds a folder; see `owned`."""
# A lock that is removed at this moment is not a refusal: another attempt finds the folder free.
_PATIENCE_S = 0.5
_NO_LOCKS = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK)
_logger = logging.getLogger(__name__)


def packaged_text(package: str, name: str) -> str:
    """The content of a file that comes with a package."""
    return resources.files(package).joinpath(name).read_text("utf-8")


def packaged(package: str, name: str = "prompts.toml") -> dict[str, Any]:
    """The tables of a TOML file that comes with a package."""
    return tomllib.loads(packaged_text(package, name))


@contextmanager
def owned(folder: Path) -> Generator[None]:
    """Hold a folder while it is written: one process at a time writes, any number reads.

    The lock is `flock(2)`: the kernel gives it up when the process ends, however it ends. On NFS it
    holds among all machines that mount the folder, unless one mounts it with `nolock` or
    `local_lock`; then it holds on each machine alone. Where a file system has no locks, a warning
    is logged and nobody is kept out.

    Args:
        folder: Made if need be; a new one in which nothing was written is removed again.

    Raises:
        RunFolderError: Another process holds it, or its name is not UTF-8.
        OSError: It cannot be made, or its lock is a link.
    """
    try:
        str(folder).encode()
    except UnicodeEncodeError as error:
        raise RunFolderError(
            f"the name of the folder {str(folder)!r} is not UTF-8, so no file can name it; rename "
            "it, or choose another one"
        ) from error
    made = [one for one in (folder, *folder.parents) if not one.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    path, text = folder / LOCK, json.dumps(_myself())
    lock = FileLock(path, timeout=_PATIENCE_S, thread_local=False, fallback_to_soft=False)
    try:
        lock.acquire()
    except Timeout:
        raise RunFolderError(_in_use(folder)) from None
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        _logger.warning("%s: no locks on this file system; let nobody else write there", folder)
    try:
        # Not opened as a link, and not replaced: the lock is of this very file.
        with open(path, "w", encoding="utf-8", opener=_as_it_is) as file:
            file.write(text)
        yield
    finally:
        # Removed while it is held, so that nobody loses a lock that was just taken. Only ours:
        # the folder may have been deleted, and another run may have begun in its place.
        with suppress(OSError):
            if path.read_text(encoding="utf-8") == text:
                path.unlink()
            for one in made:
                one.rmdir()
        lock.release()


def _as_it_is(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)


def _myself() -> dict[str, Any]:
    return {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "since": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": shlex.join(sys.argv),
    }


def _in_use(folder: Path) -> str:
    try:
        found = load_json(folder / LOCK)
        who = "process {pid} on {host} since {since}, started as: {command}".format(**found)
    except (OSError, ValueError, LookupError, TypeError):
        who = "a process that has just begun or has just ended"
    # The file may be a stranger's, and a terminal would obey what it cannot print.
    who = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in who)
    return (
        f"{folder} is being written by another process ({who}). Wait for its end or stop it, then "
        "try again, or choose another folder"
    )


_PROBLEMS = {
    errno.ENOSPC: ("the disk is full", "Make room"),
    errno.EDQUOT: ("the quota of the disk is used up", "Make room"),
    errno.EROFS: ("the file system is read-only", "Make it writable"),
    errno.EFBIG: ("a file would be larger than allowed", "Raise the limit (ulimit -f)"),
    errno.EIO: ("the disk has failed to read or write", "Look into the system's log (dmesg)"),
    errno.ENOENT: ("a file or folder is gone", "Leave it where it is while it is in use"),
    errno.EACCES: ("a file or folder may not be used", "Give this user the right to"),
}


def os_problem(error: OSError) -> str:
    """What the system has refused, and what to do about it, as a sentence."""
    what, cure = _PROBLEMS.get(error.errno or 0, ("the system has refused", "See to it"))
    return f"{what} ({error}). {cure} and try again; what was written before is kept: resume it"


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


_SEAL = b', "crc": "%08x"}\n'
_SEAL_LENGTH = len(_SEAL % 0)
_KEY = _SEAL.partition(b"%")[0]


def json_line(value: Mapping[str, Any], *, allow_nan: bool = True) -> bytes:
    """A line of a file of JSON lines whose last key, `crc`, vouches for its other bytes.

    Args:
        value: At least one key and its value.
        allow_nan: Whether numbers may be infinite or NaN, which is not JSON.

    Raises:
        ValueError: A number is not finite and must be.
    """
    # ASCII: model text may hold lone surrogates, and escapes keep them.
    text = json.dumps(value, allow_nan=allow_nan).encode("ascii")[:-1]
    return text + _SEAL % zlib.crc32(text)


def checked_line(line: bytes) -> bytes:
    """The JSON of a line, without the checksum; a line of another writer needs none.

    Raises:
        ValueError: The line has other bytes than were written.
    """
    text, seal = line[:-_SEAL_LENGTH], line[-_SEAL_LENGTH:]
    # A flipped bit in the key must not turn a line of ours into one of another writer.
    if sum((a ^ b).bit_count() for a, b in zip(seal, _KEY, strict=False)) > 2:
        return line
    if seal != _SEAL % zlib.crc32(text):
        raise ValueError("it has other bytes than were written: its checksum differs")
    return text + b"}"


def parse_json(text: str | bytes) -> Any:
    """A JSON value in which every number is finite.

    A number that is not finite, which JSON of other programs cannot express, becomes its text.

    Raises:
        ValueError: If the text is not JSON, or nested too deeply.
    """
    try:
        return json.loads(text, parse_constant=str, parse_float=_finite)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _finite(text: str) -> float | str:
    value = float(text)
    return value if math.isfinite(value) else text


def iter_lines(
    path: Path,
    read: Callable[[Any], EntryT] = lambda value: value,
    hint: str = "",
    on_damage: Callable[[int, str], None] | None = None,
) -> Iterator[EntryT]:
    """Yield the entries of a file of JSON lines; none if there is no file.

    An unfinished last line, which is being written or was when the process stopped, is left out.

    Args:
        path: The file.
        read: Makes an entry of the JSON value of a line; may raise ValueError, KeyError, TypeError.
        hint: What to do about a damaged line, for the error.
        on_damage: Gets the number of a damaged line, from 1, which is then left out, and its
            problem.

    Raises:
        RunFolderError: If a whole line is damaged, and `on_damage` is not given.
    """
    if not path.is_file():
        return
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                return
            try:
                entry = read(json.loads(checked_line(line)))
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                problem = data_problem(error)
                if on_damage is None:
                    raise RunFolderError(
                        f"{path}, line {number} is damaged ({problem}). {hint}"
                    ) from error
                on_damage(number, problem)
            else:
                yield entry


def load_json(path: Path) -> Any:
    """The data of a JSON file, infinite numbers included, which ours may have.

    Raises:
        OSError: It cannot be read.
        ValueError: It is not JSON in UTF-8, or nested too deeply.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def read_lines(path: Path, *keys: str) -> list[dict[str, Any]]:
    """Read a file of JSON lines at once; a warning counts damaged ones, which are left out.

    Args:
        path: The file.
        keys: What every line must have.
    """

    def entry(value: Mapping[str, Any]) -> dict[str, Any]:
        return {**value, **{key: value[key] for key in keys}}

    damaged = dict[int, str]()
    found = list(iter_lines(path, entry, on_damage=damaged.__setitem__))
    warn_of_damage(path, damaged)
    return found


def warn_of_damage(path: Path, damaged: Mapping[int, str]) -> None:
    """Say how many lines of a file are damaged, if any: number from 1 -> problem."""
    if damaged:
        told = "%s: damaged and left out: %s, the first is line %d (%s)"
        _logger.warning(told, path, counted(len(damaged), "line"), *next(iter(damaged.items())))


def fsync_path(path: Path) -> None:
    """Make a file, or the names in a directory, durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
