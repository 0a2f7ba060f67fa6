"""The rollouts of a train step, as the configuration of a run wants them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from typing import Any, NamedTuple

from pettingllms_trainers.config import Config, EnvConfig, RoleSamplingConfig, RolloutConfig
from pettingllms_trainers.config.algorithm import Moment
from pettingllms_trainers.config.roles import entry_of, qualified
from pettingllms_trainers.learning.groups import score_decisions
from pettingllms_trainers.policies.pool import PolicyPool
from pettingllms_trainers.rollout.apportionment import level_counts
from pettingllms_trainers.rollout.curriculum import Records, StageRecord, stage_shares
from pettingllms_trainers.rollout.episode import Episodes
from pettingllms_trainers.rollout.failures import FailureLog
from pettingllms_trainers.rollout.judging.episodes import JudgedEpisodes
from pettingllms_trainers.rollout.judging.rewards import Rewards
from pettingllms_trainers.rollout.playing import Play, play_all
from pettingllms_trainers.rollout.scaled import ScaledEpisodes
from pettingllms_trainers.rollout.settings import RolloutSettings, episode_specs
from pettingllms_trainers.stopping import StopRequest
from pettingllms_trainers.types import RolloutTree, SamplingSettings


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingEnvironment:
    """An environment as it is sampled from."""

    name: str = ""
    """Its name among several; empty in a run of one."""
    config: EnvConfig
    """Weight, scale of rewards, curriculum."""
    roles: Mapping[str, str]
    """Role, as the environment has it, to the name of its policy."""
    episodes: Sequence[Episodes]
    """Where it is played, by stage of the curriculum."""
    rewards: Rewards = field(default_factory=Rewards)
    """What answers earn beside its own rewards."""

    def at(self, stage: int) -> Episodes:
        """Return where a stage of the curriculum is played."""
        episodes, scale = self.episodes[stage], self.config.reward_scale
        scaled = episodes if scale == 1 else ScaledEpisodes(episodes, scale)
        return JudgedEpisodes(scaled, self.rewards, self.name) if self.rewards.rewards else scaled


class Sample(NamedTuple):
    """The rollouts of a train step."""

    trees: list[RolloutTree]
    """One per episode."""
    num_levels: int
    """Levels that were played."""
    num_refills: int
    """Rounds of further levels among them."""
    rollout_s: float = 0.0
    """Wall time in which they were played."""
    generate_s: float = 0.0
    """Time in which engines generated meanwhile, added up over policies."""


class Sampler:
    """Samples training rollouts.

    Args:
        environments: What is played.
        pool: Policies of the roles.
        config: The run's configuration.
        failures: Counts and logs what fails.
        runner: Runs the rollouts.
        stop: Asked before every round of further levels.
    """

    def __init__(
        self,
        environments: Sequence[TrainingEnvironment],
        pool: PolicyPool,
        config: Config,
        failures: FailureLog,
        runner: asyncio.Runner,
        stop: StopRequest,
    ) -> None:
        self._environments = environments
        self._pool = pool
        self._config = config
        self._failures = failures
        self._runner = runner
        self._stop = stop
        self.num_levels_used = 0
        """Level cursor: training levels that the run has used. Whoever keeps a sample moves it."""
        self.memory: Mapping[str, Any] = {}
        """What the algorithm remembers; see `Algorithm.remember`. Whoever learns replaces it."""
        self.records: Records = {
            env.name: [StageRecord()] * len(env.episodes) for env in environments
        }
        """How the stages of curricula have been played. Whoever learns replaces it."""

    def rollouts(self, step: int, age: int = 0) -> Sample:
        """Return the rollouts of a train step; equal for equal weights and levels used before.

        Rounds of further levels are played as long as the configuration wants more groups that
        have something to teach. When a signal asks to stop a sample of age 0 ends early and must be
        given up, so that a resumed run draws all of it again.

        Args:
            step: From 0.
            age: Train steps that the policies will take between these rollouts and the step.

        Source:
            Dynamic sampling of DAPO (arXiv 2503.14476, section 3.2). Changed: all that was sampled
            is kept, and rounds are limited.

        Raises:
            RolloutError: More rollouts or candidates failed than allowed.
        """
        started = time.perf_counter()
        self._pool.take_generate_s()
        trees = self._round(step, 0, age)
        num_refills = 0
        while num_refills < self._config.rollout.max_refills and not self._has_enough(trees, step):
            if not age and self._stop.is_wanted():
                break
            num_refills += 1
            trees += self._round(step, num_refills, age)
        num_levels = (1 + num_refills) * self._config.rollout.num_levels
        return Sample(
            trees,
            num_levels,
            num_refills,
            rollout_s=time.perf_counter() - started,
            generate_s=self._pool.take_generate_s(),
        )

    def _round(self, step: int, index: int, age: int) -> list[RolloutTree]:
        """Play the levels of a round; those of all environments at once."""
        num, moment = self._config.rollout.num_levels, Moment(step, self.memory)
        arms = [
            (env, stage, env.config.weight * share)
            for env in self._environments
            if self._trained(env, step)
            for stage, share in enumerate(self._shares(env))
        ]
        counts = level_counts(
            [weight for *_, weight in arms],
            num,
            seed=self._config.seed,
            step=step,
            refill=index,
        )
        plays = [
            Play(
                env.at(stage),
                self._pool.in_env(env.name, env.roles),
                episode_specs(
                    seed=self._config.seed,
                    step=step,
                    first_level=self.num_levels_used,
                    num_levels=count,
                    num_trajectories=self._config.algorithm.episodes_per_level,
                    num_played=index * num + last - count,
                ),
                self._settings(env, stage, step, age),
                self._config.algorithm.strategy(moment),
            )
            for (env, stage, _), count, last in zip(arms, counts, accumulate(counts), strict=True)
        ]
        trees: list[RolloutTree] = []

        async def play() -> None:
            trees.extend(await play_all(plays, self._failures, self._pool.ranks))

        # Trees are no result of the task: asyncio writes out a task's result when it restores the
        # handler of SIGINT, for an error message that it throws away.
        self._runner.run(play())
        return trees

    def _shares(self, env: TrainingEnvironment) -> list[float]:
        return stage_shares(self.records[env.name], env.config.curriculum_floor)

    def _settings(
        self, env: TrainingEnvironment, stage: int, step: int, age: int
    ) -> RolloutSettings:
        algorithm, names = self._config.algorithm, {r: qualified(env.name, r) for r in env.roles}
        trained = env.roles if self._config.updates.branch_frozen else self._trained(env, step)
        return RolloutSettings(
            env=env.name,
            stage=stage,
            sampling={
                role: sampling_of(self._config.rollout, name) for role, name in names.items()
            },
            branching_roles=tuple(role for role in trained if algorithm.branches(names[role])),
            version=step - age,
        )

    def _trained(self, env: TrainingEnvironment, step: int) -> list[str]:
        """Return the roles of an environment whose samples are trained on."""
        return [r for r in env.roles if self._config.trains(qualified(env.name, r), step)]

    def _has_enough(self, trees: Sequence[RolloutTree], step: int) -> bool:
        """Return whether every policy that is updated has as many useful groups as wanted."""
        config = self._config
        is_trained, moment = partial(config.trains, step=step), Moment(step, self.memory)
        scored = score_decisions(trees, config.algorithm, is_trained, moment)
        updated = (name for name in self._pool.updaters() if config.updates_policy(name, step))
        return all(scored.num_groups.get(n, 0) >= config.rollout.min_groups for n in updated)


def sampling_of(
    config: RolloutConfig, role: str, temperature: float | None = None
) -> SamplingSettings:
    """Return how a role is sampled.

    Args:
        config: Settings of all roles, and what differs for some.
        role: The role; `ENV.ROLE` in a run of several environments.
        temperature: Instead of the one of training.
    """
    own = entry_of(config.per_role, role) or RoleSamplingConfig()
    if temperature is None:
        temperature = config.temperature if own.temperature is None else own.temperature
    return SamplingSettings(
        temperature=temperature,
        max_completion_tokens=own.max_completion_tokens or config.max_completion_tokens,
        stop=config.stop if own.stop is None else own.stop,
    )
