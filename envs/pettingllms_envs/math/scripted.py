"""How the scripted policies write answers, with the steps that lead to them or without.

Oracle knows the answer, constant says 0, disagreeing has a tool user that says 0, random gives the
answer of another question. With formula the tool user types the formula of the problem into a
program, and the reasoner takes over what the tool user answered before: neither knows mathematics.
In an ensemble reasoners then answer as with random, and the judge takes the most frequent answer.
With numbers the tool user calculates something with the numbers of the question, and the reasoner
answers one of the numbers in sight: the form of an answer, right by chance only.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from itertools import takewhile

from pettingllms.types import role_of
from pettingllms_envs.datasets import MathProblem
from pettingllms_envs.math.families import FAMILIES
from pettingllms_envs.math.family import Calculation

_CALCULATION = re.compile(r"[0-9+*()-]+")


def write_answer(agent: str, answer: str, is_terse: bool = False) -> str:
    r"""How a scripted policy writes an answer: a tool user prints it in a program, others box it.

    Terse policies write nothing but `\boxed{...}`, or the shortest block of code.
    """
    if role_of(agent) == "tool":
        return write_program(repr(answer), is_terse)
    boxed = f"\\boxed{{{answer.strip().strip('$')}}}"
    return boxed if is_terse else f"The answer is {boxed}."


def write_program(expression: str, is_terse: bool = False) -> str:
    """A program that prints the value of a Python expression, in a block of code."""
    return f"```{'' if is_terse else 'python'}\nprint({expression})\n```"


def formula_of(problem: MathProblem) -> str | None:
    r"""The solution of a problem, or the only formula of its question, as a Python expression.

    Returns:
        `3*(4-1)` for `Calculate $3 \cdot (4 - 1)$.`; None if there are several formulas or none, or
        if it has more than whole numbers, `+`, `-`, `\cdot` and brackets.
    """
    parts = problem.question.split("$")
    # With several formulas nothing says which of them is asked for.
    found = (problem.solution or "", parts[1] if len(parts) == 3 else "")
    formulas = (text.replace(r"\cdot", "*").replace(" ", "") for text in found)
    return next(filter(_CALCULATION.fullmatch, formulas), None)


def numbers_of(question: str) -> list[str]:
    """The whole numbers of a question, the last four; 0 if it has none."""
    return re.findall(r"\d+", question)[-4:] or ["0"]


def by_chance(numbers: Sequence[str], rng: random.Random) -> str:
    """A Python expression of numbers in their order, with operations drawn at random."""
    first, *others = (str(int(number)) for number in numbers)
    return first + "".join(rng.choice("+-*") + number for number in others)


WORKED = {one.name: one.value for one in FAMILIES if isinstance(one.value, Calculation)}
"""Built-in families whose answers are calculated, which is a worked solution: name -> answers."""
_RESULT = re.compile(r"box(ed)?\{")
_BETWEEN_STEPS = re.compile(r"(?<=[.!?])\s+|\n\s*")


def worked_answer(problem: MathProblem, is_builtin: bool, agent: str, answer: str) -> str | None:
    r"""A right answer of several lines; None if it is not known how one comes to it.

    Solutions of problems are shown by sentences, in a tool user's program as remarks; what a
    built-in family calculates is shown by steps. The worked answer ends with what the oracle
    writes, `\boxed{...}` or a block of code.
    """
    is_tool, (fence, *rest) = role_of(agent) == "tool", answer.split("\n")
    if problem.solution is not None:
        # Other solutions may follow the first, and none is to show the result before its end.
        found = _BETWEEN_STEPS.split(problem.solution)
        steps = takewhile(lambda step: not _RESULT.search(step), found)
        lines = [fence, *(f"# {step}" for step in steps), *rest] if is_tool else [*steps, answer]
        return "\n".join(lines)
    family, _, numbers = problem.id.partition(":")
    if not (is_builtin and family in WORKED):
        return None
    steps = WORKED[family].steps(tuple(map(int, numbers.split("/"))))
    if not is_tool:
        return "\n".join([*(f"${step.formula}$" for step in steps), answer])
    program = "\n".join(step.program for step in steps)
    # Only where it is used: the shown program should be as short as one would write it.
    imported = ["from fractions import Fraction"] if "Fraction" in program else []
    _, *rest = write_program(f"a{len(steps)}").split("\n")
    return "\n".join([fence, *imported, program, *rest])
