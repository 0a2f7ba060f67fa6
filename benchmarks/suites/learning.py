"""Does a recipe learn? Held-out success before, after warm start and in the end, on several seeds.

    python benchmarks/suites/learning.py [--seeds 0 1 2] [--jobs 1] [--config CONFIG]

Every seed is a run of `pettingllms-train` in a process of its own, exactly as a person starts it.
All seeds are written, whatever came out, with 95 % Wilson intervals and the scripted policies on
the same held-out levels. CPU seconds are those of the whole process, imports included.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from measuring import REPOSITORY, RESULTS, frame, parser_of, versions_of, write

from pettingllms.files import read_lines

PACKAGES = ("pettingllms-trainers", "openai", "langgraph", "openai-agents")
NUM_TRANSCRIPTS = 3
FIGURES = ("success", "success_low", "success_high", "num_episodes", "num_turns")


def main() -> None:
    parser = parser_of("learning", __doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--jobs", type=int, default=1, help="runs at the same time")
    parser.add_argument("--config", default="recipe:plan_path")
    options, flags = parser.parse_known_args()
    if options.output == RESULTS / "learning.json":
        name = Path(options.config.removeprefix("recipe:")).stem
        options.output = RESULTS / f"learning_{name}.json"
    result = frame("learning", options.seeds) | {"config": options.config}
    cores = f"{os.cpu_count()} cores, no GPU"
    result["hardware"] = f"{platform.system()} {platform.machine()}, {cores}"
    result["versions"] |= versions_of(PACKAGES)
    with ThreadPoolExecutor(options.jobs) as pool:
        started = [pool.submit(train, options.config, seed, flags) for seed in options.seeds]
        result["runs"] = [future.result() for future in started]
    write(result, options.output)
    print(json.dumps(result, indent=2))


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
        # Output goes to the error stream: what this prints is the result.
        process = subprocess.Popen(command, cwd=place, stdout=sys.stderr)
        _, status, usage = os.wait4(process.pid, 0)
        wall_s, cpu_s = time.perf_counter() - started, usage.ru_utime + usage.ru_stime
        # A seed that fails must not be left out of a mean.
        if status:
            raise SystemExit(f"the run with seed {seed} failed: {command}")
        report = json.loads((directory / "eval.json").read_text(encoding="utf-8"))
        curve = read_lines(directory / "evaluations.jsonl")
        spent = ledger(read_lines(directory / "metrics.jsonl"))
        spoken = (
            {}
            if is_recipe
            else {"transcripts": [own[:NUM_TRANSCRIPTS] for own in transcripts(directory)]}
        )
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
        "tokens": spent,
        "greedy_curve": [[line["step"], line["variants"]["greedy"]["success"]] for line in curve],
        **spoken,
    }


def ledger(lines: Sequence[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """The tokens that each policy sampled in all train steps, and the shares of where they went."""
    whole: dict[str, dict[str, float]] = {}
    for name in lines[-1]:
        if name.startswith("tokens/"):
            _, policy, place = name.split("/")
            sampled = [line.get(f"tokens/{policy}/sampled", 0) for line in lines]
            shares = [1 if place == "sampled" else line.get(name, 0) for line in lines]
            # A step's shares are of its own tokens, so those of the run weigh steps by tokens.
            counted = sum(share * num for share, num in zip(shares, sampled, strict=True))
            own = whole.setdefault(policy, {"sampled": sum(sampled)})
            own[place] = counted if place == "sampled" else round(counted / own["sampled"], 4)
    return whole


def transcripts(directory: Path) -> list[list[dict[str, Any]]]:
    """What a team says in the first held-out episodes, after warm start and training."""
    trees = read_lines(directory / "rollouts.jsonl")
    held_out = [tree for tree in trees if tree["set"] == "held_out"]
    moments = dict.fromkeys(tree["step"] for tree in held_out)
    return [[exchange(tree) for tree in held_out if tree["step"] == step] for step in moments]


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


if __name__ == "__main__":
    main()
