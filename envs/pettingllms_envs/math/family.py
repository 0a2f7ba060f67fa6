"""The record one family of generated questions is written in, and calculated answers."""

from __future__ import annotations

import operator
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partialmethod
from typing import Any, Final, NamedTuple

from pettingllms.files import packaged

MIN_DIFFICULTY: Final = 1
MAX_DIFFICULTY: Final = 5

Params = tuple[int, ...]


_QUESTIONS: dict[str, str] = packaged("pettingllms_envs.math", "families.toml")
"""Name of a family -> its question, with places for what `Family.shown` gives."""


def _identity(params: Params) -> Params:
    return params


@dataclass(frozen=True, slots=True)
class Family:
    """Questions of one kind, drawn at random, with exact answers.

    Attributes:
        name: Unique lower-case name; `families.toml` has its text.
        sample: Draws the numbers of a question; the difficulty runs from `MIN_DIFFICULTY` to
            `MAX_DIFFICULTY`.
        value: Numbers -> exact value, or the answer in LaTeX where it is not one number.
        shown: Numbers -> what the text shows of them.
        canonical: Numbers -> the same for all questions that are the same up to renaming, such as
            swapped summands. Decides on the split.
        form: See `MathProblem.form`.
    """

    name: str
    sample: Callable[[random.Random, int], Params]
    value: Callable[[Params], Fraction | int | str]
    shown: Callable[[Params], Sequence[object]] = _identity
    canonical: Callable[[Params], Params] = _identity
    form: str = ""

    def question(self, params: Params) -> str:
        """The text of a question."""
        return _QUESTIONS[self.name].format(*self.shown(params))

    def answer(self, params: Params) -> str:
        """The exact answer, in LaTeX."""
        value = self.value(params)
        return value if isinstance(value, str) else latex(value)

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


class Step(NamedTuple):
    """One calculation with two numbers."""

    formula: str
    """Numbers and result, in LaTeX: `3 \\cdot (-4) = -12`."""
    program: str
    """The same in Python, which refers to earlier steps by name: `a3 = 3 * a2`."""


class Calculation:
    """An answer by `+`, `-`, `*` and `/` alone, of a function that minds no kind of numbers."""

    def __init__(self, value: Callable[[Sequence[Any]], Any]) -> None:
        self._value = value

    def __call__(self, params: Params) -> Fraction:
        """The exact value."""
        return self._value([Fraction(number) for number in params])

    def steps(self, params: Params) -> list[Step]:
        """How the answer comes about; `a1`, `a2`, ... are the names of the results."""
        steps: list[Step] = []
        self._value([_Told(Fraction(number), str(number), steps) for number in params])
        return steps


class _Told:
    """A number that writes down what is calculated with it."""

    def __init__(self, value: Fraction, name: str, steps: list[Step]) -> None:
        self.value, self.name, self.steps = value, name, steps

    # For exponents and counts, of which there is no step to write down.
    def __int__(self) -> int:
        return int(self.value)

    def with_(self, sign: str, other: _Told | int, *, is_second: bool = False) -> _Told:
        """The result of a calculation with another number, which is written down."""
        if isinstance(other, int):
            other = _Told(Fraction(other), str(other), self.steps)
        first, second = (other, self) if is_second else (self, other)
        written, calculate = _SIGNS[sign]
        value = calculate(first.value, second.value)
        name = f"a{len(self.steps) + 1}"
        formula = f"{latex(first.value)} {written} {_bracketed(latex(second.value))}"
        program = f"{first.name} {sign} {_bracketed(second.name)}"
        if sign == "/":
            program = f"Fraction({first.name}, {second.name})"
        self.steps.append(Step(f"{formula} = {latex(value)}", f"{name} = {program}"))
        return _Told(value, name, self.steps)


def _bracketed(number: str) -> str:
    return f"({number})" if number.startswith("-") else number


_SIGNS: dict[str, tuple[str, Callable[[Fraction, Fraction], Fraction]]] = {
    "+": ("+", operator.add),
    "-": ("-", operator.sub),
    "*": (r"\cdot", operator.mul),
    "/": (":", operator.truediv),
}
# Python looks operators up in the class, so that they are set there, both ways round.
for _sign, _name in zip("+-*/", ("add", "sub", "mul", "truediv"), strict=True):
    setattr(_Told, f"__{_name}__", partialmethod(_Told.with_, _sign))
    setattr(_Told, f"__r{_name}__", partialmethod(_Told.with_, _sign, is_second=True))
