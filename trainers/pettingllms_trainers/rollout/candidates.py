"""Candidates of decisions: sampled from a policy, or the one answer of a fixed policy, and scored.

Here is also what all episodes of a call share: how they are sampled, which they are, and what is
said when one of them fails.
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
from pettingllms.ends import End, end_of_error
from pettingllms.errors import InvalidArgument, counted
from pettingllms.seeding import derive_seed
from pettingllms.types import Action, Constraints, TokenCounts
from pettingllms.workflows.tools import offered
from pettingllms_trainers.errors import EpisodeFailure, RolloutError, WorkerLost
from pettingllms_trainers.policies.fixed import FixedPolicy
from pettingllms_trainers.policies.pool import PolicyPool
from pettingllms_trainers.rollout.episode import Branch, Episodes, EpisodeState
from pettingllms_trainers.types import GenerateRequest, SamplingSettings, TokenCompletion

logger = logging.getLogger(__name__)

ResultT = TypeVar("ResultT")


class VersionedCompletions(NamedTuple):
    """Completions of one prompt, and the version of the weights that they were asked of."""

    completions: list[TokenCompletion]
    """[K] in sampling order."""
    version: int | None = None
    """Train steps that the weights had taken; None outside training."""


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
    """How the episodes of an environment are sampled."""

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
    """Which episode to play, fixed by its seeds."""

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
        step: Train step, part of the chance of sampling.
        first_level: Level cursor: number of levels the run had used before the step.
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
    """What goes wrong in rollouts: counted per call, each cause logged once per run."""

    max_failed_fraction: float = 0.0
    """Share of the trees of one call that the infrastructure may fail."""
    _logged: set[str] = field(default_factory=set[str])

    def log(
        self,
        what: str,
        cause: str,
        error: Exception | None = None,
        kind: str = "",
        details: str = "",
    ) -> None:
        """Log a cause, unless its kind has been logged before.

        Args:
            kind: What it has in common with causes that differ in details; none: the cause itself.
            details: A traceback as text, of an error of another process.
        """
        kind = kind or cause
        if kind not in self._logged:
            self._logged |= {kind, cause}
            text = f"{cause}\n{details}" if details else cause
            logger.warning("%s: %s", what, text, exc_info=error)

    def check(self, num_failed: int, num_all: int, cause: str) -> None:
        """Stop the run when the infrastructure failed too much.

        Raises:
            RolloutError: More than the allowed share failed; carries the cause.
        """
        if num_failed > self.max_failed_fraction * num_all:
            raise RolloutError(
                f"{num_failed} of {counted(num_all, 'rollout')} failed, even when played again, "
                f"more than the allowed share of {self.max_failed_fraction:g} "
                f"(rollout.max_failed_fraction). Cause: {cause}"
            )


class SampledCandidates(NamedTuple):
    """The sampled candidates of a decision."""

    policy: str
    """Name of the policy."""
    prompt_ids: tuple[int, ...]
    """Tokens of the prompt; empty for a fixed policy."""
    completions: list[TokenCompletion]
    """[K] answers, at least one."""
    version: int | None = None
    """Version of the weights; see `VersionedCompletions`."""
    grammar: str = ""
    """Form that the engine enforced; empty: none."""

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
    """Samples and scores the candidates of all episodes of one environment.

    Args:
        episodes: Where the environment lives.
        pool: Policies of its roles.
        settings: How to sample.
        failures: Logs what goes wrong.
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

    def needs_environment(self, agent: str) -> bool:
        """Whether an agent's policy looks at the environment, besides the prompt."""
        return isinstance(self.pool.for_role(role_of(agent)), FixedPolicy)

    async def sample(
        self, episode: int, state: EpisodeState, num: int, seed: int
    ) -> SampledCandidates:
        """The answers of the agent that acts next; one of a fixed policy.

        Raises:
            EpisodeFailure: They cannot be had.
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
                tools=offered(state.messages) if policy.read_calls else "",
            )
            completions, version = await self.settings.answering(
                (policy.name, request), partial(_whole, policy.sample, request)
            )
        return SampledCandidates(policy.name, prompt_ids, completions, version, request.grammar)

    async def branch(self, episode: int, sampled: SampledCandidates) -> tuple[Branch, ...]:
        """What the answers earn in branches of an episode.

        Raises:
            EpisodeFailure: The episode cannot go on.
        """
        found = await self.episodes.branch(episode, sampled.actions)
        for failure in (branch.failure for branch in found if branch.failure is not None):
            what = "an answer made the environment fail, and ended its episode"
            self.failures.log(what, failure.cause, kind=failure.kind, details=failure.details)
        return found


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
    except (WorkerLost, EpisodeFailure):
        raise  # of a lost worker no other rollout could be sampled either
    except Exception as error:
        if not kind and isinstance(error, InvalidArgument):
            kind = f"invalid {error.argument}"
        end = end_of_error(error)
        # No answer was played, so that none is to blame.
        end = End.SERVER if end is End.CODE else end
        raise EpisodeFailure(f"{type(error).__name__}: {error}", end, kind) from error


async def _whole(
    sample: Callable[[GenerateRequest], Awaitable[list[TokenCompletion]]], request: GenerateRequest
) -> list[TokenCompletion]:
    """All completions of a request; fewer, or some without numbers, are those of a lost engine."""
    completions = await sample(request)
    num = sum(
        0 < len(one.token_ids) == len(one.logprobs) and all(map(math.isfinite, one.logprobs))
        for one in completions
    )
    if num != request.num_candidates or num != len(completions):
        cause = f"the engine gave {num} usable of {request.num_candidates} completions"
        raise EpisodeFailure(cause, End.SERVER)
    return completions


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
