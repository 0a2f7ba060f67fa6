"""What a program can import: the standard library and named packages, from a table of their files.

The table is made once, before the locks. Finding a module then needs no look at the file system
(the filter answers no `stat`), and packages of the host that nobody named do not exist.
"""

from __future__ import annotations

import gc
import importlib
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Iterable, Sequence
from types import ModuleType

_NOT_OFFERED = """
__pycache__ site-packages dist-packages test tests idlelib idle_test tkinter turtledemo lib2to3
ensurepip venv pydoc_data distutils msilib lib-dynload
"""
_SKIPPED = frozenset(_NOT_OFFERED.split())

# What programs use most, plus every extension that links libraries which the jail cannot open.
_PRELOADED = """
array ast atexit base64 binascii bisect bz2 calendar cmath codecs collections collections.abc
contextlib copy ctypes dataclasses datetime decimal encodings.ascii encodings.latin_1
encodings.utf_16 encodings.utf_8_sig enum errno fractions functools gc hashlib heapq inspect io
itertools json keyword linecache locale lzma math numbers operator os pickle pprint queue random re
reprlib resource select selectors signal socket statistics string struct sys textwrap threading
time timeit tokenize traceback types typing unicodedata uuid warnings weakref zlib
"""

# Where nothing can be imported later on.
_PRELOADED_IF_SEALED = """
argparse asyncio colorsys concurrent.futures concurrent.futures.thread csv difflib doctest email
getpass glob graphlib hmac html html.parser ipaddress logging logging.handlers pathlib pickletools
sched secrets shlex stringprep symtable tempfile unittest unittest.mock urllib.parse
xml.etree.ElementTree zoneinfo
"""

_Stat = tuple[float, int]


class _TableLoader(importlib.machinery.SourceFileLoader):
    """Loads a source file whose date and size are known already."""

    def __init__(self, fullname: str, path: str, stat: _Stat) -> None:
        super().__init__(fullname, path)
        self._stat = stat

    def path_stats(self, path: str | bytes | os.PathLike[str]) -> dict[str, float]:
        return {"mtime": self._stat[0], "size": self._stat[1]}

    path_stats.__doc__ = importlib.machinery.SourceFileLoader.path_stats.__doc__


class TableFinder:
    """A finder that knows all importable files beforehand."""

    def __init__(
        self, standard_library: Sequence[str], packages: Iterable[tuple[str, str]]
    ) -> None:
        self._files: dict[str, tuple[str, bool, _Stat]] = {}
        for folder in standard_library:
            self._add_folder("", folder)
        for name, folder in packages:
            self._add_package(name, folder)

    def _add_package(self, name: str, folder: str) -> None:
        init = os.path.join(folder, "__init__.py")
        if os.path.isfile(init):
            status = os.stat(init)
            self._files[name] = (init, True, (status.st_mtime, status.st_size))
            self._add_folder(name + ".", folder)

    def _add_folder(self, prefix: str, folder: str) -> None:
        for entry in os.scandir(folder):
            if entry.is_dir():
                if entry.name.isidentifier() and entry.name not in _SKIPPED:
                    self._add_package(prefix + entry.name, entry.path)
                continue
            stem, suffix = _split(entry.name)
            if suffix and stem != "__init__":
                status = entry.stat()
                known = (entry.path, False, (status.st_mtime, status.st_size))
                self._files.setdefault(prefix + stem, known)

    def find_spec(
        self, fullname: str, path: object = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The module's specification, or None when the table does not hold it."""
        found = self._files.get(fullname)
        if found is None:
            return None
        file, is_package, stat = found
        if not file.endswith(".py"):
            loader = importlib.machinery.ExtensionFileLoader(fullname, file)
            return importlib.util.spec_from_file_location(fullname, file, loader=loader)
        return importlib.util.spec_from_file_location(
            fullname,
            file,
            loader=_TableLoader(fullname, file, stat),
            submodule_search_locations=[os.path.dirname(file)] if is_package else None,
        )


def _split(name: str) -> tuple[str, str]:
    for suffix in (".py", *importlib.machinery.EXTENSION_SUFFIXES):
        if name.endswith(suffix):
            return name[: -len(suffix)], suffix
    return name, ""


def standard_library() -> list[str]:
    """The folders of the standard library, as the bare interpreter searches them."""
    return [path for path in sys.path if os.path.isdir(path)]


def readable_paths(packages: Iterable[tuple[str, str]]) -> list[str]:
    """Files and folders that importing after the locks may have to read.

    The standard library's folder is listed entry by entry: `site-packages` lies inside it.
    """
    paths: list[str] = []
    for folder in standard_library():
        paths += [
            entry.path
            for entry in os.scandir(folder)
            if entry.name not in _SKIPPED or entry.name in ("__pycache__", "lib-dynload")
        ]
    for _, folder in packages:
        paths += [path for path in (folder, folder + ".libs") if os.path.isdir(path)]
    folders = tuple(path + os.sep for path in paths)
    return sorted({path for path in paths if not path.startswith(folders)})


def install(packages: Sequence[tuple[str, str]]) -> None:
    """Make the table the way by which everything but built-in modules is imported."""
    finder = TableFinder(standard_library(), packages)
    sys.meta_path[:] = [
        importlib.machinery.BuiltinImporter,
        importlib.machinery.FrozenImporter,
        finder,
    ]


def preload(names: Iterable[str], *, may_read_files: bool) -> None:
    """Import the usual modules (more of them if none can be read later), and then `names`.

    Raises:
        ImportError: One of `names` cannot be imported.
    """
    usual = _PRELOADED if may_read_files else _PRELOADED + _PRELOADED_IF_SEALED
    for name in usual.split():
        try:
            importlib.import_module(name)
        except ModuleNotFoundError:
            # Interpreters are built without one or the other compression module.
            continue
    for name in names:
        importlib.import_module(name)


def settle(*, may_read_files: bool) -> None:
    """Keep the collector's hands off what all children share; end imports where none can work."""
    if not may_read_files:
        del sys.meta_path[2:]
    gc.collect()
    gc.freeze()
