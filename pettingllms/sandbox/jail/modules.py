"""What a program can import: modules that lie in memory, and what was imported before the locks.

The parent hands over one memory file: the length of an index, the index, and the modules one after
the other. The index has one line per module, with fields between tabs: name, path and, for Python
modules, whether it is a package, whether it is byte code, offset and length. Extension modules can
be loaded before the locks only, since the loader opens files; all other modules at any time.
"""

from __future__ import annotations

import gc
import importlib
import importlib.machinery
import importlib.util
import marshal
import mmap
import os
import re
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
    """A finder that knows all modules there are.

    The index stays in the memory file: as objects it would be a tenth of all the memory whose page
    tables are copied for each run.
    """

    def __init__(self, descriptor: int) -> None:
        self._mapped = mmap.mmap(descriptor, 0, mmap.MAP_SHARED, mmap.PROT_READ)
        (length,) = HEADER.unpack_from(self._mapped)
        self._end_of_index = HEADER.size + length
        self._modules = memoryview(self._mapped)[self._end_of_index :]
        self._has_extensions = True

    def _entry(self, fullname: str) -> list[str] | None:
        """The fields of a module's line after its name."""
        if "\t" in fullname or "\n" in fullname:
            return None
        beginning = f"\n{fullname}\t".encode("utf-8", "surrogatepass")
        start = self._mapped.find(beginning, HEADER.size, self._end_of_index)
        if start < 0:
            return None
        start += len(beginning)
        return self._mapped[start : self._mapped.find(b"\n", start)].decode().split("\t")

    def find_spec(
        self, fullname: str, path: object = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The module's specification, or None when there is no such module."""
        found = self._entry(fullname)
        if found is None:
            return None
        file, *numbers = found
        if not numbers:
            if not self._has_extensions:
                return None
            loader = importlib.machinery.ExtensionFileLoader(fullname, file)
            return importlib.util.spec_from_file_location(fullname, file, loader=loader)
        is_package, is_bytecode, offset, length = map(int, numbers)
        data = self._modules[offset : offset + length]
        return importlib.util.spec_from_file_location(
            fullname,
            file,
            loader=_Loader(fullname, file, data, bool(is_bytecode)),
            submodule_search_locations=[os.path.dirname(file)] if is_package else None,
        )

    def extensions_of(self, packages: Iterable[str]) -> list[str]:
        """Names of the extension modules of packages, without those for their own tests."""
        index = self._mapped[HEADER.size : self._end_of_index].decode()
        return [
            name
            for package in packages
            for name in re.findall(rf"^({package}\.\S+)\t[^\t]*$", index, re.MULTILINE)
            if not any(part in name for part in _UNWANTED)
        ]

    def forget_extensions(self) -> None:
        """From now on, an extension module that is not loaded does not exist."""
        self._has_extensions = False


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


def preload(finder: MemoryFinder, packages: Iterable[str], versions: dict[str, str]) -> None:
    """Import the usual modules and then `packages` with all their extension modules.

    Args:
        finder: Where they are.
        packages: Names of packages.
        versions: What `importlib.metadata.version` is to say to them, for there are no files.

    Raises:
        ImportError: One of `packages` cannot be imported.
    """
    for name in _PRELOADED.split():
        try:
            importlib.import_module(name)
        except ModuleNotFoundError:
            # Interpreters are built without one or the other of them, or with it inside another.
            continue
    if versions:  # else the module is left out: its pages would cost every run a little
        metadata: Any = importlib.import_module("importlib.metadata")
        metadata.version = versions.__getitem__
    for name in packages:
        importlib.import_module(name)
    for name in finder.extensions_of(packages):
        importlib.import_module(name)


def settle(finder: MemoryFinder) -> None:
    """Keep the collector's hands off what all children share; end what needs files."""
    finder.forget_extensions()
    gc.collect()
    gc.freeze()
