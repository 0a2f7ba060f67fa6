"""Rollout trees: sample candidates at every agent's turn, score each in a fork, follow one."""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from pettingllms import role_of
from pettingllms.errors import InvalidArgument
from pettingllms.seeding import derive_seed
from pettingllms_trainers.config.algorithm import BranchChoice
from pettingllms_trainers.errors import EnvironmentFailure, WorkerLost
from pettingllms_trainers.policies.fixed import FixedPolicy
from pettingllms_trainers.policies.pool import ModelPolicy, PolicyPool
from pettingllms_trainers.rollout.episode import Branch, Episodes, EpisodeState
from pettingllms_trainers.rollout.failures import FailureLog
from pettingllms_trainers.rollout.selection import choose
from pettingllms_trainers.types import (
    Candidate,
    Decision,
    DecisionKey,
    GenerateRequest,
    RolloutStatus,
    RolloutTree,
    SamplingSettings,
    TokenCompletion,
    TreeOutcome,
)

__all__ = [
    "RolloutSettings",
    "RolloutSpec",
    "episode_specs",
    "play_episodes",
]


@dataclass(frozen=True, kw_only=True, slots=True)
class RolloutSettings:
    """How one episode is sampled."""

    num_candidates: int
    """K: candidates of every decision."""
    sampling: Mapping[str, SamplingSettings]
    """How completions are drawn, by role."""
    branch_choice: BranchChoice = "greedy"
    """Which candidate the episode continues with."""
    branch_temperature: float = 1.0
    """Divides the rewards of `softmax`; in units of reward, above 0."""


class RolloutSpec(NamedTuple):
    """Which episode to play: level and chance are fixed by it."""

    episode: int
    """Episode id, unique within a call."""
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
        num_trajectories: 1 for tree sampling; K independent ones for parallel sampling.
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


async def play_episodes(
    episodes: Episodes,
    pool: PolicyPool,
    specs: Sequence[RolloutSpec],
    settings: RolloutSettings,
    failures: FailureLog,
) -> list[RolloutTree]:
    """Play all episodes at once, so that the engines see big batches; every rank plays its share.

    Args:
        episodes: Where the environments live.
        pool: Policies of the roles.
        specs: Episodes to play.
        settings: How to sample.
        failures: Counts and logs what fails.

    Returns:
        One tree per episode, in order; a failed one has its status and cause.

    Raises:
        RolloutError: More trees or candidates failed than allowed.
    """
    ranks = pool.ranks
    rollouts = [_Rollout(episodes, pool, spec, settings, failures) for spec in ranks.share(specs)]
    trees = ranks.gather(await _all(rollout.play() for rollout in rollouts))
    failed = [tree for tree in trees if tree.status is not RolloutStatus.OK]
    failures.check(len(failed), len(trees), "rollouts", failed[0].cause or "" if failed else "")
    counts = ranks.gather([(r.num_dropped, r.num_candidates, r.drop_cause) for r in rollouts])
    num_dropped = sum(count[0] for count in counts)
    num_candidates = sum(count[1] for count in counts)
    cause = next((cause for *_, cause in counts if cause), "")
    failures.check(num_dropped, num_candidates, "candidates", cause)
    return trees


async def _all(plays: Iterable[Coroutine[Any, Any, RolloutTree]]) -> list[RolloutTree]:
    """Return the results of all; the first error ends the others."""
    tasks = [asyncio.ensure_future(play) for play in plays]
    # Not a TaskGroup: it would wrap the error, and callers know errors by their type.
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


class _Rollout:
    """Plays one episode."""

    def __init__(
        self,
        episodes: Episodes,
        pool: PolicyPool,
        spec: RolloutSpec,
        settings: RolloutSettings,
        failures: FailureLog,
    ) -> None:
        self._episodes = episodes
        self._pool = pool
        self._spec = spec
        self._settings = settings
        self._failures = failures
        self._initial_hash = ""
        self._decisions: list[Decision] = []
        self._returns: dict[str, float] = {}
        self.num_candidates = 0
        self.num_dropped = 0
        self.drop_cause = ""

    async def play(self) -> RolloutTree:
        """Play to the end; what the environment or the engine raises becomes the tree's status."""
        try:
            return self._tree(await self._play())
        except EnvironmentFailure as error:
            return self._failed(RolloutStatus.ENV_FAILED, error)
        except _SamplingFailed as error:
            return self._failed(RolloutStatus.GENERATION_FAILED, error, error.kind)
        finally:
            await self._episodes.close(self._spec.episode)

    async def _play(self) -> TreeOutcome:
        situation = await self._episodes.start(self._spec.episode, self._spec.env_seed)
        self._initial_hash = situation.state_hash
        self._returns = dict(situation.rewards)
        while not situation.is_over:
            situation = await self._decide(situation)
            for name, reward in situation.rewards.items():
                self._returns[name] += reward
        return TreeOutcome(
            success=situation.success,
            terminated=situation.terminated,
            truncated=situation.truncated,
            returns=self._returns,
            num_turns=1 + max(group.key.turn for group in self._decisions),
        )

    async def _decide(self, situation: EpisodeState) -> EpisodeState:
        """Branch at the selected agent and follow one branch."""
        episode, decision = self._spec.episode, len(self._decisions)
        # Only the selected agent is asked: the next one must see what this one did. K candidates
        # answer one prompt: their rewards differ by what was written and by nothing else.
        role = role_of(situation.agent)
        policy = self._pool.for_role(role)
        if isinstance(policy, FixedPolicy):
            prompt_ids, completions = (), [await self._answer(policy, situation)]
        else:
            prompt_ids = policy.encode(situation.messages)
            completions = self._usable(await self._sample(policy, role, prompt_ids))
        branches = await self._episodes.branch(episode, [c.text for c in completions])
        # Seeds are derived from the episode and the decision, not drawn one after another: a
        # rollout is the same whatever else is played beside it. "advance" is part of the seed.
        chosen = choose(
            [branch.reward for branch in branches],
            self._settings.branch_choice,
            self._settings.branch_temperature,
            random.Random(derive_seed(self._spec.seed, "advance", len(self._decisions))),
        )
        self._decisions.append(
            Decision(
                key=DecisionKey(episode, decision, situation.agent, situation.turn),
                role=role,
                policy=policy.name,
                prompt_ids=prompt_ids,
                observation="\n\n".join(message["content"] for message in situation.messages),
                candidates=tuple(map(_candidate, completions, branches)),
                temperature=self._settings.sampling[role].temperature,
                chosen=chosen,
            )
        )
        return await self._episodes.follow(episode, chosen)

    async def _sample(
        self, policy: ModelPolicy, role: str, prompt: tuple[int, ...]
    ) -> list[TokenCompletion]:
        """Return candidates of an engine."""
        request = GenerateRequest(
            prompt_ids=prompt,
            num_candidates=self._settings.num_candidates,
            sampling=self._settings.sampling[role],
            seed=derive_seed(self._spec.seed, "sample", len(self._decisions)),
        )
        with _sampling_failures():
            return await policy.batcher.sample(request)

    async def _answer(self, policy: FixedPolicy, situation: EpisodeState) -> TokenCompletion:
        """Return the answer of a fixed policy."""
        env = await self._episodes.environment(self._spec.episode)
        agent = situation.agent
        sampling = self._settings.sampling[role_of(agent)]
        seed = derive_seed(self._spec.seed, "sample", len(self._decisions))
        with _sampling_failures(f"failures of {policy.name}"):
            return await policy.answer(situation.messages, agent, env, sampling, seed)

    def _usable(self, completions: Sequence[TokenCompletion]) -> list[TokenCompletion]:
        """Return the completions that can be scored and trained on; count the others."""
        num_wanted = self._settings.num_candidates
        usable = [completion for completion in completions if _is_whole(completion)]
        self.num_candidates += num_wanted
        if len(usable) != num_wanted:
            self.num_dropped += num_wanted - len(usable)
            self.drop_cause = f"the engine gave {len(usable)} usable of {num_wanted} completions"
            self._failures.log(self.drop_cause)
        if not usable:
            raise _SamplingFailed(self.drop_cause)
        return usable

    def _failed(self, status: RolloutStatus, error: Exception, kind: str = "") -> RolloutTree:
        self._failures.log(str(error), error, kind)
        return replace(self._tree(None), status=status, cause=str(error))

    def _tree(self, outcome: TreeOutcome | None) -> RolloutTree:
        return RolloutTree(
            episode=self._spec.episode,
            env_seed=self._spec.env_seed,
            initial_state_hash=self._initial_hash,
            decisions=tuple(self._decisions),
            outcome=outcome,
        )


class _SamplingFailed(Exception):
    """No candidate could be sampled for a decision."""

    def __init__(self, cause: str, kind: str = "") -> None:
        super().__init__(cause)
        self.kind = kind


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
        raise _SamplingFailed(f"{type(error).__name__}: {error}", kind) from error


def _is_whole(completion: TokenCompletion) -> bool:
    logprobs = completion.logprobs
    return 0 < len(completion.token_ids) == len(logprobs) and all(map(math.isfinite, logprobs))


def _candidate(completion: TokenCompletion, branch: Branch) -> Candidate:
    return Candidate(completion=completion, **branch._asdict())
