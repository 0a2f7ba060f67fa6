"""The trainer's rollouts and advantages on enumerated levels, for all trials at once.

What an algorithm is (its class, K, baseline, norm, discount) is read off the trainer's own object;
its arithmetic is written again on arrays, since a tree of Python objects takes a hundred times as
long. Tests hand what is sampled here to the trainer, and compare advantages, targets of V, evidence
and expected updates.

Legend: G groups of episodes of a level, E episodes of a group, T decisions of an episode, C
candidates of a decision, S trials.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from pettingllms_rivals.dr_mas import DrMas
from pettingllms_rivals.entropy_branching import EntropyBranching
from pettingllms_rivals.gigpo import GiGpo
from pettingllms_rivals.hgpo import Hgpo
from pettingllms_rivals.magrpo import Magrpo

from credit_study.levels import Levels, softmax
from pettingllms_trainers.algorithms.at_grpo import AtGrpo
from pettingllms_trainers.algorithms.continuation import Continuation
from pettingllms_trainers.algorithms.grpo import Grpo
from pettingllms_trainers.algorithms.reinforce import Reinforce
from pettingllms_trainers.algorithms.tree_grpo import TreeGrpo
from pettingllms_trainers.algorithms.value import Value
from pettingllms_trainers.algorithms.vine import Vine

RATE_OF_V = 0.3
"""By how much of the distance an example moves V."""


class Sample(NamedTuple):
    """What was played, decision by decision."""

    nodes: np.ndarray
    """``[G, E, T]`` decision in `Levels`; -1 where an episode has none of its own."""
    answers: np.ndarray
    """``[G, E, T, C]`` number of the candidate's answer."""
    is_sampled: np.ndarray
    """``[G, E, T, C]`` whether there is such a candidate."""
    follows: np.ndarray
    """``[G, E, T, C]`` what is expected to follow a candidate: by V or continuations, else 0."""
    chosen: np.ndarray
    """``[G, E, T]`` the candidate that was followed."""
    num_beside: np.ndarray
    """``[G]`` completions that were sampled for continuations."""

    def taken(self, table: np.ndarray) -> np.ndarray:
        """``[G, E, T]`` what a table ``[N, A]`` has of the followed answers; 0 where none are."""
        followed = np.take_along_axis(self.answers, self.chosen[..., None], -1)[..., 0]
        return np.where(self.nodes >= 0, table[self.nodes, followed], 0)

    def offered(self, table: np.ndarray) -> np.ndarray:
        """``[G, E, T, C]`` what a table ``[N, A]`` has of the candidates."""
        return np.where(self.is_sampled, table[self.nodes[..., None], self.answers], 0)


class Players:
    """Tabular softmax policies with a tabular V, one of each per trial, and how they play.

    Args:
        levels: What is played; the levels of a trial share its policy.
        rng: Of all that is drawn.
    """

    def __init__(self, levels: Levels, rng: np.random.Generator) -> None:
        self.levels, self.rng = levels, rng
        self.logits = np.zeros((len(levels.trial_of_row), levels.rewards.shape[1]))
        # As a new value head says 0.
        self.v = np.zeros(len(self.logits))
        self._length = int(levels.depth.max()) + 1
        self.policy = softmax(self.logits)
        self._cumulative = self.policy

    def move(self, by: np.ndarray) -> None:
        """Change the logits."""
        self.logits = self.logits + by
        self.policy = softmax(self.logits)

    def sample(self, algorithm: Any, trials: np.ndarray, num_times: int) -> Sample:
        """Play all levels of some trials a number of times, each time as a group of its own."""
        self._cumulative = self.policy.cumsum(-1)[:, :-1]
        roots = np.repeat(self.levels.roots[trials].ravel(), num_times)
        # The most special first: a vine is whole episodes, and a tree with a V is a tree.
        kinds: Mapping[type, Callable[[np.ndarray, Any], Sample]] = {
            Vine: self._vines, TreeGrpo: self._branchings, AtGrpo: self._trees,
        }  # fmt: skip
        play = next((of for kind, of in kinds.items() if isinstance(algorithm, kind)), self._whole)
        return play(roots, algorithm)

    def _draw(self, nodes: np.ndarray) -> np.ndarray:
        chance = self._cumulative[self.levels.row[nodes]]
        return (self.rng.random(nodes.shape)[..., None] > chance).sum(-1)

    def _play(self, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Play from decisions to the ends; nodes and answers ``[..., T]`` by depth."""
        seen = np.full((*nodes.shape, self._length), -1)
        answers = np.zeros_like(seen)
        while (where := np.nonzero(nodes >= 0))[0].size:
            now = nodes[where]
            given = self._draw(now)
            place = (*where, self.levels.depth[now])
            seen[place], answers[place] = now, given
            nodes = nodes.copy()
            nodes[where] = self.levels.children[now, given]
        return seen, answers

    def _played_on(self, nodes: np.ndarray, gamma: float) -> tuple[np.ndarray, np.ndarray]:
        """The discounted return from decisions on, before these, and how many answers it took."""
        seen, answers = self._play(nodes)
        rewards = np.where(seen >= 0, self.levels.rewards[seen, answers], 0)
        # The first of these decisions is one later than what they are to tell the worth of.
        later = np.arange(self._length) - self.levels.depth[nodes][..., None] + 1
        return (rewards * gamma ** np.maximum(later, 0)).sum(-1), (seen >= 0).sum(-1)

    def _whole(self, roots: np.ndarray, algorithm: Any) -> Sample:
        nodes, answers = self._play(np.repeat(roots[:, None], algorithm.episodes_per_level, 1))
        return _of_paths(nodes, answers)

    def _vines(self, roots: np.ndarray, algorithm: Vine) -> Sample:
        nodes, answers = self._play(roots[:, None])
        # Any decision of the stem, each with the same probability.
        fork = (self.rng.random(len(roots)) * (nodes[:, 0] >= 0).sum(-1)).astype(int)
        starts = np.repeat(nodes[np.arange(len(roots)), :, fork], algorithm.num_candidates - 1, 1)
        forks = self._play(starts)
        return _of_paths(
            *(np.concatenate(both, 1) for both in zip((nodes, answers), forks, strict=True))
        )

    def _trees(self, roots: np.ndarray, algorithm: AtGrpo) -> Sample:
        num, nodes, beside = algorithm.num_candidates, roots, np.zeros(len(roots), int)
        steps: list[tuple[np.ndarray, ...]] = []
        for _ in range(self._length):
            answers = self._draw(np.repeat(nodes[:, None], num, 1))
            children = np.where(
                nodes[:, None] >= 0, self.levels.children[nodes[:, None], answers], -1
            )
            follows = np.zeros(answers.shape)
            if isinstance(algorithm, Value):
                v = algorithm.gamma * self.v[self.levels.row[children]]
                follows = np.where(children >= 0, v, 0)
            elif isinstance(algorithm, Continuation):
                follows, num_tokens = self._played_on(children, algorithm.gamma)
                beside += num_tokens.sum(-1)
            chosen = self.rng.integers(num, size=len(nodes))
            if algorithm.branch_choice == "greedy":
                worth = self.levels.rewards[nodes[:, None], answers] + follows
                chosen = worth.argmax(-1)
            steps.append((nodes, answers, follows, chosen))
            nodes = children[np.arange(len(nodes)), chosen]
        nodes, answers, follows, chosen = (
            np.stack(of, 1)[:, None] for of in zip(*steps, strict=True)
        )
        is_sampled = np.broadcast_to(nodes[..., None] >= 0, answers.shape)
        return Sample(nodes, answers, is_sampled, follows, chosen, beside)

    def _branchings(self, roots: np.ndarray, algorithm: TreeGrpo) -> Sample:
        whole = _of_paths(*self._play(roots[:, None]))
        nodes, num = whole.nodes, algorithm.num_candidates
        worth = self.rng.random(nodes.shape)
        if isinstance(algorithm, EntropyBranching):
            entropy = (-self.policy * np.log(np.maximum(self.policy, 1e-300))).sum(-1)
            worth = entropy[self.levels.row[nodes]]
        order = np.argsort(np.where(nodes >= 0, -worth, np.inf), -1, kind="stable")
        rank = np.argsort(order, -1, kind="stable")
        does_branch = (nodes >= 0) & (rank < algorithm.num_branchings)
        tried = np.where(does_branch, nodes, -1)[..., None].repeat(num - 1, -1)
        answers = self._draw(tried)
        children = np.where(tried >= 0, self.levels.children[tried, answers], -1)
        further, num_tokens = self._played_on(children, algorithm.gamma)
        # What was played on from the first candidate is the rest of the episode.
        rewards = whole.taken(self.levels.rewards)
        rest = algorithm.gamma * _later(rewards, algorithm.gamma)
        first = np.concatenate([rest[..., 1:], np.zeros_like(rest[..., :1])], -1)[..., None]
        first = np.where(does_branch[..., None], first, 0)
        return Sample(
            nodes,
            np.concatenate([whole.answers, answers], -1),
            np.concatenate([whole.is_sampled, tried >= 0], -1),
            np.concatenate([first, further], -1),
            whole.chosen,
            num_tokens.sum((1, 2, 3)),
        )

    def learn_values(self, sample: Sample, algorithm: Value) -> None:
        """Move V towards the mean targets of its prompts, as far as so many examples would."""
        targets, where = value_targets(sample, algorithm, self.levels), sample.nodes >= 0
        rows = self.levels.row[sample.nodes[where]]
        num = np.bincount(rows, minlength=len(self.v))
        mean = np.bincount(rows, targets[where], len(self.v)) / np.maximum(num, 1)
        self.v += (1 - (1 - RATE_OF_V) ** num) * (mean - self.v)

    def gradient(self, sample: Sample, advantages: np.ndarray) -> np.ndarray:
        """``[R, A]`` sum over candidates of A grad log pi."""
        where, shape = sample.is_sampled, self.logits.shape
        rows = np.broadcast_to(self.levels.row[sample.nodes][..., None], where.shape)[where]
        weights = advantages[where]
        given = np.bincount(rows * shape[1] + sample.answers[where], weights, self.logits.size)
        # The score function of a softmax: the unit vector of the answer minus the policy.
        total = np.bincount(rows, weights, shape[0])
        return given.reshape(shape) - total[:, None] * self.policy


def _of_paths(nodes: np.ndarray, answers: np.ndarray) -> Sample:
    zeros = np.zeros(nodes.shape)
    return Sample(
        nodes, answers[..., None], nodes[..., None] >= 0, zeros[..., None], zeros.astype(int),
        np.zeros(len(nodes), int),
    )  # fmt: skip


def _later(rewards: np.ndarray, gamma: float) -> np.ndarray:
    """Returns-to-go ``[..., T]``."""
    found = rewards.astype(float)
    for t in range(rewards.shape[-1] - 2, -1, -1):
        found[..., t] += gamma * found[..., t + 1]
    return found


def value_targets(sample: Sample, algorithm: Value, levels: Levels) -> np.ndarray:
    """``[G, E, T]`` what V is to be of the prompts that were met; see `value.value_examples`."""
    weight = algorithm.value.path_weight
    backup = (sample.offered(levels.rewards) + sample.follows).mean(-1)
    path = _later(sample.taken(levels.rewards), algorithm.gamma)
    return (1 - weight) * backup + weight * path


def advantages(sample: Sample, algorithm: Any, levels: Levels) -> np.ndarray:
    """``[G, E, T, C]`` advantages of candidates, 0 of those that are compared with nothing."""
    found, is_used = np.zeros(sample.answers.shape), np.zeros(sample.answers.shape, bool)
    for values, keys, first, weight in _comparisons(sample, algorithm, levels):
        own, differs, where = np.zeros(found.shape), np.zeros(found.shape, bool), keys >= 0
        own[where], differs[where] = _compared(values[where], keys[where], algorithm)
        if first is not None:
            own, differs = (np.take_along_axis(of, first[..., None], 2) for of in (own, differs))
        found += np.where(sample.is_sampled, weight * own, 0)
        is_used |= differs & sample.is_sampled
    if not algorithm.scales_by_batch:
        return found
    # By role and trial: a train step is that of a trial.
    nodes = np.broadcast_to(sample.nodes[..., None], is_used.shape)[is_used]
    keys = levels.trial[nodes] * (levels.agent.max() + 1) + levels.agent[nodes]
    scale = np.sqrt(np.bincount(keys, found[is_used] ** 2) / np.maximum(np.bincount(keys), 1))
    found[is_used] /= scale[keys]
    return found


def _compared(
    values: np.ndarray, keys: np.ndarray, algorithm: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Advantages of members of groups, and whether the values of their group differ."""
    _, keys = np.unique(keys, return_inverse=True)
    num = np.bincount(keys)
    high = np.full(len(num), -np.inf)
    low = -high
    np.maximum.at(high, keys, values)
    np.minimum.at(low, keys, values)
    # As `learning.groups.has_signal` tells rounding from differences.
    differs = high - low > 1e-9 * np.maximum(1.0, np.maximum(abs(low), abs(high)))
    centred = np.where(differs[keys], values - (np.bincount(keys, values) / num)[keys], 0.0)
    if algorithm.norm == "std":
        std = np.sqrt(np.bincount(keys, centred**2) / num)
        centred /= np.where(differs, std, 1.0)[keys]
    if algorithm.baseline == "leave_one_out":
        centred *= (num / np.maximum(num - 1, 1))[keys]
    return centred, differs[keys]


class _Comparison(NamedTuple):
    """Candidates in groups."""

    values: np.ndarray
    """``[G, E, T, C]`` what is compared."""
    keys: np.ndarray
    """``[G, E, T, C]`` group of each candidate; -1: none."""
    first: np.ndarray | None = None
    """``[G, E, T]`` the decision whose advantage counts; None: each has its own."""
    weight: float = 1.0
    """Factor of the advantages."""


def _comparisons(sample: Sample, algorithm: Any, levels: Levels) -> list[_Comparison]:
    nodes = sample.nodes
    if isinstance(algorithm, AtGrpo | TreeGrpo):
        decision = np.arange(nodes.size).reshape(nodes.shape)[..., None]
        is_compared = sample.is_sampled & (sample.is_sampled.sum(-1, keepdims=True) > 1)
        worth = sample.offered(levels.rewards) + sample.follows
        return [_Comparison(worth, np.where(is_compared, decision, -1))]
    level = np.broadcast_to(np.arange(len(nodes))[:, None, None], nodes.shape)
    agent, turn = levels.agent[nodes], levels.turn[nodes]
    if isinstance(algorithm, Magrpo):
        # All agents of a turn act jointly, once per episode.
        together = _later(sample.taken(levels.rewards), 1.0)
        return [_once(together, nodes, turn, level)]
    if isinstance(algorithm, Reinforce):
        values = _credits(sample, algorithm, levels)
        keys = {
            "agent_turn": (level, agent, turn), "agent": (level, agent), "turn": (level, turn),
            "none": (levels.trial[nodes],),
        }  # fmt: skip
        return [_each(values, nodes, *keys[algorithm.grouping])]
    if isinstance(algorithm, Hgpo):
        return _nested(sample, algorithm, levels, level)
    whole = _returns(sample, 1.0, levels, from_start=True)
    if isinstance(algorithm, DrMas):
        return [_each(whole, nodes, level, agent)]
    assert isinstance(algorithm, Grpo | GiGpo), f"no arithmetic for {algorithm.name}"
    found = [_once(whole, nodes, agent, level)]
    if isinstance(algorithm, GiGpo):
        later = _returns(sample, algorithm.gamma, levels)
        in_state = _each(later, nodes, level, levels.state[nodes])
        found.append(in_state._replace(weight=algorithm.step_weight))
    return found


def _each(values: np.ndarray, nodes: np.ndarray, *parts: np.ndarray) -> _Comparison:
    """Answers are compared with those whose decisions have equal parts of a key."""
    key = np.zeros(nodes.shape, int)
    for part in parts:
        key = key * (int(part.max()) + 1) + part
    return _Comparison(values[..., None], np.where(nodes >= 0, key, -1)[..., None])


def _once(
    values: np.ndarray, nodes: np.ndarray, label: np.ndarray, level: np.ndarray
) -> _Comparison:
    """The first decision of a label (agent, turn) stands for all of it in its episode."""
    first = _firsts(nodes, label)
    is_first = first == np.arange(nodes.shape[-1])
    return _each(values, np.where(is_first, nodes, -1), level, label)._replace(first=first)


def _firsts(nodes: np.ndarray, label: np.ndarray) -> np.ndarray:
    found = np.zeros(nodes.shape, int)
    for one in range(label.max() + 1):
        is_one = (label == one) & (nodes >= 0)
        found = np.where(is_one, is_one.argmax(-1)[..., None], found)
    return found


def _nested(
    sample: Sample, algorithm: Hgpo, levels: Levels, level: np.ndarray
) -> list[_Comparison]:
    """Groups of equal states and equal pasts, the wider ones first."""
    later, states = _returns(sample, algorithm.gamma, levels), levels.state[sample.nodes] + 1
    weights = [(k + 1) ** algorithm.alpha for k in range(algorithm.history + 1)]
    found, key, size = list[_Comparison](), level, int(states.max()) + 1
    for weight in weights:
        _, key = np.unique(key * size + states, return_inverse=True)
        key = key.reshape(states.shape)
        found.append(_each(later, sample.nodes, key)._replace(weight=weight / sum(weights)))
        # The past is what led here: of those that began later it is shorter.
        states = np.pad(states, ((0, 0), (0, 0), (1, 0)))[..., :-1]
    return found


def _credits(sample: Sample, algorithm: Reinforce, levels: Levels) -> np.ndarray:
    if algorithm.credit == "success":
        solved = sample.taken(levels.success).sum(-1, keepdims=True)
        return np.broadcast_to(solved.astype(float), sample.nodes.shape)
    if algorithm.credit == "step":
        return sample.taken(levels.rewards)
    return _returns(sample, algorithm.gamma, levels)


def _returns(
    sample: Sample, gamma: float, levels: Levels, *, from_start: bool = False
) -> np.ndarray:
    """``[G, E, T]`` the return of who acts: the team part of all rewards, and its own local."""
    rewards, local = sample.taken(levels.rewards), sample.taken(levels.local)
    agent, found = levels.agent[sample.nodes], np.zeros(rewards.shape)
    for who in range(agent.max() + 1):
        later = _later(rewards - local * (agent != who), gamma)
        found = np.where(agent == who, later[..., :1] if from_start else later, found)
    return found
