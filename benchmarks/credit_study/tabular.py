"""The trainer's own rollouts and advantages on enumerated levels, with a table as the policy.

Nothing of an estimator is written again here: trees come from `play_episodes`, advantages from
`score_decisions`, targets of V from the algorithm. What is replaced is the model (a table), and
the environment (its enumerated decisions), so that a trial takes seconds.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from credit_study.enumeration import Level, softmax, text_of
from pettingllms import TextEnv
from pettingllms_trainers.config import algorithm as algorithms
from pettingllms_trainers.config.algorithm import Algorithm, StepContext
from pettingllms_trainers.learning.groups import score_decisions
from pettingllms_trainers.policies.pool import Batcher, ModelPolicy, PolicyPool
from pettingllms_trainers.rollout.candidates import FailureLog, RolloutSettings, RolloutSpec
from pettingllms_trainers.rollout.episode import Branch, Episodes, EpisodeState
from pettingllms_trainers.rollout.player import play_episodes
from pettingllms_trainers.types import (
    GenerateRequest,
    RequestLimits,
    RolloutTree,
    SamplingSettings,
    TokenCompletion,
    ValueExample,
)


class EnumeratedEpisodes:
    """Episodes on enumerated levels; see `Episodes`. The seed of an episode is its level's index.

    Args:
        levels: The levels.
    """

    def __init__(self, levels: Sequence[Level]) -> None:
        self._levels = levels
        self._ids = itertools.count()
        self._places: dict[int, tuple[int, EpisodeState, int]] = {}  # level, state, node
        self._branches: dict[int, list[tuple[EpisodeState, int]]] = {}

    async def start(self, env_seed: int) -> tuple[int, EpisodeState]:
        level = self._levels[env_seed]
        state = _state(level, 0, dict.fromkeys(level.agents, 0.0))
        self._places[episode := next(self._ids)] = (env_seed, state, 0)
        return episode, state

    async def branch(self, episode: int, texts: Sequence[str]) -> tuple[Branch, ...]:
        number, _, index = self._places[episode]
        level = self._levels[number]
        node = level.nodes[index]
        found: list[Branch] = []
        # What each answer leads to is looked up: the level was enumerated once.
        self._branches[episode] = []
        for text in texts:
            action = level.texts.index(text)
            reward, team = float(node.rewards[action]), float(node.team[action])
            is_solved = bool(node.success[action])
            rewards = {**dict.fromkeys(level.agents, team), node.agent: reward}
            child = int(node.children[action])
            after = _state(level, child, rewards, index, is_solved)
            self._branches[episode].append((after, child))
            found.append(Branch(reward, team, reward - team, None, is_solved))
        return tuple(found)

    async def follow(self, episode: int, index: int) -> EpisodeState:
        state, node = self._branches[episode][index]
        self._places[episode] = (self._places[episode][0], state, node)
        return state

    async def successors(self, episode: int) -> tuple[EpisodeState, ...]:
        return tuple(state for state, _ in self._branches[episode])

    async def fork(self, episode: int, index: int | None = None) -> tuple[int, EpisodeState]:
        number, state, node = self._places[episode]
        if index is not None:
            state, node = self._branches[episode][index]
        self._places[copy := next(self._ids)] = (number, state, node)
        return copy, state

    async def environment(self, episode: int) -> TextEnv[Any]:
        """Enumerated levels have no environment any more."""
        raise NotImplementedError

    async def close(self, episode: int) -> None:
        self._places.pop(episode, None)
        self._branches.pop(episode, None)


def _state(
    level: Level,
    index: int,
    rewards: Mapping[str, float],
    before: int = 0,
    is_solved: bool = False,
) -> EpisodeState:
    node = level.nodes[index if index >= 0 else before]
    return EpisodeState(
        agent=node.agent,
        turn=node.turn,
        messages=node.prompt if index >= 0 else (),
        state_hash=str(index),
        state_key=node.key if index >= 0 else str(index),
        terminated=index < 0 and is_solved,
        truncated=index < 0 and not is_solved,
        success=is_solved,
        rewards=rewards,
    )


def algorithm_of(keys: Mapping[str, Mapping[str, Any]]) -> Algorithm:
    """The algorithm of a variant.

    Args:
        keys: Sections of a run file, such as ``{"algorithm": {"name": "grpo", "norm": "none"}}``.
    """
    return algorithms.algorithm_of(keys.get("algorithm", {}))


class Table:
    """A tabular softmax policy with a tabular V, as the trainer's policy of all roles.

    Args:
        levels: What is played.
        logits: ``[R, A]``.
    """

    is_concurrent = False
    limits = RequestLimits(max_batch_tokens=1 << 30, context_length=None, vocab_size=1 << 30)

    def __init__(self, levels: Sequence[Level], logits: np.ndarray) -> None:
        self.logits = logits
        # As a new value head says 0.
        self.v = np.zeros(len(logits))
        self._levels, self._texts = levels, levels[0].texts
        self._rows = {text_of(node.prompt): node.row for level in levels for node in level.nodes}
        self._cumulative, self._entropies = np.zeros(0), list[float]()
        roles = [agent.rpartition("_")[0] for agent in levels[0].agents]
        policy = ModelPolicy(
            name="table",
            encode=lambda messages: (1 + self._rows[text_of(messages)],),
            encode_answer=lambda text: (self._texts.index(text),),
            batcher=Batcher(self),
            updater=self,  # pyright: ignore[reportArgumentType]  (only its values are asked for)
        )
        self._pool = PolicyPool(policies={"table": policy}, roles=dict.fromkeys(roles, "table"))
        self._roles = roles

    def check(self, request: GenerateRequest) -> None:
        """See `Generate.check`."""

    async def generate(self, requests: Sequence[GenerateRequest]) -> list[list[TokenCompletion]]:
        """Draw answers of the table."""
        return [self._draw(request) for request in requests]

    def _draw(self, request: GenerateRequest) -> list[TokenCompletion]:
        row = request.prompt_ids[0] - 1
        drawn = random.Random(request.seed).choices(
            range(len(self._texts)), cum_weights=self._cumulative[row], k=request.num_candidates
        )
        return [
            TokenCompletion(
                token_ids=(1 + action,), logprobs=(0.0,), text=self._texts[action],
                finish_reason="stop", entropies=(self._entropies[row],),
            )
            for action in drawn
        ]  # fmt: skip

    def values(self, prompts: Sequence[tuple[int, ...]]) -> list[float]:
        """V of rows."""
        return [float(self.v[prompt[0] - 1]) for prompt in prompts]

    def fit_values(self, examples: Sequence[ValueExample], rate: float = 0.3) -> None:
        """Move V towards the targets, one after another."""
        for (token,), target in examples:
            self.v[token - 1] += rate * (target - self.v[token - 1])

    def sample(
        self,
        algorithm: Algorithm,
        seed: int,
        num_trees: int,
        *,
        context: StepContext | None = None,
        episodes: Episodes | None = None,
    ) -> list[RolloutTree]:
        """Trees of levels: one per tree, or K trajectories each.

        Args:
            algorithm: How.
            seed: Of all that is drawn.
            num_trees: Trees, or groups of trajectories, per level.
            context: When; None: at the first train step.
            episodes: Where they are played; None: on the enumerated levels.
        """
        # Drawn many times before the table changes.
        policy = softmax(self.logits)
        self._cumulative = policy.cumsum(-1)
        self._entropies = (-policy * np.log(np.maximum(policy, 1e-300))).sum(-1).tolist()
        repeats = algorithm.episodes_per_level
        branching = tuple(filter(algorithm.branches, self._roles))
        specs = [
            RolloutSpec(number, level, seed * 1_000_003 + number)
            for number, level in enumerate(
                level for level in range(len(self._levels)) for _ in range(num_trees * repeats)
            )
        ]
        return asyncio.run(
            play_episodes(
                episodes or EnumeratedEpisodes(self._levels),
                self._pool,
                specs,
                RolloutSettings(
                    sampling=dict.fromkeys(self._roles, SamplingSettings()),
                    branching_roles=branching,
                ),
                algorithm.strategy(context or StepContext()),
                FailureLog(0.0),
            )
        )

    def update(
        self, trees: Sequence[RolloutTree], algorithm: Algorithm, context: StepContext | None = None
    ) -> np.ndarray:
        """The update ``[R, A]``: per decision the mean over candidates of A grad log pi."""
        policy = softmax(self.logits)
        gradient = np.zeros_like(self.logits)
        divisor = algorithm.episodes_per_level
        for decision in score_decisions(trees, algorithm, context=context).decisions:
            row = decision.prompt_ids[0] - 1
            # The score function of a softmax: the unit vector of the answer minus the policy.
            for candidate in decision.candidates:
                (token,) = candidate.completion.token_ids
                weight = (candidate.advantage or 0.0) / (len(decision.candidates) * divisor)
                gradient[row] -= weight * policy[row]
                gradient[row, token - 1] += weight
        return gradient

    def learn_values(
        self, trees: Sequence[RolloutTree], algorithm: Algorithm, context: StepContext
    ) -> None:
        """Fit V to trees, if the algorithm has a V."""
        self.fit_values(algorithm.value_examples(trees, context).get("table", []))


def num_candidates(trees: Sequence[RolloutTree]) -> int:
    """The candidates of trees; what continuations sampled is not among them."""
    return sum(len(d.candidates) for tree in trees for d in tree.decisions)


def num_sampled(trees: Sequence[RolloutTree]) -> int:
    """The sampled completions of trees, those of continuations included."""
    # A completion is one token.
    return num_candidates(trees) + sum(tree.num_continuation_tokens for tree in trees)
