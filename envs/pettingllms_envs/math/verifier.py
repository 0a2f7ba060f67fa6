"""Verdicts on answers: math-verify in killable processes; a failure is never a wrong answer."""

from __future__ import annotations

import contextlib
import enum
import importlib.util
import json
import math
import os
import selectors
import signal
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
from pettingllms_envs.math.fair_queue import FairQueue
from pettingllms_envs.math.forms import objection
from pettingllms_envs.math.notation import (
    MAX_ANSWER_CHARS,
    as_integer,
    depth,
    drops_duplicates,
    in_shape_of,
    is_repeating,
    normalised,
    without_unit,
)
from pettingllms_envs.math.units import split_unit, unit_named

_WORKER = Path(__file__).with_name("verifier_worker.py")
_START_TIMEOUT_S = 120.0
_GRACE_S = 5
"""Seconds after the time limit after which a process ends by itself, should its parent be gone."""
_DYING_S = 0.2
_CACHE_SIZE = 20_000
_WALL_FACTOR, _WALL_EXTRA_S = 5, 5
"""Seconds on the clock that a comparison may take: the first number per second of processor
time, plus the second. Only an overloaded machine or a stopped process takes that long."""

MAX_DEPTH = 30
"""Answers with brackets nested deeper are not read: parsing takes time exponential in the depth."""

MAX_WORKERS = 1024
MIN_TIMEOUT_S, MAX_TIMEOUT_S = 1e-3, 3600


class Outcome(enum.StrEnum):
    """The result of comparing an answer with a reference."""

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

    Integers, equal texts, other units and answers that are not written out are judged here, in
    time linear in the text; everything else goes to a pool of processes that run math-verify.
    Requests are served in the order in which they were made, so a caller waits for at most one
    comparison of each other caller. A process that uses more processor time for a comparison than
    the limit is ended and replaced. Verdicts are remembered, failures too, except when the machine
    left a process no time. Safe to use from threads and in forked processes.

    Args:
        num_workers: Processes, 1 to 1024. They start when first needed (about a second each).
        timeout_s: Seconds of processor time that one comparison may take, 0.001 to 3600. Honest
            answers of the public data sets take at most a tenth of the default.

    Raises:
        InvalidArgument: An argument is out of its range.
        MissingDependency: math-verify is not installed.
    """

    def __init__(self, num_workers: int = 1, timeout_s: float = 2.0) -> None:
        check_whole("num_workers", num_workers, 1, MAX_WORKERS)
        check_number("timeout_s", timeout_s, MIN_TIMEOUT_S, MAX_TIMEOUT_S)
        if importlib.util.find_spec("math_verify") is None:
            raise MissingDependency("comparing mathematical answers", "math-verify", "math")
        self.num_workers = num_workers
        self.timeout_s = timeout_s
        self._open()

    def _open(self) -> None:
        # A forked child must not share pipes, locks or the queue with its parent: see
        # `_remembered`.
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._cache: OrderedDict[tuple[str, str, float], Verdict] = OrderedDict()
        self._places: FairQueue[_Process | None] = FairQueue([None] * self.num_workers)

    def __reduce__(self) -> tuple[Any, ...]:
        return Verifier, (self.num_workers, self.timeout_s)

    def judge(
        self,
        reference: str,
        answer: str,
        *,
        unit: str = "",
        tolerance: float = 0.0,
        form: str = "",
    ) -> Verdict:
        """Return whether an answer equals the reference and is written out (see `objection`).

        Args:
            reference: The right answer, LaTeX or plain.
            answer: The answer to judge; any text.
            unit: A unit that the answer may carry or leave out.
            tolerance: Maximum absolute difference of numbers that still counts as equal.
            form: What is asked for, where the reference does not say it: see `MathProblem.form`.
        """
        # Before anything is parsed: all later steps are then bounded.
        if len(answer) > MAX_ANSWER_CHARS:
            return Verdict(Outcome.UNPARSABLE, f"longer than {MAX_ANSWER_CHARS} characters")
        if form == "fraction" and is_repeating(answer):
            return Verdict(Outcome.WRONG, "a repeating decimal, where a fraction is asked for")
        # Units are compared here and removed: math-verify does not convert or compare them.
        wanted, own_unit = split_unit(normalised(reference), is_quantity=bool(unit))
        expected_unit = unit_named(unit) or own_unit
        given, given_unit = split_unit(normalised(answer), is_quantity=expected_unit is not None)
        if expected_unit and given_unit and given_unit != expected_unit:
            return Verdict(Outcome.WRONG, f"in another unit: {given_unit.name}")
        wanted = without_unit(wanted, unit)
        given = in_shape_of(wanted, without_unit(given, unit))
        if verdict := _judged_here(wanted, given, tolerance):
            return verdict
        verdict = self._remembered(wanted, given, tolerance)
        # math-verify compares bare lists as sets; a root that is asked for twice must be given
        # twice.
        if verdict.is_correct and drops_duplicates(wanted, given):
            return Verdict(Outcome.WRONG, "the same answers, but not equally often")
        return verdict

    def equivalence(self, first: str, second: str, *, unit: str = "") -> Verdict:
        """Return whether two answers mean the same; neither is taken for the reference."""
        # Both are a model's: what `judge` asks of an answer holds for the first one too.
        if len(first) > MAX_ANSWER_CHARS:
            return Verdict(Outcome.UNPARSABLE, f"longer than {MAX_ANSWER_CHARS} characters")
        # `judge` is asymmetric: it refuses formulas that its second argument leaves unevaluated.
        # Two answers agree if either may serve as the reference; a failure is not asked again,
        # since it would cost the time limit once more.
        verdict = self.judge(first, second, unit=unit)
        done = (Outcome.CORRECT, Outcome.VERIFIER_FAILED)
        if verdict.outcome in done or len(second) > MAX_ANSWER_CHARS:
            return verdict
        return self.judge(second, first, unit=unit)

    def _remembered(self, wanted: str, given: str, tolerance: float) -> Verdict:
        if self._pid != os.getpid():
            self._open()
        key = (wanted, given, tolerance)
        with self._lock:
            known = self._cache.get(key)
            if known is not None:
                self._cache.move_to_end(key)
                return known
        # Outside of the lock: a comparison takes up to seconds. Two threads may ask the same, which
        # is harmless.
        verdict = self._ask(key)
        if verdict is None:
            return Verdict(Outcome.VERIFIER_FAILED, "the machine left the verifier no time")
        with self._lock:
            self._cache[key] = verdict
            if len(self._cache) > _CACHE_SIZE:
                self._cache.popitem(last=False)
        return verdict

    def _ask(self, request: tuple[str, str, float]) -> Verdict | None:
        """Return the verdict of a process; None where that was not a matter of the texts."""
        # A place holds a process or None; processes start on first use and stay warm.
        process = self._places.take()
        try:
            if process is None or not process.is_alive:
                process = _Process(self.timeout_s)
            reply = process.ask(request)
            if reply is not None:
                return Verdict(Outcome(reply[0]), reply[1])
            cause = process.end()
            process = None
            # The worker sets its own processor-time limit, so hard texts end by SIGPROF whatever
            # the load.
            if cause == -signal.SIGPROF:
                detail = f"more than {self.timeout_s} s of processor time"
                return Verdict(Outcome.VERIFIER_FAILED, detail)
            # Killed by us: it had too little time. Anything else is a crash, as on deep recursion.
            is_crash = cause not in (-signal.SIGKILL, -signal.SIGTERM, -signal.SIGALRM)
            return Verdict(Outcome.VERIFIER_FAILED, f"a crash ({cause})") if is_crash else None
        finally:
            self._places.give_back(process)


def _judged_here(wanted: str, given: str, tolerance: float) -> Verdict | None:
    """Return a verdict that needs no verifier, or None."""
    if not given:
        return Verdict(Outcome.UNPARSABLE, "empty")
    if wanted == given:
        return Verdict(Outcome.CORRECT)
    # Most answers are integers; exact arithmetic here saves a round trip through a process.
    numbers = as_integer(wanted), as_integer(given)
    if numbers[0] is not None and numbers[1] is not None:
        is_near = abs(numbers[0] - numbers[1]) <= tolerance
        return Verdict(Outcome.CORRECT if is_near else Outcome.WRONG)
    if max(depth(wanted), depth(given)) > MAX_DEPTH:
        return Verdict(Outcome.UNPARSABLE, f"brackets nested deeper than {MAX_DEPTH}")
    # Before the verifier: refusing `2^{10}` here also means never evaluating it.
    reason = objection(wanted, given)
    return Verdict(Outcome.WRONG, reason) if reason else None


class _Process:
    """One verifier process and the pipes to it."""

    def __init__(self, timeout_s: float) -> None:
        self._wall_s = _WALL_FACTOR * timeout_s + _WALL_EXTRA_S
        limits = (str(timeout_s), str(math.ceil(self._wall_s) + _GRACE_S))
        self._popen = subprocess.Popen(
            [sys.executable, str(_WORKER), *limits],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            # Ctrl-C in the terminal must not kill the workers of a run that wants to end cleanly.
            start_new_session=True,
        )
        self._finalizer = weakref.finalize(self, _end, self._popen, os.getpid())
        self._buffer = b""
        if self._read_line(_START_TIMEOUT_S) is None:
            self.end()
            raise MissingDependency("starting a verifier process", "math-verify", "math")

    @property
    def is_alive(self) -> bool:
        return self._popen.poll() is None

    def ask(self, request: tuple[str, str, float]) -> tuple[str, str] | None:
        """Return outcome and detail, or None when the process hung or died."""
        assert self._popen.stdin is not None
        try:
            self._popen.stdin.write(json.dumps(request).encode() + b"\n")
            self._popen.stdin.flush()
        except BrokenPipeError:
            return None
        line = self._read_line(self._wall_s)
        return None if line is None else json.loads(line)

    def _read_line(self, timeout_s: float) -> bytes | None:
        assert self._popen.stdout is not None
        deadline_s = time.monotonic() + timeout_s
        with selectors.DefaultSelector() as selector:
            selector.register(self._popen.stdout, selectors.EVENT_READ)
            # A reply may come in pieces, and the deadline holds for all of them.
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

    def end(self) -> int | None:
        """End the process and return what ended it, as `Popen.returncode`."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            # It closed its output: the kernel may not have reported yet what it died of.
            self._popen.wait(_DYING_S)
        self._finalizer()
        return self._popen.returncode


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
