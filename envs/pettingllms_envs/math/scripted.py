"""How the scripted policies write answers, with the steps that lead to them or without.

Oracle knows the answer, constant says 0, disagreeing has a tool user that says 0, random gives the
answer of another question. With formula the tool user types the formula of the question into a
program, and the reasoner takes over what the tool user answered before: neither knows mathematics.
In an ensemble reasoners then answer as with random, and the judge takes the most frequent answer.
"""

from __future__ import annotations

import re
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


def formula_of(question: str) -> str | None:
    r"""The only formula of a question as a Python expression.

    Returns:
        `3*(4-1)` for `Calculate $3 \cdot (4 - 1)$.`; None if there are several formulas or none, or
        if it has more than whole numbers, `+`, `-`, `\cdot` and brackets.
    """
    parts = question.split("$")
    # With several formulas nothing says which of them is asked for.
    if len(parts) != 3:
        return None
    formula = parts[1].replace(r"\cdot", "*").replace(" ", "")
    return formula if _CALCULATION.fullmatch(formula) else None


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
