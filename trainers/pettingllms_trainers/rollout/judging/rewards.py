"""The scores of an answer by all rewards of a run, each asked for once per content."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pettingllms_trainers.config.rewards import RewardConfig
from pettingllms_trainers.rollout.judging.ledger import Ledger, content_key
from pettingllms_trainers.rollout.judging.scoring import Exchange, Scorer

AGAIN = " again"
"""Ends the name of a second score of the same answer."""


class Judged(NamedTuple):
    """What an answer earns beside the environment's reward."""

    reward: float
    """Weighted sum of its scores."""
    scores: Mapping[str, float]
    """Name of a reward to its score; with `AGAIN`, to a second one of the same answer."""
    failure: str = ""
    """Why it could not be judged and is to be left out; empty when it could."""


class Reward:
    """One reward of a run.

    Args:
        name: Its name.
        config: Its table of the run file.
        scorer: Gives verdicts.
        ledger: Keeps them.
    """

    def __init__(self, name: str, config: RewardConfig, scorer: Scorer, ledger: Ledger) -> None:
        self.name, self.config, self.ledger = name, config, ledger
        self._scorer = scorer
        self._asked: dict[str, asyncio.Task[float | str]] = {}

    async def scores(self, exchange: Exchange) -> tuple[list[float], str]:
        """Return one score of an answer, or two, or why there is none.

        Which answers are judged twice depends on their content alone.

        Raises:
            BudgetSpent: There is no money or time left for it.
        """
        first = content_key(self.config, exchange, 0)
        is_twice = int(first[:8], 16) < self.config.judged_twice * 2**32
        keys = [first, content_key(self.config, exchange, 1)] if is_twice else [first]
        found = await asyncio.gather(*(self._score(key, exchange) for key in keys))
        scores = [one for one in found if isinstance(one, float)]
        if isinstance(found[0], str):
            failed = self.config.on_failure
            return ([], found[0]) if failed is None else ([failed], "")
        return scores, ""

    async def _score(self, key: str, exchange: Exchange) -> float | str:
        """Return a score, or why there is none; equal answers that wait share one request."""
        if (score := self.ledger.find(key)) is not None:
            return score
        if key not in self._asked:
            self._asked[key] = asyncio.ensure_future(self._ask(key, exchange))
        return await asyncio.shield(self._asked[key])

    async def _ask(self, key: str, exchange: Exchange) -> float | str:
        try:
            self.ledger.check_budget()
            started = time.perf_counter()
            verdict = await self._scorer.score(exchange, int(key[-7:], 16))
            self.ledger.add(key, exchange, verdict, time.perf_counter() - started)
            return verdict.text if verdict.score is None else verdict.score
        finally:
            del self._asked[key]


class Rewards:
    """All rewards of a run.

    Args:
        rewards: In the order of the run file; may be none.
    """

    def __init__(self, rewards: Sequence[Reward] = ()) -> None:
        self.rewards = tuple(rewards)
        """The rewards."""

    async def judge(self, role: str, exchange: Exchange) -> Judged:
        """Return what an answer earns beside the environment's reward.

        Args:
            role: Who gave it; `ENV.ROLE` in a run of several environments.
            exchange: The answer, and what it answers.

        Raises:
            BudgetSpent: There is no money or time left for it.
        """
        asked = [one for one in self.rewards if one.config.weight_of(role)]
        found = await asyncio.gather(*(one.scores(exchange) for one in asked))
        total, scores = 0.0, dict[str, float]()
        for one, (values, failure) in zip(asked, found, strict=True):
            if failure:
                return Judged(0.0, {}, f"rewards.{one.name} has no score: {failure}")
            total += one.config.weight_of(role) * values[0]
            scores |= dict(zip((one.name, one.name + AGAIN), values, strict=False))
        return Judged(total, scores)
