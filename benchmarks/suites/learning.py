"""Does a recipe learn? Held-out success before, after warm start and in the end, on several seeds.

    python benchmarks/suites/learning.py [--seeds 0 1 2] [--jobs 1] [--config CONFIG]

Every seed is a run of `pettingllms-train` in a process of its own, exactly as a person starts it.
All seeds are written, whatever came out, with 95 % Wilson intervals and the scripted policies on
the same held-out levels. CPU seconds are those of the whole process, imports included.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
CONFIG = "recipe:plan_path"
RESULTS = REPOSITORY / "benchmarks" / "results"
PACKAGES = ("torch", "transformers", "pettingllms-trainers", "openai", "langgraph", "openai-agents")
NUM_TRANSCRIPTS = 3
FIGURES = ("success", "success_low", "success_high", "num_episodes", "num_turns")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run all seeds and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--jobs", type=int, default=1, help="runs at the same time")
    parser.add_argument("--config", default=CONFIG)
    parser.add_argument("--output", type=Path)
    options, flags = parser.parse_known_args(arguments)
    name = Path(options.config.removeprefix("recipe:")).stem
    output = options.output or RESULTS / f"learning_{name}.json"
    with ThreadPoolExecutor(options.jobs) as pool:
        started = [pool.submit(train, options.config, seed, flags) for seed in options.seeds]
        runs = [future.result() for future in started]
    result = {
        "suite": "learning",
        "date": datetime.now(UTC).date().isoformat(),
        "command": command_shown(options.output),
        "config": options.config,
        "git": git_state(),
        "hardware": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, no GPU",
        "versions": {"python": platform.python_version(), **installed()},
        "runs": runs,
    }
    output.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=2))


def command_shown(output: Path | None) -> str:
    """The command of this process; where its result went is nobody's business."""
    words = ["PATH" if word == str(output) else word for word in sys.argv[1:]]
    return " ".join(["python benchmarks/suites/learning.py", *words])


def train(config: str, seed: int, flags: Sequence[str]) -> dict[str, Any]:
    """Train with one seed and return its figures."""
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder) / "run"
        # In the folder of the run file, where the module of a workflow is.
        is_recipe = config.startswith("recipe:")
        place = REPOSITORY if is_recipe else Path(config).resolve().parent
        name = config if is_recipe else Path(config).name
        command = [sys.executable, "-m", "pettingllms_trainers.cli", name, "--trust"]
        command += ["--output-dir", str(directory), "--seed", str(seed), *flags]
        command += ["--logging.progress", "plain", "--logging.no-tensorboard"]
        started = time.perf_counter()
        process = subprocess.Popen(command, cwd=place, stdout=sys.stderr)
        _, status, usage = os.wait4(process.pid, 0)
        wall_s, cpu_s = time.perf_counter() - started, usage.ru_utime + usage.ru_stime
        if status:
            raise SystemExit(f"the run with seed {seed} failed: {command}")
        report = json.loads((directory / "eval.json").read_text(encoding="utf-8"))
        lines = (directory / "evaluations.jsonl").read_text(encoding="utf-8").splitlines()
        spoken = {} if is_recipe else transcripts(directory)
    curve = [json.loads(line) for line in lines]
    return {
        "seed": seed,
        "cpu_s": round(cpu_s, 1),
        "wall_s": round(wall_s, 1),
        "manifest": report["manifest"],
        "before": figures(report["before"]["variants"]),
        "warm_start": figures(report["warm_start"]["variants"]),
        "after": figures(report["after"]["variants"]),
        "warnings": report["warnings"],
        "scripted": figures(report["scripted"]),
        "greedy_curve": [[line["step"], line["variants"]["greedy"]["success"]] for line in curve],
        **spoken,
    }


def transcripts(directory: Path) -> dict[str, Any]:
    """What a team says in the first held-out episodes, after warm start and training."""
    lines = (directory / "rollouts.jsonl").read_text(encoding="utf-8").splitlines()
    held_out = [tree for tree in map(json.loads, lines) if tree["set"] == "held_out"]
    moments = dict.fromkeys(tree["step"] for tree in held_out)
    return {
        "transcripts": [
            [exchange(tree) for tree in held_out if tree["step"] == step][:NUM_TRANSCRIPTS]
            for step in moments
        ]
    }


def exchange(tree: dict[str, Any]) -> dict[str, Any]:
    """Who was asked what in an episode, and answered what."""
    said = [
        {"agent": d["agent"], "asked": d["observation"], "answer": d["candidates"][0]["text"]}
        for d in tree["decisions"]
    ]
    return {"success": tree["outcome"]["success"], "said": said}


def figures(variants: dict[str, Any]) -> dict[str, Any]:
    """The figures of each variant that are reported, of each environment too."""
    found: dict[str, Any] = {}
    for name, variant in variants.items():
        found[name] = {key: round(variant[key], 4) for key in FIGURES}
        if "environments" in variant:
            found[name]["environments"] = figures(variant["environments"])
    return found


def installed() -> dict[str, str]:
    """The versions of the packages that runs may use, of those that are installed."""
    found: dict[str, str] = {}
    for name in PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def git_state() -> dict[str, Any]:
    """The commit and whether files differ from it."""

    def git(*words: str) -> str:
        done = subprocess.run(
            ["git", *words], cwd=REPOSITORY, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    return {"commit": git("rev-parse", "HEAD"), "dirty": bool(git("status", "--porcelain"))}


if __name__ == "__main__":
    main()
