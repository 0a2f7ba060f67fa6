"""Verdicts on answers: math-verify in the sandbox; a failure is never a wrong answer."""

from __future__ import annotations

import enum
import functools
import os
from pathlib import Path
from typing import Any, NamedTuple

from pettingllms.arguments import check_number, check_whole
from pettingllms.callers import FairShare, current_caller
from pettingllms.sandbox import Limits, Sandbox, Status
from pettingllms_envs.math.notation import (
    MAX_ANSWER_CHARS,
    depth,
    drops_duplicates,
    in_other_case,
    in_shape_of,
    is_decimal,
    is_reduced,
    normalised,
    numeral_bases,
    objection,
    same_number,
    split_unit,
    unit_named,
    without_unit,
)

_COMPARISON = Path(__file__).with_name("comparison.py")
_MEMORY_BYTES = 2 << 30
_WALL_FACTOR, _WALL_EXTRA_S = 5, 5
"""Seconds on the clock that a comparison may take: the first number per second of processor
time, plus the second. Only an overloaded machine takes that long."""
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
    """Why the answer is not right, or cannot be judged; may be empty."""

    @property
    def is_correct(self) -> bool:
        """Whether the answer is right."""
        return self.outcome is Outcome.CORRECT


NO_TIME = Verdict(Outcome.VERIFIER_FAILED, "the machine left the verifier no time")
NO_CREDIT = Verdict(
    Outcome.VERIFIER_FAILED, "more processor time than is left to a caller who used much before"
)


class _Passing(Exception):
    """A verdict on the moment and not on the texts, which is not to be remembered."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict)
        self.verdict = verdict


class Verifier:
    """Compares answers by mathematical equivalence.

    Numbers, equal texts, other units, bases and variables, and answers that are not written out are
    judged here, in time linear in the text; all else by math-verify in the sandbox, each in a fresh
    process.
    A comparison has a quarter of the time limit first; one that needs more then has the whole, if
    its caller does not owe more than that. What comparisons take is owed by their callers, an
    environment or else a thread, until four times as long has passed. Verdicts are remembered,
    failures too, except those of the moment. Safe to use from threads and in forked processes.

    Args:
        num_workers: Comparisons at the same time, 1 to 1024. Servers start when first needed
            (seconds each).
        timeout_s: Seconds of processor time that one comparison may take, 0.001 to 3600. Honest
            answers of the public data sets take at most a tenth of the default.

    Raises:
        InvalidArgument: An argument is out of its range.
        MissingDependency: math-verify is not installed.
    """

    def __init__(self, num_workers: int = 1, timeout_s: float = 2.0) -> None:
        check_whole("num_workers", num_workers, 1, MAX_WORKERS)
        check_number("timeout_s", timeout_s, MIN_TIMEOUT_S, MAX_TIMEOUT_S)
        self.num_workers = num_workers
        self.timeout_s = timeout_s
        self._sandbox = Sandbox(flavour="math_verify", workers=num_workers)
        self._debts_of: dict[int, FairShare] = {}
        # Two threads may ask the same at the same time, which is harmless.
        self._remembered = functools.lru_cache(_CACHE_SIZE)(self._ask)

    def __reduce__(self) -> tuple[Any, ...]:
        return Verifier, (self.num_workers, self.timeout_s)

    @property
    def _debts(self) -> FairShare:
        # A forked child must not wait for a lock that a thread of its parent held.
        return self._debts_of.setdefault(os.getpid(), FairShare(_FORGIVEN))

    def judge(
        self, reference: str, answer: str, *, unit: str = "", tolerance: float = 0.0, form: str = ""
    ) -> Verdict:
        """Whether an answer equals the reference and is written out (see `objection`).

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
        # Also one that ends: to write the question's digits out is no conversion.
        if form == "fraction" and is_decimal(answer):
            return Verdict(Outcome.WRONG, "a decimal, where a fraction is asked for")
        # Units are compared here and removed: math-verify does not convert or compare them.
        texts = normalised(reference), normalised(answer)
        if form == "fraction" and not is_reduced(texts[1]):
            return Verdict(Outcome.WRONG, "a fraction that is not in lowest terms")
        # One that has a unit makes a quantity of the other: elsewhere `3m` is 3 times m.
        units = [split_unit(text, is_quantity=bool(unit))[1] for text in texts]
        is_quantity = unit_named(unit) is not None or any(units)
        wanted, own_unit = split_unit(texts[0], is_quantity=is_quantity)
        given, given_unit = split_unit(texts[1], is_quantity=is_quantity)
        expected_unit = unit_named(unit) or own_unit
        if expected_unit and given_unit and given_unit != expected_unit:
            return Verdict(Outcome.WRONG, f"in another unit: {given_unit.name}")
        wanted = without_unit(wanted, unit)
        given = in_shape_of(wanted, without_unit(given, unit))
        if verdict := _judged_here(wanted, given, tolerance):
            return verdict
        try:
            verdict = self._remembered(wanted, given, tolerance)
        except _Passing as passing:
            return passing.verdict
        # math-verify compares bare lists as sets; a double root must be given twice.
        if verdict.is_correct and drops_duplicates(wanted, given):
            return Verdict(Outcome.WRONG, "the same answers, but not equally often")
        return verdict

    def equivalence(self, first: str, second: str, *, unit: str = "") -> Verdict:
        """Whether two answers mean the same; neither is taken for the reference."""
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

    def _ask(self, wanted: str, given: str, tolerance: float) -> Verdict:
        """The verdict of math-verify, after a second attempt if the first was too short.

        Raises:
            _Passing: The verdict says nothing about the texts.
        """
        verdict = self._attempt((wanted, given, tolerance), _SHORT * self.timeout_s)
        if verdict == NO_CREDIT and self._debts.owed_s(current_caller()) <= self.timeout_s:
            verdict = self._attempt((wanted, given, tolerance), self.timeout_s)
            if verdict == NO_CREDIT:
                detail = f"more than {self.timeout_s} s of processor time"
                return Verdict(Outcome.VERIFIER_FAILED, detail)
        if verdict in (NO_TIME, NO_CREDIT):
            raise _Passing(verdict)
        return verdict

    def _attempt(self, texts: tuple[str, str, float], limit_s: float) -> Verdict:
        """The verdict of one run, `NO_CREDIT` if it takes longer than a limit."""
        wall_s = min(MAX_TIMEOUT_S, _WALL_FACTOR * limit_s + _WALL_EXTRA_S)
        limits = Limits(wall_s, max(MIN_TIMEOUT_S, limit_s), _MEMORY_BYTES)
        (call,) = self._sandbox.run_calls(_program(), "compare", [texts], limits)
        execution = call.execution
        # On the clock, not by processor: a caller also pays for keeping a worker from others.
        self._debts.charge(current_caller(), execution.wall_s)
        match execution.status:
            case Status.CPU_LIMIT:
                return NO_CREDIT
            case Status.TIMEOUT | Status.SANDBOX_ERROR:
                return NO_TIME
            case Status.OK if call.has_value:
                outcome, detail = call.value
                return Verdict(Outcome(outcome), detail)
            case _:
                # Not an exception of the library, which is a value: deep recursion, say.
                return Verdict(Outcome.VERIFIER_FAILED, f"a crash ({execution.status})")


@functools.cache
def _program() -> str:
    return _COMPARISON.read_text("utf-8")


def _judged_here(wanted: str, given: str, tolerance: float) -> Verdict | None:
    """A verdict that needs no verifier, or None."""
    if not given:
        return Verdict(Outcome.UNPARSABLE, "empty")
    if wanted == given:
        return Verdict(Outcome.CORRECT)
    # What math-verify would drop or round is compared before: it reads `12_8` as 12 and `X` as `x`.
    if numeral_bases(wanted) != numeral_bases(given):
        return Verdict(Outcome.WRONG, "in another base, or with other digits")
    if in_other_case(wanted, given):
        return Verdict(Outcome.WRONG, "variables in the other case")
    # Most answers are numbers; exact arithmetic here saves a round trip through a process.
    is_same = same_number(wanted, given, tolerance)
    if is_same is not None:
        return Verdict(Outcome.CORRECT if is_same else Outcome.WRONG)
    if max(depth(wanted), depth(given)) > MAX_DEPTH:
        return Verdict(Outcome.UNPARSABLE, f"brackets nested deeper than {MAX_DEPTH}")
    # Before the verifier: refusing `2^{10}` here also means never evaluating it.
    reason = objection(wanted, given)
    return Verdict(Outcome.WRONG, reason) if reason else None


@functools.cache
def default_verifier() -> Verifier:
    """The verifier that all environments of this process share.

    Raises:
        MissingDependency: math-verify is not installed.
    """
    return Verifier(num_workers=max(1, min(4, (os.cpu_count() or 1) - 1)))
