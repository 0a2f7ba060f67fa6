"""What a program can import: modules that lie in memory, and what was imported before the locks.

The parent hands over one memory file: the length of an index, the index as JSON, and the modules
one after the other. The index has `name: [path, is package, is byte code, offset, length]` for
Python modules and `name: [path]` for extension modules. Extension modules can be loaded before the
locks only, since the loader opens files; all other modules at any time.
"""

from __future__ import annotations

import gc
import importlib
import importlib.machinery
import importlib.util
import json
import marshal
import mmap
import os
import struct
import sys
from collections.abc import Iterable
from types import CodeType, ModuleType
from typing import Any

HEADER = struct.Struct("=Q")
"""Length of the index, at the beginning of the memory file."""

# What programs use most, and extension modules that others cannot do without. Each page of them
# costs every run a little, so other modules are imported on demand.
_PRELOADED = """
array atexit binascii bisect bz2 cmath codecs collections collections.abc contextlib copy ctypes
datetime decimal encodings.ascii encodings.latin_1 encodings.utf_16 encodings.utf_8_sig enum errno
fractions functools gc hashlib heapq io itertools json keyword linecache locale lzma math numbers
operator os random re reprlib resource select signal socket string struct sys threading time
traceback types typing unicodedata warnings weakref zlib
_contextvars _csv _lsprof _multiprocessing _opcode _pickle _posixsubprocess fcntl mmap pyexpat
"""
_UNWANTED = ("test", "_simd")
"""Parts of names of extension modules of packages that no program needs."""


class _Loader(importlib.machinery.SourceFileLoader):
    """Loads a module from memory."""

    def __init__(self, fullname: str, path: str, data: memoryview, is_bytecode: bool) -> None:
        super().__init__(fullname, path)
        self._data = data
        self._is_bytecode = is_bytecode

    def get_code(self, fullname: str) -> CodeType:
        if self._is_bytecode:
            return marshal.loads(self._data)
        return self.source_to_code(bytes(self._data), self.path)

    get_code.__doc__ = importlib.machinery.SourceFileLoader.get_code.__doc__

    def get_data(self, path: str | bytes) -> bytes:
        raise OSError(2, "only the modules themselves are in memory", path)

    get_data.__doc__ = importlib.machinery.SourceFileLoader.get_data.__doc__


class MemoryFinder:
    """A finder that knows all modules there are."""

    def __init__(self, descriptor: int) -> None:
        with mmap.mmap(descriptor, 0, mmap.MAP_SHARED, mmap.PROT_READ) as mapped:
            (length,) = HEADER.unpack(mapped[: HEADER.size])
            first = HEADER.size + length
            self._index: dict[str, list[Any]] = json.loads(mapped[HEADER.size : first])
        self._modules = memoryview(mmap.mmap(descriptor, 0, mmap.MAP_SHARED, mmap.PROT_READ))[
            first:
        ]

    def find_spec(
        self, fullname: str, path: object = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The module's specification, or None when there is no such module."""
        found = self._index.get(fullname)
        if found is None:
            return None
        if len(found) == 1:
            loader = importlib.machinery.ExtensionFileLoader(fullname, found[0])
            return importlib.util.spec_from_file_location(fullname, found[0], loader=loader)
        file, is_package, is_bytecode, offset, length = found
        data = self._modules[offset : offset + length]
        return importlib.util.spec_from_file_location(
            fullname,
            file,
            loader=_Loader(fullname, file, data, is_bytecode),
            submodule_search_locations=[os.path.dirname(file)] if is_package else None,
        )

    def extensions_of(self, packages: Iterable[str]) -> list[str]:
        """Names of the extension modules of packages, without those for their own tests."""
        inside = tuple(name + "." for name in packages)
        return [
            name
            for name, found in self._index.items()
            if len(found) == 1
            and name.startswith(inside)
            and not any(part in name for part in _UNWANTED)
        ]

    def forget_extensions(self) -> None:
        """From now on, an extension module that is not loaded does not exist."""
        self._index = {name: found for name, found in self._index.items() if len(found) > 1}


def install(descriptor: int) -> MemoryFinder:
    """Make the memory file the place from which everything but built-in modules is imported."""
    finder = MemoryFinder(descriptor)
    os.close(descriptor)
    sys.meta_path[:] = [
        importlib.machinery.BuiltinImporter,
        importlib.machinery.FrozenImporter,
        finder,
    ]
    return finder


def preload(finder: MemoryFinder, packages: Iterable[str]) -> None:
    """Import the usual modules and then `packages` with all their extension modules.

    Raises:
        ImportError: One of `packages` cannot be imported.
    """
    for name in _PRELOADED.split():
        try:
            importlib.import_module(name)
        except ModuleNotFoundError:
            # Interpreters are built without one or the other of them, or with it inside another.
            continue
    for name in packages:
        importlib.import_module(name)
    for name in finder.extensions_of(packages):
        importlib.import_module(name)


def settle(finder: MemoryFinder) -> None:
    """Keep the collector's hands off what all children share; end what needs files."""
    finder.forget_extensions()
    gc.collect()
    gc.freeze()
