"""Is the output right? Comparison of what a program printed, or returned, with what it should."""

from __future__ import annotations

import json
import math
import re
from decimal import Decimal, InvalidOperation
from typing import Any, cast

TOLERANCE = 1e-6
"""Greatest relative or absolute error of a decimal number that still counts as equal."""

_DECIMAL = re.compile(r"[+-]?(\d+\.\d*|\.\d+|\d+(?=[eE]))([eE][+-]?\d{1,4})?")
_INTEGER = re.compile(r"[+-]?\d+")


def outputs_match(actual: str, expected: str, *, exact: bool = False) -> bool:
    """Return whether a printed text is the expected one.

    By default the texts are compared token by token; spaces and line ends only separate tokens.
    Tokens must be equal, except that a decimal number may differ from an expected number by the
    relative or absolute `TOLERANCE`; whole numbers are compared exactly, however long.

    Args:
        actual: What the program printed.
        expected: What it should have printed.
        exact: Compare character by character; only line-end style and the very last line end are
            free.
    """
    if exact:
        return _plain(actual) == _plain(expected)
    given, wanted = actual.split(), expected.split()
    return len(given) == len(wanted) and all(map(_tokens_match, given, wanted))


def _plain(text: str) -> str:
    return text.replace("\r\n", "\n").removesuffix("\n")


def _tokens_match(actual: str, expected: str) -> bool:
    if actual == expected:
        return True
    decimal = _DECIMAL.fullmatch(expected)
    if decimal and (_DECIMAL.fullmatch(actual) or _INTEGER.fullmatch(actual)):
        return _near(float(actual), float(expected))
    if _INTEGER.fullmatch(expected) and _DECIMAL.fullmatch(actual):
        return Decimal(actual) == Decimal(expected)
    return False


def _near(actual: float, expected: float) -> bool:
    return math.isclose(actual, expected, rel_tol=TOLERANCE, abs_tol=TOLERANCE)


def values_match(actual: Any, expected: Any) -> bool:
    """Return whether a returned value, as JSON gives it back, is the expected one.

    Lists and tuples are the same, `True` equals 1 as in Python, and numbers of which one is a
    decimal may differ by the relative or absolute `TOLERANCE`.
    """
    if isinstance(actual, float) or isinstance(expected, float):
        if not (_is_number(actual) and _is_number(expected)):
            return False
        return actual == expected or _near(_as_float(actual), _as_float(expected))
    if isinstance(actual, list) and isinstance(expected, list):
        given, wanted = cast("list[Any]", actual), cast("list[Any]", expected)
        return len(given) == len(wanted) and all(map(values_match, given, wanted))
    if isinstance(actual, dict) and isinstance(expected, dict):
        pairs, others = cast("dict[str, Any]", actual), cast("dict[str, Any]", expected)
        return pairs.keys() == others.keys() and all(
            values_match(value, others[key]) for key, value in pairs.items()
        )
    return actual == expected


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float)


def _as_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


def inputs_match(given: str, other: str, *, is_call: bool) -> bool:
    """Return whether two inputs say the same, however they are written.

    Standard inputs are compared token by token and numbers by value, so `017` is `17` and `2.0` is
    `2`; arguments of a function are compared as JSON values.

    Args:
        given: An input.
        other: Another input.
        is_call: Whether the inputs are JSON lists of a function's arguments.
    """
    if is_call:
        value = json_or_none(given)
        is_same = value is not None and value == json_or_none(other)
        return is_same or given.strip() == other.strip()
    tokens, others = given.split(), other.split()
    return len(tokens) == len(others) and all(
        token == wanted or _same_number(token, wanted)
        for token, wanted in zip(tokens, others, strict=True)
    )


def _same_number(token: str, other: str) -> bool:
    try:
        value, wanted = Decimal(token), Decimal(other)
    except InvalidOperation:
        return False
    # The words nan and inf are texts here, and a signalling nan cannot be compared.
    return value.is_finite() and wanted.is_finite() and value == wanted


def json_or_none(text: str) -> Any:
    """Return the value of a JSON text, or None where it is not JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
