"""Which candidate should an episode continue with: the best, any, or one drawn by its reward?

    python benchmarks/suites/advance.py [--seeds 0 1 2] [--jobs 1] [--config FILE.toml] [flags]

Greedy is the paper's way; with random and softmax later agents see in training what they will see
at test time. Every way is trained on every seed, as a person starts it, with what is not named here
as in the run file; flags go to `pettingllms-train`. All runs are written, whatever came out, and
for each way the mean over seeds with the minimum and maximum, beside the 95 % Wilson interval of
each run. Runs of one seed begin with the same weights and play the same held-out levels, so ways
are compared by the difference within a seed.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import fmean
from typing import Any

from learning import CONFIG, RESULTS, train
from measuring import frame, write

WAYS = ("greedy", "random", "softmax")
VARIANTS = ("greedy", "sampled")
FLAG = "--rollout.branch_choice"


def main(arguments: Sequence[str] | None = None) -> None:
    """Train with every way on every seed and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--jobs", type=int, default=1, help="runs at the same time")
    parser.add_argument("--config", type=Path, default=CONFIG)
    parser.add_argument("--output", type=Path, default=RESULTS / "advance.json")
    options, flags = parser.parse_known_args(arguments)
    result = frame("advance", options.seeds) | {"config": options.config.name}
    with ThreadPoolExecutor(options.jobs) as pool:
        started = [
            (
                way,
                pool.submit(train, options.config, seed, [*flags, "--rollout.branch_choice", way]),
            )
            for way in WAYS
            for seed in options.seeds
        ]
        runs = [{"advance": way, **future.result()} for way, future in started]
    result["ways"] = {way: summary(runs, way) for way in WAYS}
    result["runs"] = runs
    write(result, options.output)
    print(json.dumps(result["ways"], indent=2))


def summary(runs: Sequence[Mapping[str, Any]], way: str) -> dict[str, Any]:
    """Return what a way achieved over all seeds, and how far it is from greedy on each."""
    found: dict[str, Any] = {}
    for variant in VARIANTS:
        own, greedy = (successes(runs, name, variant) for name in (way, "greedy"))
        gains = [own[seed] - greedy[seed] for seed in own]
        found[variant] = {"success": spread_of(own.values()), "over_greedy": spread_of(gains)}
    found["cpu_s"] = spread_of(run["cpu_s"] for run in runs if run["advance"] == way)
    return found


def successes(runs: Sequence[Mapping[str, Any]], way: str, variant: str) -> dict[int, float]:
    """Return held-out success after training by seed."""
    return {run["seed"]: run["after"][variant]["success"] for run in runs if run["advance"] == way}


def spread_of(values: Iterable[float]) -> dict[str, float]:
    """Return mean, minimum and maximum of a series."""
    series = list(values)
    named = {"mean": fmean(series), "min": min(series), "max": max(series)}
    return {name: round(value, 4) for name, value in named.items()}


if __name__ == "__main__":
    main()
