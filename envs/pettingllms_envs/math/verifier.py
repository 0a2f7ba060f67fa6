"""Is an answer right? math-verify in killable processes, with failures told from wrong answers."""

from __future__ import annotations

import enum
import importlib.util
import json
import math
import os
import queue
import selectors
import subprocess
import sys
import threading
import time
import weakref
from collections import OrderedDict
from pathlib import Path
from typing import Any, NamedTuple

from pettingllms.arguments import check_number, check_whole
from pettingllms.errors import MissingDependency
from pettingllms_envs.math.answers import (
    MAX_ANSWER_CHARS,
    as_integer,
    in_shape_of,
    normalised,
    without_unit,
)
from pettingllms_envs.math.forms import objection

_WORKER = Path(__file__).with_name("verifier_worker.py")
_START_TIMEOUT_S = 120.0
_GRACE_S = 5
"""Seconds after the time limit at which a process ends by itself, if nobody is left to end it."""
_CACHE_SIZE = 20_000

MAX_WORKERS = 1024
MIN_TIMEOUT_S, MAX_TIMEOUT_S = 1e-3, 3600


class Outcome(enum.StrEnum):
    """What came of comparing an answer with a reference."""

    CORRECT = "correct"
    WRONG = "wrong"
    UNPARSABLE = "unparsable"
    """The answer is not mathematics that can be read."""
    VERIFIER_FAILED = "verifier_failed"
    """Nothing is known: the verifier hung, crashed, or could not read the reference."""


class Verdict(NamedTuple):
    """An outcome and, for a failure, its cause."""

    outcome: Outcome
    detail: str = ""

    @property
    def is_correct(self) -> bool:
        """Whether the answer is right."""
        return self.outcome is Outcome.CORRECT


class Verifier:
    """Compares answers by mathematical equivalence.

    Whole numbers and equal texts are compared here; everything else goes to a pool of processes
    that run math-verify. A process that exceeds the time limit is killed and replaced. Verdicts are
    remembered (failures are not). Safe to use from threads and in forked processes.

    Args:
        num_workers: Processes, 1 to 1024. They start when first needed (about a second each).
        timeout_s: Seconds that one comparison may take, 0.001 to 3600.

    Raises:
        InvalidArgument: An argument is out of its range.
        MissingDependency: math-verify is not installed.
    """

    def __init__(self, num_workers: int = 1, timeout_s: float = 5.0) -> None:
        check_whole("num_workers", num_workers, 1, MAX_WORKERS)
        check_number("timeout_s", timeout_s, MIN_TIMEOUT_S, MAX_TIMEOUT_S)
        if importlib.util.find_spec("math_verify") is None:
            raise MissingDependency("comparing mathematical answers", "math-verify", "math")
        self.num_workers = num_workers
        self.timeout_s = timeout_s
        self._open()

    def _open(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._cache: OrderedDict[tuple[str, str, float], Verdict] = OrderedDict()
        self._places: queue.SimpleQueue[_Process | None] = queue.SimpleQueue()
        for _ in range(self.num_workers):
            self._places.put(None)

    def __reduce__(self) -> tuple[Any, ...]:
        return Verifier, (self.num_workers, self.timeout_s)

    def judge(
        self, reference: str, answer: str, *, unit: str = "", tolerance: float = 0.0
    ) -> Verdict:
        """Return whether an answer equals the reference and is written out (see `objection`).

        Args:
            reference: The right answer, LaTeX or plain.
            answer: The answer to judge; any text.
            unit: A unit that the answer may carry or leave out.
            tolerance: Greatest absolute difference of numbers that still counts as equal.
        """
        if len(answer) > MAX_ANSWER_CHARS:
            return Verdict(Outcome.UNPARSABLE, f"longer than {MAX_ANSWER_CHARS} characters")
        wanted = without_unit(normalised(reference), unit)
        given = in_shape_of(wanted, without_unit(normalised(answer), unit))
        if not given:
            return Verdict(Outcome.UNPARSABLE, "empty")
        if wanted == given:
            return Verdict(Outcome.CORRECT)
        numbers = as_integer(wanted), as_integer(given)
        if numbers[0] is not None and numbers[1] is not None:
            is_near = abs(numbers[0] - numbers[1]) <= tolerance
            return Verdict(Outcome.CORRECT if is_near else Outcome.WRONG)
        verdict = self._remembered(wanted, given, tolerance)
        if verdict.is_correct and (reason := objection(wanted, given)):
            return Verdict(Outcome.WRONG, reason)
        return verdict

    def are_equivalent(self, first: str, second: str, *, unit: str = "") -> bool:
        """Return whether two answers mean the same; neither is taken for the reference."""
        if self.judge(first, second, unit=unit).is_correct:
            return True
        return self.judge(second, first, unit=unit).is_correct

    def _remembered(self, wanted: str, given: str, tolerance: float) -> Verdict:
        if self._pid != os.getpid():
            self._open()
        key = (wanted, given, tolerance)
        with self._lock:
            known = self._cache.get(key)
            if known is not None:
                self._cache.move_to_end(key)
                return known
        verdict = self._ask(key)
        if verdict.outcome is not Outcome.VERIFIER_FAILED:
            with self._lock:
                self._cache[key] = verdict
                if len(self._cache) > _CACHE_SIZE:
                    self._cache.popitem(last=False)
        return verdict

    def _ask(self, request: tuple[str, str, float]) -> Verdict:
        process = self._places.get()
        try:
            if process is None or not process.is_alive:
                process = _Process(self.timeout_s)
            reply = process.ask(request, self.timeout_s)
            if reply is None:
                process.kill()
                process = None
                return Verdict(
                    Outcome.VERIFIER_FAILED, f"no verdict within {self.timeout_s} s, or a crash"
                )
            return Verdict(Outcome(reply[0]), reply[1])
        finally:
            self._places.put(process)


class _Process:
    """One verifier process and the pipes to it."""

    def __init__(self, timeout_s: float) -> None:
        self._popen = subprocess.Popen(
            [sys.executable, str(_WORKER), str(math.ceil(timeout_s) + _GRACE_S)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._finalizer = weakref.finalize(self, _end, self._popen, os.getpid())
        self._buffer = b""
        if self._read_line(_START_TIMEOUT_S) is None:
            self.kill()
            raise MissingDependency("starting a verifier process", "math-verify", "math")

    @property
    def is_alive(self) -> bool:
        return self._popen.poll() is None

    def ask(self, request: tuple[str, str, float], timeout_s: float) -> tuple[str, str] | None:
        """Return outcome and detail, or None when the process hung or died."""
        assert self._popen.stdin is not None
        try:
            self._popen.stdin.write(json.dumps(request).encode() + b"\n")
            self._popen.stdin.flush()
        except BrokenPipeError:
            return None
        line = self._read_line(timeout_s)
        return None if line is None else json.loads(line)

    def _read_line(self, timeout_s: float) -> bytes | None:
        assert self._popen.stdout is not None
        deadline_s = time.monotonic() + timeout_s
        with selectors.DefaultSelector() as selector:
            selector.register(self._popen.stdout, selectors.EVENT_READ)
            while b"\n" not in self._buffer:
                left_s = deadline_s - time.monotonic()
                if left_s <= 0 or not selector.select(left_s):
                    return None
                piece = os.read(self._popen.stdout.fileno(), 1 << 16)
                if not piece:
                    return None
                self._buffer += piece
        line, self._buffer = self._buffer.split(b"\n", 1)
        return line

    def kill(self) -> None:
        self._finalizer()


def _end(process: subprocess.Popen[bytes], owner_pid: int) -> None:
    if owner_pid == os.getpid():  # a forked copy must not end its parent's processes
        process.kill()
        process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


_default: Verifier | None = None
_default_lock = threading.Lock()


def default_verifier() -> Verifier:
    """Return the verifier that all environments of this process share.

    Raises:
        MissingDependency: math-verify is not installed.
    """
    global _default
    with _default_lock:
        if _default is None:  # one pool of processes per program
            _default = Verifier(num_workers=max(1, min(4, (os.cpu_count() or 1) - 1)))
        return _default
