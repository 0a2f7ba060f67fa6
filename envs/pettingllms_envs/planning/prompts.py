"""What the agents of a game with proposals read: templates per team, and their placeholders."""

from __future__ import annotations

from collections.abc import Mapping

from pettingllms.prompts import PromptField, PromptTemplate
from pettingllms.transition import role_of
from pettingllms_envs.planning.game import PlanningState, Rules, Words
from pettingllms_envs.python_tool import INSTRUCTIONS
from pettingllms_envs.reward import HISTORY, costs, costs_text, history_text
from pettingllms_envs.team_table import TEAMS

_LIMITS = """\
Moves are executed in order until the task is solved. An illegal move changes nothing.
There are {max_turns} turns, with at most {moves_per_turn} moves each. {costs}"""
_ROLES = {
    "single": "",
    "planner": " You are the planner in a team of two: each turn the {mate}, then you decide which "
    "moves are executed.",
    "proposer": " You are the proposer in a team of two: each turn you propose moves, then the "
    "planner reads them and decides which moves are executed.",
    "tool": " You are the tool agent in a team of two: each turn you write a program, then the "
    "planner reads it and what it prints, and decides which moves are executed.",
    "single-tool": " Each turn you write a program, and the moves that it prints are executed.",
}
_MATES = {
    "proposer-planner": "proposer proposes moves",
    "tool-planner": "tool agent writes a program, which is run",
}
_HEARD = {
    "proposer-planner": "The proposer proposes: {proposal}",
    "tool-planner": "The tool agent's program:\n{program}\nWhat it did:\n{result}",
}
_ANSWER = """\
You may think first. The last line of your answer is #### and a JSON list of moves, for example:
#### """


def templates(words: Words, team: str, limits: Mapping[str, str]) -> dict[str, PromptTemplate]:
    """Return role -> prompt template of a team.

    Args:
        words: The words of the game.
        team: One of `TEAMS`.
        limits: Values of `max_turns`, `moves_per_turn` and `costs`, the same in all observations.
    """
    found: dict[str, PromptTemplate] = {}
    for (agent,) in TEAMS[team]:
        role = role_of(agent)
        duty = _ROLES[team if team in _ROLES else role].format(mate=_MATES.get(team, ""))
        answer = _ANSWER + words.example
        if role == "tool":
            answer = f"{words.program_input} Its answer is the last list that it prints, such as "
            answer += f"{words.example}.\n{INSTRUCTIONS}"
        system = [words.task + duty, words.rules, _LIMITS.format(**limits), answer]
        turn = "Turn {turn} of " + limits["max_turns"] + ".{history}"
        heard = _HEARD.get(team, "") if role == "planner" else ""
        user = [turn, words.constant, words.situation, heard]
        update = [turn, words.situation, heard]
        parts = ("\n".join(filter(None, part)) for part in (system, user, update))
        found[role] = PromptTemplate(*parts)
    return found


def limits_of(max_turns: int, moves_per_turn: int, reward: str) -> dict[str, str]:
    """Return the limits that prompts name."""
    told = costs_text(costs(max_turns, moves_per_turn), "illegal move", reward)
    return {"max_turns": f"{max_turns}", "moves_per_turn": f"{moves_per_turn}", "costs": told}


def common_fields(rules: Rules) -> dict[str, PromptField[PlanningState]]:
    """Return the placeholders that all games of this kind have."""
    return {
        "proposal": PromptField(
            "the moves proposed this turn, as a JSON list",
            lambda state, agent, turn: rules.write(state.proposal),
        ),
        "proposal_compact": PromptField(
            "the same, as short as can be",
            lambda state, agent, turn: rules.write_terse(state.proposal),
        ),
        "program": PromptField(
            "the tool agent's program of this turn",
            lambda state, agent, turn: state.program or "none",
        ),
        "result": PromptField(
            "what that program did", lambda state, agent, turn: state.result or "none"
        ),
        "turn": PromptField("the present turn, from 1", lambda state, agent, turn: turn + 1),
        "history": PromptField(HISTORY, lambda state, agent, turn: history_text(state.unchanged)),
        "moves_used": PromptField(
            "moves executed so far", lambda state, agent, turn: state.moves_used
        ),
    }


def all_prompts(words: Words) -> dict[str, PromptTemplate]:
    """Return the templates of every role, for `default_prompts`."""
    limits = limits_of(4, 10, "shaped")
    proposer = templates(words, "proposer-planner", limits)
    return {**proposer, **templates(words, "tool-planner", limits)}


def all_fields(
    rules: Rules, own: Mapping[str, PromptField[PlanningState]]
) -> dict[str, PromptField[PlanningState]]:
    """Return the placeholders of a game: its own and those that all games of this kind have."""
    return {**own, **common_fields(rules)}
