"""What philosophers read: the state of an episode, the prompt and its placeholders."""

from __future__ import annotations

from typing import NamedTuple

from pettingllms.prompts import PromptField, PromptTemplate
from pettingllms_envs.dining.generator import Level
from pettingllms_envs.dining.rules import Choices, Table
from pettingllms_envs.dining.text import (
    Utterance,
    choices_text,
    table_compact,
    table_text,
    within,
)


class DiningState(NamedTuple):
    """The state of an episode."""

    level: Level
    table: Table
    turns_left: int
    said: tuple[Utterance, ...]
    """The latest message of each philosopher."""
    choices: Choices = ()
    """What the first philosophers have chosen in this turn."""
    last: Choices = ()
    """What all chose in the turn before."""

    @property
    def eaten(self) -> tuple[int, ...]:
        """Meals that each has eaten, of those that count."""
        pairs = zip(self.level.start.hunger, self.table.hunger, strict=True)
        return tuple(need - left for need, left in pairs)


PROMPT = PromptTemplate(
    """\
{philosophers} philosophers sit around a table, numbered from 0 to the right. Between each two of \
them lies one fork: fork i is on the left of philosopher i, and on the right of the one before. \
Each needs a number of meals that nobody else knows, from 0 to {meals}; all have to eat theirs \
within {max_turns} turns.
Each turn all choose at the same time, without knowing what the others choose: left (take the left \
fork), right (take the right fork), release (put down what you hold) or wait. Only forks that are \
free at the start of the turn can be taken; one for which two reach goes to neither. At the end of \
the turn whoever holds both forks eats one meal. Forks that are put down, by release or after a \
meal, are free from the next turn on. Once everybody holds one fork at the end of a turn, the task \
has failed: that is a deadlock, and it is too late to release.
With your choice you may say something, at most {max_message} characters; {listeners} from the \
next turn on.
{costs}
You may think first. The last line of your answer is #### and your choice, and then, if you want \
to say something, say and your words, for example:
#### left
or
#### wait say I need 2""",
    """\
Turn {turn} of {max_turns}.{last}
{table}
You are philosopher {seat}. Your left fork is fork {left}, your right fork is fork {right}. You \
alone know that {need}.""",
)


def seat_of(agent: str) -> int:
    """Return the number of a philosopher."""
    return int(agent.rpartition("_")[2])


def _need(state: DiningState, seat: int) -> str:
    left = state.table.hunger[seat]
    return f"philosopher {seat} needs {left} more meal{'s' * (left != 1)}"


def placeholders(sight: int) -> dict[str, PromptField[DiningState]]:
    """Return the placeholders of philosophers who see so many places to each side."""

    def seen(state: DiningState, agent: str) -> list[int]:
        return within(seat_of(agent), sight, len(state.said))

    return {
        "table": PromptField(
            "a line per philosopher in sight, and the free forks among theirs",
            lambda state, agent, turn: table_text(
                state.table, state.eaten, state.said, seen(state, agent)
            ),
        ),
        "table_compact": PromptField(
            "meals eaten, fork held and last sign said of each philosopher in sight, reader first",
            lambda state, agent, turn: table_compact(
                state.table, state.eaten, state.said, seen(state, agent)
            ),
        ),
        "need": PromptField(
            "the meals that the reader has still to eat",
            lambda state, agent, turn: _need(state, seat_of(agent)),
        ),
        "need_compact": PromptField(
            "the same as a digit", lambda state, agent, turn: state.table.hunger[seat_of(agent)]
        ),
        "seat": PromptField("the reader's number", lambda state, agent, turn: seat_of(agent)),
        "left": PromptField(
            "the number of the reader's left fork", lambda state, agent, turn: seat_of(agent)
        ),
        "right": PromptField(
            "the number of the reader's right fork",
            lambda state, agent, turn: (seat_of(agent) + 1) % len(state.said),
        ),
        "last": PromptField(
            "a line on what those in sight chose last turn; begins with a line break if not empty",
            lambda state, agent, turn: choices_text(state.last, seen(state, agent)),
        ),
        "turn": PromptField("the present turn, from 1", lambda state, agent, turn: turn + 1),
        "turns_left": PromptField(
            "turns left, with the present one", lambda state, agent, turn: state.turns_left
        ),
    }


LIMITS = {
    "philosophers": "number of philosophers",
    "meals": "maximum number of meals of one philosopher",
    "max_turns": "turns of the episode",
    "max_message": "longest message, in characters",
    "listeners": "who reads a message",
    "costs": "a sentence on what bad answers and messages cost",
}
