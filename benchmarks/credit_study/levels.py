"""All decisions of small levels as arrays, and what can be computed of them without sampling.

Decisions are enumerated by the public API of environments alone. A policy is a table of logits, a
row per prompt; the return of a team is the sum of the rewards of the acting agents. Legend: N
decisions (nodes), R rows (distinct prompts), A answers, L levels, S trials: levels with a policy of
their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

import pettingllms
from pettingllms import TextEnv


@dataclass(frozen=True, kw_only=True, slots=True)
class Levels:
    """The decisions of some levels; a child is one decision deeper than its parent."""

    row: np.ndarray
    """``[N]`` of the prompt."""
    state: np.ndarray
    """``[N]`` equal for decisions of which the same counts; see `TextEnv.state_key`."""
    agent: np.ndarray
    """``[N]`` who acts, by number; every agent has a role of its own."""
    turn: np.ndarray
    """``[N]``"""
    depth: np.ndarray
    """``[N]`` decisions before it."""
    trial: np.ndarray
    """``[N]``"""
    rewards: np.ndarray
    """``[N, A]`` of the acting agent."""
    local: np.ndarray
    """``[N, A]`` local part of these."""
    children: np.ndarray
    """``[N, A]`` next decisions; -1 where the episode ends."""
    success: np.ndarray
    """``[N, A]`` 1 where the answer solves the task."""
    roots: np.ndarray
    """``[S, L]`` first decisions."""
    trial_of_row: np.ndarray
    """``[R]``"""

    @property
    def layers(self) -> list[np.ndarray]:
        """The decisions of every depth, the first ones first."""
        return [np.flatnonzero(self.depth == depth) for depth in range(self.depth.max() + 1)]

    @property
    def has_successor(self) -> np.ndarray:
        """``[N, A]`` whether the episode goes on."""
        return self.children >= 0


def enumerate_levels(
    env_id: str, seeds: Sequence[int], texts: Sequence[str], /, **kwargs: Any
) -> Levels:
    """All decisions that can be reached on the levels of some seeds, as one trial.

    Args:
        env_id: Id of the environment.
        seeds: Of the levels, which share prompts.
        texts: [A] answers to every prompt.
        **kwargs: Arguments of the environment.
    """
    env: TextEnv[Any] = pettingllms.make(env_id, checks=False, **kwargs)
    rows, states, roots = dict[str, int](), dict[str, int](), list[int]()
    found: dict[str, list[Any]] = {name: [] for name in _OF_NODES}
    for seed in seeds:
        env.reset(seed=seed)
        roots.append(start := len(found["row"]))
        # Breadth first: what an answer leads to has a number before it is visited itself.
        index, waiting = {_key(env): start}, [(env.fork(), 0)]
        for current, depth in waiting:
            after = [_after(current, text) for text in texts]
            for fork, *_ in after:
                if fork is not None and _key(fork) not in index:
                    index[_key(fork)] = start + len(waiting)
                    waiting.append((fork, depth + 1))
            prompt = "\0".join(one["content"] for one in current.messages(current.agent_selection))
            node = {
                "row": rows.setdefault(prompt, len(rows)),
                "state": states.setdefault(f"{seed} {current.state_key()}", len(states)),
                "agent": env.possible_agents.index(current.agent_selection),
                "turn": current.turn, "depth": depth, "trial": 0,
                "children": [-1 if fork is None else index[_key(fork)] for fork, *_ in after],
                "rewards": [reward for _, reward, _, _ in after],
                "local": [local for _, _, local, _ in after],
                "success": [success for _, _, _, success in after],
            }  # fmt: skip
            for name, value in node.items():
                found[name].append(value)
    arrays = {name: np.array(values) for name, values in found.items()}
    return Levels(**arrays, roots=np.array([roots]), trial_of_row=np.zeros(len(rows), int))


_OF_NODES = [one.name for one in fields(Levels) if one.name not in ("roots", "trial_of_row")]


def _key(env: TextEnv[Any]) -> tuple[str, str, int]:
    return env.state_hash(), env.agent_selection, env.turn


def _after(env: TextEnv[Any], text: str) -> tuple[TextEnv[Any] | None, float, float, float]:
    """The environment after an answer if the episode goes on, reward, its local part, success."""
    agent, fork = env.agent_selection, env.fork()
    fork.step(text)
    info = fork.infos[agent]
    is_over = fork.terminations[agent] or fork.truncations[agent]
    local = info["reward_parts"]["local"]
    return None if is_over else fork, fork.rewards[agent], local, float(info["success"])


def side_by_side(trials: Sequence[Levels]) -> Levels:
    """Trials as one, each with its own nodes, rows and states."""
    found: dict[str, list[np.ndarray]] = {one.name: [] for one in fields(Levels)}
    node = row = state = 0
    for number, levels in enumerate(trials):
        moved = replace(
            levels,
            row=levels.row + row,
            state=levels.state + state,
            trial=np.full_like(levels.trial, number),
            children=np.where(levels.has_successor, levels.children + node, -1),
            roots=levels.roots + node,
            trial_of_row=np.full_like(levels.trial_of_row, number),
        )
        for name, parts in found.items():
            parts.append(getattr(moved, name))
        node, row = node + len(levels.row), row + len(levels.trial_of_row)
        state += levels.state.max() + 1
    return Levels(**{name: np.concatenate(parts) for name, parts in found.items()})


def softmax(logits: np.ndarray) -> np.ndarray:
    """Probabilities of rows of logits."""
    shifted = np.exp(logits - logits.max(-1, keepdims=True))
    return shifted / shifted.sum(-1, keepdims=True)


def backwards(
    levels: Levels, weights: np.ndarray, earned: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Q ``[N, A]`` and V ``[N]``: what is earned from a decision on, summed with weights.

    Args:
        levels: The levels.
        weights: ``[R, A]`` of answers: a policy's probabilities give expectations.
        earned: ``[N, A]``.
    """
    # Children of -1 read the last place, which is that of the end.
    q, v = earned.astype(float), np.zeros(len(levels.row) + 1)
    for nodes in reversed(levels.layers):
        q[nodes] += v[levels.children[nodes]]
        v[nodes] = (weights[levels.row[nodes]] * q[nodes]).sum(-1)
    return q, v[:-1]


def success_of(levels: Levels, policy: np.ndarray) -> np.ndarray:
    """``[S, L]`` the probability that a policy ``[R, A]`` solves each level."""
    return backwards(levels, policy, levels.success)[1][levels.roots]


def true_gradient(levels: Levels, policy: np.ndarray) -> np.ndarray:
    """The gradient ``[R, A]`` of the expected return, mean over levels, in the logits."""
    q, v = backwards(levels, policy, levels.rewards)
    visits = np.zeros(len(levels.row))
    visits[levels.roots] = 1.0 / levels.roots.shape[1]
    for nodes in levels.layers:
        reached = visits[nodes, None] * policy[levels.row[nodes]]
        goes_on = levels.has_successor[nodes]
        np.add.at(visits, levels.children[nodes][goes_on], reached[goes_on])
    gradient = np.zeros_like(policy)
    own = policy[levels.row]
    np.add.at(gradient, levels.row, visits[:, None] * own * (q - v[:, None]))
    return gradient


def lemma_1(levels: Levels) -> dict[str, int]:
    """Count where the best immediate reward is best in the end, and what greedy play solves.

    `return`, `success`: decisions where every answer of the highest reward is among those of the
    highest optimal return, or the highest optimal probability of success; of `decisions`. `greedy`:
    levels that are solved by always taking the first of the best rewards; of `solvable`.

    Source: Lemma 1 and Proposition 1 of Stronger-MAS (arXiv 2510.11062).
    """
    is_best = levels.rewards >= levels.rewards.max(-1, keepdims=True) - 1e-9
    counts = {"decisions": len(levels.row)}
    for name, earned in (("return", levels.rewards), ("success", levels.success)):
        q, best = earned.astype(float), np.zeros(len(levels.row) + 1)
        for nodes in reversed(levels.layers):
            q[nodes] += best[levels.children[nodes]]
            best[nodes] = q[nodes].max(-1)
        # Ties count against the lemma only where one of the best is worse in the end.
        holds = (q >= q.max(-1, keepdims=True) - 1e-9) | ~is_best
        counts[name] = int(holds.all(-1).sum())
    first = np.eye(levels.rewards.shape[1])[levels.rewards.argmax(-1)]
    # As weights by decision, not by prompt: greedy play sees rewards.
    by_node = replace(levels, row=np.arange(len(levels.row)))
    greedy = backwards(by_node, first, levels.success)[1][levels.roots]
    solvable = best[levels.roots]
    return counts | {"greedy": int(greedy.sum()), "solvable": int((solvable > 0).sum())}
