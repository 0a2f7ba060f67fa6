"""The rollouts of a train step, as the configuration of a run wants them."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

from pettingllms import role_of
from pettingllms.curriculum import LevelRecord, level_shares
from pettingllms.seeding import derive_seed
from pettingllms_trainers.config import Config, EnvConfig, RoleSamplingConfig, RolloutConfig
from pettingllms_trainers.config.algorithm import Algorithm, StepContext
from pettingllms_trainers.config.sections import entry_of, qualified
from pettingllms_trainers.learning.groups import score_decisions
from pettingllms_trainers.policies.fixed import FixedPolicy
from pettingllms_trainers.policies.pool import PolicyPool
from pettingllms_trainers.ranks import StopRequest
from pettingllms_trainers.rollout.candidates import (
    Answering,
    FailureLog,
    RolloutSettings,
    Valuing,
    VersionedCompletions,
    episode_specs,
)
from pettingllms_trainers.rollout.episode import Episodes
from pettingllms_trainers.rollout.judging import Fits, Rewards, ShapedEpisodes
from pettingllms_trainers.rollout.player import EpisodeBatch, Share, joined, play_share
from pettingllms_trainers.types import RolloutTree, SamplingSettings

Records = Mapping[str, Sequence[LevelRecord]]
"""Name of an environment to how the stages of its curriculum have been played."""


class Sample(NamedTuple):
    """The rollouts of a train step."""

    trees: list[RolloutTree]
    """One per episode, without those that were given up."""
    num_refills: int
    """Rounds of further levels among them."""
    num_stale: int = 0
    """Episodes that were given up: by the next train step they would have been too old."""
    rollout_s: float = 0.0
    """Wall time in which they were in flight and engines could generate."""
    generate_s: float = 0.0
    """Time in which engines generated in the last part of it, added up over policies."""
    memory: Mapping[str, Any] = {}
    """What the algorithm remembered when they began: by the same they are compared."""


@dataclass(kw_only=True, slots=True)
class PendingStep:
    """Rollouts of one train step that have begun, as plain values: what a checkpoint keeps.

    Episodes are functions of the answers in them. Played again with the answers that were given,
    they are where they were, in the same environments.
    """

    step: int
    """From 0."""
    version: int
    """Train steps that the policies had taken when they began."""
    memory: Mapping[str, Any]
    """What the algorithm remembered when they began."""
    records: Records
    """How the stages of curricula had been played then."""
    first_levels: list[int] = field(default_factory=list[int])
    """Level cursor at the beginning of each round of levels so far."""
    answers: dict[str, VersionedCompletions] = field(
        default_factory=dict[str, VersionedCompletions]
    )
    """What was answered, until all is played."""
    values: dict[str, float] = field(default_factory=dict[str, float])
    """What V said, likewise."""
    sample: Sample | None = None
    """What was played, when it is over."""
    rollout_s: float = 0.0
    """See `Sample`."""
    generate_s: float = 0.0
    """See `Sample`."""


class InFlightRollouts:
    """A pending step while it is played: whom its episodes ask, and which levels are over."""

    def __init__(
        self,
        pending: PendingStep,
        answering: Answering,
        valuing: Valuing,
        callback: Callable[[], None] = lambda: None,
    ) -> None:
        self.pending, self.answering, self.valuing = pending, answering, valuing
        self._callback = callback
        self.num_levels = self.num_complete = 0
        """Levels of this process, and those of them that are over."""
        self.is_cut_short = False
        """Whether the others were given up."""
        self.comes_next = asyncio.Event()
        """Set when its train step comes next."""
        self._playing: set[asyncio.Task[list[RolloutTree]]] = set()

    async def play(self, level: Coroutine[Any, Any, list[RolloutTree]]) -> list[RolloutTree]:
        """The trees of a level; none if it is given up."""
        self.num_levels += 1
        task = asyncio.ensure_future(level)
        self._playing.add(task)
        try:
            trees = await task
        except asyncio.CancelledError:
            # Either this level was given up, or whoever waits for all of them was cancelled.
            if self.is_cut_short:
                return []
            raise
        finally:
            self._playing.discard(task)
        self.num_complete += 1
        self._callback()
        return trees

    def cut_short(self) -> None:
        """Give up the levels that are not over."""
        self.is_cut_short = True
        for task in self._playing:
            task.cancel()


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

    def at(self, stage: int, cut_reward: float, fits: Fits) -> Episodes:
        """Where a stage of the curriculum is played."""
        episodes, scale = self.episodes[stage], self.config.reward_scale
        return ShapedEpisodes(episodes, self.rewards, scale, self.name, cut_reward, fits)


class Sampler:
    """Samples training rollouts.

    Args:
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
        self.pool = pool
        self._environments, self._config = environments, config
        self._failures, self._stop = failures, stop
        self.num_levels_used = 0
        """Level cursor: training levels that the run has used, also in flight; whoever gives
        rollouts up moves it back."""
        self.memory: Mapping[str, Any] = {}
        """What the algorithm remembers of the train steps that have been learnt; see
        `Algorithm.remember`. Whoever learns replaces it."""
        self.records: Records = {
            env.name: [LevelRecord()] * len(env.episodes) for env in environments
        }
        """How the stages of curricula have been played in these. Whoever learns replaces it."""

    def pending(self, step: int, version: int) -> PendingStep:
        """The rollouts of a train step, which begin with what is known now.

        Args:
            step: From 0.
            version: Train steps that the policies have taken.
        """
        return PendingStep(step=step, version=version, memory=self.memory, records=self.records)

    async def rollouts(self, in_flight: InFlightRollouts, *, may_stop: bool = False) -> Sample:
        """Play the rollouts of a train step; equal for equal answers and levels used before.

        Rounds of further levels are played as long as the configuration wants more groups that
        have something to teach.

        Args:
            may_stop: Whether the sample ends early when a signal asks to stop. It must be given up
                then, so that a resumed run draws all of it again.

        Source:
            Dynamic sampling of DAPO (arXiv 2503.14476, section 3.2). Changed: all that was sampled
            counts, and rounds are limited.

        Raises:
            RolloutError: More rollouts or candidates failed than allowed.
        """
        num_refills = 0
        trees, num_episodes = await self._round(in_flight, 0)
        while (
            num_refills < self._config.rollout.max_refills
            and not in_flight.is_cut_short
            and not self._has_enough(trees, in_flight.pending)
        ):
            if may_stop and self._stop.is_wanted():
                break
            num_refills += 1
            further, num_further = await self._round(in_flight, num_refills)
            trees, num_episodes = trees + further, num_episodes + num_further
        return Sample(trees, num_refills, num_episodes - len(trees))

    async def _round(
        self, in_flight: InFlightRollouts, index: int
    ) -> tuple[list[RolloutTree], int]:
        """Play the levels of a round, of all environments at once; return the number begun, too."""
        config, pending = self._config, in_flight.pending
        num, step = config.rollout.num_levels, pending.step
        # A resumed run plays the levels that it had begun: their numbers are in the checkpoint.
        if index == len(pending.first_levels):
            pending.first_levels.append(self.num_levels_used)
            self.num_levels_used += num
        arms = [
            (env, stage, env.config.weight * share)
            for env in self._environments
            if self._trained(env, step)
            for stage, share in enumerate(
                level_shares(pending.records[env.name], env.config.curriculum_floor)
            )
        ]
        weights = [weight for *_, weight in arms]
        # Whole levels: shares of environments hold over train steps, not within each of them.
        counts = level_counts(weights, num, seed=config.seed, step=step, refill=index)
        context = StepContext(step, pending.memory)
        algorithm = config.algorithm.at(context)
        settings = [self._settings(env, stage, in_flight, algorithm) for env, stage, _ in arms]
        pools = [self.pool.in_env(env.name, env.roles) for env, _, _ in arms]
        plays = [
            EpisodeBatch(
                env.at(stage, config.rollout.cut_reward, partial(fits, pool, own.sampling)),
                pool,
                episode_specs(
                    seed=config.seed,
                    step=step,
                    first_level=pending.first_levels[index] - index * num,
                    num_levels=count,
                    num_trajectories=algorithm.episodes_per_level,
                    num_played=index * num + last - count,
                ),
                own,
                algorithm.strategy(context),
            )
            for (env, stage, _), pool, own, count, last in zip(
                arms, pools, settings, counts, accumulate(counts), strict=True
            )
        ]
        share = await play_share(plays, self._failures, self.pool.ranks, in_flight.play)
        return await self._joined(share, in_flight), sum(len(play.specs) for play in plays)

    async def _joined(self, share: Share, in_flight: InFlightRollouts) -> list[RolloutTree]:
        ranks = self.pool.ranks
        if ranks.size == 1:
            return joined(share, self._failures, ranks)
        # Ranks exchange what they have in the same order: that of the train steps.
        await in_flight.comes_next.wait()
        if self._config.plays_beside_updates:  # other steps' rollouts go on while this one waits
            return await asyncio.to_thread(joined, share, self._failures, ranks)
        return joined(share, self._failures, ranks)

    def _settings(
        self,
        env: TrainingEnvironment,
        stage: int,
        in_flight: InFlightRollouts,
        algorithm: Algorithm,
    ) -> RolloutSettings:
        names = {role: qualified(env.name, role) for role in env.roles}
        is_all, step = self._config.updates.branch_frozen, in_flight.pending.step
        # Candidates of a role that learns nothing in this step would only cost.
        trained = env.roles if is_all else self._trained(env, step)
        return RolloutSettings(
            env=env.name,
            stage=stage,
            sampling={
                role: sampling_of(self._config.rollout, name) for role, name in names.items()
            },
            branching_roles=tuple(role for role in trained if algorithm.branches(names[role])),
            answering=in_flight.answering,
            valuing=in_flight.valuing,
        )

    def _trained(self, env: TrainingEnvironment, step: int) -> list[str]:
        return [r for r in env.roles if self._config.trains(qualified(env.name, r), step)]

    def _has_enough(self, trees: Sequence[RolloutTree], pending: PendingStep) -> bool:
        """Whether every policy that is updated has as many useful groups as wanted."""
        config, step = self._config, pending.step
        is_trained, context = partial(config.trains, step=step), StepContext(step, pending.memory)
        scored = score_decisions(trees, config.algorithm.at(context), is_trained, context)
        updated = (name for name in self.pool.updaters() if config.updates_policy(name, step))
        return all(scored.num_groups.get(n, 0) >= config.rollout.min_groups for n in updated)


_TEMPLATE_TOKENS, _MESSAGE_TOKENS = 64, 8
"""What a chat template adds to a prompt, and to each of its messages, at most."""


def fits(
    pool: PolicyPool,
    sampling: Mapping[str, SamplingSettings],
    agent: str,
    messages: Sequence[Mapping[str, str]],
) -> bool:
    """Whether the model of an agent can read messages and write the longest answer to them."""
    role = role_of(agent)
    policy = pool.for_role(role)
    limit = None if isinstance(policy, FixedPolicy) else policy.batcher.engine.limits.context_length
    if isinstance(policy, FixedPolicy) or limit is None:
        return True
    room = limit - sampling[role].max_completion_tokens
    # Encoding all branches would take longer than playing them, and no text has more tokens than
    # bytes. Where a template adds more than this, the prompt is refused when it is asked.
    most = sum(len(one["content"].encode("utf-8", "replace")) for one in messages)
    if most + _TEMPLATE_TOKENS + _MESSAGE_TOKENS * len(messages) <= room:
        return True
    return len(policy.encode(messages)) <= room


def sampling_of(
    config: RolloutConfig, role: str, temperature: float | None = None
) -> SamplingSettings:
    """How a role is sampled.

    Args:
        config: Settings of all roles, and what differs for some.
        role: The role; `ENV.ROLE` in a run of several environments.
    """
    own = entry_of(config.per_role, role) or RoleSamplingConfig()
    if temperature is None:
        temperature = config.temperature if own.temperature is None else own.temperature
    return SamplingSettings(
        temperature=temperature,
        max_completion_tokens=own.max_completion_tokens or config.max_completion_tokens,
        stop=config.stop if own.stop is None else own.stop,
    )


_GOLDEN = Fraction((math.sqrt(5) - 1) / 2)
"""Its multiples modulo 1 lie evenly, however many of them there are."""


def apportioned(weights: Sequence[float], num: int, offset: Fraction) -> list[int]:
    """How many of `num` equal parts go to each weight: systematic sampling.

    Every count is the floor or the ceiling of its quota ``num * weight / sum(weights)``, and for an
    offset drawn evenly from [0, 1) its expectation is the quota: no other draw of whole numbers has
    less variance.

    Args:
        weights: Above 0, at least one.
        offset: Which of the roundings, in [0, 1).
    """
    total = sum(map(Fraction, weights))
    ends = accumulate(num * Fraction(weight) / total for weight in weights)
    # A part k is at k + offset; those before an end are ceil(end - offset).
    before = [0, *(math.ceil(end - offset) for end in ends)]
    return [last - first for first, last in pairwise(before)]


def level_counts(
    weights: Sequence[float], num_levels: int, *, seed: int, step: int, refill: int
) -> list[int]:
    """How many levels of a round of a train step each environment plays.

    They depend on nothing but the arguments, so that a resumed run repeats them. The offset moves
    by the golden ratio from one train step to the next: over any number of steps the levels of an
    environment stay near their quota, also where it is less than one level per step.

    Args:
        step: Train step, from 0.
        refill: Number of the round within the step, from 0.
    """
    first = Fraction(derive_seed(seed, "environments", refill), 1 << 53)
    return apportioned(weights, num_levels, (first + step * _GOLDEN) % 1)
