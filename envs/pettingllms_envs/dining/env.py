"""`DiningEnv`: the shell around the table of the philosophers."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from pettingllms.arguments import check_whole
from pettingllms.difficulty import Difficulty
from pettingllms.env import MAX_TURNS, TextEnv
from pettingllms.errors import InvalidArgument
from pettingllms.prompts import (
    PromptField,
    PromptFields,
    PromptTemplate,
    meanings,
    resolve_prompts,
)
from pettingllms.transition import ParseError, Transition
from pettingllms_envs.dining.generator import Level, Request, generate
from pettingllms_envs.dining.policies import choice_of
from pettingllms_envs.dining.rules import (
    WAIT,
    Choices,
    Table,
    after,
    canonical_form,
    is_deadlock,
    is_possible,
    shortest_schedule,
)
from pettingllms_envs.dining.text import (
    choices_text,
    level_text,
    parse_level,
    parse_levels,
    read_choice,
    table_compact,
    table_text,
    terse,
)
from pettingllms_envs.level_files import read_level_option, read_levels
from pettingllms_envs.reward import LOST, SUCCESS, costs, fault_text, shaped
from pettingllms_envs.team_table import asks_for_mark

_FAULT = "a choice that is not possible"

STARVED = 2 * LOST
"""The potential when time is too short. It is below that of a deadlock: a team that is paid for
avoiding deadlocks learns to do nothing (arXiv 2606.07845)."""


class DiningState(NamedTuple):
    """The state of an episode."""

    level: Level
    table: Table
    turns_left: int
    choices: Choices = ()
    """What the first philosophers have chosen in this turn."""
    last: Choices = ()
    """What all chose in the turn before."""


_PROMPT = PromptTemplate(
    """\
{philosophers} philosophers sit around a table, numbered from 0 to the right. Between each two of \
them lies one fork: fork i is on the left of philosopher i, and on the right of the one before. \
Everybody has to eat the meals that the table shows, all within {max_turns} turns.
Each turn all choose at the same time, without knowing what the others choose: left (take the left \
fork), right (take the right fork), release (put down what you hold) or wait. Only forks that are \
free at the start of the turn can be taken; one for which two reach goes to neither. At the end of \
the turn whoever holds both forks eats one meal. Forks that are put down, by release or after a \
meal, are free from the next turn on. Once everybody holds one fork at the end of a turn, the task \
has failed: that is a deadlock, and it is too late to release.
{costs}
You may think first. The last line of your answer is #### and your choice, for example:
#### left""",
    """\
Turn {turn} of {max_turns}.{last}
{table}
You are philosopher {seat}. Your left fork is fork {left}, your right fork is fork {right}.""",
)


def _seat(agent: str) -> int:
    return int(agent.rpartition("_")[2])


_FIELDS: dict[str, PromptField[DiningState]] = {
    "table": PromptField(
        "a line per philosopher, and the free forks",
        lambda state, agent, turn: table_text(state.table),
    ),
    "table_compact": PromptField(
        "meals and holders of forks as seen by the reader, who comes first",
        lambda state, agent, turn: table_compact(state.table, _seat(agent)),
    ),
    "seat": PromptField("the reader's number", lambda state, agent, turn: _seat(agent)),
    "left": PromptField(
        "the number of the reader's left fork", lambda state, agent, turn: _seat(agent)
    ),
    "right": PromptField(
        "the number of the reader's right fork",
        lambda state, agent, turn: (_seat(agent) + 1) % len(state.table.forks),
    ),
    "last": PromptField(
        "a line on what all chose last turn; begins with a line break unless it is empty",
        lambda state, agent, turn: choices_text(state.last),
    ),
    "turn": PromptField("the present turn, from 1", lambda state, agent, turn: turn + 1),
    "turns_left": PromptField(
        "turns left, with the present one", lambda state, agent, turn: state.turns_left
    ),
}
_LIMITS = {
    "philosophers": "number of philosophers",
    "max_turns": "turns of the episode",
    "costs": "a sentence on what bad answers cost",
}


def _constant(shown: str) -> Callable[[DiningState, str, int], str]:
    return lambda state, agent, turn: shown


def potential(table: Table, turns_left: int, shortest: int) -> float:
    """Return the potential of a table, in [-0.02, 0.1].

    It is that of `shaped` for the turns of a shortest schedule, `LOST` in a deadlock, and
    `STARVED` as soon as fewer turns are left than a shortest schedule takes.
    """
    schedule = shortest_schedule(table)
    if schedule is None:
        return LOST
    return STARVED if len(schedule) > turns_left else shaped(len(schedule), shortest)


class DiningEnv(TextEnv[DiningState]):
    """Share forks with neighbours who choose at the same time, so that everybody eats.

    ## Task

    Philosophers sit around a table with one fork between each two. A meal takes both forks of a
    philosopher, who takes one a turn. All choose at the same time, and a fork for which two reach
    goes to neither. The task is solved when everybody has eaten the meals that the level asks
    for; it has failed when everybody holds one fork. Every level can be solved within the turns
    of an episode.

    ## Agents and roles

    `philosopher_0`, `philosopher_1`, ...: one stage, so that each acts on the table at the start
    of the turn. They have one role and equal prompts; what differs is where they sit. Philosopher
    i has fork i on the left and fork i + 1 (modulo their number) on the right.

    ## Observation

    The rules, the turn, what all chose in the turn before, who holds which fork and who has how
    many meals to eat, and which philosopher the reader is. `prompt_fields` lists the placeholders
    of prompts.

    ## Action

    One word: `#### left`, `right` (take that fork), `release` (put down what one holds) or
    `wait`; `take left` and the letters L, R, D (down) and W are read too. A fork that is not free
    at the start of the turn cannot be taken. Whoever holds both forks at its end eats and puts
    them back. What is put down is free from the next turn on.

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

    Doing nothing pays less than any attempt: time that runs out is worse than a deadlock. With
    alpha=1 the return of every agent is in [1.05, 1.1] in a solved episode and in [-0.07, 0) in
    an unsolved one; a team part lies in [-0.12, 1.12], a local part in [-0.05 / T, 0].

    ## Termination

    Terminated when everybody has eaten (`success`) and in a deadlock; truncated after `max_turns`
    turns.

    ## Info keys

    - `reward_parts`, `parse_error`, `success`, `turn`: as in every environment.
    - `choice`: what the philosopher chose; `wait` for an unreadable text. All others are about the
      table after the turn, and all philosophers have them as soon as the last one has chosen:
    - `meals_left`: meals still to eat, of all.
    - `distance`: turns of a shortest schedule from here; -1 in a deadlock.
    - `shortest`: turns of a shortest schedule of the level.
    - `deadlock`: whether everybody holds one fork.

    ## Arguments

    - `philosophers`: number of philosophers, 3 to 5.
    - `meals`: maximum number of meals of one philosopher, 1 to 3.
    - `min_turns`: minimum number of turns of a shortest schedule.
    - `max_turns`: turns of an episode; levels that need more are not generated.
    - `split`: `"train"`, `"validation"`, `"test"` or None (all); decided by a level's content up
      to rotation and reflection of the table.
    - `levels`: levels to draw from instead of generating: a path or pattern of files with one
      level per line, or a list of level texts (`1 0 2 / . 1 .`: meals / holders of the forks);
      `split` and the ranges do not apply to them. `reset(options={"level": text})` sets one
      episode's level.
    - `alpha`: weight of the team reward.
    - `reward`: `"shaped"`: the table above; `"outcome"`: 1 for the team when the task is solved,
      nothing else.
    - `observation_mode`: `"full"` prompts, or `"delta"`: from the second turn on only what is new.
    - `prompts`: role -> replacement of its prompt; without `####` in it, the scripted policies
      answer with a letter, which is all that a tiny model needs to write.
    - `render_mode`: `"ansi"` or `"human"`.

    ## Example

    ```python
    import random

    import pettingllms

    env = pettingllms.make("dining_v0", philosophers=4, split="test")
    env.reset(seed=7)
    rng = random.Random(0)
    for agent in env.agent_iter():
        observation, reward, terminated, truncated, info = env.last()
        done = terminated or truncated
        env.step(None if done else env.unwrapped.scripted_action(agent, "oracle", rng))
    ```

    ## Version history

    - v0: first version.

    ## Source

    Dijkstra's dining philosophers, as in "GRPO Does Not Close the Multi-Agent Coordination Gap"
    (arXiv 2606.07845). That paper found its reward to have a maximum at zero actions; here doing
    nothing pays least. Changed: everybody has a number of meals to eat, tables differ from level
    to level, are certified by a shortest schedule and split by content.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012
        "name": "dining_v0",
        "render_modes": ["ansi", "human"],
    }
    scripted_policies: ClassVar[tuple[str, ...]] = ("oracle", "ordered", "greedy", "random", "wait")
    levels: ClassVar[Difficulty] = Difficulty(
        {
            "easy": {"philosophers": 4, "meals": 1},
            "medium": {"philosophers": 4, "meals": 2, "min_turns": 4},
            "hard": {"philosophers": 4, "meals": 2, "min_turns": 5},
            "expert": {"philosophers": 5, "meals": 2, "min_turns": 6},
        }
    )
    default_prompts: ClassVar[Mapping[str, PromptTemplate]] = {"philosopher": _PROMPT}
    prompt_fields: ClassVar[Mapping[str, str]] = {**meanings(_FIELDS), **_LIMITS}

    def __init__(
        self,
        *,
        philosophers: int = 3,
        meals: int = 2,
        min_turns: int = 2,
        max_turns: int = 10,
        split: str | None = "train",
        levels: str | Path | Sequence[str] | None = None,
        alpha: float = 1.0,
        reward: str = "shaped",
        observation_mode: str = "full",
        prompts: Mapping[str, Any] | None = None,
        render_mode: str | None = None,
    ) -> None:
        max_turns = check_whole("max_turns", max_turns, 1, MAX_TURNS)
        self._request = Request(philosophers, meals, min_turns, max_turns, split).checked()
        super().__init__(
            stages=[[f"philosopher_{seat}" for seat in range(self._request.philosophers)]],
            max_turns=max_turns,
            alpha=alpha,
            reward=reward,
            observation_mode=observation_mode,
            prompts=resolve_prompts(self.default_prompts, prompts, self.prompt_fields),
            render_mode=render_mode,
        )
        self._costs = costs(max_turns, 1)
        costs_text = fault_text(self._costs, _FAULT, "a solved task", reward)
        limits = (str(philosophers), str(max_turns), costs_text)
        self._placeholders = dict(_FIELDS)
        for (name, meaning), shown in zip(_LIMITS.items(), limits, strict=True):
            self._placeholders[name] = PromptField(meaning, _constant(shown))
        self.board = f"{philosophers} philosophers"
        given = () if levels is None else read_levels(levels, parse_levels, parse_level)
        self._levels = tuple(map(self._fitting, given))
        self._is_terse = not asks_for_mark(self.prompts["philosopher"])

    def _fitting(self, level: Level) -> Level:
        seats, needed = len(level.start.forks), level.shortest
        if seats != self._request.philosophers or needed > self.max_turns:
            raise InvalidArgument(
                "level",
                f"a table of {seats} philosophers who need {needed} turns",
                f"{self._request.philosophers} philosophers who need at most {self.max_turns}",
                "Change philosophers or raise max_turns.",
            )
        return level

    def _generate(self, rng: random.Random, options: Mapping[str, Any]) -> DiningState:
        if options.get("level") is not None:
            level = self._fitting(read_level_option(options["level"], parse_level))
        elif self._levels:
            level = rng.choice(self._levels)
        else:
            level = generate(rng, self._request)
        return DiningState(level, level.start, self.max_turns)

    def _fields(self, state: DiningState, agent: str, turn: int) -> Mapping[str, object]:
        return PromptFields(self._placeholders, state, agent, turn)

    def _parse(self, state: DiningState, agent: str, text: str) -> str | ParseError:
        return read_choice(text)

    def _act(self, state: DiningState, agent: str, action: str | ParseError) -> Transition:
        choice = WAIT if isinstance(action, ParseError) else action
        chosen = state._replace(choices=(*state.choices, choice))
        local = self._cost(state.table, _seat(agent), action)
        if len(chosen.choices) < len(self.possible_agents):
            return Transition(chosen, local=local, info={"choice": choice})
        return self._served(chosen, local, choice)

    def _served(self, state: DiningState, local: float, choice: str) -> Transition:
        """Return what a turn does, now that everybody has chosen."""
        level, before, turns_left, choices, _ = state
        table = after(before, choices)
        following = DiningState(level, table, turns_left - 1, last=choices)
        solved = not any(table.hunger)
        rise = potential(table, turns_left - 1, level.shortest)
        rise -= potential(before, turns_left, level.shortest)
        ended = solved or is_deadlock(table)
        info, facts = {"choice": choice}, self._facts(following)
        return Transition(following, rise + SUCCESS * solved, local, ended, solved, info, facts)

    def _cost(self, table: Table, seat: int, action: str | ParseError) -> float:
        if isinstance(action, ParseError):
            return self._costs.malformed
        return 0.0 if is_possible(table, seat, action) else self._costs.empty

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

    def _scripted(self, state: DiningState, agent: str, policy: str, rng: random.Random) -> str:
        choice = choice_of(state.table, _seat(agent), policy, rng)
        return terse(choice) if self._is_terse else f"#### {choice}"
