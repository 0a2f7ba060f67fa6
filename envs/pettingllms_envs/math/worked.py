"""Worked answers: the steps that lead to a result, and then the result, as the oracle writes it."""

from __future__ import annotations

import re
from itertools import takewhile

from pettingllms.types import role_of
from pettingllms_envs.datasets import MathProblem
from pettingllms_envs.math.families import FAMILIES, Calculation
from pettingllms_envs.math.scripted import write_program

WORKED = {one.name: one.answer for one in FAMILIES if isinstance(one.answer, Calculation)}
"""Built-in families whose answers are calculated, which is a worked solution: name -> answers."""
_RESULT = re.compile(r"box(ed)?\{")
_BETWEEN_STEPS = re.compile(r"(?<=[.!?])\s+|\n\s*")


def worked_answer(problem: MathProblem, is_builtin: bool, agent: str, answer: str) -> str | None:
    r"""Return a right answer of several lines; None if it is not known how one comes to it.

    Args:
        problem: The problem. Its solution is shown by sentences, in a program as remarks.
        is_builtin: Whether it is of a built-in family: what is calculated is shown by steps.
        agent: A tool user writes a program, all others formulas or words.
        answer: What the oracle writes, with which the worked answer ends: `\boxed{...}`, or a block
            of code.
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
    imported = ["from fractions import Fraction"] if "Fraction" in program else []
    _, *rest = write_program(f"a{len(steps)}").split("\n")
    return "\n".join([fence, *imported, program, *rest])
