"""Candidates of decisions: sampled from a policy, or the one answer of a fixed policy, and scored.

Here is also what all episodes of a call share: how they are sampled, which they are, and what
happens when one of them fails.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

from pettingllms import role_of
from pettingllms.errors import InvalidArgument
from pettingllms.seeding import derive_seed
from pettingllms.types import Action, Constraints, TokenCounts
from pettingllms_trainers.errors import EnvironmentFailure, RolloutError, WorkerLost
from pettingllms_trainers.policies.fixed import FixedPolicy
from pettingllms_trainers.policies.pool import PolicyPool
from pettingllms_trainers.rollout.episode import Branch, Episodes, EpisodeState, LostBranch
from pettingllms_trainers.types import GenerateRequest, SamplingSettings, TokenCompletion

logger = logging.getLogger(__name__)

ResultT = TypeVar("ResultT")


class VersionedCompletions(NamedTuple):
    """Completions of one prompt, and which weights wrote them."""

    completions: list[TokenCompletion]
    version: int | None = None
    """Train steps that these weights had taken; None outside training."""


Ask = Callable[[], Awaitable[list[TokenCompletion]]]
"""Lets a policy answer a prompt."""
Answering = Callable[[Sequence[Any], Ask], Awaitable[VersionedCompletions]]
"""Called with plain values that say what is asked of whom, with the seed, and with the way to ask;
gives the answer."""
AskV = Callable[[], Awaitable[float]]
"""Evaluates V of a prompt."""
Valuing = Callable[[Sequence[Any], AskV], Awaitable[float]]
"""As `Answering`, for V."""


async def at_once(_: Sequence[Any], ask: Ask) -> VersionedCompletions:
    """Ask now, whatever the weights: the `Answering` outside training."""
    return VersionedCompletions(await ask())


async def value_at_once(_: Sequence[Any], ask: AskV) -> float:
    """Ask now: the `Valuing` outside training."""
    return await ask()


@dataclass(frozen=True, kw_only=True, slots=True)
class RolloutSettings:
    """How one episode is sampled."""

    sampling: Mapping[str, SamplingSettings]
    """How completions are drawn, by role of the environment."""
    env: str = ""
    """Name of the environment in a run of several, where it is part of roles."""
    stage: int = 0
    """Stage of its curriculum, from 0."""
    branching_roles: tuple[str, ...] | None = None
    """Roles whose decisions branch; None: all."""
    answering: Answering = at_once
    """Asks the policies."""
    valuing: Valuing = value_at_once
    """Asks V."""

    def branches(self, role: str) -> bool:
        """Whether decisions of a role may have more than one candidate."""
        return self.branching_roles is None or role in self.branching_roles


class RolloutSpec(NamedTuple):
    """Which episode to play: level and chance are fixed by it."""

    episode: int
    """Episode id, unique within a call, at least 0."""
    env_seed: int
    """Seed of the level."""
    seed: int
    """Seed of everything that is drawn in the episode."""


def episode_specs(
    *,
    seed: int,
    step: int,
    first_level: int,
    num_levels: int,
    num_trajectories: int = 1,
    num_played: int = 0,
) -> list[RolloutSpec]:
    """Return `num_trajectories` episodes of each of some levels of a train step.

    Args:
        seed: Seed of the run.
        step: Train step, part of the chance of sampling.
        first_level: Level cursor: number of levels the run had used before the step.
        num_levels: E, at least 1.
        num_trajectories: Episodes per level.
        num_played: Levels of the step that come before these.
    """
    return [
        RolloutSpec(
            episode=level * num_trajectories + trajectory,
            env_seed=derive_seed(seed, "level", first_level + level),
            seed=derive_seed(seed, "episode", step, level, trajectory),
        )
        for level in range(num_played, num_played + num_levels)
        for trajectory in range(num_trajectories)
    ]


@dataclass(slots=True)
class FailureLog:
    """Failures of rollouts: counted per call, each cause logged once per run."""

    max_failed_fraction: float = 0.0
    """Share of the trees, or of the candidates, of one call that may fail."""
    _logged: set[str] = field(default_factory=set[str])

    def log(
        self, cause: str, error: Exception | None = None, kind: str = "", details: str = ""
    ) -> None:
        """Log a cause, unless its kind has been logged before.

        Args:
            cause: What failed.
            error: Whose traceback is shown.
            kind: What it has in common with causes that differ in details; none: the cause itself.
            details: A traceback as text, of an error of another process.
        """
        kind = kind or cause
        if kind not in self._logged:
            self._logged |= {kind, cause}
            text = f"{cause}\n{details}" if details else cause
            logger.warning("a rollout failed and is left out: %s", text, exc_info=error)

    def check(self, num_failed: int, num_all: int, what: str, cause: str) -> None:
        """Stop the run when too much failed.

        Raises:
            RolloutError: More than the allowed share failed; carries the cause.
        """
        if num_failed > self.max_failed_fraction * num_all:
            raise RolloutError(
                f"{num_failed} of {num_all} {what} failed, more than the allowed share of "
                f"{self.max_failed_fraction:g} (rollout.max_failed_fraction). Cause: {cause}"
            )


class SamplingFailed(Exception):
    """No candidate could be sampled for a decision."""

    def __init__(self, cause: str, kind: str = "") -> None:
        super().__init__(cause)
        self.kind = kind


class SampledCandidates(NamedTuple):
    """What was asked and what was answered."""

    policy: str
    """Name of the policy."""
    prompt_ids: tuple[int, ...]
    """None of a fixed policy."""
    completions: list[TokenCompletion]
    """At least one."""
    version: int | None = None
    """See `VersionedCompletions`."""
    grammar: str = ""
    """Form that the engine has enforced; empty: none."""

    @property
    def actions(self) -> list[Action]:
        """The answers as actions of an environment."""
        read = len(self.prompt_ids)
        return [
            Action(one.text, one.finish_reason, TokenCounts(read, len(one.token_ids)))
            for one in self.completions
        ]

    @property
    def num_tokens(self) -> int:
        """Sampled tokens."""
        return sum(len(completion.token_ids) for completion in self.completions)


class Candidates:
    """Samples and scores candidates in a call of `play_all`, and counts what could not be sampled.

    Args:
        episodes: Where the environments live.
        pool: Policies of the roles.
        settings: How completions are drawn.
        failures: Logs what fails.
    """

    def __init__(
        self,
        episodes: Episodes,
        pool: PolicyPool,
        settings: RolloutSettings,
        failures: FailureLog,
    ) -> None:
        self.episodes, self.pool = episodes, pool
        self.settings, self.failures = settings, failures
        self.num_asked = 0
        self.num_dropped = 0
        self.drop_cause = ""

    def needs_environment(self, agent: str) -> bool:
        """Whether an agent's policy looks at the environment, besides the prompt."""
        return isinstance(self.pool.for_role(role_of(agent)), FixedPolicy)

    async def sample(
        self, episode: int, state: EpisodeState, num: int, seed: int
    ) -> SampledCandidates:
        """Return usable answers of the agent that acts next; one of a fixed policy.

        Args:
            episode: Its id.
            state: Where it is.
            num: Candidates that are wanted of an engine.
            seed: Decides the draws.

        Raises:
            SamplingFailed: There is none.
        """
        role = role_of(state.agent)
        sampling = bounded(self.settings.sampling[role], state.constraints)
        policy = self.pool.for_role(role)
        if isinstance(policy, FixedPolicy):
            # It writes one text whatever is asked for: K copies would be a group without spread.
            env = await self.episodes.environment(episode)
            messages, agent = state.messages, state.agent

            async def ask() -> list[TokenCompletion]:
                return [await policy.answer(messages, agent, env, sampling, seed)]

            with _sampling_failures(f"failures of {policy.name}"):
                answered = await self.settings.answering((policy.name, seed, messages), ask)
            return SampledCandidates(policy.name, (), *answered)
        prompt_ids = policy.encode(state.messages)
        with _sampling_failures():
            request = GenerateRequest(
                prompt_ids=prompt_ids,
                num_candidates=num,
                sampling=sampling,
                seed=seed,
                grammar=policy.enforced(state.constraints.grammar),
            )
            completions, version = await self.settings.answering(
                (policy.name, request), partial(policy.batcher.sample, request)
            )
        usable = self._usable(completions, num)
        return SampledCandidates(policy.name, prompt_ids, usable, version, request.grammar)

    async def branch(
        self, episode: int, sampled: SampledCandidates
    ) -> tuple[SampledCandidates, tuple[Branch, ...]]:
        """What the answers earn in branches of an episode, without those that were lost.

        Args:
            episode: Its id.
            sampled: Answers to its state.

        Raises:
            EnvironmentFailure: All were lost.
        """
        completions = sampled.completions
        found = await self.episodes.branch(episode, sampled.actions)
        lost = [branch for branch in found if isinstance(branch, LostBranch)]
        if not lost:
            return sampled, tuple(branch for branch in found if isinstance(branch, Branch))
        # One lost branch is no reason to lose its siblings: the group is smaller by one.
        for branch in lost:
            self.failures.log(branch.cause, kind=branch.kind, details=branch.details)
        if len(lost) == len(found):
            raise EnvironmentFailure(lost[0].cause)
        self.num_dropped += len(lost)
        self.drop_cause = lost[0].cause
        pairs = zip(completions, found, strict=True)
        kept = [(one, branch) for one, branch in pairs if isinstance(branch, Branch)]
        left = sampled._replace(completions=[one for one, _ in kept])
        return left, tuple(branch for _, branch in kept)

    def _usable(
        self, completions: Sequence[TokenCompletion], num_wanted: int
    ) -> list[TokenCompletion]:
        """The completions that can be scored and trained on; count the others."""
        usable = [completion for completion in completions if _is_whole(completion)]
        self.num_asked += num_wanted
        cause = f"the engine gave {len(usable)} usable of {num_wanted} completions"
        if len(usable) != num_wanted:
            self.num_dropped += num_wanted - len(usable)
            self.drop_cause = cause
            self.failures.log(cause)
        if not usable:
            raise SamplingFailed(cause)
        return usable


def bounded(sampling: SamplingSettings, constraints: Constraints) -> SamplingSettings:
    """How a role is sampled where the environment binds its answer."""
    # The environment may ask for less than the run allows, never for more: memory is planned.
    limit = sampling.max_completion_tokens
    return replace(
        sampling,
        stop=tuple(dict.fromkeys((*sampling.stop, *constraints.stop))),
        max_completion_tokens=min(limit, constraints.max_tokens or limit),
    )


@contextlib.contextmanager
def _sampling_failures(kind: str = "") -> Iterator[None]:
    """The rollout boundary: what is raised fails the rollouts that asked, unless all is lost."""
    try:
        yield
    except WorkerLost:
        raise  # no other rollout could be sampled either
    except Exception as error:
        if not kind and isinstance(error, InvalidArgument):
            kind = f"invalid {error.argument}"
        raise SamplingFailed(f"{type(error).__name__}: {error}", kind) from error


def _is_whole(completion: TokenCompletion) -> bool:
    logprobs = completion.logprobs
    return 0 < len(completion.token_ids) == len(logprobs) and all(map(math.isfinite, logprobs))


async def together(plays: Iterable[Coroutine[Any, Any, ResultT]]) -> list[ResultT]:
    """The results of all, in order; the first error ends the others."""
    # Tasks, as a bare coroutine could not be cancelled.
    tasks = [asyncio.ensure_future(play) for play in plays]
    # Not a TaskGroup: it would wrap the error, and callers know errors by their type.
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
