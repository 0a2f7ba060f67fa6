"""What the agents of the mathematics environments read, how they are read, what policies write.

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
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import NamedTuple

from pettingllms.files import packaged
from pettingllms.parsing import one_line, quoted, read_boxed, read_program
from pettingllms.prompts import PromptTemplate
from pettingllms.types import ParseError, role_of
from pettingllms_envs.datasets import MathProblem
from pettingllms_envs.math.families import FAMILIES, Calculation
from pettingllms_envs.math.rules import Attempt, MathState

MAX_PROGRAM_CHARS = 20_000
WORK_CHARS = 1200
"""Maximum characters of a program or of the end of a reasoning that later turns show."""
ANSWER_CHARS = 200
"""Maximum characters of an answer that prompts show."""

FIELDS: Mapping[str, str] = {
    "question": "the problem",
    "turn": "number of the turn, from 1",
    "max_turns": "turns of an episode",
    "history": "what every agent did in earlier turns; empty in the first turn",
    "news": "what every agent did in the turn before; empty in the first turn",
    "answers_compact": "answers of the turn before, as 12|- (- for none); empty in the first",
    "candidates": "what agents of earlier stages did in this turn",
    "candidates_compact": "the answers among these, as 12|- (- for none)",
}


class Solution(NamedTuple):
    """A text that could be read: a program, or a reasoning with its answer."""

    text: str
    """The program, or the whole reasoning."""
    answer: str | None
    """The boxed answer of a reasoning; None for a program, which has yet to be run."""


def read_solution(text: str, *, is_program: bool) -> Solution | ParseError:
    r"""Read the program of an answer, or its last `\boxed{...}`; see `pettingllms.parsing`."""
    found = read_program(text, MAX_PROGRAM_CHARS) if is_program else read_boxed(text)
    if isinstance(found, ParseError):
        return found
    return Solution(found, None) if is_program else Solution(text, found)


def excerpt(text: str) -> str:
    """The end of a text, where a reasoning comes to its point, within `WORK_CHARS`."""
    text = text.strip()
    return text if len(text) <= WORK_CHARS else "... " + text[-WORK_CHARS:]


_OWN_LINE = re.compile(
    r"\s*(?:--- turn \d|\w+_\d+ (?:answered:|gave no answer)|turn \d+ of \d"
    r"|(?:problem|earlier turns|in this turn|the attempts|(?:the|your) last turn[^:]*):\s*$)",
    re.IGNORECASE,
)


def attempts_text(attempts: Sequence[Attempt]) -> str:
    """The attempts of one turn as a prompt shows them."""
    return "\n\n".join(map(_attempt_text, attempts))


def _attempt_text(attempt: Attempt) -> str:
    if attempt.answer is None:
        head = f"{attempt.agent} gave no answer ({attempt.report})."
    else:
        head = f"{attempt.agent} answered: {one_line(attempt.answer, ANSWER_CHARS)}"
    return f"{head}\n{quoted(attempt.work, _OWN_LINE)}" if attempt.work else head


def answers_compact(attempts: Sequence[Attempt]) -> str:
    """The answers of one turn, in the order of action: `12|-`."""
    # A bar within an answer would make it two.
    answers = (one.answer and one.answer.replace("|", "\\vert ") for one in attempts)
    return "|".join("-" if one is None else one_line(one, ANSWER_CHARS) for one in answers)


def history_text(state: MathState) -> str:
    """What is remembered of earlier turns, or an empty text."""
    first = state.turn - len(state.past) + 1
    turns = (
        f"--- turn {first + i} ---\n{attempts_text(attempts)}"
        for i, attempts in enumerate(state.past)
    )
    return "\n\n".join(turns)


def fields(state: MathState, max_turns: int) -> dict[str, object]:
    """The values of the placeholders in `FIELDS`."""
    history = history_text(state)
    news = attempts_text(state.past[-1]) if state.past else ""
    return {
        "question": state.problem.question,
        "turn": state.turn + 1,
        "max_turns": max_turns,
        "history": _WORDS["history"].format(history) if history else "",
        "news": news,
        "answers_compact": answers_compact(state.past[-1]) if state.past else "",
        "candidates": attempts_text(state.current),
        "candidates_compact": answers_compact(state.current),
    }


_WORDS: Mapping[str, str] = packaged("pettingllms_envs.math")


def task_prompts(templates: Mapping[str, PromptTemplate]) -> dict[str, PromptTemplate]:
    """The prompts for mathematical questions, for tasks that say what an answer looks like."""
    # Made from the prompts for mathematics, so that teams are told the same rules.
    words = {
        _WORDS["format"]: _WORDS["task_format"],
        "careful mathematician": "careful reasoner",
        "You are a mathematician who": "You are a programmer who",
        "the last line that it prints must": "all that it prints must",
        "mathematicians": "solvers",
    }

    def told(text: str) -> str:
        for known, other in words.items():
            text = text.replace(known, other)
        return text

    return {role: PromptTemplate(*map(told, parts)) for role, parts in templates.items()}


def team_prompts(is_alone: bool, sees_tool: bool) -> dict[str, PromptTemplate]:
    """The prompts of reasoner and tool, working together or alone; whether the tool acts first."""
    order = _WORDS["in_order" if sees_tool else "at_once"]
    setting = _WORDS["alone"] if is_alone else _WORDS["team"].format(order=order)
    shown = _WORDS["seen"] if sees_tool else ""
    user, update = _WORDS["user"], _update("update_alone" if is_alone else "update_team")
    return {
        "tool": PromptTemplate(f"{_asked('program')}\n\n{setting}", user, update),
        "reasoner": PromptTemplate(
            f"{_asked('reason')}\n\n{setting}", user + shown, update + shown
        ),
    }


def ensemble_prompts() -> dict[str, PromptTemplate]:
    """The prompts of the ensemble's roles."""
    asked = {"reasoner": _asked("reason"), "tool": _asked("program")}
    others = (_WORDS["user"], _update("update_panel"))
    panel = {
        role: PromptTemplate(f"{text}\n\n{_WORDS['panel']}", *others)
        for role, text in asked.items()
    }
    judge = PromptTemplate(_asked("judge"), _WORDS["judge_user"], _WORDS["judge_update"])
    return {**panel, "judge": judge}


def _asked(name: str) -> str:
    return _WORDS[name] + _WORDS["format"]


def _update(name: str) -> str:
    return _WORDS["update"].replace("{what}", _WORDS[name])


def board(state: MathState) -> str:
    """The state as readable text, with the reference answer."""
    problem = state.problem
    parts = [f"{problem.id}\n{problem.question}\nreference: {problem.answer}", history_text(state)]
    parts += [attempts_text(state.current)]
    if state.final_answer is not None:
        parts.append(f"handed in: {state.final_answer}")
    return "\n\n".join(part for part in parts if part)


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
