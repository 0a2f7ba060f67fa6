"""How the scripted policies write answers.

Oracle knows the answer, constant says 0, disagreeing has a tool user that says 0, random gives the
answer of another question. With formula the tool user types the formula of the question into a
program, and the reasoner takes over what the tool user answered before: neither knows mathematics.
In an ensemble reasoners then answer as with random, and the judge takes the most frequent answer.
"""

from __future__ import annotations

import re

from pettingllms.types import role_of

_CALCULATION = re.compile(r"[0-9+*()-]+")


def write_answer(agent: str, answer: str, is_terse: bool = False) -> str:
    r"""Return how a scripted policy writes an answer in the role of an agent.

    Args:
        agent: The agent; a tool user prints the answer in a program.
        answer: The answer.
        is_terse: Whether to write nothing but `\boxed{...}`, or the shortest block of code.
    """
    if role_of(agent) == "tool":
        return write_program(repr(answer), is_terse)
    boxed = f"\\boxed{{{answer.strip().strip('$')}}}"
    return boxed if is_terse else f"The answer is {boxed}."


def write_program(expression: str, is_terse: bool = False) -> str:
    """Return a program that prints the value of a Python expression, in a block of code."""
    return f"```{'' if is_terse else 'python'}\nprint({expression})\n```"


def formula_of(question: str) -> str | None:
    r"""Return the only formula of a question as a Python expression.

    Returns:
        `3*(4-1)` for `Calculate $3 \cdot (4 - 1)$.`; None if there are several formulas or none, or
        if it has more than whole numbers, `+`, `-`, `\cdot` and brackets.
    """
    parts = question.split("$")
    if len(parts) != 3:
        return None
    formula = parts[1].replace(r"\cdot", "*").replace(" ", "")
    return formula if _CALCULATION.fullmatch(formula) else None
