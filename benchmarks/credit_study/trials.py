"""Trials of the exact layer: a table of logits learns, and its success is computed, not sampled."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any
from zlib import crc32

import numpy as np

from credit_study.enumeration import Level, Prompts, enumerate_level, with_bonus
from credit_study.exact import (
    cosine,
    expected_tree_update,
    lemma_1,
    proposition_1,
    softmax,
    state_values,
    success_of,
    true_gradient,
)
from credit_study.tabular import Table, algorithm_of, num_sampled
from pettingllms_trainers.config.algorithm import Moment
from pettingllms_trainers.types import RolloutTree

Cell = dict[str, Any]
BONUSES: Mapping[str, Callable[[float, int, int, int], float]] = {
    # Fixed by state and answer, as a judge that has a taste of its own would pay it.
    "noise": lambda size, *place: size if crc32(repr(place).encode()) % 2 else -size,
    "answer": lambda size, level, node, answer: size * (answer == 1),
}
"""What is paid beside the rewards of a level: (size, level, decision, answer) to a reward."""
_MOVES = {1: [*"UDLR"], 2: [*"UDLR", *(a + b for a in "UDLR" for b in "UDLR")]}


def trial_cell(
    exact: Mapping[str, Any], keys: Mapping[str, Any], reward: str, rate: float, seed: int
) -> Cell:
    """Learn with a variant until the largest budget; return success at every budget.

    Args:
        exact: Section of the study's table; `first_level` is the seed of the first level; with
            `true_v`, V is always that of the present policy, as no learner could have it; with
            `bonus`, a name of `BONUSES` and a size, steps are paid something beside.
        keys: The variant: sections of a run file.
        reward: Argument of the environment.
        rate: Learning rate of Adam on the logits.
        seed: Of all that is drawn, except the levels.
    """
    levels, num_rows = _levels(_frozen(exact), reward)
    if bonus := exact.get("bonus"):
        kind, size = bonus
        levels = [with_bonus(own, partial(BONUSES[kind], size, n)) for n, own in enumerate(levels)]
    table = Table(levels, np.zeros((num_rows, len(levels[0].texts))))
    algorithm, memory = algorithm_of(keys), dict[str, Any]()
    adam, used, found = _Adam(rate), 0, dict[str, float]()
    todo = sorted(exact["budgets"])
    for step in range(10_000):
        if not todo:
            break
        gradient, num = np.zeros_like(table.logits), 0
        part, moment, played = 0, Moment(step, memory), list[RolloutTree]()
        if exact.get("true_v"):
            _set_true_values(table, levels)
        while num < exact["completions_per_update"]:
            trees = table.sample(algorithm, 1000 * (1000 * seed + step) + part, 1, moment=moment)
            part += 1
            num += num_sampled(trees)
            gradient += table.update(trees, algorithm, moment)
            if not exact.get("true_v"):
                table.learn_values(trees, algorithm, moment)
            # A level that is played again in the same step is another one to who remembers.
            first = part * len(levels)
            played += [replace(tree, env_seed=first + tree.env_seed) for tree in trees]
        memory = dict(algorithm.remember(played, moment))
        used += num
        table.logits = table.logits + adam.step(gradient / num)
        while todo and used >= todo[0]:
            found[str(todo.pop(0))] = _success(levels, table.logits)
    return {"success": found, "start": _success(levels, np.zeros_like(table.logits))}


def bias_cell(exact: Mapping[str, Any], reward: str) -> Cell:
    """Return cosines of expected updates of trees with the true gradient, by enumeration.

    Keys are `branch, credit, norm, K`; values are the mean and the minimum over levels and over
    two policies, the uniform one and one of random logits.
    """
    levels, num_rows = _levels(_frozen(exact), reward)
    rng = np.random.default_rng(0)
    size = (num_rows, len(levels[0].texts))
    policies = [softmax(np.zeros(size)), softmax(1.5 * rng.normal(size=size))]
    found: Cell = {}
    for num in exact["num_candidates"]:
        for branch in ("random", "greedy"):
            for credit in ("value", "step"):
                for norm in ("none", "std"):
                    settings = {"branch": branch, "credit": credit, "norm": norm}
                    cosines = [
                        cosine(
                            expected_tree_update(level, policy, num, **settings),
                            true_gradient(level, policy),
                        )
                        for level in levels
                        for policy in policies
                    ]
                    found[f"{branch}, {credit}, {norm}, {num}"] = {
                        "mean": float(np.nanmean(cosines)), "min": float(np.nanmin(cosines)),
                    }  # fmt: skip
    return {"cosines": found}


def noise_cell(exact: Mapping[str, Any], keys: Mapping[str, Any], reward: str) -> Cell:
    """Return how the trainer's sampled updates of a variant relate to the true gradient.

    With the true V where the variant has one. `cosine` is that of the mean of many updates, so
    that 1 - cosine is bias; `noise` is the standard deviation of an update of 400 completions
    relative to the length of its mean, so that it is what variance is left in a step.
    """
    levels, num_rows = _levels(_frozen(exact), reward)
    level, algorithm = levels[0], algorithm_of(keys)
    logits = np.zeros((num_rows, len(level.texts)))
    table = Table([level], logits)
    _set_true_values(table, [level])
    trees = table.sample(algorithm, 0, exact.get("noise_trees", 400))
    size = algorithm.episodes_per_level
    groups = [trees[start : start + size] for start in range(0, len(trees), size)]
    updates = np.array([table.update(group, algorithm).ravel() for group in groups])
    per_group = num_sampled(trees) / len(groups)
    mean = updates.mean(0)
    spread = float(np.sqrt(updates.var(0).sum() * per_group / exact["completions_per_update"]))
    length = float(np.linalg.norm(mean))
    return {
        "cosine": _number(cosine(mean, true_gradient(level, softmax(logits)).ravel())),
        "noise": spread / length if length else None,
        "completions": per_group,
    }


def lemma_cell(case: Mapping[str, Any], team: str) -> Cell:
    """Count Lemma 1 and Proposition 1 on levels of a game; see `lemma_1` and `proposition_1`."""
    counts: dict[str, np.ndarray] = {}
    solved = possible = 0
    answers = [str(list(moves)).replace("'", '"') for moves in _MOVES[case["moves"]]]
    texts = [f"#### {text}" for text in answers]
    for seed in range(case["num_levels"]):
        level = enumerate_level(
            case["id"], seed, lambda env: texts, Prompts(), team=team, **case["kwargs"]
        )
        for role, found in lemma_1(level).items():
            counts[role] = counts.get(role, np.zeros(3, int)) + np.array(found)
        solves, can = proposition_1(level)
        solved, possible = solved + solves, possible + can
    return {
        "nodes": {role: [int(n) for n in found] for role, found in counts.items()},
        "greedy_solves": int(solved),
        "solvable": int(possible),
    }


def _set_true_values(table: Table, levels: Sequence[Level]) -> None:
    policy = softmax(table.logits)
    for level in levels:
        for node, value in zip(level.nodes, state_values(level, policy), strict=True):
            table.v[node.row] = value


class _Adam:
    """Adam on one array (arXiv 1412.6980), with decays 0.9 and 0.99."""

    def __init__(self, rate: float) -> None:
        self._rate, self._time = rate, 0
        self._mean: Any = 0.0
        self._square: Any = 0.0

    def step(self, gradient: np.ndarray) -> np.ndarray:
        self._time += 1
        self._mean = 0.9 * self._mean + 0.1 * gradient
        self._square = 0.99 * self._square + 0.01 * gradient**2
        mean = self._mean / (1 - 0.9**self._time)
        return self._rate * mean / (np.sqrt(self._square / (1 - 0.99**self._time)) + 1e-8)


def _frozen(exact: Mapping[str, Any]) -> tuple[Any, ...]:
    game = exact["game"]
    return (
        game["id"], tuple(game["answers"]), tuple(game["kwargs"].items()),
        range(first := exact.get("first_level", 0), first + exact["num_levels"]),
    )  # fmt: skip


@lru_cache(maxsize=4)
def _levels(game: tuple[Any, ...], reward: str) -> tuple[Sequence[Level], int]:
    env_id, answers, kwargs, seeds = game
    prompts = Prompts()
    levels = [
        enumerate_level(env_id, seed, lambda env: answers, prompts, reward=reward, **dict(kwargs))
        for seed in seeds
    ]
    return levels, len(prompts)


def _success(levels: Sequence[Level], logits: np.ndarray) -> float:
    policy = softmax(logits)
    return float(np.mean([success_of(level, policy) for level in levels]))


def _number(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
