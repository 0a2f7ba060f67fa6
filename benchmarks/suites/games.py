"""The levels of the games: separation of the splits, success of the scripted policies.

    python benchmarks/suites/games.py

Speed: see env_speed.py.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from measuring import RESULTS, frame, write

import pettingllms
from pettingllms.splits import split_of
from pettingllms_envs.plan_path.generator import Request
from pettingllms_envs.plan_path.generator import generate as plan_path_level
from pettingllms_envs.plan_path.rules import canonical_form as plan_path_form
from pettingllms_envs.sokoban.generator import canonical_form, generate, request_of
from pettingllms_envs.sudoku.generator import generate as generate_puzzle
from pettingllms_envs.sudoku.symmetry import canonical

SETTINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "plan_path 10x10": ("plan_path_v0", {}),
    "plan_path 10x10, 30 % walls": ("plan_path_v0", {"obstacle_ratio": 0.3}),
    "plan_path 5x5, 30 % walls, 6 turns of 2 moves": (
        "plan_path_v0",
        {"size": 5, "obstacle_ratio": 0.3, "min_moves": 3, "max_turns": 6, "moves_per_turn": 2},
    ),
    "sokoban 6x6, 1 box": ("sokoban_v0", {}),
    "sokoban 6x6, 2 boxes": ("sokoban_v0", {"boxes": 2}),
    "sokoban 8x8, 3 boxes": ("sokoban_v0", {"boxes": 3, "size": 8}),
    "sudoku 4x4": ("sudoku_v0", {}),
    "sudoku 9x9": ("sudoku_v0", {"size": 9}),
}


def sokoban_form(rng: random.Random, split: str) -> bytes:
    """Return the content of a level."""
    return canonical_form(generate(rng, request_of(6, 6, 1, 0.25, None, None, split, budget=80)))


def sudoku_form(rng: random.Random, split: str) -> bytes:
    """Return the content of a puzzle."""
    while True:
        form = canonical(4, generate_puzzle(rng, 4).clues)
        if split_of(form) == split:
            return form


def maze_form(rng: random.Random, split: str) -> bytes:
    """Return the content of a level."""
    return plan_path_form(plan_path_level(rng, Request(10, 10, 0.22, 4, 40, split)))


FORMS: dict[str, Callable[[random.Random, str], bytes]] = {
    "plan_path 10x10": maze_form,
    "sokoban 6x6": sokoban_form,
    "sudoku 4x4": sudoku_form,
}


def split_overlap(num_train: int, num_test: int) -> dict[str, Any]:
    """Return the contents, up to symmetry, that train and test levels of equal seeds share."""
    found: dict[str, Any] = {"train_levels": num_train, "test_levels": num_test}
    for name, form in FORMS.items():
        train_rng, test_rng = random.Random(0), random.Random(0)
        train = {form(train_rng, "train") for _ in range(num_train)}
        test = {form(test_rng, "test") for _ in range(num_test)}
        found[name] = {
            "different_train": len(train),
            "different_test": len(test),
            "common": len(train & test),
        }
    return found


def scripted_success(num_levels: int) -> dict[str, dict[str, float]]:
    """Return the share of test levels that the scripted policies of a single agent solve."""
    found: dict[str, dict[str, float]] = {}
    for name, (env_id, arguments) in SETTINGS.items():
        env = pettingllms.make(env_id, checks=False, team="single", split="test", **arguments)
        found[name] = {}
        for policy in env.scripted_policies:
            rng, solved = random.Random(0), 0
            for seed in range(num_levels):
                env.reset(seed=seed)
                while env.acting():
                    env.step(env.scripted_action("planner_0", policy, rng))
                solved += env.infos["planner_0"]["success"]
            found[name][policy] = solved / num_levels
    return found


def main() -> None:
    """Measure and write the JSON result."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--levels", type=int, default=200, help="test levels per policy")
    parser.add_argument("--output", type=Path, default=RESULTS / "games.json")
    options = parser.parse_args()
    result = frame("games", [0])
    result["split_overlap"] = split_overlap(20_000, 2_000)
    result["scripted_success"] = scripted_success(options.levels)
    write(result, options.output)


if __name__ == "__main__":
    main()
