"""Checks of arguments: every unusable value raises a clear error.

Each check raises `InvalidArgument` when the value cannot be used, also for values of a wrong kind:
`True` is not a number, and `6.0` is not an integer. NumPy's numbers are numbers; checks of numbers
return the Python number, so that what is computed from it cannot overflow and is JSON data.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Collection, Sequence
from types import UnionType
from typing import Any, cast

import numpy as np

from pettingllms.errors import InvalidArgument, suggestion

MAX_REWARD = 1e18
"""Largest magnitude of a reward: its square is still a number in single precision."""


def plain(value: Any) -> Any:
    """A number or truth value of another library as Python's, anything else as it is.

    Those of NumPy, and arrays and tensors without dimensions, of any library.
    """
    if isinstance(value, np.generic) or getattr(value, "shape", None) == ():
        return value.item()
    return value


def check_reward(name: str, value: object) -> float:
    """A number from -`MAX_REWARD` to `MAX_REWARD` as a float; a truth value is 1 or 0."""
    value = plain(value)
    value = float(value) if isinstance(value, bool) else value
    return float(check_number(name, value, -MAX_REWARD, MAX_REWARD))


def check_whole(name: str, value: object, low: int, high: int | None = None) -> int:
    """An int from `low` to `high`; all else is refused. None: without an upper bound."""
    value = plain(value)
    is_kind = isinstance(value, int) and not isinstance(value, bool)
    if not (is_kind and low <= cast("int", value) <= (math.inf if high is None else high)):
        bound = f"of at least {low}" if high is None else f"from {low} to {high}"
        raise InvalidArgument(name, value, f"an integer {bound}")
    return cast("int", value)


def check_number(name: str, value: object, low: float, high: float | None = None) -> float:
    """A finite int or float from `low` to `high`; all else is refused. None: no upper bound."""
    value = plain(value)
    most = sys.float_info.max if high is None else high
    is_kind = isinstance(value, int | float) and not isinstance(value, bool)
    if not (is_kind and low <= cast("float", value) <= most):
        bound = f"finite number of at least {low}" if high is None else f"number, {low} to {high}"
        raise InvalidArgument(name, value, f"a {bound}")
    return cast("float", value)


def check_flag(name: str, value: object) -> bool:
    """True or False; all else is refused."""
    value = plain(value)
    if not isinstance(value, bool):
        raise InvalidArgument(name, value, "True or False")
    return value


def check_choice(
    name: str, value: object, allowed: Collection[str] | Collection[int], none: str = ""
) -> None:
    """Refuse everything but the texts or numbers in `allowed`; suggests the nearest text.

    Args:
        name: Name of the argument.
        value: What was given.
        allowed: What may be given.
        none: What None means; if empty, None is refused too.
    """
    if none and value is None:
        return
    is_kind = isinstance(value, str | int) and not isinstance(value, bool)
    if not is_kind or value not in allowed:
        names = ", ".join(map(str, allowed)) + (f", or None ({none})" if none else "")
        error = InvalidArgument(name, value, f"one of {names}{suggestion(value, allowed)}")
        error.choices = tuple(allowed)
        raise error


def check_texts(name: str, value: object, allowed: str) -> None:
    """Refuse everything but a sequence of texts; a single text is refused too."""
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        raise InvalidArgument(name, value, allowed)
    for item in cast("Sequence[object]", value):
        check_kind(name, item, str, allowed)


def check_kind(name: str, value: object, kind: type | UnionType, allowed: str) -> None:
    """Refuse everything but instances of `kind`, as `allowed` says."""
    if not isinstance(value, kind):
        raise InvalidArgument(name, value, allowed)
