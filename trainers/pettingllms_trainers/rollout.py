"""Rollout trees: branch a forkable environment at every agent's turn and go on with one branch.

The prompt of a decision is read from the live environment when the agent is selected, so it shows
what team-mates did earlier in the turn. Each candidate acts in its own fork and is scored there;
the chosen fork itself becomes the live environment, so nothing is ever applied twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from pettingllms import TextEnv, role_of
from pettingllms.errors import InvalidArgument
from pettingllms.seeding import derive_seed
from pettingllms_trainers.failures import FailureLog
from pettingllms_trainers.policy import Policy, PolicyPool
from pettingllms_trainers.types import (
    Candidate,
    Completion,
    GenerateRequest,
    Group,
    GroupKey,
    RolloutStatus,
    RolloutTree,
    Sampling,
    TreeOutcome,
)

__all__ = [
    "Advance",
    "EpisodeSpec",
    "RolloutSettings",
    "choose",
    "episode_specs",
    "play_episodes",
]

Advance = Literal["greedy", "random", "softmax"]


@dataclass(frozen=True, kw_only=True, slots=True)
class RolloutSettings:
    """How one episode is sampled."""

    num_candidates: int
    """K: candidates of every decision."""
    sampling: Mapping[str, Sampling]
    """How completions are drawn, by role."""
    advance: Advance = "greedy"
    """Which candidate the episode goes on with."""
    advance_temperature: float = 1.0
    """Divides the rewards of `softmax`; in units of reward, above 0."""


class EpisodeSpec(NamedTuple):
    """Which episode to play: level and chance are fixed by it."""

    episode: int
    """Episode id, unique within a call."""
    env_seed: int
    """Seed of the level."""
    seed: int
    """Seed of everything that is drawn in the episode."""


def episode_specs(
    *, seed: int, step: int, first_level: int, num_levels: int, num_trajectories: int = 1
) -> list[EpisodeSpec]:
    """Return `num_trajectories` episodes of each level of a train step.

    Args:
        seed: Seed of the run.
        step: Train step, part of the chance of sampling.
        first_level: Level cursor: number of levels the run has used so far.
        num_levels: E, at least 1.
        num_trajectories: 1 for tree sampling; K independent ones for parallel sampling.
    """
    return [
        EpisodeSpec(
            episode=level * num_trajectories + trajectory,
            env_seed=derive_seed(seed, "level", first_level + level),
            seed=derive_seed(seed, "episode", step, level, trajectory),
        )
        for level in range(num_levels)
        for trajectory in range(num_trajectories)
    ]


async def play_episodes(
    env: TextEnv[Any],
    pool: PolicyPool,
    specs: Sequence[EpisodeSpec],
    settings: RolloutSettings,
    failures: FailureLog,
) -> list[RolloutTree]:
    """Play all episodes at once, so that the engines see big batches.

    Args:
        env: Environment to take forks of; it is not changed.
        pool: Policies of the roles.
        specs: Episodes to play.
        settings: How to sample.
        failures: Counts and tells what fails.

    Returns:
        One tree per episode, in order; a failed one has its status and cause.

    Raises:
        RolloutError: More trees or candidates failed than allowed.
    """
    players = [_Player(env.fork(), pool, spec, settings, failures) for spec in specs]
    trees = await _all(player.play() for player in players)
    failed = [tree for tree in trees if tree.status is not RolloutStatus.OK]
    failures.check(len(failed), len(trees), "rollouts", failed[0].cause or "" if failed else "")
    num_dropped = sum(player.num_dropped for player in players)
    num_candidates = sum(player.num_candidates for player in players)
    cause = next((player.drop_cause for player in players if player.drop_cause), "")
    failures.check(num_dropped, num_candidates, "candidates", cause)
    return trees


async def _all(plays: Iterable[Coroutine[Any, Any, RolloutTree]]) -> list[RolloutTree]:
    """Return the results of all; the first error ends the others."""
    tasks = [asyncio.ensure_future(play) for play in plays]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


def choose(
    rewards: Sequence[float], advance: Advance, temperature: float, rng: random.Random
) -> int:
    """Return the index of the candidate that an episode goes on with.

    Args:
        rewards: [K] rewards of the candidates, at least one.
        advance: `greedy`: the best, the lowest index among equals; `random`: any;
            `softmax`: with probability proportional to `exp(reward / temperature)`.
        temperature: Of `softmax`, above 0.
        rng: Source of chance.
    """
    if advance == "greedy":
        return rewards.index(max(rewards))
    if advance == "random":
        return rng.randrange(len(rewards))
    best = max(rewards)
    weights = [math.exp((reward - best) / temperature) for reward in rewards]
    return rng.choices(range(len(rewards)), weights)[0]


class _Player:
    """Plays one episode."""

    def __init__(
        self,
        env: TextEnv[Any],
        pool: PolicyPool,
        spec: EpisodeSpec,
        settings: RolloutSettings,
        failures: FailureLog,
    ) -> None:
        self._env = env
        self._pool = pool
        self._spec = spec
        self._settings = settings
        self._failures = failures
        self._initial_hash = ""
        self._nodes: list[Group] = []
        self._returns: dict[str, float] = {}
        self.num_candidates = 0
        self.num_dropped = 0
        self.drop_cause = ""

    async def play(self) -> RolloutTree:
        """Play to the end; what the environment or the engine raises becomes the tree's status."""
        try:
            return await self._play()
        except _Failed as failure:
            self._failures.tell(failure.cause, failure.error, failure.kind)
            return self._tree(None, failure.status, failure.cause)

    async def _play(self) -> RolloutTree:
        with _env_failures():
            self._env.reset(seed=self._spec.env_seed)
            self._initial_hash = self._env.state_hash()
        self._returns = dict.fromkeys(self._env.possible_agents, 0.0)
        while not self._is_over():
            await self._decide()
        return self._tree(self._outcome())

    def _is_over(self) -> bool:
        agent = self._env.agent_selection
        return self._env.terminations[agent] or self._env.truncations[agent]

    async def _decide(self) -> None:
        """Branch at the selected agent and go on with one branch."""
        env, agent, node = self._env, self._env.agent_selection, len(self._nodes)
        role = role_of(agent)
        policy = self._pool.for_role(role)
        key = GroupKey(self._spec.episode, node, agent, env.turn)
        with _env_failures():
            messages = env.messages(agent)
        prompt_ids = policy.encode(messages)
        request = GenerateRequest(
            prompt_ids=prompt_ids,
            num_candidates=self._settings.num_candidates,
            sampling=self._settings.sampling[role],
            seed=derive_seed(self._spec.seed, "sample", node),
        )
        completions = self._usable(await _sampled(policy, request))
        with _env_failures():
            forks = [_stepped(env, completion.text) for completion in completions]
            candidates = tuple(map(_scored, forks, [agent] * len(forks), completions))
        chosen = choose(
            [candidate.reward for candidate in candidates],
            self._settings.advance,
            self._settings.advance_temperature,
            random.Random(derive_seed(self._spec.seed, "advance", node)),
        )
        self._nodes.append(
            Group(
                key=key,
                role=role,
                policy=policy.name,
                prompt_ids=prompt_ids,
                observation="\n\n".join(message["content"] for message in messages),
                candidates=candidates,
                temperature=request.sampling.temperature,
                chosen=chosen,
            )
        )
        self._env = forks[chosen]
        for name, reward in self._env.rewards.items():
            self._returns[name] += reward

    def _usable(self, completions: Sequence[Completion]) -> list[Completion]:
        """Return the completions that can be scored and trained on; count the others."""
        num_wanted = self._settings.num_candidates
        usable = [completion for completion in completions if _is_whole(completion)]
        self.num_candidates += num_wanted
        if len(usable) != num_wanted:
            self.num_dropped += num_wanted - len(usable)
            self.drop_cause = f"the engine gave {len(usable)} usable of {num_wanted} completions"
            self._failures.tell(self.drop_cause)
        if not usable:
            raise _Failed(RolloutStatus.GENERATION_FAILED, self.drop_cause)
        return usable

    def _outcome(self) -> TreeOutcome:
        agent = self._env.agent_selection
        return TreeOutcome(
            success=bool(self._env.infos[agent]["success"]),
            terminated=self._env.terminations[agent],
            truncated=self._env.truncations[agent],
            returns=self._returns,
            num_turns=1 + max(group.key.turn for group in self._nodes),
        )

    def _tree(
        self,
        outcome: TreeOutcome | None,
        status: RolloutStatus = RolloutStatus.OK,
        cause: str | None = None,
    ) -> RolloutTree:
        return RolloutTree(
            episode=self._spec.episode,
            env_seed=self._spec.env_seed,
            initial_state_hash=self._initial_hash,
            nodes=tuple(self._nodes),
            outcome=outcome,
            status=status,
            cause=cause,
        )


class _Failed(Exception):
    """The rollout of an episode cannot go on."""

    def __init__(
        self, status: RolloutStatus, cause: str, error: Exception | None = None, kind: str = ""
    ) -> None:
        super().__init__(cause)
        self.status, self.cause, self.error, self.kind = status, cause, error, kind

    @classmethod
    def of(cls, status: RolloutStatus, error: Exception, kind: str = "") -> _Failed:
        return cls(status, f"{type(error).__name__}: {error}", error, kind)


@contextlib.contextmanager
def _env_failures() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise _Failed.of(RolloutStatus.ENV_FAILED, error) from error


async def _sampled(policy: Policy, request: GenerateRequest) -> list[Completion]:
    try:
        return await policy.batcher.sample(request)
    except InvalidArgument as error:
        kind = f"requests with invalid {error.argument}"
        raise _Failed.of(RolloutStatus.GENERATION_FAILED, error, kind) from error
    except Exception as error:
        raise _Failed.of(RolloutStatus.GENERATION_FAILED, error) from error


def _is_whole(completion: Completion) -> bool:
    logprobs = completion.logprobs
    return 0 < len(completion.token_ids) == len(logprobs) and all(map(math.isfinite, logprobs))


def _stepped(env: TextEnv[Any], text: str) -> TextEnv[Any]:
    fork = env.fork()
    fork.step(text)
    return fork


def _scored(fork: TextEnv[Any], agent: str, completion: Completion) -> Candidate:
    reward, info = fork.rewards[agent], fork.infos[agent]
    if not math.isfinite(reward):
        raise ValueError(f"the environment gave {agent} the reward {reward}")
    parts = info["reward_parts"]
    return Candidate(
        completion=completion,
        reward=reward,
        team=parts["team"],
        local=parts["local"],
        parse_error=info["parse_error"],
        success=info["success"],
    )
