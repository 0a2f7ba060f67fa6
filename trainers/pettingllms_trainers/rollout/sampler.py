"""The rollouts of train steps, in flight for as many steps as they may be old."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import math
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import wait
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

from pettingllms import role_of
from pettingllms.curriculum import LevelRecord, level_shares, with_episodes
from pettingllms.loops import DaemonThreads, wait_for
from pettingllms.seeding import derive_seed
from pettingllms_trainers.config import Config, EnvConfig, RolloutConfig
from pettingllms_trainers.config.algorithm import Algorithm, StepContext
from pettingllms_trainers.config.sections import RoleSamplingConfig, entry_of, qualified
from pettingllms_trainers.learning.groups import score_decisions
from pettingllms_trainers.policies.fixed import FixedPolicy
from pettingllms_trainers.policies.pool import PolicyPool, all_have_asked
from pettingllms_trainers.ranks import Ranks, StopRequest, StopRequested
from pettingllms_trainers.rollout.candidates import (
    Answering,
    Ask,
    AskV,
    FailureLog,
    ResultT,
    RolloutSettings,
    Valuing,
    VersionedCompletions,
    episode_specs,
)
from pettingllms_trainers.rollout.episode import Episodes
from pettingllms_trainers.rollout.judging import Fits, Rewards, ShapedEpisodes
from pettingllms_trainers.rollout.player import EpisodeBatch, Share, joined, play_share
from pettingllms_trainers.types import RolloutTree, SamplingSettings

_STRAGGLERS = 0.1
"""Of a train step's levels at most such a share is given up."""
_CANCEL_S = 5.0
"""For how long a run that ends waits for cancelled rollouts; an environment may hang in them."""

Records = Mapping[str, Sequence[LevelRecord]]
"""Name of an environment to how the stages of its curriculum have been played."""


class Sample(NamedTuple):
    """The rollouts of a train step."""

    trees: list[RolloutTree]
    """One per episode, without those that were given up."""
    num_refills: int
    """Rounds of further levels, whose trees are included."""
    num_stale: int = 0
    """Episodes that were given up: by the next train step they would have been too old."""
    rollout_s: float = 0.0
    """Seconds in which they were in flight and engines could generate."""
    generate_s: float = 0.0
    """Seconds in which engines generated in the last part of that time, added up over engines."""
    memory: Mapping[str, Any] = {}
    """Memory of the algorithm when they began, with which they are compared, too."""


@dataclass(kw_only=True, slots=True)
class PendingStep:
    """Rollouts of one train step that have begun, as plain values: what a checkpoint keeps.

    Episodes are functions of the answers in them: played again with the recorded answers, they
    come to the same states.
    """

    step: int
    """Number of the train step, from 0."""
    version: int
    """Train steps that the policies had taken when the rollouts began."""
    memory: Mapping[str, Any]
    """Memory of the algorithm when the rollouts began."""
    records: Records
    """Records of the curricula when the rollouts began."""
    first_levels: list[int] = field(default_factory=list[int])
    """Level cursor at the beginning of each round of levels so far."""
    answers: dict[str, VersionedCompletions] = field(
        default_factory=dict[str, VersionedCompletions]
    )
    """Digest of a request to its answer, until all is played."""
    values: dict[str, float] = field(default_factory=dict[str, float])
    """Digest of a request for V to its answer, until all is played."""
    sample: Sample | None = None
    """The rollouts; None while they are played."""
    rollout_s: float = 0.0
    """Seconds so far; see `Sample.rollout_s`."""
    generate_s: float = 0.0
    """Seconds in the last part of them; see `Sample.generate_s`."""


class InFlightRollouts:
    """A pending step while it is played: whom its episodes ask, and which levels are over.

    Args:
        pending: The rollouts.
        answering: Asks the policies.
        valuing: Asks for V.
        callback: Called when a level is over.
    """

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
        """Levels that this process has begun, and how many of them are over."""
        self.is_cut_short = False
        """Whether the levels that were not over were given up."""
        self.comes_next = asyncio.Event()
        """Set when the policies wait for these rollouts."""
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
    """An environment of the run, as training levels are sampled from it."""

    name: str = ""
    """Its name among several; empty in a run of one."""
    config: EnvConfig
    """Its table of the run file."""
    roles: Mapping[str, str]
    """Role, as the environment has it, to the name of its policy."""
    episodes: Sequence[Episodes]
    """Where it is played, by stage of the curriculum."""
    rewards: Rewards = field(default_factory=Rewards)
    """Rewards of answers besides the environment's."""

    def at(self, stage: int, cut_reward: float, fits: Fits) -> Episodes:
        """Where a stage of the curriculum is played."""
        episodes, scale = self.episodes[stage], self.config.reward_scale
        return ShapedEpisodes(episodes, self.rewards, scale, self.name, cut_reward, fits)


class Sampler:
    """Samples training rollouts.

    Args:
        environments: What is played.
        pool: The policies of all roles.
        config: The run.
        failures: Counts failed rollouts.
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
        """Level cursor: training levels that the run has used, those in flight included. Whoever
        drops a train step's rollouts moves it back."""
        self.memory: Mapping[str, Any] = {}
        """Memory of the algorithm after the last update (`Algorithm.remember`), which the training
        loop replaces."""
        self.records: Records = {
            env.name: [LevelRecord()] * len(env.episodes) for env in environments
        }
        """Records of the curricula after the last update, which the training loop replaces."""

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
            # Each rank cuts its own levels short; all have to play another round, or none.
            and not await self._collective(self.pool.ranks.any, in_flight.is_cut_short)
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
        if ranks.size > 1:
            # Ranks exchange what they have in the same order: that of the train steps.
            await in_flight.comes_next.wait()
        return await self._collective(joined, share, self._failures, ranks)

    async def _collective(self, call: Callable[..., ResultT], *arguments: Any) -> ResultT:
        """The result of a call that waits for other ranks, while other steps' rollouts go on."""
        if self.pool.ranks.size > 1 and self._config.plays_beside_updates:
            return await asyncio.to_thread(call, *arguments)
        return call(*arguments)

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


class TrainingRollouts:
    """Gives the training loop its rollouts.

    With `rollout.max_staleness = k` those of the next k train steps are in flight while the
    policies learn. They are played until those of the very next step are complete, and as long as
    the update takes. Then engines get new weights, with which the others go on. So the rollouts of
    train step n begin with the weights of step n - k and end with those of step n - 1 at the
    latest: no token is older than k. With k = 1 all tokens are drawn from the weights before the
    update, whatever the timing.

    Above 1 a train step does not wait for stragglers. When engines have hardly anything else to do
    in all that is in flight, the last levels of a step are given up, at most a tenth of them: by
    the next step they would be older than k.

    Where the model that learns also generates, the rollouts are played before the update, and no
    time is saved. Several ranks play their own levels, and exchange them when their step comes.

    Args:
        runner: Runs the rollouts; one event loop, in which they stay between two train steps.
        ranks: The processes of the run; None for this one alone.

    Source:
        Bounded staleness and weights that change within an episode are those of AReaL (arXiv
        2505.24298, section 4), which learns from what is complete first and drops what is too old.
        Changed: levels belong to a train step before they are played, so that those that are solved
        sooner are not learnt sooner; only stragglers are dropped. Weights that change within an
        answer are those of PipelineRL (arXiv 2509.19128), whose new weights keep the old KV cache;
        here they read the answer again.
    """

    def __init__(
        self,
        sampler: Sampler,
        config: Config,
        stop: StopRequest,
        runner: asyncio.Runner,
        ranks: Ranks | None = None,
    ) -> None:
        self.sampler, self._config, self._stop = sampler, config, stop
        self._runner, self._gate, self._ranks = runner, WeightGate(), ranks or Ranks()
        self._most = config.rollout.max_staleness
        self.pending: list[PendingStep] = []
        """Rollouts that have begun and are not learnt from yet, by train step; checkpoints keep
        them."""
        self._tasks: dict[int, asyncio.Task[Sample]] = {}
        self._in_flight: dict[int, InFlightRollouts] = {}
        self._is_due = False
        """Whether the policies wait for the first of the pending steps."""

    def remembered(self, step: int, trees: Sequence[RolloutTree]) -> Mapping[str, Any]:
        """Let curricula learn from rollouts how to play the next ones; what the algorithm learns.

        Returns:
            The algorithm's memory, which is not that of the sampler yet.
        """
        config, sampler = self._config, self.sampler
        sampler.records = {
            name: with_episodes(
                sampler.records[name],
                (
                    (tree.stage, tree.outcome.success)
                    for tree in trees
                    if tree.env == name and tree.outcome is not None
                ),
                env.curriculum_decay,
            )
            for name, env in zip(config.env_names, config.env, strict=True)
        }
        return config.algorithm.remember(trees, StepContext(step, sampler.memory))

    def restore(
        self,
        num_levels_used: int,
        pending: Sequence[PendingStep],
        memory: Mapping[str, Any],
        records: Records,
    ) -> None:
        """Continue where a checkpoint was written."""
        # A step that is kept when one fails may have begun further rounds in that one.
        num = self._config.rollout.num_levels
        used = [first + num for one in pending for first in one.first_levels]
        self.sampler.num_levels_used, self.pending = max(num_levels_used, *used, 0), list(pending)
        self.sampler.memory, self.sampler.records = memory, records

    def take(self, step: int) -> Sample | None:
        """The rollouts of a train step; None when a signal came, and nothing has changed.

        A signal ends rollouts at once that begin here: the run would draw them again anyway.

        Args:
            step: From 0; the one after the last.
        """
        num_levels_used = self.sampler.num_levels_used
        if not self.pending:
            self.pending.append(self.sampler.pending(step, step))
            try:
                with self._stop.at_once():
                    self._runner.run(self._play(step))
            except StopRequested:
                self.pending.clear()
                self.sampler.num_levels_used = num_levels_used
                return None
        # Steps are learnt in their order, whatever is complete first.
        pending = self.pending.pop(0)
        self._in_flight.pop(step, None)  # not there if it was complete when the run was resumed
        assert pending.sample is not None, "it was played to its end"
        return pending.sample._replace(
            rollout_s=pending.rollout_s, generate_s=pending.generate_s, memory=pending.memory
        )

    @contextlib.contextmanager
    def playing_next(self, step: int) -> Iterator[None]:
        """The context of the update of a train step, in which the next ones are played.

        The last train step of a run plays nothing. Rollouts of the next step are played to their
        end, also when a signal asks to stop: without them the run could not be continued exactly.

        Args:
            step: That learns, from 0.
        """
        # All that may be as old as allowed is begun now, with the weights before the update.
        first = self.pending[-1].step + 1 if self.pending else step + 1
        last = min(step + self._most, self._config.num_steps - 1)
        self.pending += [self.sampler.pending(later, step) for later in range(first, last + 1)]
        if not self.pending:
            yield
        elif self._config.plays_beside_updates:
            is_updated = threading.Event()
            loop = self._runner.get_loop()
            play = loop.create_task(self._play(step, is_updated))
            played = DaemonThreads(1).submit(self._runner.run, asyncio.wait_for(play, None))
            try:
                yield
                is_updated.set()
                wait_for(played)
                played.result()
            except BaseException:
                # The run ends, if need be at once: nobody waits for what is left to play.
                is_updated.set()
                loop.call_soon_threadsafe(play.cancel)
                wait([played], _CANCEL_S)
                raise
            self._ranks.barrier()  # engines that they share get new weights now
        else:
            if self.pending[0].sample is None:
                self._runner.run(self._play(step))
            yield

    async def _play(self, version: int, is_updated: threading.Event | None = None) -> None:
        """Play what is in flight until the first of it is complete, and an update is over."""
        first, started = self.pending[0], time.perf_counter()
        self.sampler.pool.take_generate_s()
        self._begin(is_on_policy=version == first.step)
        if version != first.step:  # else nothing waits, and nothing was played before
            await self._gate.settled()
        updated = None
        if is_updated is None:
            self._come_due()
        else:
            updated = asyncio.ensure_future(asyncio.to_thread(is_updated.wait))
            updated.add_done_callback(lambda _: self._come_due())
        self._gate.open(version)
        if first.sample is None:
            self._in_flight[first.step].comes_next.set()
            await asyncio.wait([self._tasks[first.step]])
        first.rollout_s += time.perf_counter() - started
        # Later steps go on as long as the update takes: engines would have nothing to do.
        if updated is not None:
            await updated
        await self._gate.close(must_drain=not self._config.swaps_within_answers)
        self._is_due = False
        first.generate_s = self.sampler.pool.take_generate_s()
        for pending in self.pending:
            if pending is not first:
                pending.rollout_s += time.perf_counter() - started
            if pending.step in self._tasks and self._tasks[pending.step].done():
                pending.sample = self._tasks.pop(pending.step).result()
                # Only what is still played has to be played again by a resumed run.
                pending.answers.clear()
                pending.values.clear()

    def _begin(self, *, is_on_policy: bool) -> None:
        """Let all pending steps play that do not yet; those of a checkpoint catch up."""
        for pending in self.pending:
            if pending.step in self._in_flight:
                continue
            in_flight = self._gate.rollouts(pending, self._leave_stragglers)
            self._in_flight[pending.step] = in_flight
            if pending.sample is None:
                play = self.sampler.rollouts(in_flight, may_stop=is_on_policy)
                task = self._tasks[pending.step] = asyncio.ensure_future(play)
                # Of several that fail, one is raised; asyncio would write about the others.
                task.add_done_callback(lambda t: t.cancelled() or t.exception())

    def _come_due(self) -> None:
        self._is_due = True
        self._leave_stragglers()

    def _leave_stragglers(self) -> None:
        """Give up the last levels of the first step, if it is due and nothing else is left."""
        if self._is_due:
            in_flight = [self._in_flight[pending.step] for pending in self.pending]
            if has_only_stragglers(in_flight, self._most):
                in_flight[0].cut_short()


class WeightGate:
    """Lets requests through to the engines, with one set of weights at a time.

    While it is closed no request begins, so that engines can take new weights: episodes wait before
    their next request, and go on with the new ones. What an engine is writing it may finish with
    them (`TokenCompletion.swaps`), if it can. Answers that a pending step has already are given at
    once. Used by one event loop at a time.
    """

    def __init__(self) -> None:
        self._version: int | None = None
        self._waiting: list[tuple[tuple[int, str], asyncio.Future[int]]] = []
        self._asking: set[asyncio.Future[Any]] = set()
        self._num_asked = 0

    def rollouts(
        self, pending: PendingStep, callback: Callable[[], None] = lambda: None
    ) -> InFlightRollouts:
        """The rollouts of a pending step, whose episodes ask here; it notes the answers."""
        answering, valuing = partial(self._answer, pending), partial(self._value, pending)
        return InFlightRollouts(pending, answering, valuing, callback)

    async def _answer(
        self, pending: PendingStep, asked: Sequence[Any], ask: Ask
    ) -> VersionedCompletions:
        async def versioned(version: int) -> VersionedCompletions:
            return VersionedCompletions(await ask(), version)

        return await self._once((pending.step, asked), pending.answers, versioned)

    async def _value(self, pending: PendingStep, asked: Sequence[Any], ask: AskV) -> float:
        # Noted like answers: the next update changes V, and a resumed run must see this one.
        return await self._once((pending.step, asked), pending.values, lambda _: ask())

    async def _once(
        self,
        asked: tuple[int, Sequence[Any]],
        known: dict[str, ResultT],
        ask: Callable[[int], Awaitable[ResultT]],
    ) -> ResultT:
        """What is known, or ask with the present weights."""
        # The order of requests depends on timing, so that they are known by what they ask.
        step, content = asked
        key = hashlib.blake2b(repr(content).encode(errors="surrogatepass"), digest_size=16)
        name = key.hexdigest()
        self._num_asked += 1
        if name not in known:
            version = await self._pass((step, name))
            request = asyncio.ensure_future(ask(version))
            self._asking.add(request)
            # Whoever asked may be cancelled with its level; then the engine need not go on either.
            try:
                known[name] = await request
            finally:
                self._asking.discard(request)
                request.cancel()
        return known[name]

    async def _pass(self, order: tuple[int, str]) -> int:
        # Open: the weights of now answer, so that the version is noted with the answer.
        if self._version is not None:
            return self._version
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append((order, turn))
        return await turn

    def open(self, version: int) -> None:
        """Let requests through; those that wait, in an order that does not depend on timing.

        Args:
            version: Train steps that the engines' weights have taken.
        """
        self._version = version
        # In the order in which a resumed run would ask: by step and content.
        waiting, self._waiting = sorted(self._waiting, key=lambda one: one[0]), []
        for _, turn in waiting:
            if not turn.done():  # else its episode was cancelled
                turn.set_result(version)

    async def close(self, *, must_drain: bool) -> None:
        """Let no more requests through.

        Args:
            must_drain: Whether to wait until those that are computed are answered.
        """
        # Closed before waiting: a request that began now would be written by two sets of weights.
        self._version = None
        await self.settled()
        # Each answer may wake an episode that asks again, and then waits at the gate.
        while must_drain and self._asking:
            await asyncio.wait(self._asking)
            await self.settled()

    async def settled(self) -> None:
        """Wait until no coroutine that can run is about to ask; see `all_have_asked`."""
        await all_have_asked(lambda: self._num_asked)


def has_only_stragglers(in_flight: Sequence[InFlightRollouts], most: int) -> bool:
    """Whether the levels that the first step still plays are to be given up.

    Hardly anything is left to play in all steps together: engines would have nothing else to do
    than these levels, which by the next train step would be older than allowed.

    Args:
        in_flight: What this process plays, the step that the policies wait for first.
        most: `rollout.max_staleness`.
    """
    first, version = in_flight[0], in_flight[0].pending.version
    num_missing = sum(one.num_levels - one.num_complete for one in in_flight)
    is_too_old_next = first.pending.step + 1 - version > most
    has_later = any(one.pending.version > version for one in in_flight)
    is_little = num_missing <= _STRAGGLERS * first.num_levels
    return is_too_old_next and has_later and is_little and first.num_complete > 0
