"""All decisions of a small level, and what estimators expect on it: gradients, updates, Lemma 1.

Decisions are enumerated by the public API of environments alone. A policy is a table of logits, a
row per prompt; the return of a team is the sum of the rewards of the acting agents. Legend: N
decisions (nodes) of a level, R rows (distinct prompts), A answers, K candidates.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np

import pettingllms
from pettingllms import TextEnv

Answers = Callable[[TextEnv[Any]], Sequence[str]]
"""The environment before a decision -> the A texts that the acting agent chooses from."""


@dataclass(frozen=True, slots=True)
class Node:
    """A decision: who acts, what is read, and what every answer leads to."""

    agent: str
    turn: int
    row: int
    """Of the prompt."""
    prompt: tuple[Mapping[str, str], ...]
    """As chat messages."""
    rewards: np.ndarray
    """``[A]`` of the acting agent."""
    team: np.ndarray
    """``[A]`` team part of these."""
    children: np.ndarray
    """``[A]`` next decisions; -1 where the episode ends."""
    success: np.ndarray
    """``[A]`` 1 where the answer solves the task."""
    key: str
    """Equal for decisions of which the same counts; see `TextEnv.state_key`."""


class Prompts:
    """Rows of a tabular policy, shared by levels: equal prompts have one row."""

    def __init__(self) -> None:
        self._rows: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def row(self, messages: Sequence[Mapping[str, str]]) -> int:
        """The row of a prompt; a new one for one that was not seen before."""
        return self._rows.setdefault(text_of(messages), len(self._rows))


def text_of(messages: Sequence[Mapping[str, str]]) -> str:
    """What tells a prompt from others."""
    return "\0".join(message["content"] for message in messages)


@dataclass(frozen=True, slots=True)
class Level:
    """All decisions of a level; children come after their parents, and the root first."""

    texts: tuple[str, ...]
    """The A answers."""
    agents: tuple[str, ...]
    nodes: tuple[Node, ...] = field(repr=False)


def enumerate_level(
    env_id: str, seed: int, answers: Answers, prompts: Prompts, /, **kwargs: Any
) -> Level:
    """All decisions that can be reached on the level of a seed.

    Args:
        env_id: Id of the environment.
        seed: Of the level.
        answers: What can be answered; the same texts for all decisions.
        prompts: Gets the prompts.
        **kwargs: Arguments of the environment.
    """
    env: TextEnv[Any] = pettingllms.make(env_id, checks=False, **kwargs)
    env.reset(seed=seed)
    # The same for all decisions, so that a table has one width.
    texts = tuple(answers(env))
    # Breadth first: what an answer leads to is known by number before it is visited itself. All
    # decisions of a turn and place are met before any later one, so children follow their parents.
    index: dict[tuple[str, str, int], int] = {_key(env): 0}
    waiting: list[TextEnv[Any]] = [env]
    nodes: list[Node] = []
    while len(nodes) < len(waiting):
        current = waiting[len(nodes)]
        agent = current.agent_selection
        size = len(texts)
        rewards, team, success = np.zeros(size), np.zeros(size), np.zeros(size)
        children = np.full(size, -1)
        for number, text in enumerate(texts):
            # What every answer leads to is found by giving it.
            fork = current.fork()
            fork.step(text)
            rewards[number] = fork.rewards[agent]
            team[number] = fork.infos[agent]["reward_parts"]["team"]
            success[number] = float(fork.infos[agent]["success"])
            if not (fork.terminations[agent] or fork.truncations[agent]):
                child = index.setdefault(_key(fork), len(waiting))
                if child == len(waiting):
                    waiting.append(fork)
                children[number] = child
        messages = tuple(current.messages(agent))
        row = prompts.row(messages)
        key = current.state_key()
        nodes.append(
            Node(agent, current.turn, row, messages, rewards, team, children, success, key)
        )
        waiting[len(nodes) - 1] = env  # let the visited one go
    return Level(texts, tuple(env.possible_agents), tuple(nodes))


def with_bonus(level: Level, bonus: Callable[[int, int], float]) -> Level:
    """A level in which the acting agent is paid something beside what it was.

    Args:
        level: All its decisions.
        bonus: (decision, answer), both by number, to what is added where the episode goes on.
    """
    paid = [
        [bonus(number, answer) if child >= 0 else 0.0 for answer, child in enumerate(node.children)]
        for number, node in enumerate(level.nodes)
    ]
    nodes = [
        replace(node, rewards=node.rewards + np.array(extra))
        for node, extra in zip(level.nodes, paid, strict=True)
    ]
    return replace(level, nodes=tuple(nodes))


def _key(env: TextEnv[Any]) -> tuple[str, str, int]:
    return env.state_hash(), env.agent_selection, env.turn


def softmax(logits: np.ndarray) -> np.ndarray:
    """Probabilities of rows of logits."""
    shifted = np.exp(logits - logits.max(-1, keepdims=True))
    return shifted / shifted.sum(-1, keepdims=True)


def action_values(level: Level, policy: np.ndarray, what: str = "return") -> np.ndarray:
    """Q ``[N, A]`` of a policy ``[R, A]``.

    Args:
        level: The level.
        policy: Probabilities by row.
        what: `return`, or `success`.
    """
    values = np.zeros(len(level.nodes))
    found = np.zeros((len(level.nodes), len(level.texts)))
    for index in range(len(level.nodes) - 1, -1, -1):  # children first
        node = level.nodes[index]
        found[index] = node.rewards if what == "return" else node.success
        found[index] += np.where(node.children >= 0, values[node.children], 0.0)
        values[index] = policy[node.row] @ found[index]
    return found


def state_values(level: Level, policy: np.ndarray) -> np.ndarray:
    """V ``[N]`` of a policy ``[R, A]``."""
    found = action_values(level, policy)
    return np.array([policy[node.row] @ q for node, q in zip(level.nodes, found, strict=True)])


def success_of(level: Level, policy: np.ndarray) -> float:
    """The probability that a policy solves the level."""
    return float(policy[level.nodes[0].row] @ action_values(level, policy, "success")[0])


def mean_success(levels: Sequence[Level], logits: np.ndarray) -> float:
    """The mean of `success_of` over levels, by a table of logits ``[R, A]``."""
    policy = softmax(logits)
    return float(np.mean([success_of(level, policy) for level in levels]))


def true_gradient(
    level: Level, policy: np.ndarray, weights: np.ndarray | None = None
) -> np.ndarray:
    """The gradient ``[R, A]`` of the expected return in the logits.

    Args:
        level: The level.
        policy: ``[R, A]``.
        weights: ``[N]`` of the decisions; None: all count alike, which is the gradient.
    """
    found = action_values(level, policy)
    visits = _visits(level, [policy[node.row] for node in level.nodes])
    if weights is not None:
        visits = visits * weights
    gradient = np.zeros_like(policy)
    for node, q, weight in zip(level.nodes, found, visits, strict=True):
        own = policy[node.row]
        gradient[node.row] += weight * own * (q - own @ q)
    return gradient


def expected_tree_update(
    level: Level, policy: np.ndarray, num_candidates: int, *, branch: str, credit: str, norm: str
) -> np.ndarray:
    """The expected update ``[R, A]`` of one tree: mean over candidates of A grad log pi.

    Args:
        level: The level.
        policy: ``[R, A]``.
        num_candidates: K.
        branch: `greedy` or `random`.
        credit: `step`, or `value` with the true V; without `std` and with random branches
            `continuation` expects the same as `value`.
        norm: `std` or `none`.
    """
    compared = (
        [node.rewards for node in level.nodes]
        if credit == "step"
        else list(action_values(level, policy))
    )
    followed = [
        _chosen(policy[node.row], value, num_candidates, branch)
        for node, value in zip(level.nodes, compared, strict=True)
    ]
    update = np.zeros_like(policy)
    for node, value, weight in zip(level.nodes, compared, _visits(level, followed), strict=True):
        if weight:
            update[node.row] += weight * _group_update(
                policy[node.row], value, num_candidates, norm
            )
    return update


def cosine(one: np.ndarray, other: np.ndarray) -> float:
    """The cosine of two updates; NaN if one of them is zero."""
    norms = np.linalg.norm(one) * np.linalg.norm(other)
    return float((one * other).sum() / norms) if norms > 0 else math.nan


def lemma_1(level: Level) -> dict[str, tuple[int, int, int]]:
    """Count where the best immediate reward is best in the end; role -> (nodes, return, success).

    A node counts if every answer of the highest reward is among those of the highest Q*, the
    optimal return or the optimal probability of success.

    Source: Lemma 1 of Stronger-MAS (arXiv 2510.11062).
    """
    best_return, best_success = np.zeros(len(level.nodes)), np.zeros(len(level.nodes))
    counts: dict[str, list[int]] = {}
    for index in range(len(level.nodes) - 1, -1, -1):
        node = level.nodes[index]
        goes_on = node.children >= 0
        q = node.rewards + np.where(goes_on, best_return[node.children], 0.0)
        s = node.success + np.where(goes_on, best_success[node.children], 0.0)
        best = node.rewards >= node.rewards.max() - 1e-9
        # Ties count against the lemma only where one of the best answers is worse in the end.
        found = counts.setdefault(node.agent.rpartition("_")[0], [0, 0, 0])
        found[0] += 1
        found[1] += bool((q[best] >= q.max() - 1e-9).all())
        found[2] += bool((s[best] >= s.max() - 1e-9).all())
        best_return[index], best_success[index] = q.max(), s.max()
    return {role: (n, of_return, of_success) for role, (n, of_return, of_success) in counts.items()}


def best_answers(levels: Sequence[Level], num_rows: int) -> np.ndarray:
    """Return ``[R, A]``: 1 where an answer to a prompt can still lead to success, else 0."""
    found = np.zeros((num_rows, len(levels[0].texts)))
    for level in levels:
        best = np.zeros(len(level.nodes))
        for index in range(len(level.nodes) - 1, -1, -1):  # children first
            node = level.nodes[index]
            can = node.success + np.where(node.children >= 0, best[node.children], 0.0)
            best[index] = can.max()
            found[node.row] = np.maximum(found[node.row], can)
    return found


def proposition_1(level: Level) -> tuple[bool, bool]:
    """Return (greedy play by immediate rewards solves the level, it can be solved).

    Source: Proposition 1 of Stronger-MAS (arXiv 2510.11062): a tree that follows the best
    immediate reward finds what maximises the outcome.
    """
    best = np.zeros(len(level.nodes))
    for index in range(len(level.nodes) - 1, -1, -1):
        node = level.nodes[index]
        later = np.where(node.children >= 0, best[node.children], 0.0)
        best[index] = (node.success + later).max()
    index = 0
    while True:
        node = level.nodes[index]
        # The lowest index among equals, as the trainer follows.
        action = int(np.argmax(node.rewards))
        if node.success[action]:
            return True, bool(best[0])
        if node.children[action] < 0:
            return False, bool(best[0])
        index = int(node.children[action])


def _visits(level: Level, followed: Sequence[np.ndarray]) -> np.ndarray:
    """The probability ``[N]`` of reaching each node, by distributions over answers."""
    visits = np.zeros(len(level.nodes))
    # Every episode begins at the root.
    visits[0] = 1.0
    for index, node in enumerate(level.nodes):  # parents first
        for action in np.flatnonzero(node.children >= 0):
            visits[node.children[action]] += visits[index] * followed[index][action]
    return visits


def _chosen(own: np.ndarray, value: np.ndarray, num: int, branch: str) -> np.ndarray:
    """The distribution ``[A]`` of the followed one of `num` candidates drawn from `own`."""
    if branch == "random":
        return own
    chosen = np.zeros_like(own)
    for highest in np.unique(value.round(12)):
        at = np.abs(value - highest) < 1e-9
        below, mass = own[value < highest - 1e-9].sum(), own[at].sum()
        if mass > 0:  # the best of K is of this value, and then any of its answers
            chosen[at] += ((below + mass) ** num - below**num) * own[at] / mass
    return chosen


@lru_cache(maxsize=16)
def _multisets(num: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Counts ``[C, A]`` of all multisets of `num` of A answers, and log multiplicities."""
    # Order does not matter to a group, so that there are few enough to sum over.
    found = [
        [Counter(chosen)[answer] for answer in range(size)]
        for chosen in itertools.combinations_with_replacement(range(size), num)
    ]
    counts = np.array(found)
    logs = [math.lgamma(num + 1) - sum(math.lgamma(c + 1) for c in row) for row in found]
    return counts, np.array(logs)


def _group_update(own: np.ndarray, value: np.ndarray, num: int, norm: str) -> np.ndarray:
    """The expectation ``[A]`` of (1 / K) sum_k A_k grad log pi(a_k), over all multisets."""
    counts, logs = _multisets(num, len(own))
    weights = np.exp(logs + counts @ np.log(np.maximum(own, 1e-300)))  # [C]
    deviation = value[None, :] - (counts @ value / num)[:, None]  # [C, A]
    std = np.sqrt((counts * deviation**2).sum(1) / num)
    has_spread = std > 1e-9 * np.maximum(1.0, np.abs(value).max())
    divisor = std if norm == "std" else np.ones_like(std)
    scale = np.where(has_spread, 1.0 / np.where(has_spread, divisor, 1.0), 0.0)
    # grad log pi(a) = e_a - pi; advantages add up to 0, so the second part drops out.
    return weights @ (counts * deviation * scale[:, None] / num)
