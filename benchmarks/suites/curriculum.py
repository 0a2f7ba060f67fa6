"""Does a curriculum that moves by past success help on hard levels, at equal tokens?

    python benchmarks/suites/curriculum.py [--seeds 0 1 2 3 4] [--steps 50]

Every seed trains twice from one warm start on the stages of `benchmarks/configs/curriculum.toml`:
with levels by p (1 - p) of each stage's success, and with all stages alike. Held-out levels are of
the third stage. Solved episodes are shorter, so runs of equal train steps have written different
numbers of tokens: success is read off each run's curve, linearly between evaluations, where the run
with the fewest tokens ended. The interval of the paired differences is Student's.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from measuring import REPOSITORY, frame, parser_of, write
from scipy.stats import t as student

CONFIG = REPOSITORY / "benchmarks" / "configs" / "curriculum.toml"
FLOORS = {"by success": "0.2", "all alike": "1.0"}
VARIANTS = ("sampled", "greedy")
Points = list[tuple[float, float]]


def main() -> None:
    """Run all seeds and write the result."""
    parser = parser_of("curriculum", __doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--steps", type=int, default=50)
    options = parser.parse_args()
    result = frame("curriculum", options.seeds)
    runs = [train(seed, name, options.steps) for seed in options.seeds for name in FLOORS]
    write(result | {"config": CONFIG.name, **summary(runs), "runs": runs}, options.output)


def train(seed: int, name: str, num_steps: int) -> dict[str, Any]:
    """Train with one seed and one way to draw levels; return curves over tokens."""
    print(f"seed {seed}, {name}", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        command = [sys.executable, "-m", "pettingllms_trainers.cli", str(CONFIG)]
        command += ["--output-dir", str(out), "--seed", str(seed), "--num-steps", str(num_steps)]
        command += ["--env.curriculum-floor", FLOORS[name], "--logging.progress", "off"]
        before = os.times()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        after = os.times()
        steps, evaluations = (_lines(out / f"{file}.jsonl") for file in ("metrics", "evaluations"))
    tokens = list(accumulate(line.get("rollout/num_completion_tokens", 0) for line in steps))
    shares = [name for name in steps[-1] if name.startswith("curriculum/")]
    return {
        "seed": seed,
        "levels": name,
        "cpu_s": round(after.children_user - before.children_user, 1),
        "num_tokens": tokens[-1],
        "curves": {
            variant: [
                (tokens[line["step"]], round(line["variants"][variant]["success"], 4))
                for line in evaluations
            ]
            for variant in VARIANTS
        },
        "stages": {key: [round(line[key], 3) for line in steps[1:]] for key in shares},
    }


def summary(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Success at equal tokens, and the differences over seeds."""
    budget = min(run["num_tokens"] for run in runs)
    found: dict[str, Any] = {"num_tokens": budget}
    for variant in VARIANTS:
        reached = {
            name: [at(run["curves"][variant], budget) for run in runs if run["levels"] == name]
            for name in FLOORS
        }
        pairs = zip(*(reached[name] for name in FLOORS), strict=True)
        found[variant] = {
            "reached": {name: [round(v, 4) for v in of] for name, of in reached.items()},
            "difference": interval([one - other for one, other in pairs]),
        }
    return found


def at(points: Points, num_tokens: float) -> float:
    """Success at a number of tokens, linear between the points of a curve."""
    for (first, low), (last, high) in pairwise(points):
        if num_tokens <= last:
            return low + (high - low) * (num_tokens - first) / (last - first)
    return points[-1][1]


def interval(values: Sequence[float]) -> dict[str, float]:
    """The mean and Student's 95 % interval."""
    mean, num = fmean(values), len(values)
    half = float(student.ppf(0.975, num - 1)) * stdev(values) / num**0.5 if num > 1 else 0.0
    return {"mean": round(mean, 4), "low": round(mean - half, 4), "high": round(mean + half, 4)}


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


if __name__ == "__main__":
    main()
