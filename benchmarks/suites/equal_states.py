"""Equal states where texts differ: what averaging over them costs or brings in code and search.

    python benchmarks/suites/equal_states.py

Two games whose states hold texts, so that whole states are hardly ever equal: what counts of them
(`state_key`) is. Every seed has levels of its own, all of whose decisions are enumerated, so that
success is exact; the policy is a table by prompt, so that a prompt that says more than the key is
a policy that knows more than the average does. Episodes, returns and advantages are the trainer's.
Ways are compared at equal numbers of sampled answers; rates are chosen on seeds of their own.
"""

from __future__ import annotations

import itertools
import random
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from measuring import frame, parser_of, timed, write

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "rivals"))

from credit_study.enumerated import Adam
from credit_study.enumeration import Level, Prompts, enumerate_level
from credit_study.exact import mean_success
from credit_study.tabular import Table, algorithm_of, num_sampled

import pettingllms
from pettingllms_envs.code.known_bad import mutants
from pettingllms_envs.code.text import read_program
from pettingllms_trainers.config.algorithm import Moment
from pettingllms_trainers.types import RolloutTree

SEEDS = tuple(range(10))
SELECTION_SEEDS = (100, 101, 102)
RATES = (0.3, 1.0, 3.0, 10.0)
NUM_LEVELS = 2
NUM_PARTLY = 3
"""Programs of a problem that pass a part of its tests, if there are so many."""
ANSWERS_PER_STEP = 100
BUDGET = 3_000
"""Sampled answers."""
GAMES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "code": ("code_v0", {"difficulty": "introductory", "max_turns": 3}),
    "search": (
        "search_v0",
        {"style": "letters", "hops": 2, "documents": 8, "results": 1, "max_turns": 3},
    ),
}
WAYS: Mapping[str, Mapping[str, str]] = {
    "whole episodes": {"name": "reinforce"},
    "state return": {"name": "reinforce", "credit": "state_return"},
    "GiGPO": {"name": "pettingllms_rivals.gigpo:GiGpo"},
}


def answers_of(game: str, seeds: Sequence[int]) -> tuple[str, ...]:
    """Return what can be answered on levels, whoever acts: the same texts on all of them."""
    env_id, kwargs = GAMES[game]
    env = pettingllms.make(env_id, **kwargs)
    found: dict[str, None] = {}
    for seed in seeds:
        env.reset(seed=seed)
        found |= dict.fromkeys(_programs_and_tests(env) if game == "code" else _searches(env))
    return (*found,)


def _programs_and_tests(env: Any) -> list[str]:
    """A program that is right, some that pass a part of the tests, one that passes none; tests."""
    rng = random.Random(0)
    coder, constant = (
        env.scripted_action("coder_0", policy, rng) for policy in ("oracle", "constant")
    )
    variants = [f"```python\n{one}\n```" for one in mutants(read_program(coder), 20)]
    partly = [one for one in variants if 0 < _share_passed(env, one) < 1]
    env.step(coder)
    tests = [env.scripted_action("tester_0", policy, rng) for policy in ("oracle", "constant")]
    return [coder, *partly[:NUM_PARTLY], constant, *tests]


def _share_passed(env: Any, program: str) -> float:
    fork = env.fork()
    fork.step(program)
    info = fork.infos["coder_0"]
    return info["golden_passed"] / info["golden_total"]


def _searches(env: Any) -> list[str]:
    """Every name, which is a query for its document or an answer, and more."""
    return [f"#### {said}" for said in (*(one.title for one in env.state().task.documents), "more")]


@cache
def levels_of(game: str, reward: str, seed: int) -> tuple[list[Level], int]:
    """Return the levels of a seed, and the rows of their table."""
    seeds = range(1000 + seed * NUM_LEVELS, 1000 + (seed + 1) * NUM_LEVELS)
    texts, prompts = answers_of(game, seeds), Prompts()
    env_id, kwargs = GAMES[game]
    levels = [
        enumerate_level(env_id, one, lambda env: texts, prompts, reward=reward, **kwargs)
        for one in seeds
    ]
    return levels, len(prompts)


def trial(game: str, reward: str, way: str, rate: float, seed: int) -> dict[str, Any]:
    """Learn until the budget is spent.

    Returns:
        `curve`: sampled answers and exact success; `met`: share of the decisions of the first train
        step, the first of each episode left out, in which another of the K episodes was, too: by
        its prompt, and by what counts of its state.
    """
    levels, num_rows = levels_of(game, reward, seed)
    table = Table(levels, np.zeros((num_rows, len(levels[0].texts))))
    learner, adam = algorithm_of({"algorithm": WAYS[way]}), Adam(rate)
    used, curve = 0, [(0, mean_success(levels, table.logits))]
    at_first: list[RolloutTree] = []
    for step in itertools.count():
        if used >= BUDGET:
            break
        update, num = np.zeros_like(table.logits), 0
        for part in itertools.count():
            if num >= ANSWERS_PER_STEP:
                break
            draw = 1000 * (1000 * seed + step) + part
            trees = table.sample(learner, draw, 1, moment=Moment(step))
            num += num_sampled(trees)
            update += table.update(trees, learner, Moment(step))
            at_first += trees if step == 0 else ()
        table.logits = table.logits + adam.step(update / num)
        used += num
        curve.append((used, mean_success(levels, table.logits)))
    size = learner.episodes_per_level
    met = {name: _met(at_first, size, name) for name in ("prompt_ids", "state_key")}
    budgets = range(0, BUDGET + 1, BUDGET // 20)
    at = [[b, round(float(np.interp(b, *zip(*curve, strict=True))), 5)] for b in budgets]
    return {"rate": rate, "curve": at, "met": met}


def _met(trees: Sequence[RolloutTree], size: int, name: str) -> float:
    # The K episodes that are compared with each other come one after another.
    visited = [
        (number // size, getattr(decision, name))
        for number, tree in enumerate(trees)
        for decision in tree.decisions[1:]
    ]
    counts = Counter(visited)
    return round(fmean(counts[one] > 1 for one in visited), 4)


def _trials(game: str, reward: str, way: str) -> list[dict[str, Any]]:
    def mean(rate: float) -> float:
        curves = (trial(game, reward, way, rate, seed)["curve"] for seed in SELECTION_SEEDS)
        return fmean(success for curve in curves for _, success in curve)

    rate = max(RATES, key=mean)
    found = [trial(game, reward, way, rate, seed) for seed in SEEDS]
    ends = [f"{one['curve'][-1][1]:.0%}" for one in found]
    met = {name: round(fmean(one["met"][name] for one in found), 3) for name in found[0]["met"]}
    print(game, reward, way, rate, *ends, met, flush=True)
    return found


def main() -> None:
    """Compute all trials, and write the result."""
    options = parser_of("equal_states", __doc__).parse_args()
    result = frame("equal_states", SEEDS) | {"selection_seeds": SELECTION_SEEDS, "budget": BUDGET}

    def rows() -> list[dict[str, Any]]:
        return [
            {"game": game, "reward": reward, "ways": {w: _trials(game, reward, w) for w in WAYS}}
            for game in GAMES
            for reward in ("shaped", "outcome")
        ]

    spent, result["rows"] = timed(rows)
    write(result | {"cpu_s": round(spent.cpu_s, 1)}, options.output)


if __name__ == "__main__":
    main()
