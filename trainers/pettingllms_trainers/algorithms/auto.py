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
"""Levels of the pilot between two tests of its evidence."""
_NUM_EPISODES = 4
"""Episodes of a level in the pilot."""
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
        if _is_shown(context.memory):
            return AtGrpo(num_candidates=self.num_candidates)
        return self._by_success

    @property
    def _by_success(self) -> Algorithm:
        return Reinforce(num_candidates=self.num_candidates, credit="success")

    # What memory and time are planned for: both algorithms sample K answers to a group.

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
            found[env] = found[env].with_level(map(_followed, level))
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
    """An episode as the test of `Evidence` reads it."""

    rewards: Sequence[float]
    """[T] reward of each decision, that of the agent who took it."""
    is_solved: bool


class Evidence(NamedTuple):
    """Are episodes that lead on their way solved more often? Sums over levels.

    Episodes are compared within a level only: easy levels pay more and are solved more often.

    Source:
        Mantel's extension of the test of Mantel and Haenszel (Journal of the American Statistical
        Association 58, 1963): levels are its strata, and leads its scores.
    """

    total: float = 0.0
    """Sum of the products of lead and success, each centred within its level."""
    variance: float = 0.0
    """Variance of `total` if it were drawn at random which of a level's episodes are solved."""

    def with_level(self, episodes: Iterable[EpisodeRewards]) -> Evidence:
        """The sums with those of one more level, whose episodes these are."""
        known = [one for one in leads([*episodes]) if one is not None]
        if not has_signal([lead for lead, _ in known]):
            return self
        xs, ys = (_centred(values) for values in zip(*known, strict=True))
        # Of a sum over a draw without replacement, hence the N - 1.
        variance = _product(xs, xs) * _product(ys, ys) / (len(xs) - 1)
        return Evidence(self.total + _product(xs, ys), self.variance + variance)

    @property
    def z(self) -> float | None:
        """`total` in standard errors; None where leads or outcomes never differed."""
        return self.total / math.sqrt(self.variance) if self.variance > 0 else None

    @property
    def is_shown(self) -> bool:
        """Whether episodes that lead are solved more often, by `_SURE` standard errors."""
        return self.z is not None and self.z > _SURE


def leads(episodes: Sequence[EpisodeRewards]) -> list[tuple[float, bool] | None]:
    """The mean lead of each episode of a level on its way, and whether it was solved.

    The lead at a decision is the sum of rewards so far, minus the mean of all episodes that are
    still playing: compared with finished ones, whoever is paid for each step would lead by failing.
    There is one number per episode, since sums at successive decisions are not independent. The
    last decision is left out: its reward says how the episode has ended.

    Returns:
        By episode; None for one that ended at its first decision.
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


def _followed(tree: RolloutTree) -> EpisodeRewards:
    followed = (one.candidates[one.chosen or 0] for one in tree.decisions)
    is_solved = tree.outcome is not None and tree.outcome.success
    return EpisodeRewards([candidate.reward for candidate in followed], is_solved)


def pilot(env: TextEnv[Any], num_levels: int, seed: int) -> Evidence:
    """Test on scripted play whether rewards of steps lead to success.

    Args:
        env: What is played, in forks.
        num_levels: Levels at most; fewer if the test is passed, or nothing was paid.
        seed: Chooses levels and chance.

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
            for episode in range(_NUM_EPISODES)
        )
        evidence = evidence.with_level(
            EpisodeRewards([one.reward for one in episode.decisions], episode.success)
            for episode in played
        )
    return evidence
