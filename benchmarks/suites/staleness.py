"""What is learnt from older tokens: the embedded default with `rollout.max_staleness` 0, 1, 2, 4.

    python benchmarks/suites/staleness.py [--seeds 0 1 2] [--steps 8]

The team of `recipe:plan_path` is warmed up once. From there every seed trains with every bound, in
turn, for as many steps; the schedule of the learning rate ends with them. Engine and trainer are
one model here, so nothing is timed: rollouts of k train steps are played at once, and their tokens
are 1 to k updates old.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import measuring

from pettingllms.files import read_lines
from pettingllms_trainers.cli import main as train

CONFIG = "recipe:plan_path"
POLICIES = ("tool", "planner")
BOUNDS = (0, 1, 2, 4)
QUIET = ["--logging.progress=off", "--logging.no-tensorboard", "--logging.rollouts-every=0"]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = measuring.parser_of("staleness", __doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=8)
    options = parser.parse_args(arguments)
    result = measuring.frame("staleness", options.seeds)
    runs: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        warm = Path(folder) / "warm"
        _call(["warm-start", CONFIG, "--output-dir", str(warm), *QUIET])
        models = [f"--policies.{name}.model={warm}/policies/{name}" for name in POLICIES]
        for seed in options.seeds:
            # All from the same weights: what differs is the age of tokens alone.
            for bound in BOUNDS:
                out = Path(folder) / f"{seed}-{bound}"
                flags = [f"--seed={seed}", f"--num-steps={options.steps}"]
                flags += [f"--rollout.max-staleness={bound}", "--warm-start.num-steps=0"]
                flags += ["--evaluation.every=4", "--checkpoint.every=1000"]
                spent, _ = measuring.timed(
                    lambda out=out, flags=flags: _call(
                        [CONFIG, "--output-dir", str(out), *models, *flags, *QUIET]
                    )
                )
                runs.append({"seed": seed, "bound": bound, **_figures(out)})
                runs[-1]["cpu_s"] = round(spent.cpu_s, 1)
                print(runs[-1], flush=True)
            # After every seed: what is there is whole.
            done = {"seeds": sorted({run["seed"] for run in runs}), "num_steps": options.steps}
            measuring.write(result | done | {"runs": runs}, options.output)


def _figures(out: Path) -> dict[str, Any]:
    """Held-out success by train step, and the age and weights of the tokens."""
    lines = read_lines(out / "metrics.jsonl")[1:]
    curve = [
        [line["step"], line["variants"]["greedy"]["success"]]
        for line in read_lines(out / "evaluations.jsonl")
    ]
    gaps = [line[f"loss/{name}/engine_gap_mean"] for line in lines for name in POLICIES]
    return {
        "greedy_curve": curve,
        "mean_age": round(fmean(line["rollout/mean_age"] for line in lines), 3),
        "max_age": max(line["rollout/max_age"] for line in lines),
        "mean_gap": round(fmean(gaps), 4),
    }


def _call(words: Sequence[str]) -> None:
    if code := train([*words]):
        raise SystemExit(f"pettingllms-train {' '.join(words)} ended with {code}")


if __name__ == "__main__":
    main()
