"""Rewards of steps, once they are shown to lead to success; until then success alone."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import accumulate
from statistics import fmean
from typing import Any, NamedTuple

from pydantic import Field

from pettingllms import TextEnv, role_of
from pettingllms.seeding import derive_seed
from pettingllms_trainers.algorithms.at_grpo import AtGrpo
from pettingllms_trainers.algorithms.reinforce import Reinforce
from pettingllms_trainers.config.algorithm import Algorithm, Member, StepContext, Strategy
from pettingllms_trainers.learning.groups import has_signal
from pettingllms_trainers.rollout.candidates import RolloutSpec
from pettingllms_trainers.rollout.demonstrations import play_scripted_episode
from pettingllms_trainers.types import Decision, RolloutTree

_SURE = 4.0
"""Standard errors above 0. Asked after every train step for as long as a run takes, so that rewards
that mean nothing pass in less than one run of a hundred."""
_LOOK = 50
"""Levels of the pilot between two looks at what it has found."""
_BEST_SHARES = (0.0, 0.25, 0.5)
"""How much of a level's play is the best policy's: hard levels are hardly ever solved at random,
and the best alone solves nearly all."""


class Auto(Algorithm):
    """AT-GRPO where the rewards of steps lead to success, and else whole episodes by success.

    Before the first train step scripted policies play a pilot, without a token of any model:
    several episodes per level, to test whether those that earned more on the way are solved more
    often. If the test is not passed, or there is no scripted policy, or `[rewards]` pay, every
    train step tests the run's own episodes, until they pass. In a run of several environments each
    of them must pass.

    Take it when you do not know whether the best-rewarded step is also best in the end.

    Source:
        AT-GRPO (arXiv 2510.11062), whose Lemma 1, that the best reward of a step is best in the
        end, is tested instead of assumed; `reinforce` with success as the return.
    """

    name: str = "auto"
    """Which algorithm."""
    num_candidates: int = Field(default=4, ge=2)
    """K: candidates per decision of a tree, or episodes per level."""
    num_pilot_levels: int = Field(default=400, ge=0)
    """Levels of the pilot, at most; it ends as soon as its test is passed. 0: no pilot."""

    def at(self, context: StepContext) -> Algorithm:
        is_shown = _is_shown(context.memory)
        return self._by_step if is_shown else self._by_success

    @property
    def _by_step(self) -> Algorithm:
        return AtGrpo(num_candidates=self.num_candidates)

    @property
    def _by_success(self) -> Algorithm:
        return Reinforce(num_candidates=self.num_candidates, credit="success")

    # What is planned for before it is known: both sample as many answers to a group.

    @property
    def episodes_per_level(self) -> int:
        return self._by_success.episodes_per_level

    @property
    def candidates_per_decision(self) -> int:
        return self._by_success.candidates_per_decision

    def strategy(self, context: StepContext) -> Strategy:
        return self.at(context).strategy(context)

    def groups(
        self, played: Sequence[tuple[RolloutTree, Decision]], context: StepContext
    ) -> Iterable[tuple[Hashable, Member]]:
        return self.at(context).groups(played, context)

    def advantages(self, values: Sequence[float]) -> list[float]:
        return self._by_success.advantages(values)

    @property
    def scales_by_batch(self) -> bool:
        return self._by_success.scales_by_batch

    @property
    def trusts_rewards(self) -> bool:
        return False

    def begin(self, environments: Mapping[str, TextEnv[Any]], seed: int) -> Mapping[str, Any]:
        return {
            name: list(pilot(env, self.num_pilot_levels, derive_seed(seed, "pilot", name)))
            for name, env in environments.items()
        }

    def remember(self, trees: Sequence[RolloutTree], context: StepContext) -> Mapping[str, Any]:
        """The evidence with that of the run's own episodes."""
        if _is_shown(context.memory):
            return context.memory
        levels: dict[tuple[str, int], list[RolloutTree]] = defaultdict(list)
        for tree in trees:
            if tree.outcome is not None:
                levels[tree.env, tree.env_seed].append(tree)
        found = {env: Evidence(*context.memory.get(env, ())) for env, _ in levels}
        for (env, _), level in levels.items():
            found[env] = found[env].with_level(map(_earned, level))
        return {**context.memory, **{env: list(evidence) for env, evidence in found.items()}}

    def metrics(self, memory: Mapping[str, Any]) -> dict[str, float]:
        """How sure it is that rewards of steps lead to success, and whether they are followed."""
        known = [z for sums in memory.values() if (z := Evidence(*sums).z) is not None]
        return ({"z": min(known)} if known else {}) | {"follows_steps": float(_is_shown(memory))}

    def says(self, memory: Mapping[str, Any]) -> str:
        """What is taken from now on, and why, in a sentence; none before anything is known."""
        z = self.metrics(memory).get("z")
        if not memory:
            return ""
        if not _is_shown(memory):
            return "rewards of steps are not shown to lead to success: whole episodes by success"
        return f"rewards of steps lead to success (z = {z:.1f}): at_grpo"


def _is_shown(memory: Mapping[str, Any]) -> bool:
    return bool(memory) and all(Evidence(*sums).is_shown for sums in memory.values())


class EpisodeRewards(NamedTuple):
    """What the test sees of an episode."""

    rewards: Sequence[float]
    """[T] of the agent that took each of its decisions."""
    is_solved: bool


class Evidence(NamedTuple):
    """Do those that lead on the way win in the end? Sums over levels.

    Only within a level, so that easy ones, which pay more and are solved more often, say nothing.

    Source:
        Mantel's extension of the test of Mantel and Haenszel (Journal of the American Statistical
        Association 58, 1963): levels are its strata, and leads its scores.
    """

    total: float = 0.0
    """Sum of the products of lead and success, each centred within its level."""
    variance: float = 0.0
    """Of that sum, if it were drawn at random which of a level's episodes are solved."""

    def with_level(self, episodes: Iterable[EpisodeRewards]) -> Evidence:
        """The evidence with that of a level."""
        known = [one for one in leads([*episodes]) if one is not None]
        if not has_signal([lead for lead, _ in known]):
            return self
        xs, ys = (_centred(values) for values in zip(*known, strict=True))
        # Of a sum over a draw without replacement, hence the N - 1.
        variance = _product(xs, xs) * _product(ys, ys) / (len(xs) - 1)
        return Evidence(self.total + _product(xs, ys), self.variance + variance)

    @property
    def z(self) -> float | None:
        """The sum in units of its standard error; None where leads or ends never differed."""
        return self.total / math.sqrt(self.variance) if self.variance > 0 else None

    @property
    def is_shown(self) -> bool:
        """Whether those that lead are surely solved more often."""
        return self.z is not None and self.z > _SURE


def leads(episodes: Sequence[EpisodeRewards]) -> list[tuple[float, bool] | None]:
    """By how much each episode of a level was ahead on its way, and whether it was solved.

    One number per episode: what it had earned by one decision hangs on what it had by the last, and
    decisions would count as if each were an episode of its own. The last one is left out: what it
    earns says how the episode has ended. Those that are over are not compared with any more, or
    whoever is paid for each step would lead by failing.
    """
    ahead: list[list[float]] = [[] for _ in episodes]
    totals = [[*accumulate(one.rewards[:-1])] for one in episodes]
    for position in range(max(map(len, totals), default=0)):
        playing = [index for index, own in enumerate(totals) if position < len(own)]
        mean = fmean(totals[index][position] for index in playing)
        for index in playing:
            ahead[index].append(totals[index][position] - mean)
    return [
        (fmean(own), one.is_solved) if own else None
        for own, one in zip(ahead, episodes, strict=True)
    ]


def _centred(values: Sequence[float]) -> list[float]:
    mean = fmean(values)
    return [value - mean for value in values]


def _product(xs: Sequence[float], ys: Sequence[float]) -> float:
    return math.fsum(x * y for x, y in zip(xs, ys, strict=True))


def _earned(tree: RolloutTree) -> EpisodeRewards:
    followed = (one.candidates[one.chosen or 0] for one in tree.decisions)
    is_solved = tree.outcome is not None and tree.outcome.success
    return EpisodeRewards([candidate.reward for candidate in followed], is_solved)


def pilot(env: TextEnv[Any], num_levels: int, seed: int, num_episodes: int = 4) -> Evidence:
    """Test on scripted play whether rewards of steps lead to success.

    Args:
        num_levels: Levels at most. It ends when it has shown something, or nothing was paid.

    Raises:
        EpisodeFailure: The environment has failed.
    """
    evidence, names = Evidence(), env.scripted_policies
    rng = random.Random(derive_seed(seed, "shares"))
    for level in range(num_levels if names else 0):
        if level and level % _LOOK == 0 and (evidence.is_shown or not evidence.variance):
            break
        share = rng.choice(_BEST_SHARES)
        mixed = {names[0]: share, "random" if "random" in names else names[-1]: 1 - share}
        policies = dict.fromkeys(map(role_of, env.possible_agents), mixed)
        env_seed = derive_seed(seed, "level", level)
        played = (
            play_scripted_episode(
                env, RolloutSpec(level, env_seed, derive_seed(seed, level, episode)), policies
            )
            for episode in range(num_episodes)
        )
        evidence = evidence.with_level(
            EpisodeRewards([one.reward for one in episode.decisions], episode.success)
            for episode in played
        )
    return evidence
