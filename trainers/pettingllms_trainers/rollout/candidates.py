"""Candidates of decisions: sampled from a policy, or the one text of a fixed policy, and scored."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from pettingllms import role_of
from pettingllms.errors import InvalidArgument
from pettingllms.types import Action, Constraints, TokenCounts
from pettingllms_trainers.errors import EnvironmentFailure, WorkerLost
from pettingllms_trainers.policies.fixed import FixedPolicy
from pettingllms_trainers.policies.pool import PolicyPool
from pettingllms_trainers.rollout.episode import Branch, Episodes, EpisodeState, LostBranch
from pettingllms_trainers.rollout.failures import FailureLog
from pettingllms_trainers.rollout.settings import RolloutSettings
from pettingllms_trainers.types import GenerateRequest, SamplingSettings, TokenCompletion


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
    """See `Answered`."""
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
        """Return whether an agent's policy looks at the environment, besides the prompt."""
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
        """Return what the answers earn in branches of an episode, without those that were lost.

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
        """Return the completions that can be scored and trained on; count the others."""
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
    """Return how a role is sampled where the environment binds its answer."""
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
        raise
    except Exception as error:
        if not kind and isinstance(error, InvalidArgument):
            kind = f"invalid {error.argument}"
        raise SamplingFailed(f"{type(error).__name__}: {error}", kind) from error


def _is_whole(completion: TokenCompletion) -> bool:
    logprobs = completion.logprobs
    return 0 < len(completion.token_ids) == len(logprobs) and all(map(math.isfinite, logprobs))
