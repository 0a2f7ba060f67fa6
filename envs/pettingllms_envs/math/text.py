"""What the agents of the mathematics environments read, and how their texts are read."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import NamedTuple

from pettingllms import parsing
from pettingllms.parsing import one_line
from pettingllms.prompts import PromptTemplate
from pettingllms.types import ParseError
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


def read_program(text: str) -> Solution | ParseError:
    """Read the program of an answer; see `pettingllms.parsing`."""
    program = parsing.read_program(text, MAX_PROGRAM_CHARS)
    return program if isinstance(program, ParseError) else Solution(program, None)


def read_boxed(text: str) -> Solution | ParseError:
    r"""Read the last `\boxed{...}` of an answer; see `pettingllms.parsing`."""
    answer = parsing.read_boxed(text)
    return answer if isinstance(answer, ParseError) else Solution(text, answer)


def excerpt(text: str) -> str:
    """The end of a text, where a reasoning comes to its point, within `WORK_CHARS`."""
    text = text.strip()
    return text if len(text) <= WORK_CHARS else "... " + text[-WORK_CHARS:]


def attempts_text(attempts: Sequence[Attempt]) -> str:
    """The attempts of one turn as a prompt shows them."""
    return "\n\n".join(map(_attempt_text, attempts))


def _attempt_text(attempt: Attempt) -> str:
    if attempt.answer is None:
        head = f"{attempt.agent} gave no answer ({attempt.report})."
    else:
        head = f"{attempt.agent} answered: {one_line(attempt.answer, ANSWER_CHARS)}"
    return f"{head}\n{attempt.work}" if attempt.work else head


def answers_compact(attempts: Sequence[Attempt]) -> str:
    """The answers of one turn, in the order of action: `12|-`."""
    answers = (attempt.answer for attempt in attempts)
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


_WORDS: Mapping[str, str] = tomllib.loads(
    resources.files("pettingllms_envs.math").joinpath("prompts.toml").read_text("utf-8")
)


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
