"""Is the output right? Comparison of what a program printed, or returned, with what it should."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from decimal import Decimal, InvalidOperation
from typing import Any, cast

from pettingllms.sandbox.outcome import whole_number

TOLERANCE = 1e-6
"""Maximum relative or absolute error of a decimal number that still counts as equal."""

MAX_JSON_DEPTH = 100
"""JSON that is nested deeper is not read: Python's readers and writers of JSON are recursive."""

_DECIMAL = re.compile(r"[+-]?(\d+\.\d*|\.\d+|\d+(?=[eE]))([eE][+-]?\d{1,4})?", re.ASCII)
_INTEGER = re.compile(r"[+-]?\d+", re.ASCII)
_CONTAINERS = (list, tuple, dict)


def outputs_match(actual: str, expected: str, *, any_case: bool = False) -> bool:
    """Whether a printed text is the expected one.

    The texts are compared token by token; spaces and line ends only separate tokens. Tokens must be
    equal, except that a decimal number may differ from an expected number by the relative or
    absolute `TOLERANCE`; integers are compared exactly, however long. With `any_case` the case of
    letters is free, too.
    """
    if any_case:
        actual, expected = actual.casefold(), expected.casefold()
    given, wanted = actual.split(), expected.split()
    return len(given) == len(wanted) and all(map(_tokens_match, given, wanted))


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
    # Beyond the range of floats all numbers would be near.
    is_near = math.isclose(actual, expected, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    return is_near and math.isfinite(expected)


def values_match(actual: Any, expected: Any) -> bool:
    """Whether a returned value, as JSON gives it back, is the expected one.

    Lists and tuples are the same, and `True` equals 1 as in Python. Where a decimal number is
    expected, a number may differ from it by the relative or absolute `TOLERANCE`. Where a whole
    number is expected, the value must be exactly that number: 120.0 is 120, 119.99999999999997 is
    not. Values may be nested to any depth.
    """
    pairs: list[tuple[Any, Any]] = [(actual, expected)]
    while pairs:  # no recursion: the depth of a value is a program's choice
        given, wanted = pairs.pop()
        inner = _inner_pairs(given, wanted)
        if inner is None and not _scalars_match(given, wanted):
            return False
        pairs += inner or ()
    return True


def _inner_pairs(given: Any, wanted: Any) -> list[tuple[Any, Any]] | None:
    """The pairs that have to match within two containers of one kind and size, or None."""
    if isinstance(given, list | tuple) and isinstance(wanted, list | tuple):
        items, others = cast("list[Any]", given), cast("list[Any]", wanted)
        return list(zip(items, others, strict=True)) if len(items) == len(others) else None
    if isinstance(given, dict) and isinstance(wanted, dict):
        left, right = cast("dict[str, Any]", given), cast("dict[str, Any]", wanted)
        return [(left[key], right[key]) for key in left] if left.keys() == right.keys() else None
    return None


def _scalars_match(given: Any, wanted: Any) -> bool:
    if isinstance(given, _CONTAINERS) or isinstance(wanted, _CONTAINERS):
        return False
    if isinstance(wanted, float) and isinstance(given, int | float):
        return given == wanted or _near(_as_float(given), wanted)
    return given == wanted


def _as_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


def inputs_match(given: str, other: str, *, is_call: bool) -> bool:
    """Whether two inputs say the same, however they are written.

    Standard inputs are compared token by token and numbers by value, so `017` is `17` and `2.0` is
    `2`; arguments of a function (`is_call`) are compared as JSON values.
    """
    if is_call:
        value = json_or_none(given)
        is_same = value is not None and value == json_or_none(other)
        return is_same or given.strip() == other.strip()
    tokens, others = given.split(), other.split()
    return len(tokens) == len(others) and all(map(_same_token, tokens, others))


def input_extends(given: str, other: str) -> bool:
    """Whether a standard input holds all tokens of another one, in their order."""
    tokens = iter(given.split())
    return all(any(_same_token(token, wanted) for token in tokens) for wanted in other.split())


def _same_token(token: str, other: str) -> bool:
    return token == other or _same_number(token, other)


def _same_number(token: str, other: str) -> bool:
    try:
        value, wanted = Decimal(token), Decimal(other)
    except InvalidOperation:
        return False
    # The words nan and inf are texts here, and a signalling nan cannot be compared.
    return value.is_finite() and wanted.is_finite() and value == wanted


def json_or_none(text: str, *, is_returned: bool = False) -> Any:
    """The value of a JSON text, or None where it is not JSON.

    A text that is nested deeper than `MAX_JSON_DEPTH` does not count as JSON, and one with a number
    of thousands of digits only as a value that a function returns; see `whole_number`.
    """
    try:
        value = json.loads(text, parse_int=whole_number if is_returned else None)
    except (ValueError, RecursionError):
        return None
    return value if is_shallow(value) else None


def is_shallow(value: Any) -> bool:
    """Whether a value of JSON is nested at most `MAX_JSON_DEPTH` deep."""
    level = [value]
    for _ in range(MAX_JSON_DEPTH):
        level = [inner for outer in level for inner in _items(outer)]
        if not level:
            return True
    return not any(isinstance(inner, _CONTAINERS) for inner in level)


def _items(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return cast("dict[str, Any]", value).values()
    return cast("list[Any]", value) if isinstance(value, list | tuple) else ()
