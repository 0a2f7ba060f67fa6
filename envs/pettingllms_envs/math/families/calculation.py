"""Answers that are calculated, of which every step can be told."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partialmethod
from typing import Any, NamedTuple

from pettingllms_envs.math.families.family import Params, latex


class Step(NamedTuple):
    """One calculation with two numbers."""

    formula: str
    """Numbers and result, in LaTeX: `3 \\cdot (-4) = -12`."""
    program: str
    """The same in Python, which refers to earlier steps by name: `a3 = 3 * a2`."""


class Calculation:
    """An answer by `+`, `-`, `*` and `/` alone.

    Args:
        value: Numbers of a question -> its answer. It must not mind what kind of numbers it gets.
    """

    def __init__(self, value: Callable[[Sequence[Any]], Any]) -> None:
        self._value = value

    def __call__(self, params: Params) -> str:
        """Return the exact answer, in LaTeX."""
        return latex(self._value([Fraction(number) for number in params]))

    def steps(self, params: Params) -> list[Step]:
        """Return how the answer comes about; `a1`, `a2`, ... are the names of the results."""
        steps: list[Step] = []
        self._value([_Told(Fraction(number), str(number), steps) for number in params])
        return steps


class _Told:
    """A number that writes down what is calculated with it."""

    def __init__(self, value: Fraction, name: str, steps: list[Step]) -> None:
        self.value, self.name, self.steps = value, name, steps

    def __int__(self) -> int:
        return int(self.value)

    def with_(self, sign: str, other: _Told | int, *, is_second: bool = False) -> _Told:
        """Return the result of a calculation with another number, which is written down."""
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
for _sign, _name in zip("+-*/", ("add", "sub", "mul", "truediv"), strict=True):
    setattr(_Told, f"__{_name}__", partialmethod(_Told.with_, _sign))
    setattr(_Told, f"__r{_name}__", partialmethod(_Told.with_, _sign, is_second=True))
