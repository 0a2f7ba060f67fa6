"""sokoban_v0 and sudoku_v0: speed compared with peers, splits, scripted policies, prompt sizes.

    python benchmarks/suites/games.py --peers-python /tmp/peers/bin/python

`--peers-python` is the interpreter of a throw-away environment with any of `pip install gem-llm
textarena reasoning-gym gym-sokoban`; what is missing there, or fails, is reported as such. Every
round times every workload once, in CPU seconds of one process; ratios are formed within a round.
Written is the median over the rounds with the minimum and maximum value.

The public code of the paper is on no package index. It was measured at 97,600 Sokoban steps with
text per second, and 1,814 of 16x16 Sudoku, on a machine on which gem-llm made 905 Sokoban levels/s;
ratios to `paper_code_estimate` scale that by the speed of gem-llm in the same round.
"""

from __future__ import annotations

import argparse
import copy
import json
import platform
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from games_content import scripted_success, split_overlap
from games_sokoban import (
    sokoban_aec_steps,
    sokoban_aec_steps_on_one_level,
    sokoban_core_steps,
    sokoban_levels,
)

import pettingllms
from pettingllms_envs.sokoban import SokobanEnv
from pettingllms_envs.sudoku.generator import generate as generate_puzzle
from pettingllms_envs.sudoku.rules import start, write

REPOSITORY = Path(__file__).resolve().parents[2]
RESULT = REPOSITORY / "benchmarks" / "results" / "games.json"
PEERS = Path(__file__).with_name("games_peers.py")
PAPER_STEPS_PER_GEM_LEVEL = {"sokoban_core_steps": 97_600 / 905, "sudoku_16x16_steps": 1_814 / 905}
BEATEN = {
    "sokoban_6x6_1_box_levels": ("gem-llm", "gym-sokoban", "reasoning-gym", "textarena"),
    "sokoban_6x6_2_boxes_levels": ("reasoning-gym", "gem-llm"),
    "sokoban_6x6_3_boxes_levels": ("reasoning-gym", "gem-llm"),
    "sokoban_core_steps": ("gem-llm", "paper_code_estimate"),
    "sokoban_aec_steps": ("gem-llm", "paper_code_estimate"),
    "sokoban_aec_steps_on_one_level": ("gem-llm", "paper_code_estimate"),
    "sudoku_4x4_6_clues_levels": ("reasoning-gym", "gem-llm"),
    "sudoku_9x9_40_clues_levels": ("textarena", "reasoning-gym", "gem-llm"),
    "sudoku_9x9_31_clues_levels": ("gem-llm", "reasoning-gym"),
    "sudoku_4x4_steps": ("gem-llm",),
    "sudoku_9x9_steps": ("gem-llm",),
    "sudoku_16x16_steps": ("paper_code_estimate",),
    "forks": ("gem-llm", "copy.deepcopy"),
}
"""Our workload -> the peers that are measured on it, the fastest known first."""


def sudoku_levels(size: int, clues: int) -> Callable[[int], Iterator[int]]:
    """Puzzles with exactly one solution."""

    def work(seed: int) -> Iterator[int]:
        rng = random.Random(seed)
        while True:
            generate_puzzle(rng, size, clues)
            yield 1

    return work


def sudoku_steps(size: int) -> Callable[[int], Iterator[int]]:
    """Single fills with the new grid's text."""

    def work(seed: int) -> Iterator[int]:
        puzzle = generate_puzzle(random.Random(seed), size)
        cells = [cell for cell, clue in enumerate(puzzle.clues) if not clue]
        fills = [
            (cell // size + 1, cell % size + 1, value)
            for cell in cells
            for value in (puzzle.solution[cell], 0)
        ]
        grid = start(puzzle)
        while True:
            for row, col, value in fills:
                grid, _ = write(puzzle, grid, [(row, col, value)])
                str(grid.text)
            yield len(fills)

    return work


def copies(copy_env: Callable[[SokobanEnv], object], count: int) -> Callable[[int], Iterator[int]]:
    """Copies of the whole two-agent environment."""

    def work(seed: int) -> Iterator[int]:
        env = SokobanEnv()
        env.reset(seed=seed)
        while True:
            for _ in range(count):
                copy_env(env)
            yield count

    return work


WORKLOADS: dict[str, Callable[[int], Iterator[int]]] = {
    "sokoban_6x6_1_box_levels": sokoban_levels(1),
    "sokoban_6x6_2_boxes_levels": sokoban_levels(2),
    "sokoban_6x6_3_boxes_levels": sokoban_levels(3),
    "sokoban_6x6_1_box_levels_of_split_train": sokoban_levels(1, "train"),
    "sokoban_core_steps": sokoban_core_steps,
    "sokoban_aec_steps": sokoban_aec_steps,
    "sokoban_aec_steps_on_one_level": sokoban_aec_steps_on_one_level,
    "sudoku_4x4_6_clues_levels": sudoku_levels(4, 6),
    "sudoku_9x9_40_clues_levels": sudoku_levels(9, 40),
    "sudoku_9x9_31_clues_levels": sudoku_levels(9, 31),
    "sudoku_16x16_150_clues_levels": sudoku_levels(16, 150),
    "sudoku_4x4_steps": sudoku_steps(4),
    "sudoku_9x9_steps": sudoku_steps(9),
    "sudoku_16x16_steps": sudoku_steps(16),
    "forks": copies(SokobanEnv.fork, 1000),
    "copy.deepcopy of forks": copies(copy.deepcopy, 10),
}


def rate(units: Iterator[int], seconds: float) -> float:
    """Return units per CPU second."""
    next(units)
    done, begin = 0, time.process_time()
    while (spent := time.process_time() - begin) < seconds:
        done += next(units)
    return done / spent


def peer_rates(python: str, seed: int, seconds: float) -> dict[str, dict[str, float]]:
    """Return peer -> workload -> units per second; a failed workload is reported and left out."""
    found: dict[str, dict[str, float]] = {}
    for workload, peers in BEATEN.items():
        for peer in peers:
            if peer in ("paper_code_estimate", "copy.deepcopy"):
                continue
            command = [python, str(PEERS), peer, workload, str(seed), str(seconds)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            last = (done.stdout.strip().splitlines() or ["no output"])[-1]
            if done.returncode == 0:
                found.setdefault(peer, {})[workload] = float(last)
            elif seed == 0:
                reason = (done.stderr.strip().splitlines() or [last])[-1]
                print(f"{peer} {workload}: {reason}", file=sys.stderr)
    return found


def peer_versions(python: str | None) -> dict[str, str]:
    """Return the version of every peer, or why there is none."""
    names = ("gem-llm", "reasoning-gym", "textarena", "gym-sokoban")
    if python is None:
        return dict.fromkeys(names, "not measured: no --peers-python")
    code = "import importlib.metadata, sys; print(importlib.metadata.version(sys.argv[1]))"
    found: dict[str, str] = {}
    for name in names:
        command = [python, "-c", code, name]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        found[name] = done.stdout.strip() or "not installed"
    return found


def measure(num_rounds: int, seconds: float, python: str | None) -> dict[str, Any]:
    """Time all workloads in interleaved rounds."""
    rates: dict[str, list[float]] = {}
    ratios: dict[str, list[float]] = {}
    for seed in range(num_rounds):
        ours = {name: rate(work(seed), seconds) for name, work in WORKLOADS.items()}
        theirs = peer_rates(python, seed, seconds) if python else {}
        gem = theirs.get("gem-llm", {}).get("sokoban_6x6_1_box_levels")
        if gem:
            estimate = {name: x * gem for name, x in PAPER_STEPS_PER_GEM_LEVEL.items()}
            for name in ("sokoban_aec_steps", "sokoban_aec_steps_on_one_level"):
                estimate[name] = estimate["sokoban_core_steps"]
            theirs["paper_code_estimate"] = estimate
        theirs["copy.deepcopy"] = {"forks": ours["copy.deepcopy of forks"]}
        for name, value in ours.items():
            rates.setdefault(f"{name}_per_s", []).append(value)
        for workload, peers in BEATEN.items():
            for peer in peers:
                value = theirs.get(peer, {}).get(workload)
                if value:
                    rates.setdefault(f"{peer} {workload}_per_s", []).append(value)
                    ratio = ours[workload] / value
                    ratios.setdefault(f"{workload}_over_{peer}", []).append(ratio)
    return {
        "metrics": {name: summary(values) for name, values in rates.items()},
        "ratios": {name: summary(values) for name, values in ratios.items()},
    }


def summary(values: list[float]) -> dict[str, float | int]:
    """Return median, minimum and maximum value to four digits."""
    low, middle, high = (
        float(f"{value:.4g}") for value in (min(values), statistics.median(values), max(values))
    )
    return {"median": middle, "min": low, "max": high, "n": len(values)}


def git(*arguments: str) -> str:
    """Return what git prints."""
    command = ["git", "-C", str(REPOSITORY), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def main() -> None:
    """Measure, write the JSON result, print it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--peers-python", help="interpreter with the peers installed")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="CPU time of a measurement")
    parser.add_argument("--output", type=Path, default=RESULT)
    options = parser.parse_args()
    result = {
        "suite": "games",
        "date": datetime.now(UTC).date().isoformat(),
        "command": "python benchmarks/suites/games.py --peers-python PYTHON",
        "git": {
            "commit": git("rev-parse", "HEAD"),
            "is_dirty": bool(git("status", "--porcelain", "--", "pettingllms", "envs")),
        },
        "hardware": f"{platform.system()} {platform.machine()}, one process, CPU time",
        "seeds": list(range(options.rounds)),
        "versions": {
            "python": platform.python_version(),
            "pettingllms": pettingllms.__version__,
            "pettingzoo": version("pettingzoo"),
            **peer_versions(options.peers_python),
        },
        "seconds_per_measurement": options.seconds,
        **measure(options.rounds, options.seconds, options.peers_python),
        "split_overlap": split_overlap(),
        "scripted_success": scripted_success(),
    }
    options.output.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
