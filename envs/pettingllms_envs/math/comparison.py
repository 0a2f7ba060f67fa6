"""The program that compares two answers. `verifier` has the sandbox run it; nobody imports it."""

from __future__ import annotations

import gc
import logging
from typing import Any

import math_verify
from math_verify import grader, parser
from sympy import Eq, Float, MatrixBase, Ne, Rational

logging.disable(logging.CRITICAL)
# The process ends with the comparison, before a collection could pay for itself.
gc.disable()

_by_decimals: Any = grader.sympy_numeric_eq
_evaluated: Any = grader.safe_sympy_doit


def _is_close(a: Any, b: Any, float_rounding: int, numeric_precision: int) -> bool:
    """As the library's, which takes all tiny numbers for equal, and by relative precision too."""
    if not _by_decimals(a, b, float_rounding, numeric_precision):
        return False
    # The library has called this function for each entry.
    if isinstance(a, MatrixBase) or isinstance(b, MatrixBase):
        return True
    precision = 1e-6 if a.has(Float) or b.has(Float) else 1e-20
    symbols = sorted(a.free_symbols | b.free_symbols, key=str)
    values = {symbol: Rational(11 + place, 7) for place, symbol in enumerate(symbols)}
    for read in (_evaluated, _without_percent):
        first, second = (read(one).subs(values).evalf(30) for one in (a, b))
        if abs((first - second).evalf(30)) <= precision * max(abs(first), abs(second)):
            return True
    return False


def _without_percent(number: Any) -> Any:
    return grader.get_pct_val(number, number)


# Within sets, intervals, matrices and relations too: the library looks the name up.
grader.sympy_numeric_eq = _is_close


def _parsed(answer: str) -> list[Any]:
    # LaTeX only: the reader of plain expressions would pass model text on to sympy's parse_expr.
    return math_verify.parse(
        rf"\boxed{{{answer}}}",
        extraction_config=(math_verify.LatexExtractionConfig(boxed_match_priority=0),),
        fallback_mode="no_fallback",
        parsing_timeout=None,  # pyright: ignore[reportArgumentType]
    )


def _as_equation(relation: Any) -> list[Any]:
    return [Eq(*relation.args, evaluate=False)]


def _is_near(reference: list[Any], candidate: list[Any], tolerance: float) -> bool:
    try:
        gap = abs(float(reference[0]) - float(candidate[0]))
    except (TypeError, ValueError, OverflowError):
        return False
    return gap <= tolerance * (1 + 1e-9)


def _outcome(reference: str, candidate: str, tolerance: float) -> tuple[str, str]:
    # For both answers alike: the library takes `i` for real in `2i`, but not in `i`, and symbols
    # that differ in this are never equal.
    is_complex = any(map(grader.should_treat_as_complex, (reference, candidate)))

    def treat_as_complex(latex_str: str) -> bool:
        return is_complex

    parser.should_treat_as_complex = treat_as_complex
    wanted, given = _parsed(reference), _parsed(candidate)
    if not given:
        return "unparsable", "not a formula"
    if not wanted:
        return "verifier_failed", "the reference cannot be read"
    # The library solves relations to compare them, and cannot solve `x \neq 5`.
    if isinstance(wanted[0], Ne) and isinstance(given[0], Ne):
        wanted, given = _as_equation(wanted[0]), _as_equation(given[0])
    # Without the library's own limit: it works by a Python signal handler, which does not
    # interrupt long integer arithmetic. The sandbox's limits hold whatever is computed.
    is_equal = math_verify.verify(
        wanted, given, timeout_seconds=None, allow_set_relation_comp=True, raise_on_error=True
    )
    if is_equal or (tolerance and _is_near(wanted, given, tolerance)):
        return "correct", ""
    return "wrong", ""


def compare(reference: str, candidate: str, tolerance: float) -> tuple[str, str]:
    """The name of the outcome of comparing two answers in LaTeX, and a remark."""
    try:
        return _outcome(reference, candidate, tolerance)
    except Exception as error:  # noqa: BLE001  whatever the library raises on odd mathematics
        return "verifier_failed", type(error).__name__
