"""`DiningEnv`: the shell around the table of the philosophers."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Unpack

from pettingllms.arguments import check_whole
from pettingllms.env import MAX_TURNS, ShellArguments, TextEnv
from pettingllms.errors import InvalidArgument
from pettingllms.hooks import Difficulty
from pettingllms.pages import page
from pettingllms.prompts import (
    PromptFields,
    PromptTemplate,
    meanings,
    templates_in,
)
from pettingllms.types import ParseError, Transition, to_jsonable
from pettingllms_envs.dining.rules import (
    MAX_SIGHT,
    WAIT,
    Level,
    Request,
    Table,
    after,
    canonical_form,
    generate,
    is_deadlock,
    is_possible,
    shortest_schedule,
)
from pettingllms_envs.dining.text import (
    LIMITS,
    MAX_MESSAGE,
    DiningState,
    Move,
    Utterance,
    choice_of,
    level_text,
    parse_level,
    parse_levels,
    placeholders,
    read_move,
    talk,
    terse,
    within,
)
from pettingllms_envs.level_files import read_level_option, read_levels
from pettingllms_envs.reward import LOST, SUCCESS, Costs, costs, fault_text, shaped
from pettingllms_envs.team_table import asks_for_mark, constant_fields, seat_of

_FAULT = "a choice that is not possible"
_MESSAGE = 0.01
"""What a message in every turn of an episode costs."""

STARVED = 2 * LOST
"""The potential when time is too short. It is below that of a deadlock: a team that is paid for
avoiding deadlocks learns to do nothing (arXiv 2606.07845)."""


def _costs_text(turn_costs: Costs, message: float, reward: str) -> str:
    text = fault_text(turn_costs, _FAULT, "a solved task", reward)
    return text if reward == "outcome" else f"{text[:-1]}; each message {-message:.3g}."


def potential(table: Table, turns_left: int, shortest: int) -> float:
    """The potential of a table, in [-0.02, 0.1].

    It is that of `shaped` for the turns of a shortest schedule, `LOST` in a deadlock, and
    `STARVED` as soon as fewer turns are left than a shortest schedule takes.
    """
    schedule = shortest_schedule(table)
    if schedule is None:
        return LOST
    return STARVED if len(schedule) > turns_left else shaped(len(schedule), shortest)


def _far(philosophers: int) -> dict[str, int]:
    """A level at which words have to be passed on, and no fixed turns are fast enough."""
    return {"philosophers": philosophers, "meals": 4, "min_turns": 9, "max_turns": 13, "sight": 2}


@page(philosophers=4, split="test")
class DiningEnv(TextEnv[DiningState]):
    """Share forks with neighbours who choose at the same time, so that everybody eats.

    ## Task

    Philosophers sit around a table with one fork between each two. A meal takes both forks of a
    philosopher, who takes one a turn. All choose at the same time, and a fork for which two reach
    goes to neither. Everybody needs a number of meals that no one else knows; messages are short
    and cost a little. The task is solved when everybody has eaten; it has failed when everybody
    holds one fork (deadlock), and somebody starves if turns run out. Every level can be solved
    by those who know only what they see and hear: it leaves the turns that it takes to say, and to
    pass on, what everybody needs, before all follow a shortest schedule.

    ## Agents and roles

    `philosopher_0`, `philosopher_1`, ...: one stage, so that each acts on the table at the start
    of the turn. They have one role and equal prompts; what differs is where they sit. Philosopher
    i has fork i on the left and fork i + 1 (modulo their number) on the right.

    ## Observation

    The rules, the turn, which philosopher the reader is and how much the reader has to eat; of
    everybody in sight the meals eaten, the fork held, the choice of the turn before and the latest
    message. `prompt_fields` lists the placeholders of prompts; those of the need are private.

    ## Action

    One word: `#### left`, `right` (take that fork), `release` (put down what one holds) or
    `wait`; `take left` and the letters L, R, D (down) and W are read too. A fork that is not free
    at the start of the turn cannot be taken. Whoever holds both forks at its end eats and puts
    them back. What is put down is free from the next turn on.

    After the choice, `say` and a message: `#### wait say I need 2` (behind a letter a digit: `W2`).
    Others read it from the next turn on, in quotation marks: letters, digits and common signs in
    one line, cut to 60 characters.

    ## Reward

    d is the number of turns of a shortest schedule, d0 that at the start. The potential is
    0.1 * (1 - d / d0) up to d0 and 0.01 * (d0 / d - 1) beyond it; it is -0.01 in a deadlock, and
    -0.02 as soon as fewer turns are left than d. T is `max_turns`.

    | part | when | value |
    |---|---|---|
    | team | the last philosopher has chosen | rise of the potential |
    | team | everybody has eaten | +1 |
    | local | unreadable text | -0.05 / T |
    | local | reaching for a fork that is held, releasing nothing | -0.04 / T |
    | local | a message | -0.01 / T |

    Doing nothing pays less than any attempt: time that runs out is worse than a deadlock. With
    alpha=1 the return of every agent is in [1.05, 1.1] in a solved episode and in [-0.07, 0) in
    an unsolved one; a team part lies in [-0.12, 1.12], a local part in [-0.05 / T, 0].

    ## Termination

    Terminated when everybody has eaten (`success`) and in a deadlock; truncated after `max_turns`
    turns.

    ## Info keys

    - `choice`: what the philosopher chose; `wait` for an unreadable text.
    - `message`: what the philosopher said; empty if nothing. All others are about the table after
      the turn, and all philosophers have them as soon as the last one has chosen:
    - `meals_left`: meals still to eat, of all.
    - `distance`: turns of a shortest schedule from here; -1 in a deadlock.
    - `shortest`: turns of a shortest schedule of the level.
    - `deadlock`: whether everybody holds one fork.

    ## Arguments

    - `philosophers`: number of philosophers, 2 to 12.
    - `meals`: maximum number of meals of one philosopher, 1 to 4.
    - `min_turns`: minimum number of turns of a shortest schedule.
    - `max_turns`: turns of an episode; levels leave at least `philosophers` // 2 / `sight`.
    - `sight`: philosophers to each side whom one sees and hears, 1 to 6.
    - `split`: `"train"`, `"validation"`, `"test"` or None (all); decided by a level's content up
      to rotation and reflection of the table.
    - `levels`: levels to draw from instead of generating: a path or pattern of files with one
      level per line, or a list of level texts (`1 0 2 / . 1 .`: meals / holders of the forks);
      `split` and the ranges do not apply to them. `reset(options={"level": text})` sets one
      episode's level.
    - `prompts`: role -> replacement of its prompt; without `####` in it, the scripted policies
      answer with a letter, which is all that a tiny model needs to write.

    ## Source

    Dijkstra's dining philosophers, as in "GRPO Does Not Close the Multi-Agent Coordination Gap"
    (arXiv 2606.07845). That paper found its reward to have a maximum at zero actions; here doing
    nothing pays least. Changed: everybody has a number of meals to eat and alone knows it, talk is
    possible and costs, tables differ from level to level, are certified by a shortest schedule and
    split by content.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012
        "name": "dining_v0",
        "render_modes": ["ansi", "human"],
        "unseen_arguments": ("min_turns", "sight"),
    }
    scripted_policies: ClassVar[tuple[str, ...]] = (
        "oracle",
        "talk",
        "alternate",
        "greedy",
        "random",
        "wait",
    )
    difficulties: ClassVar[Difficulty] = Difficulty(
        {
            "easy": {"philosophers": 4, "meals": 2, "max_turns": 16},
            "medium": {"philosophers": 6, "meals": 4, "max_turns": 14},
            "hard": {"philosophers": 8, "meals": 4, "min_turns": 8, "max_turns": 12},
            "expert": _far(10),
            "extreme": _far(12),
        },
        toys={"easy": 6},
    )
    default_prompts: ClassVar[Mapping[str, PromptTemplate]] = templates_in(
        "pettingllms_envs.dining"
    )
    prompt_fields: ClassVar[Mapping[str, str]] = {**meanings(placeholders(MAX_SIGHT)), **LIMITS}
    private_fields: ClassVar[tuple[str, ...]] = ("need", "need_compact")

    def __init__(
        self,
        *,
        philosophers: int = 6,
        meals: int = 4,
        min_turns: int = 2,
        max_turns: int = 14,
        sight: int = MAX_SIGHT,
        split: str | None = "train",
        levels: str | Path | Sequence[str] | None = None,
        **shell: Unpack[ShellArguments],
    ) -> None:
        max_turns = check_whole("max_turns", max_turns, 1, MAX_TURNS)
        self._request = Request(philosophers, meals, min_turns, max_turns, sight, split).checked()
        super().__init__(
            stages=[[f"philosopher_{seat}" for seat in range(self._request.philosophers)]],
            max_turns=max_turns,
            **shell,
        )
        self._costs, self._price = costs(max_turns, 1), -_MESSAGE / max_turns
        # Prompts say how far words go, since passing them on is part of the task.
        near = f"those who sit up to {sight} places away read it"
        listeners = "everybody reads it" if sight >= philosophers // 2 else near
        # Prompts say what counts: an agent cannot mind a cost that it has never read.
        costs_text = _costs_text(self._costs, self._price, self.reward)
        limits = (philosophers, meals, max_turns, MAX_MESSAGE, listeners, costs_text)
        shown = dict(zip(LIMITS, limits, strict=True))
        # Of the argument, and not of the state: what is out of sight is not in any placeholder.
        self._placeholders = placeholders(self._request.sight) | constant_fields(LIMITS, shown)
        self.board = f"{philosophers} philosophers"
        given = () if levels is None else read_levels(levels, parse_levels, parse_level)
        self._levels = tuple(map(self._fitting, given))
        self._is_terse = not asks_for_mark(self.prompts["philosopher"])

    def _fitting(self, level: Level) -> Level:
        request, hunger, needed = self._request, level.start.hunger, level.shortest
        # A level of a file has to fit the prompts, which say how many sit there and what they need.
        is_small = max(hunger) <= request.meals and needed <= self.max_turns
        if len(hunger) != request.philosophers or not is_small:
            raise InvalidArgument(
                "level",
                f"{len(hunger)} philosophers with up to {max(hunger)} meals in {needed} turns",
                f"{request.philosophers} philosophers with up to {request.meals} meals in at most "
                f"{self.max_turns} turns",
                "Change philosophers, meals or max_turns.",
            )
        return level

    def _generate(self, rng: random.Random, options: Mapping[str, Any]) -> DiningState:
        if options.get("level") is not None:
            level = self._fitting(read_level_option(options["level"], parse_level))
        elif self._levels:
            level = rng.choice(self._levels)
        else:
            level = generate(rng, self._request)
        return DiningState(
            level, level.start, self.max_turns, (Utterance(0),) * len(level.start.forks)
        )

    def _fields(self, state: DiningState, agent: str, turn: int) -> Mapping[str, object]:
        return PromptFields(self._placeholders, state, agent, turn)

    def _parse(self, state: DiningState, agent: str, text: str) -> Move | ParseError:
        return read_move(text)

    def _act(self, state: DiningState, agent: str, action: Move | ParseError) -> Transition:
        seat = seat_of(agent)
        local = self._cost(state.table, seat, action)
        choice, message = Move(WAIT) if isinstance(action, ParseError) else action
        said = list(state.said)
        if message:
            said[seat] = Utterance(self.max_turns - state.turns_left + 1, message)
        # A choice stays out of the table until all have chosen: nobody can react to it.
        state = state._replace(choices=(*state.choices, choice), said=tuple(said))
        info = {"choice": choice, "message": message}
        if len(state.choices) < len(self.possible_agents):
            return Transition(state, local=local, info=info)
        return self._served(state, local, info)

    def _served(self, state: DiningState, local: float, info: Mapping[str, Any]) -> Transition:
        """What a turn does, now that everybody has chosen."""
        table = after(state.table, state.choices)
        turns_left, shortest = state.turns_left - 1, state.level.shortest
        following = DiningState(state.level, table, turns_left, state.said, last=state.choices)
        solved = not any(table.hunger)
        # By differences, so that an episode adds up to the potential of its end, whatever the way.
        rise = potential(table, turns_left, shortest)
        rise -= potential(state.table, state.turns_left, shortest)
        ended, facts = solved or is_deadlock(table), self._facts(following)
        return Transition(following, rise + SUCCESS * solved, local, ended, solved, info, facts)

    def _cost(self, table: Table, seat: int, action: Move | ParseError) -> float:
        if isinstance(action, ParseError):
            return self._costs.malformed
        # A fork that a neighbour gets is bad luck and costs nothing; one that is held was in sight.
        cost = 0.0 if is_possible(table, seat, action.choice) else self._costs.empty
        return cost + self._price * bool(action.message)

    def _facts(self, state: DiningState) -> dict[str, Any]:
        schedule = shortest_schedule(state.table)
        return {
            "meals_left": sum(state.table.hunger),
            "distance": -1 if schedule is None else len(schedule),
            "shortest": state.level.shortest,
            "deadlock": is_deadlock(state.table),
        }

    def _ansi(self, state: DiningState) -> str:
        return level_text(state.table)

    def _level_json(self, state: DiningState) -> str:
        return canonical_form(state.table).decode()

    def _key_json(self, state: DiningState) -> Any:
        return to_jsonable((state.level, state.table, state.turns_left, state.choices))

    def _scripted(self, state: DiningState, agent: str, policy: str, rng: random.Random) -> str:
        seat, turn = seat_of(agent), self.max_turns - state.turns_left
        if policy == "talk":
            near = within(seat, self._request.sight, len(state.said))
            heard = {other: state.said[other].text for other in near}
            move = Move(*talk(state.table, turn, state.eaten, seat, heard))
        else:
            move = Move(choice_of(state.table, turn, seat, policy, rng))
        if self._is_terse:
            return terse(move)
        return f"#### {move.choice}" + f" say {move.message}" * bool(move.message)
