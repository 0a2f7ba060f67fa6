"""The program that compares two answers. `verifier` has the sandbox run it; nobody imports it."""

from __future__ import annotations

import gc
import logging
from typing import Any

import math_verify

logging.disable(logging.CRITICAL)
# The process ends with the comparison, before a collection could pay for itself.
gc.disable()


def _parsed(answer: str) -> list[Any]:
    # LaTeX only: the reader of plain expressions would pass model text on to sympy's parse_expr.
    return math_verify.parse(
        rf"\boxed{{{answer}}}",
        extraction_config=(math_verify.LatexExtractionConfig(boxed_match_priority=0),),
        fallback_mode="no_fallback",
        parsing_timeout=None,  # pyright: ignore[reportArgumentType]
    )


def _is_near(reference: list[Any], candidate: list[Any], tolerance: float) -> bool:
    try:
        gap = abs(float(reference[0]) - float(candidate[0]))
    except (TypeError, ValueError, OverflowError):
        return False
    return gap <= tolerance * (1 + 1e-9)


def _outcome(reference: str, candidate: str, tolerance: float) -> tuple[str, str]:
    wanted, given = _parsed(reference), _parsed(candidate)
    if not given:
        return "unparsable", "not a formula"
    if not wanted:
        return "verifier_failed", "the reference cannot be read"
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
