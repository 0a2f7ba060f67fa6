"""Figure 5b: does an ensemble get better with more reasoners and tool users?

    python benchmarks/suites/ensemble_sizes.py [--model smollm2] [--sizes 1+1 8+8] [--seeds 0 1 2]

Sums of two numbers below 50. Every cell is a run of `pettingllms-train` with so many reasoners and
tool users, all of whom are trained together with their judge for equally many train steps. Its
policies then play held-out questions, sampled, and three judges decide: the trained one, the most
frequent answer, and an oracle that finds the right answer wherever there is one. Cells are kept as
they end; the same command goes on where it stopped, if the commit is the same.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import fmean
from typing import Any

from measuring import RESULTS, frame, parser_of, timed

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from credit_study.trained import command_of, evaluated

from pettingllms.evaluation.episode import EpisodeResult
from pettingllms.files import write_whole
from pettingllms.types import role_of

CONFIGS = Path(__file__).resolve().parents[1] / "configs"
MODELS = ("tiny", "smollm2")
SIZES = ("1+1", "2+2", "4+4", "8+8", "1+0", "2+0", "4+0", "8+0")
"""Reasoners + tool users."""
NUMBERS = range(1, 50)


def write_questions(path: Path) -> None:
    """Write all sums, in the schema `question_answer`."""
    rows = (
        {"question": f"Calculate ${a} + {b}$.", "answer": str(a + b)}
        for a in NUMBERS
        for b in NUMBERS
    )
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")


def cell(model: str, size: str, seed: int, folder: Path) -> dict[str, Any]:
    """Train an ensemble; return what it solves with three judges.

    Args:
        model: One of `MODELS`.
        size: Reasoners and tool users, as `2+1`.
        seed: Of the run; the held-out questions are always the same.
        folder: For the files of the run, empty.

    Returns:
        `reasoner`, `tool`: share of their answers that are right. Shares of the held-out questions:
        `any`: that one of them at least answers right; `judge`, `majority`: that are solved;
        `begun`: `judge` before the first train step.
    """
    run = _train(model, size, seed, folder)
    judges = {"judge": {}, "majority": {"judge": "majority"}}
    _, evaluation = evaluated(run, folder / "played", judges)
    results = list(evaluation.results(with_steps=True))
    right = [_right(result) for result in results if result.variant == "judge"]
    roles = sorted({role for answers in right for role, _ in answers})
    report = json.loads((run / "eval.json").read_text(encoding="utf-8"))
    shares = {
        **{
            role: fmean(is_so for of in right for one, is_so in of if one == role) for role in roles
        },
        **{
            name: fmean(result.success for result in results if result.variant == name)
            for name in judges
        },
        "any": fmean(any(is_so for _, is_so in answers) for answers in right),
        "begun": report["warm_start"]["variants"]["sampled"]["success"],
    }
    return {name: round(share, 4) for name, share in shares.items()} | {"num_questions": len(right)}


def _train(model: str, size: str, seed: int, folder: Path) -> Path:
    questions, run = folder / "sums.jsonl", folder / "run"
    write_questions(questions)
    reasoners, tools = size.split("+")
    flags = {
        "env.kwargs.source": questions,
        "env.kwargs.reasoners": reasoners,
        "env.kwargs.tools": tools,
        "output_dir": run,
        "seed": seed,
    }
    files = [CONFIGS / "ensemble.toml", CONFIGS / f"ensemble_{model}.toml"]
    if tools != "0":
        files.append(CONFIGS / "ensemble_tools.toml")
    done = subprocess.run(command_of(files, flags), capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{model} {size}, seed {seed}: {done.stderr[-2000:]}")
    return run


def _right(result: EpisodeResult) -> list[tuple[str, bool]]:
    """Role and whether it is right, of every answer before the judge's."""
    return [
        (role_of(step["agent"]), step["reward_parts"]["local"] == 1) for step in result.steps[:-1]
    ]


def main() -> None:
    parser = parser_of("ensemble_sizes", __doc__)
    parser.add_argument("--model", choices=MODELS, default="tiny")
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=SIZES)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    options = parser.parse_args()
    if options.output == RESULTS / "ensemble_sizes.json":
        options.output = RESULTS / f"ensemble_sizes_{options.model}.json"
    head = frame("ensemble_sizes", options.seeds) | {"model": options.model}
    cells: dict[str, Any] = {}
    if options.output.is_file():
        known = json.loads(options.output.read_text(encoding="utf-8"))
        # Cells of two versions are no comparison.
        if known["git"] != head["git"]:
            raise SystemExit(f"{options.output} is of another commit: {known['git']}")
        cells = known["cells"]
    # Seed by seed: a run that is stopped has whole comparisons.
    for seed in options.seeds:
        for size in options.sizes:
            if f"{size}|{seed}" in cells:
                continue
            with tempfile.TemporaryDirectory() as name:
                model = options.model
                spent, found = timed(lambda: cell(model, size, seed, Path(name)))  # noqa: B023
            cells[f"{size}|{seed}"] = found | {"wall_s": round(spent.wall_s, 1)}
            print(size, seed, found, f"{spent.wall_s:.0f} s", flush=True)
            head["seeds"] = sorted({int(key.partition("|")[2]) for key in cells})
            text = json.dumps(head | {"cells": cells}, indent=1)
            write_whole(options.output, f"{text}\n")


if __name__ == "__main__":
    main()
