"""Running one program in a locked child as `python program.py` would."""

from __future__ import annotations

import atexit
import builtins
import json
import linecache
import os
import random
import sys
import threading
import traceback
from _sitebuiltins import Quitter
from types import CodeType, ModuleType
from typing import Any, NoReturn

RESULT = 3
"""Descriptor on which a called function's result is reported."""

NAME = "program.py"

# A program may replace these in their modules; what ends it must not be its own.
_exit = os._exit
_write = os.write
_dumps = json.dumps
_active: dict[int, threading.Thread] = threading._active  # type: ignore[attr-defined]


def read_whole(descriptor: int, size: int) -> bytes:
    """The whole file, without moving the position that other children share."""
    data = os.pread(descriptor, size, 0)
    while len(data) < size:
        part = os.pread(descriptor, size - len(data), len(data))
        if not part:
            raise OSError(5, "the program's file is shorter than it was said to be")
        data += part
    return data


def prepare() -> None:
    """Make this interpreter look as a program expects it, before any child is forked.

    Every page that a child need not write to is a page that need not be copied. Descriptors 0 to
    2 must be seekable files, as those of a child are.
    """

    def stream(descriptor: int, mode: str, errors: str, buffering: int = -1) -> Any:
        return open(descriptor, mode, buffering, "utf-8", errors, closefd=False)

    sys.stdin = sys.__stdin__ = stream(0, "r", "surrogateescape")
    sys.stdout = sys.__stdout__ = stream(1, "w", "surrogateescape")
    sys.stderr = sys.__stderr__ = stream(2, "w", "backslashreplace", 1)
    sys.argv = [NAME]
    sys.dont_write_bytecode = True
    # What the site module would have added.
    for name in ("exit", "quit"):
        setattr(builtins, name, Quitter(name, "Ctrl-D (i.e. EOF)"))
    # The same program and input give the same output, unless the program asks the system.
    random.seed(0)
    # A program may print any number that it has time for; its processor time is limited anyway.
    sys.set_int_max_str_digits(0)
    for name in [name for name in sys.modules if name.partition(".")[0] == "jail"]:
        del sys.modules[name]


def compile_source(source: bytes) -> CodeType | None:
    """The compiled program, or None, with the reason on stderr, if it is not Python.

    Raises:
        MemoryError: Compiling needs more memory than the program may have.
    """
    try:
        text = source.decode("utf-8")
        lines = text.splitlines(keepends=True)
        linecache.cache[NAME] = (len(text), None, lines, NAME)
        return compile(text, NAME, "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, OverflowError) as error:
        sys.__excepthook__(type(error), error.with_traceback(None), None)
        sys.stderr.flush()
        return None


def _fresh_main() -> ModuleType:
    main = ModuleType("__main__")
    main.__dict__.update(__builtins__=builtins, __file__=NAME, __cached__=None)
    sys.modules["__main__"] = main
    return main


def _status_of(stop: SystemExit) -> int:
    if stop.code is None:
        return 0
    if isinstance(stop.code, int):
        return stop.code & 0xFF
    sys.stderr.write(f"{stop.code}\n")
    return 1


def _report(error: BaseException) -> int:
    """Print the traceback, without the frames of this module, as the interpreter would."""
    try:
        if isinstance(error, SystemExit):
            return _status_of(error)
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
            trace = trace.tb_next
        error = error.with_traceback(trace)
        if sys.excepthook is sys.__excepthook__:
            # Unlike the built-in hook, this shows lines of a source that is in no file.
            traceback.print_exception(error)
        else:
            sys.excepthook(type(error), error, trace)
    except BaseException as second:  # noqa: BLE001 - an exception whose printing fails
        _write(2, f"{type(error).__name__} (and {type(second).__name__} while printing)\n".encode())
    return 1


def _resolve(main: ModuleType, name: str) -> Any:
    """The function of that name; a method of a class is bound to a new instance of it."""
    first, *rest = name.split(".")
    if not rest and not hasattr(main, first) and hasattr(getattr(main, "Solution", None), first):
        first, rest = "Solution", [first]
    if not hasattr(main, first):
        raise NameError(f"the program defines no {name!r}")
    found = getattr(main, first)
    for part in rest:
        found = getattr(found() if isinstance(found, type) else found, part)
    return found


def _call(main: ModuleType, request: str) -> None:
    name, arguments = json.loads(request)
    value = _resolve(main, name)(*arguments)
    report: dict[str, Any] = {"repr": repr(value)}
    try:
        text = _dumps({**report, "value": value})
    except (TypeError, ValueError, RecursionError):
        text = _dumps(report)
    data = text.encode("utf-8", "surrogatepass")
    while data:
        data = data[_write(RESULT, data) :]


def _flush() -> int:
    status = 0
    for stream in (sys.stdout, sys.__stdout__, sys.stderr, sys.__stderr__):
        if stream is None or getattr(stream, "closed", False):
            continue
        try:
            stream.flush()
        except BaseException:  # noqa: BLE001 - a stream of the program's own making
            status = 120
    return status


def _has_threads() -> bool:
    return len(_active) > 1


def _wait_for_threads() -> None:
    if _has_threads():
        threading._shutdown()  # type: ignore[attr-defined]


def execute(code: CodeType, *, calls_function: bool) -> NoReturn:
    """Run the program to its end, as `__main__`, and end the process with its status."""
    status = 0
    main = _fresh_main()
    try:
        # The driver's request is read first: the program's own reading must not take it.
        request = sys.stdin.read() if calls_function else ""
        exec(code, main.__dict__)
        if calls_function:
            _call(main, request)
    except BaseException as error:  # noqa: BLE001 - the program's, whatever it is
        status = _report(error)
    for last_rites in (_wait_for_threads, atexit._run_exitfuncs):
        try:
            last_rites()
        except BaseException as error:  # noqa: BLE001 - the program's, too
            _report(error)
    status = _flush() or status
    if not _has_threads():
        # Open files of the program are flushed when they go; daemon threads would miss their names.
        main.__dict__.clear()
    _flush()  # a stream class of the program's own may miss its globals now; that is not a failure
    _exit(status)
