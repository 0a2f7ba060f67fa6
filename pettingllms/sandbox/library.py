"""What programs can import, gathered into one memory file before any server starts.

A jailed program opens no file at all, so modules come from memory: the standard library and the
packages of the flavour, as byte code where the interpreter has written it, else as source.
"""

from __future__ import annotations

import functools
import importlib.machinery
import importlib.metadata
import importlib.util
import os
import struct
import sys
from collections.abc import Iterator
from typing import NamedTuple

from pettingllms.errors import InvalidArgument, MissingDependency
from pettingllms.sandbox.jail.modules import HEADER

FLAVOURS: dict[str, tuple[str, ...]] = {
    "lean": (),
    "science": ("numpy", "mpmath", "sympy"),
    "math_verify": ("math_verify", "latex2sympy2_extended", "antlr4", "sympy", "mpmath"),
}
"""Packages of each flavour, besides the standard library."""

# While it is imported, latex2sympy2_extended asks which version of the parser is installed.
_ASKED_VERSIONS = {"math_verify": ("antlr4-python3-runtime",)}

_NOT_OFFERED = """
__pycache__ site-packages dist-packages test tests idlelib idle_test tkinter turtledemo lib2to3
ensurepip venv pydoc_data distutils msilib lib-dynload
"""
_SKIPPED = frozenset(_NOT_OFFERED.split())
_PYC_HEADER = struct.Struct("<4sIII")


class _File(NamedTuple):
    """A module that programs can import."""

    name: str
    """Full name of the module."""
    path: str
    """Where its source is on this machine."""
    is_package: bool
    """Whether the module is a package, whose source is its `__init__.py`."""


def packages_of(flavour: str) -> list[tuple[str, str]]:
    """Names and folders of the packages of a flavour.

    Raises:
        InvalidArgument: There is no such flavour.
        MissingDependency: One of its packages is not installed.
    """
    if flavour not in FLAVOURS:
        raise InvalidArgument("flavour", flavour, " or ".join(map(repr, FLAVOURS)))
    found: list[tuple[str, str]] = []
    for name in FLAVOURS[flavour]:
        spec = importlib.util.find_spec(name)
        if spec is None or not spec.submodule_search_locations:
            raise MissingDependency(f"the sandbox flavour {flavour!r}", name, "math")
        found.append((name, os.path.abspath(spec.submodule_search_locations[0])))
    return found


def versions_of(flavour: str) -> dict[str, str]:
    """Versions of the distributions for which a package of a flavour asks."""
    return {name: importlib.metadata.version(name) for name in _ASKED_VERSIONS.get(flavour, ())}


def _standard_library() -> list[str]:
    """Folders of the standard library as this interpreter found them, without site-packages."""
    return [
        path
        for path in sys.path
        if os.path.isfile(os.path.join(path, "os.py")) or os.path.basename(path) == "lib-dynload"
    ]


def _package(name: str, folder: str) -> Iterator[_File]:
    init = os.path.join(folder, "__init__.py")
    if os.path.isfile(init):
        yield _File(name, init, is_package=True)
        yield from _modules(name + ".", folder)


def _modules(prefix: str, folder: str) -> Iterator[_File]:
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        if entry.is_dir():
            if entry.name.isidentifier() and entry.name not in _SKIPPED:
                yield from _package(prefix + entry.name, entry.path)
            continue
        for suffix in (".py", *importlib.machinery.EXTENSION_SUFFIXES):
            stem = entry.name.removesuffix(suffix)
            if stem != entry.name and stem != "__init__":
                yield _File(prefix + stem, entry.path, is_package=False)
                break


def _content(path: str) -> tuple[bool, bytes]:
    """Whether it is byte code, and the byte code or the source of a module."""
    with open(path, "rb") as file:
        status = os.fstat(file.fileno())
        stamp = (int(status.st_mtime) & 0xFFFFFFFF, status.st_size & 0xFFFFFFFF)
        try:
            with open(importlib.util.cache_from_source(path), "rb") as cache:
                header = cache.read(_PYC_HEADER.size)
                magic, flags, *written_for = _PYC_HEADER.unpack(header)
                if (magic, flags) == (importlib.util.MAGIC_NUMBER, 0) and stamp == (*written_for,):
                    return True, cache.read()
        except (OSError, struct.error, NotImplementedError):
            pass  # not written yet, or cut short; the source is as good, only slower
        return False, file.read()


@functools.cache
def archive(flavour: str) -> int:
    """A sealed memory file with all modules of a flavour (`jail.modules` says how it is laid out).

    Made once per process, which keeps it open for servers to come.

    Raises:
        InvalidArgument: There is no such flavour.
        MissingDependency: One of its packages is not installed.
        OSError: A file of the library cannot be read.
    """
    files = [file for folder in _standard_library() for file in _modules("", folder)]
    files += [file for name, folder in packages_of(flavour) for file in _package(name, folder)]
    index: dict[str, str] = {}
    blobs: list[bytes] = []
    offset = 0
    for name, path, is_package in files:
        if name in index or "\n" in path or "\t" in path:
            continue  # as on sys.path, the first folder wins
        if not path.endswith(".py"):
            index[name] = f"{name}\t{path}"
            continue
        is_bytecode, data = _content(path)
        index[name] = f"{name}\t{path}\t{is_package:d}\t{is_bytecode:d}\t{offset}\t{len(data)}"
        blobs.append(data)
        offset += len(data)
    head = "\n".join(["", *index.values(), ""]).encode()
    descriptor = os.memfd_create("library", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with open(descriptor, "wb", closefd=False) as file:
        file.writelines([HEADER.pack(len(head)), head, *blobs])
    seal(descriptor)
    return descriptor


def seal(descriptor: int) -> None:
    """Let nobody change a file in memory any more."""
    import fcntl  # not above: games are made on systems that have none

    seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
