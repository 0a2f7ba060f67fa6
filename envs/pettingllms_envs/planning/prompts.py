"""What the agents of all games with proposals read: templates per team, common placeholders."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, cast

from pettingllms.prompts import PromptField, PromptTemplate
from pettingllms.types import role_of
from pettingllms_envs.planning.game import Game, PlanningState
from pettingllms_envs.python_tool import INSTRUCTIONS
from pettingllms_envs.reward import HISTORY, costs, costs_text, history_text
from pettingllms_envs.team_table import TEAMS

DUTIES: Mapping[str, str] = {
    "single": "{goal}.",
    "planner": "{goal}, in a team of two: each turn the {mate}, then you, the planner, decide "
    "which {moves} are {done}.",
    "proposer": "{goal}, in a team of two: each turn you, the proposer, propose {moves}. The "
    "planner reads them and decides which {moves} are {done}.",
    "call": "{goal}, in a team of two: each turn you, the tool agent, {call}. The planner reads "
    "{outcome} and decides which {moves} are {done}.",
    "python": "{goal}, in a team of two: each turn you, the tool agent, write a program. The "
    "planner reads it and what it prints, and decides which {moves} are {done}.",
    "single-call": "{goal}: each turn you {call}. {alone}",
    "single-python": "{goal}: each turn you write a program. The {moves} that it prints are "
    "{done}.",
}
"""The first sentences of a prompt: what an agent is for."""

DUTIES_APART: Mapping[str, str] = {
    "single": "{goal}.",
    "planner": "{goal}. You are the planner in a team of two: each turn the {mate}, then you "
    "decide which {moves} are {done}.",
    "proposer": "{goal}. You are the proposer in a team of two: each turn you propose {moves}, "
    "then the planner reads them and decides which {moves} are {done}.",
    "python": "{goal}. You are the tool agent in a team of two: each turn you write a program, "
    "then the planner reads it and what it prints, and decides which {moves} are {done}.",
    "single-python": "{goal}. Each turn you write a program, and the {moves} that it prints are "
    "{done}.",
}
"""The same for games whose goal is a sentence of several parts."""

_LIMITS = {
    "max_turns": "turns of the episode",
    "moves_per_turn": "maximum number of moves executed in a turn",
    "costs": "a sentence on what bad answers cost",
}
_MATES = {
    "proposer": "proposer proposes {moves}",
    "python": "tool agent writes a program, which is run",
}
_READS = {
    "proposer": "The proposer proposes: {proposal}",
    "python": "The tool agent's program:\n{tool_call}\nWhat it did:\n{tool_result}",
}
_ANSWER = """\
You may think first. The last line of your answer is #### and a JSON list of {moves}, for example:
#### {example}"""


LIMITS = """\
Moves are executed in order until the task is solved. An illegal move changes nothing.
There are {max_turns} turns, with at most {moves_per_turn} moves each. {costs}"""
"""The end of `Words.rules` in games that have nothing to add."""


class CallWords(NamedTuple):
    """What prompts say about the helper functions of a game."""

    duty: str
    """What the tool agent does: `"call functions"`."""
    mate: str
    """The same in the planner's prompt: `"tool agent calls functions"`."""
    outcome: str
    """What the planner reads: `"the results"`."""
    alone: str
    """What becomes of the results if the tool agent works alone."""
    answer: str
    """The functions, and the form of the answer; `{use}` is what becomes of the moves."""
    reads: str
    """How the planner's prompt shows calls and results."""
    planner_functions: str = ""
    """What the planner's prompt says about the functions."""


class Words(NamedTuple):
    """What the prompts of a game say; `{max_turns}`, `{moves_per_turn}` and `{costs}` are known."""

    goal: str
    """What is to be done, without a full stop."""
    rules: str
    """What a position and a move are, and the limits."""
    user: str
    """The turn and the position, with placeholders."""
    example: str
    """A list of moves, as JSON."""
    program: str
    """What a program reads and what it prints."""
    calls: CallWords | None = None
    update: str = ""
    """What replaces `user` from the second turn on in delta mode; empty: `user`."""
    moves: str = "moves"
    """What answers consist of."""
    done: str = "executed"
    """What is done with the moves that the planner decides on."""
    illegal: str = "illegal move"
    """What `Costs.illegal` is the cost of."""
    answer_note: str = ""
    """What else the prompt says about the answer of planner and proposer."""
    duties: Mapping[str, str] = DUTIES
    counts_moves: bool = True
    """Whether a turn has a limit of moves, so that prompts may speak of it."""


def limits_of(words: Words, max_turns: int, moves_per_turn: int, reward: str) -> dict[str, object]:
    """Return the placeholders that are the same in all observations of an environment.

    In the game's own words they are filled in once; replaced prompts may name them too.
    """
    sentence = costs_text(costs(max_turns, moves_per_turn), words.illegal, reward)
    limits: dict[str, object] = {"max_turns": max_turns, "costs": sentence}
    return {**limits, "moves_per_turn": moves_per_turn} if words.counts_moves else limits


def templates(
    words: Words, team: str, tool: str, limits: Mapping[str, object]
) -> dict[str, PromptTemplate]:
    """Return role -> prompt template of a team.

    Args:
        words: The words of the game.
        team: One of `TEAMS`.
        tool: `"python"` or `"call"`; only teams with a tool agent use it.
        limits: What `limits_of` returned.
    """
    mate = tool if team == "tool-planner" else "proposer"
    found: dict[str, PromptTemplate] = {}
    for (agent,) in TEAMS[team]:
        role = role_of(agent)
        is_planner = role == "planner"
        duty = "single" if team == "single" else tool if role == "tool" else role
        duty = f"single-{tool}" if team == "single-tool" else duty
        functions = words.calls.planner_functions if words.calls and mate == "call" else ""
        system = [
            _duty(words, duty, mate),
            words.rules,
            functions if is_planner and team == "tool-planner" else "",
            _answer(words, tool if role == "tool" else "", is_alone=team == "single-tool"),
        ]
        reads = _reads(words, mate) if is_planner and team != "single" else ""
        user = [words.user, reads]
        update = [words.update, reads] if words.update else []
        parts = ("\n".join(filter(None, part)) for part in (system, user, update))
        found[role] = PromptTemplate(*(_filled(part, limits) for part in parts))
    return found


def _duty(words: Words, duty: str, mate: str) -> str:
    calls = words.calls or CallWords("", "", "", "", "", "")
    mate = calls.mate if mate == "call" else _MATES[mate].format(moves=words.moves)
    return words.duties[duty].format(
        goal=words.goal,
        mate=mate,
        moves=words.moves,
        done=words.done,
        call=calls.duty,
        outcome=calls.outcome,
        alone=calls.alone,
    )


def _answer(words: Words, tool: str, is_alone: bool) -> str:
    if tool == "python":
        return f"{words.program}\n{INSTRUCTIONS}"
    if tool == "call":
        assert words.calls is not None  # the shell refuses tool="call" where there are no functions
        return words.calls.answer.replace("{use}", words.done if is_alone else "your proposal")
    answer = _ANSWER.format(moves=words.moves, example=words.example)
    return f"{answer}\n{words.answer_note}" if words.answer_note else answer


def _reads(words: Words, mate: str) -> str:
    return words.calls.reads if words.calls and mate == "call" else _READS[mate]


def _filled(text: str, limits: Mapping[str, object]) -> str:
    for name, value in limits.items():
        text = text.replace(f"{{{name}}}", str(value))
    return text


def default_prompts(words: Words, max_turns: int, moves_per_turn: int) -> dict[str, PromptTemplate]:
    """Return the templates of every role with the given default limits."""
    limits = limits_of(words, max_turns, moves_per_turn, "shaped")
    pair = templates(words, "proposer-planner", "python", limits)
    return {**pair, **templates(words, "tool-planner", "python", limits)}


def all_fields(
    game: Game[Any, Any, Any, Any],
    own: Mapping[str, PromptField[PlanningState]],
    limits: Mapping[str, object],
) -> dict[str, PromptField[PlanningState]]:
    """Return the placeholders of a game: its own, and those that all games have.

    Args:
        game: The game.
        own: Placeholders of the game; they replace common ones of the same name.
        limits: What `limits_of` returned.
    """
    max_turns = cast("int", limits["max_turns"])
    common: dict[str, PromptField[PlanningState]] = {
        "proposal": PromptField(
            "what the tool agent or the proposer proposes this turn, as a JSON list",
            lambda state, agent, turn: game.write(state.proposal),
        ),
        "proposal_compact": PromptField(
            "the same, as short as can be",
            lambda state, agent, turn: game.write_terse(state.level, state.proposal),
        ),
        "tool_call": PromptField(
            "the tool agent's calls or program of this turn",
            lambda state, agent, turn: state.tool_call or "none",
        ),
        "tool_result": PromptField(
            "what they gave", lambda state, agent, turn: state.tool_result or "none"
        ),
        "turn": PromptField("the present turn, from 1", lambda state, agent, turn: turn + 1),
        "turns_left": PromptField(
            "turns left, with the present one", lambda state, agent, turn: max_turns - turn
        ),
        "history": PromptField(HISTORY, lambda state, agent, turn: history_text(state.unchanged)),
    }
    if "moves_per_turn" in limits:
        common["moves_used"] = PromptField(
            "moves executed so far", lambda state, agent, turn: state.moves_used
        )
    constant = {name: _constant(name, value) for name, value in limits.items()}
    return {**common, **constant, **own}


def _constant(name: str, value: object) -> PromptField[PlanningState]:
    return PromptField(_LIMITS[name], lambda state, agent, turn: value)
