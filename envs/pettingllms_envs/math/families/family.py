"""The record one family of generated questions is written in."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

MIN_DIFFICULTY: Final = 1
MAX_DIFFICULTY: Final = 5

Params = tuple[int, ...]


def _identity(params: Params) -> Params:
    return params


@dataclass(frozen=True, slots=True)
class Family:
    """Questions of one kind, drawn at random, with exact answers.

    Attributes:
        name: Unique lower-case name.
        sample: Draws the numbers of a question; the difficulty runs from `MIN_DIFFICULTY` to
            `MAX_DIFFICULTY`.
        question: Numbers -> text.
        answer: Numbers -> exact answer, in LaTeX.
        canonical: Numbers -> the same for all questions that are the same up to renaming, such as
            swapped summands. Decides on the split.
        form: See `MathProblem.form`.
    """

    name: str
    sample: Callable[[random.Random, int], Params]
    question: Callable[[Params], str]
    answer: Callable[[Params], str]
    canonical: Callable[[Params], Params] = _identity
    form: str = ""

    def content(self, params: Params) -> bytes:
        """The canonical form of a question, for the splits."""
        return f"{self.name}:{','.join(map(str, self.canonical(params)))}".encode()


def latex(value: Fraction | int) -> str:
    r"""A rational number in LaTeX: `7`, `-\frac{3}{4}`."""
    value = Fraction(value)
    if value.denominator == 1:
        return str(value.numerator)
    sign = "-" if value < 0 else ""
    return rf"{sign}\frac{{{abs(value.numerator)}}}{{{value.denominator}}}"


def combination(*terms: tuple[int, str]) -> str:
    """A sum of multiples as one writes it: (2, "x"), (-1, "y"), (0, "z") gives `2x - y`."""
    text = ""
    for factor, symbol in terms:
        if factor == 0:
            continue
        size = str(abs(factor)) if abs(factor) != 1 or not symbol else ""
        sign = ("-" if factor < 0 else "") if not text else (" - " if factor < 0 else " + ")
        text += sign + size + symbol
    return text or "0"


def polynomial(coefficients: Sequence[int]) -> str:
    """A polynomial in x; the coefficient of the highest power comes first."""
    powers = range(len(coefficients) - 1, -1, -1)
    symbols = ("" if p == 0 else "x" if p == 1 else f"x^{{{p}}}" for p in powers)
    return combination(*zip(coefficients, symbols, strict=True))


def nonzero(rng: random.Random, bound: int) -> int:
    """A number from -bound to bound, but not 0."""
    return rng.choice((-1, 1)) * rng.randint(1, bound)


def listed(values: Params) -> str:
    """Numbers as a phrase: `3, 4 and 5`."""
    *most, last = map(str, values)
    return f"{', '.join(most)} and {last}" if most else last
