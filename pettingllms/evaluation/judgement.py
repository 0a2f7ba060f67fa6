"""What is judged of an episode, and how: plain values. What they mean is said in `blame`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pettingllms.env import role_of
from pettingllms.errors import InvalidArgument
from pettingllms.evaluation.report import figures_json
from pettingllms.evaluation.statistics import Interval
from pettingllms.policies import Usage

SUCCESS, RETURN = "success", "return"
MEASURES = (SUCCESS, RETURN)


@dataclass(frozen=True, kw_only=True, slots=True)
class BlameSettings:
    """How much is played again, and what counts."""

    num_replays: int = 32
    """M: replays of every state, answer of the other policy and coalition; at least 2."""
    measure: str = SUCCESS
    """What is lost: `"success"`, or `"return"` of the team (mean over its agents)."""
    seed: int = 0
    """Decides what policies draw in replays."""
    max_concurrency: int = 16
    """Concurrent replays, at least 1."""
    max_failures: int = 10
    """Replays that may fail; they are left out."""

    def __post_init__(self) -> None:
        """Check the ranges.

        Raises:
            InvalidArgument: If a value is out of its range.
        """
        if isinstance(self.num_replays, bool) or self.num_replays < 2:
            raise InvalidArgument("num_replays", self.num_replays, "an integer of at least 2")
        if self.measure not in MEASURES:
            raise InvalidArgument("measure", self.measure, "one of " + ", ".join(MEASURES))


@dataclass(frozen=True, kw_only=True, slots=True)
class JudgedAnswer:
    """One answer of an episode; 95 % intervals."""

    index: int
    """Its place among the answers, from 0."""
    turn: int
    agent: str
    before: Interval
    """V of the state in which it was given."""
    after: Interval
    """V of the state that it led to."""
    drop: Interval
    """Before minus after; holds for all answers together."""
    instead: Interval | None
    """What is expected if the other policy gives this answer; None without such a policy."""
    missed: Interval | None
    """Instead minus after; holds for all answers together."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CoalitionValue:
    """What is expected of the level when only some players keep their policies."""

    kept: tuple[str, ...]
    """Players that keep them; the other policy plays for all others."""
    value: Interval


@dataclass(frozen=True, kw_only=True, slots=True)
class Blame:
    """Who lost an episode."""

    measure: str
    success: bool
    """Whether the recorded episode was solved."""
    answers: Sequence[JudgedAnswer]
    shares: Mapping[str, Interval]
    """Player -> its share; holds for all players together. Empty without another policy."""
    coalitions: Sequence[CoalitionValue]
    num_replays: int
    num_failed: int
    """Replays that came to no end."""
    usage: Usage
    """What the answers in replays cost."""

    @property
    def top(self) -> JudgedAnswer:
        """The answer with the largest drop; of equal ones the first."""
        return max(self.answers, key=lambda answer: answer.drop.value)

    @property
    def is_clear(self) -> bool:
        """Whether the largest drop is surely above 0."""
        return self.top.drop.low > 0

    def drop_of(self, player: str) -> float:
        """Return the sum of the drops of a role's, or an agent's, answers."""
        own = (a.drop.value for a in self.answers if player in (a.agent, role_of(a.agent)))
        return math.fsum(own)

    def to_json(self) -> dict[str, Any]:
        """Return the judgement as JSON data; intervals are objects, infinite ends null."""
        return {
            **figures_json(self),
            "answers": [figures_json(answer) for answer in self.answers],
            "coalitions": [figures_json(one) for one in self.coalitions],
            "top": self.top.index,
            "is_clear": self.is_clear,
        }
