"""The rollouts of a train step, as the configuration of a run wants them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from typing import Any, NamedTuple

from pettingllms.curriculum import LevelRecord, level_shares
from pettingllms_trainers.config import Config, EnvConfig, RoleSamplingConfig, RolloutConfig
from pettingllms_trainers.config.algorithm import Moment
from pettingllms_trainers.config.roles import entry_of, qualified
from pettingllms_trainers.learning.groups import score_decisions
from pettingllms_trainers.policies.pool import PolicyPool
from pettingllms_trainers.rollout.apportionment import level_counts
from pettingllms_trainers.rollout.episode import Episodes
from pettingllms_trainers.rollout.failures import FailureLog
from pettingllms_trainers.rollout.flight import Flight, Records, Sample, Voyage
from pettingllms_trainers.rollout.judging.episodes import JudgedEpisodes
from pettingllms_trainers.rollout.judging.rewards import Rewards
from pettingllms_trainers.rollout.playing import Play, Share, joined, play_share
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


class _Played(NamedTuple):
    trees: list[RolloutTree]
    num_begun: int
    """Episodes, with those that were given up."""


class Sampler:
    """Samples training rollouts.

    Args:
        environments: What is played.
        pool: Policies of the roles.
        config: The run's configuration.
        failures: Counts and logs what fails.
        stop: Asked before every round of further levels.
    """

    def __init__(
        self,
        environments: Sequence[TrainingEnvironment],
        pool: PolicyPool,
        config: Config,
        failures: FailureLog,
        stop: StopRequest,
    ) -> None:
        self._environments = environments
        self._pool = pool
        self._config = config
        self._failures = failures
        self._stop = stop
        self.num_levels_used = 0
        """Level cursor: training levels that the run has used; whoever gives rollouts up moves it
        back."""
        self.memory: Mapping[str, Any] = {}
        """What the algorithm remembers; see `Algorithm.remember`. Whoever learns replaces it."""
        self.records: Records = {
            env.name: [LevelRecord()] * len(env.episodes) for env in environments
        }
        """How the stages of curricula have been played. Whoever learns replaces it."""

    def begun(self, step: int, version: int) -> Flight:
        """Return the rollouts of a train step, which begin with what is known now.

        Args:
            step: From 0.
            version: Train steps that the policies have taken.
        """
        return Flight(step=step, version=version, memory=self.memory, records=self.records)

    async def rollouts(self, voyage: Voyage, *, may_stop: bool = False) -> Sample:
        """Play the rollouts of a train step; equal for equal answers and levels used before.

        Rounds of further levels are played as long as the configuration wants more groups that
        have something to teach.

        Args:
            voyage: Says which; notes what is played.
            may_stop: Whether the sample ends early when a signal asks to stop. It must be given up
                then, so that a resumed run draws all of it again.

        Source:
            Dynamic sampling of DAPO (arXiv 2503.14476, section 3.2). Changed: all that was sampled
            is kept, and rounds are limited.

        Raises:
            RolloutError: More rollouts or candidates failed than allowed.
        """
        flight, num_refills, played = voyage.flight, 0, await self._round(voyage, 0)
        while (
            num_refills < self._config.rollout.max_refills
            and not voyage.is_left
            and not self._has_enough(played.trees, flight)
        ):
            if may_stop and self._stop.is_wanted():
                break
            num_refills += 1
            found = await self._round(voyage, num_refills)
            played = _Played(played.trees + found.trees, played.num_begun + found.num_begun)
        return Sample(played.trees, num_refills, played.num_begun - len(played.trees))

    def take_generate_s(self) -> float:
        """Return the wall time spent in the engines since the last call."""
        return self._pool.take_generate_s()

    async def _round(self, voyage: Voyage, index: int) -> _Played:
        """Play the levels of a round; those of all environments at once."""
        flight, num, step = voyage.flight, self._config.rollout.num_levels, voyage.flight.step
        if index == len(flight.first_levels):
            flight.first_levels.append(self.num_levels_used)
            self.num_levels_used += num
        moment = Moment(step, flight.memory)
        arms = [
            (env, stage, env.config.weight * share)
            for env in self._environments
            if self._trained(env, step)
            for stage, share in enumerate(self._shares(env, flight.records))
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
                    first_level=flight.first_levels[index] - index * num,
                    num_levels=count,
                    num_trajectories=self._config.algorithm.episodes_per_level,
                    num_played=index * num + last - count,
                ),
                self._settings(env, stage, voyage),
                self._config.algorithm.strategy(moment),
            )
            for (env, stage, _), count, last in zip(arms, counts, accumulate(counts), strict=True)
        ]
        share = await play_share(plays, self._failures, self._pool.ranks, voyage.played)
        return _Played(await self._joined(share, voyage), sum(len(play.specs) for play in plays))

    async def _joined(self, share: Share, voyage: Voyage) -> list[RolloutTree]:
        ranks = self._pool.ranks
        if ranks.size == 1:
            return joined(share, self._failures, ranks)
        # Ranks exchange what they have in the same order: that of the train steps.
        await voyage.is_first.wait()
        if self._config.plays_beside_updates:  # other flights go on while this one waits
            return await asyncio.to_thread(joined, share, self._failures, ranks)
        return joined(share, self._failures, ranks)

    def _shares(self, env: TrainingEnvironment, records: Records) -> list[float]:
        return level_shares(records[env.name], env.config.curriculum_floor)

    def _settings(self, env: TrainingEnvironment, stage: int, voyage: Voyage) -> RolloutSettings:
        algorithm, names = self._config.algorithm, {r: qualified(env.name, r) for r in env.roles}
        is_all, step = self._config.updates.branch_frozen, voyage.flight.step
        trained = env.roles if is_all else self._trained(env, step)
        return RolloutSettings(
            env=env.name,
            stage=stage,
            sampling={
                role: sampling_of(self._config.rollout, name) for role, name in names.items()
            },
            branching_roles=tuple(role for role in trained if algorithm.branches(names[role])),
            answering=voyage.answer,
            valuing=voyage.value,
        )

    def _trained(self, env: TrainingEnvironment, step: int) -> list[str]:
        """Return the roles of an environment whose samples are trained on."""
        return [r for r in env.roles if self._config.trains(qualified(env.name, r), step)]

    def _has_enough(self, trees: Sequence[RolloutTree], flight: Flight) -> bool:
        """Return whether every policy that is updated has as many useful groups as wanted."""
        config, step = self._config, flight.step
        is_trained, moment = partial(config.trains, step=step), Moment(step, flight.memory)
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
