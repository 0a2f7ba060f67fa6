"""What does lockstep learn where rewards of steps mean nothing, or not what the outcome does?

    python benchmarks/suites/misleading_rewards.py [--processes 2]

The exact layer of the study (`benchmarks/credit_study`): tables of logits on enumerated levels,
whose success is computed. Beside the rewards of the game every step of an episode that goes on pays
something: plus or minus a size, fixed by state and answer and without any meaning, or the size for
one answer of five. Each algorithm has the learning rate that was best on the seeds and levels of
the selection; the seeds that are reported, and their levels, chose nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

from measuring import frame, parser_of, write

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from credit_study.cells import read_table
from credit_study.trials import trial_cell

ALGORITHMS = {
    "lockstep": {"name": "lockstep"},
    "lockstep, untested, std": {"name": "lockstep", "free_share": 0, "norm": "std"},
    "lockstep, untested": {"name": "lockstep", "free_share": 0},
    "whole episodes": {"name": "reinforce"},
    "AT-GRPO": {"name": "at_grpo"},
}
REWARDS: Mapping[str, tuple[str, tuple[str, float] | None]] = {
    "every step": ("shaped", None),
    "outcome": ("outcome", None),
    "outcome, noise 0.001": ("outcome", ("noise", 0.001)),
    "outcome, noise 0.01": ("outcome", ("noise", 0.01)),
    "outcome, noise 0.1": ("outcome", ("noise", 0.1)),
    "outcome, one answer 0.05": ("outcome", ("answer", 0.05)),
    "every step, noise 0.1": ("shaped", ("noise", 0.1)),
}
"""Argument `reward` of the game, and what is paid beside it."""
RATES = (0.3, 1.0)
SELECTION = (0, 1)
SEEDS = tuple(range(10, 20))
FIRST_LEVEL = 1000
BUDGETS = (2500, 5000, 10000)


def trial(
    budgets: Sequence[int], algorithm: Mapping[str, Any], reward: str, rate: float, seed: int
) -> list[float]:
    """Return success at every budget. Each reported seed has levels of its own."""
    kind, bonus = REWARDS[reward]
    exact = read_table()["exact"]
    first = 0 if seed in SELECTION else FIRST_LEVEL + seed * exact["num_levels"]
    exact |= {"first_level": first, "bonus": bonus, "budgets": budgets}
    found = trial_cell(exact, {"algorithm": algorithm}, kind, rate, seed)["success"]
    return [round(found[str(budget)], 4) for budget in budgets]


def rows_of(
    algorithms: Mapping[str, Mapping[str, Any]],
    rewards: Sequence[str],
    budgets: Sequence[int],
    processes: int,
) -> list[dict[str, Any]]:
    """Return success on every seed, by algorithm and reward, at the rate of the selection.

    Args:
        algorithms: Name to its table `[algorithm]`.
        rewards: Some of `REWARDS`.
        budgets: Numbers of completions, ascending.
        processes: How many trials at once.
    """
    rows = [{"reward": reward, "algorithm": name} for name, reward in product(algorithms, rewards)]
    with ProcessPoolExecutor(processes) as pool:

        def curves(runs: Sequence[tuple[dict[str, Any], float, int]]) -> list[list[float]]:
            plays = [(algorithms[r["algorithm"]], r["reward"], *rest) for r, *rest in runs]
            return list(pool.map(partial(trial, budgets), *zip(*plays, strict=True)))

        tried = iter(curves(list(product(rows, RATES, SELECTION))))
        for row in rows:
            means = {rate: fmean(fmean(next(tried)) for _ in SELECTION) for rate in RATES}
            row["rate"] = max(means, key=means.__getitem__)
        found = iter(curves([(row, row["rate"], seed) for row in rows for seed in SEEDS]))
    return [row | {"success": [next(found) for _ in SEEDS]} for row in rows]


def run_suite(
    suite: str,
    doc: str | None,
    algorithms: Mapping[str, Any],
    rewards: Sequence[str],
    budgets: Sequence[int],
) -> None:
    """Read the options, measure all rows, write the result."""
    parser = parser_of(suite, doc)
    parser.add_argument("--processes", type=int, default=1)
    options = parser.parse_args()
    result = frame(suite, SEEDS)
    result |= {"selection_seeds": list(SELECTION), "rates": list(RATES), "budgets": list(budgets)}
    rows = rows_of(algorithms, rewards, budgets, options.processes)
    write(result | {"rows": rows}, options.output)


if __name__ == "__main__":
    run_suite("misleading_rewards", __doc__, ALGORITHMS, list(REWARDS), BUDGETS)
