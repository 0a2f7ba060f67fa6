"""Cells of the exact layer: of enumerated levels, success and gradients are computed exactly."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any
from zlib import crc32

import numpy as np

from credit_study.enumeration import (
    Level,
    Prompts,
    best_answers,
    cosine,
    enumerate_level,
    expected_tree_update,
    lemma_1,
    mean_success,
    proposition_1,
    softmax,
    state_values,
    true_gradient,
    with_bonus,
)
from credit_study.tabular import Table, algorithm_of, num_candidates, num_sampled
from pettingllms_trainers.config.algorithm import Algorithm, StepContext
from pettingllms_trainers.types import RolloutTree

Cell = dict[str, Any]
FIRST_LEVEL = 1000
"""Seed of the first level of the trials; those before are of tables that no trial has a part in."""
BONUSES: Mapping[str, Callable[[float, tuple[str, ...], tuple[int, int, int]], float]] = {
    # Fixed by state and answer, as a judge that has a taste of its own would pay it.
    "noise": lambda size, texts, place: size if crc32(repr(place).encode()) % 2 else -size,
    "length": lambda size, texts, place: -size * len(texts[place[2]]),
    "format": lambda size, texts, place: size * texts[place[2]].startswith("####"),
    "taste": lambda size, texts, place: size * (place[2] == 1),
}
"""What is paid beside the rewards: (size, answers, (level, decision, answer)) to a reward."""
COUNTS: Mapping[str, Callable[[Sequence[RolloutTree]], int]] = {
    "sampled": num_sampled,
    "candidates": num_candidates,
    "decisions": lambda trees: sum(len(tree.decisions) for tree in trees),
}
"""What a budget is made of: all completions, all but those of continuations, or decisions."""
_MOVES = {1: [*"UDLR"], 2: [*"UDLR", *(a + b for a in "UDLR" for b in "UDLR")]}


def trial_cell(
    exact: Mapping[str, Any],
    algorithm: Mapping[str, Any],
    reward: str,
    bonus: tuple[str, float] | None,
    rate: float,
    seed: int,
) -> Cell:
    """Learn until the largest budget; return success along the way.

    Args:
        exact: Section of the study's table.
        algorithm: The way: section of a run file.
        reward: Argument of the environment.
        bonus: What is paid beside it: a name of `BONUSES` and a size.
        rate: Learning rate of Adam on the logits.
        seed: Of all that is drawn, and of the levels: every seed has its own.

    Returns:
        `rate`; `success` at every budget, between the train steps before and after it; `greedy`: in
        the end, when the likeliest answer is always given; `completions`, all that were sampled.
    """
    # Every seed has its own levels: intervals are over levels, too.
    first = FIRST_LEVEL + seed * exact["num_levels"]
    levels, num_rows = _levels(_frozen(exact, first), reward)
    if bonus:
        # Beside the rewards, not in success: what is measured stays what it was.
        levels = [_with_bonus(level, number, *bonus) for number, level in enumerate(levels)]
    table = Table(levels, exact["start"] * best_answers(levels, num_rows))
    learner, memory, adam = algorithm_of({"algorithm": algorithm}), dict[str, Any](), Adam(rate)
    used, curve = 0, [(0, mean_success(levels, table.logits))]
    for step in itertools.count():
        if used >= max(exact["budgets"]):
            break
        context = StepContext(step, memory)
        update, num, played = _train_step(table, learner, context, exact, seed)
        # As a checkpoint would keep it between train steps.
        memory = dict(learner.remember(played, context))
        used += num
        table.logits = table.logits + adam.step(update / num)
        curve.append((used, mean_success(levels, table.logits)))
    at = {str(b): float(np.interp(b, *zip(*curve, strict=True))) for b in exact["budgets"]}
    # Ties stay ties: the likeliest answers share the rest evenly.
    greedy = np.where(table.logits == table.logits.max(-1, keepdims=True), 0.0, -1e9)
    return {
        "rate": rate,
        "success": {budget: round(value, 5) for budget, value in at.items()},
        "greedy": round(mean_success(levels, greedy), 5),
        "completions": used,
    }


def _with_bonus(level: Level, number: int, kind: str, size: float) -> Level:
    def paid(node: int, answer: int) -> float:
        return BONUSES[kind](size, level.texts, (number, node, answer))

    return with_bonus(level, paid)


def _train_step(
    table: Table, learner: Algorithm, context: StepContext, exact: Mapping[str, Any], seed: int
) -> tuple[np.ndarray, int, list[RolloutTree]]:
    """The update of a train step, the completions that it counts, and its trees."""
    update, num, played = np.zeros_like(table.logits), 0, list[RolloutTree]()
    count = COUNTS[exact["counts"]]
    for part in itertools.count():
        if num >= exact["completions_per_step"]:
            break
        trees = table.sample(
            learner, 1000 * (1000 * seed + context.step) + part, 1, context=context
        )
        num += count(trees)
        update += table.update(trees, learner, context)
        table.learn_values(trees, learner, context)
        # A level that is played again in the same step is another one to who remembers.
        first = (part + 1) * exact["num_levels"]
        played += [replace(tree, env_seed=first + tree.env_seed) for tree in trees]
    return update, num, played


def bias_cell(exact: Mapping[str, Any], reward: str) -> Cell:
    """Cosines of expected updates of trees with the true gradient, by enumeration.

    Keys are `branch, credit, norm, K`; values are the mean and the minimum over levels and over
    two policies, the uniform one and one of random logits.
    """
    levels, num_rows = _levels(_frozen(exact, 0), reward)
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
    """How the trainer's sampled updates of a way relate to the true gradient.

    With the true V where the way has one. An update is that of a whole train step of about
    `completions_per_step` completions, since a scale of the batch is one of all its groups.
    `cosine` is that of the expected update, so that 1 - cosine is bias: from the length of the mean
    of many updates the part is taken off that their sampling adds. `noise` is the standard
    deviation of an update relative to the length of its mean. Both are None where an update cannot
    be told from 0.
    """
    levels, num_rows = _levels(_frozen(exact, 0), reward)
    level, algorithm = levels[0], algorithm_of(keys)
    logits = np.zeros((num_rows, len(level.texts)))
    table = Table([level], logits)
    _set_true_values(table, [level])
    # V has warmed up by this step, in the ways that have one.
    trees = table.sample(algorithm, 0, exact["num_groups"], context=StepContext(100))
    size = algorithm.episodes_per_level
    # Each group is of another level to what compares levels.
    trees = [replace(tree, env_seed=number // size) for number, tree in enumerate(trees)]
    per_group = num_sampled(trees) * size / len(trees)
    per_step = size * max(1, round(exact["completions_per_step"] / per_group))
    steps = [trees[start : start + per_step] for start in range(0, len(trees), per_step)]
    # The last one may have fewer groups.
    whole = [step for step in steps if len(step) == per_step]
    context = StepContext(100)  # V has warmed up
    updates = np.array([table.update(step, algorithm, context).ravel() for step in whole])
    mean, variance = updates.mean(0), updates.var(0, ddof=1).sum()
    square = mean @ mean - variance / len(updates)
    # The mean is no longer than chance alone would make it.
    if square <= 2 * variance / len(updates):
        return {"cosine": None, "noise": None}
    gradient = true_gradient(level, softmax(logits)).ravel()
    return {
        "cosine": float(mean @ gradient / np.sqrt(square * (gradient @ gradient))),
        "noise": float(np.sqrt(variance / square)),
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


class Adam:
    """Adam on one array (arXiv 1412.6980), with decays 0.9 and 0.99."""

    def __init__(self, rate: float) -> None:
        self._rate, self._time = rate, 0
        self._mean: Any = 0.0
        self._square: Any = 0.0

    def step(self, gradient: np.ndarray) -> np.ndarray:
        """What to add to the array to go up a gradient."""
        self._time += 1
        self._mean = 0.9 * self._mean + 0.1 * gradient
        self._square = 0.99 * self._square + 0.01 * gradient**2
        mean = self._mean / (1 - 0.9**self._time)
        return self._rate * mean / (np.sqrt(self._square / (1 - 0.99**self._time)) + 1e-8)


def _frozen(exact: Mapping[str, Any], first: int) -> tuple[Any, ...]:
    game = exact["game"]
    return (
        game["id"], tuple(game["answers"]), tuple(game["kwargs"].items()),
        range(first, first + exact["num_levels"]),
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


KINDS: Mapping[str, Callable[..., Cell]] = {
    "lemma": lemma_cell,
    "bias": bias_cell,
    "noise": noise_cell,
    "trial": trial_cell,
}
"""Kind of a cell -> what computes it."""
