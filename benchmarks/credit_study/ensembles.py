"""Cells of Figure 5b: does an ensemble get better with more reasoners and tool users?

Sums of two numbers below 50. Every cell is a run of `pettingllms-train` with so many reasoners and
tool users, all of whom are trained together with their judge for equally many train steps. Its
policies then play held-out questions, sampled, and three judges decide: the trained one, the most
frequent answer, and an oracle that finds the right answer wherever there is one.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path
from statistics import fmean
from typing import Any

from credit_study.trained import command_of, evaluated
from pettingllms.evaluation.episode import EpisodeResult
from pettingllms.types import role_of

CONFIGS = Path(__file__).resolve().parents[1] / "configs"
NUMBERS = range(1, 50)


def write_questions(path: Path) -> None:
    """Write all sums, in the schema `question_answer`."""
    rows = (
        {"question": f"Calculate ${a} + {b}$.", "answer": str(a + b)}
        for a in NUMBERS
        for b in NUMBERS
    )
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")


def ensemble_cell(model: str, size: str, seed: int) -> dict[str, Any]:
    """Train an ensemble; return what it solves with three judges.

    Args:
        model: `"tiny"` or `"smollm2"`.
        size: Reasoners and tool users, as `2+1`.
        seed: Of the run; the held-out questions are always the same.

    Returns:
        `reasoner`, `tool`: share of their answers that are right. Shares of the held-out questions:
        `any`: that one of them at least answers right; `judge`, `majority`: that are solved;
        `begun`: `judge` before the first train step.
    """
    judges = {"judge": {}, "majority": {"judge": "majority"}}
    with tempfile.TemporaryDirectory() as name:
        run = _train(model, size, seed, Path(name))
        _, evaluation = evaluated(run, Path(name) / "played", judges)
        results = list(evaluation.results(with_steps=True))
        report = json.loads((run / "eval.json").read_text(encoding="utf-8"))
    right = [_right(result) for result in results if result.variant == "judge"]
    roles = sorted({role for answers in right for role, _ in answers})
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
        raise RuntimeError(f"{model} {size}, seed {seed}: {done.stderr[-2000:]}")
    return run


def _right(result: EpisodeResult) -> list[tuple[str, bool]]:
    """Role and correctness of every answer before the judge's."""
    return [
        (role_of(step["agent"]), step["reward_parts"]["local"] == 1) for step in result.steps[:-1]
    ]
