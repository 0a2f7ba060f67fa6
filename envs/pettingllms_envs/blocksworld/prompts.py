"""What the agents read: the words of the prompts, and placeholders of the game."""

from __future__ import annotations

from pettingllms.prompts import PromptField
from pettingllms_envs.blocksworld import text
from pettingllms_envs.planning.game import PlanningState
from pettingllms_envs.planning.prompts import DUTIES_APART, LIMITS, Words

WORDS = Words(
    goal="Build the stacks of the goal",
    rules=f"""\
Stacks are lists of blocks from bottom to top; their order does not matter. A move takes a block \
from the top of a stack and puts it on the table, where it starts a new stack, or on the block at \
the top of another stack: ["B","table"] or ["B","A"].
{LIMITS}""",
    user="""\
Turn {turn} of {max_turns}.{history}
The goal: {goal}
Stacks now: {stacks}""",
    update="""\
Turn {turn} of {max_turns}.{history}
Stacks now: {stacks}""",
    example='[["B","table"],["C","A"]]',
    program="""\
The program reads two lines from stdin: the stacks now and the goal, each as a JSON list of lists \
of blocks from bottom to top. It prints a JSON list of moves. Its answer is the last list that it \
prints, such as [["B","table"],["C","A"]].""",
    duties=DUTIES_APART,
)
WEIGHTS = WORDS._replace(
    rules=f"""\
Stacks are lists of blocks from bottom to top; their order does not matter. Every block has a \
weight and a load: all that stands on it, at whatever height, may weigh at most its load. A move \
takes a block with all that stands on it and puts it on the table, where it starts a new stack, or \
on the block at the top of another stack: ["B","table"] or ["B","A"]. What a move lifts is limited \
by weight, and the table has places for so many stacks.
{LIMITS}""",
    user="""\
Turn {turn} of {max_turns}.{history}
{weights}
The goal: {goal}
Stacks now: {stacks}""",
    program="""\
The program reads three lines from stdin: the stacks now and the goal, each as a JSON list of \
lists of blocks from bottom to top, and a JSON object with "weight" and "load", which are objects \
from block to number, and the numbers "lift" and "places". It prints a JSON list of moves. Its \
answer is the last list that it prints, such as [["B","table"],["C","A"]].""",
)
"""The words where blocks have weights."""
FIELDS: dict[str, PromptField[PlanningState]] = {
    "stacks": PromptField(
        "the stacks now, as a JSON list of lists",
        lambda state, agent, turn: text.stacks_json(state.position),
    ),
    "goal": PromptField(
        "the stacks of the goal, as a JSON list of lists",
        lambda state, agent, turn: text.stacks_json(state.level.goal),
    ),
    "weights": PromptField(
        "weight and load of every block, and the limits of moves and table; empty without weights",
        lambda state, agent, turn: text.weights_text(state.level),
    ),
    "stacks_compact": PromptField(
        "the stacks now as words: AC,B",
        lambda state, agent, turn: text.stacks_compact(state.position),
    ),
    "goal_compact": PromptField(
        "the stacks of the goal as words",
        lambda state, agent, turn: text.stacks_compact(state.level.goal),
    ),
    "supports_compact": PromptField(
        "for each block: what it is on now, what it is on in the goal, ! if it is on top, else .",
        lambda state, agent, turn: text.supports_compact(state.level, state.position),
    ),
}
