"""Verdicts on answers: math-verify in killable processes; a failure is never a wrong answer."""

from __future__ import annotations

import enum
import importlib.util
import os
import signal
import threading
import time
from collections import OrderedDict
from typing import Any, NamedTuple

from pettingllms.arguments import check_number, check_whole
from pettingllms.callers import FairShare, current_caller
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
from pettingllms_envs.math.verifier_process import VerifierProcess

_CACHE_SIZE = 20_000
_FORGIVEN = 0.25
_SHORT = 0.25
"""Share of the time limit that every comparison has at first, more than twice what the slowest
honest answer of the public data sets takes."""

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


NO_TIME = Verdict(Outcome.VERIFIER_FAILED, "the machine left the verifier no time")
NO_CREDIT = Verdict(
    Outcome.VERIFIER_FAILED, "more processor time than is left to a caller who used much before"
)
_PASSING = (NO_TIME, NO_CREDIT)
"""Verdicts on the moment and not on the texts: they are not remembered."""


class Verifier:
    """Compares answers by mathematical equivalence.

    Integers, equal texts, other units and answers that are not written out are judged here, in
    time linear in the text; everything else goes to a pool of processes that run math-verify.
    A comparison has a quarter of the time limit first; one that needs more then has the whole, if
    its caller does not owe more than that. What comparisons take is owed by their callers, an
    environment or else a thread, until four times as long has passed: who owes least is served
    first, in the order of asking among equals. Verdicts are remembered, failures too, except those
    of the moment. Safe to use from threads and in forked processes.

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
        self._debts = FairShare(_FORGIVEN)
        self._places: FairQueue[VerifierProcess | None] = FairQueue(
            [None] * self.num_workers, self._debts.owed_s
        )

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
        if verdict in _PASSING:
            return verdict
        with self._lock:
            self._cache[key] = verdict
            if len(self._cache) > _CACHE_SIZE:
                self._cache.popitem(last=False)
        return verdict

    def _ask(self, request: tuple[str, str, float]) -> Verdict:
        """Return the verdict of a process, after a second attempt if the first was too short."""
        verdict = self._attempt(request, _SHORT * self.timeout_s)
        if verdict != NO_CREDIT or self._debts.owed_s(current_caller()) > self.timeout_s:
            return verdict
        verdict = self._attempt(request, self.timeout_s)
        detail = f"more than {self.timeout_s} s of processor time"
        return Verdict(Outcome.VERIFIER_FAILED, detail) if verdict == NO_CREDIT else verdict

    def _attempt(self, request: tuple[str, str, float], limit_s: float) -> Verdict:
        """Return the verdict of a process, `NO_CREDIT` if it takes longer than a limit."""
        caller = current_caller()
        # A place holds a process or None; processes start on first use and stay warm.
        process = self._places.take(caller)
        try:
            if process is None or not process.is_alive:
                process = VerifierProcess(self.timeout_s)
            started_s = time.monotonic()
            reply = process.ask(request, limit_s)
            self._debts.charge(caller, time.monotonic() - started_s)
            if reply is None:
                process.end()
                process = None
                return NO_TIME
            if not isinstance(reply, signal.Signals):
                return Verdict(Outcome(reply[0]), reply[1])
            # The comparison sets its own limit of processor time, so hard texts end by SIGPROF
            # whatever the load.
            if reply is signal.SIGPROF:
                return NO_CREDIT
            # Killed from outside. Anything else is a crash, as on deep recursion.
            is_crash = reply not in (signal.SIGKILL, signal.SIGTERM, signal.SIGALRM)
            detail = f"a crash ({reply.name})"
            return Verdict(Outcome.VERIFIER_FAILED, detail) if is_crash else NO_TIME
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
