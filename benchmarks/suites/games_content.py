"""What the levels of sokoban_v0 and sudoku_v0 are like; part of games.py."""

from __future__ import annotations

import random
from typing import Any

from pettingllms.splits import split_of
from pettingllms_envs.sokoban import SokobanEnv
from pettingllms_envs.sokoban.generator import canonical_form, generate, request_of
from pettingllms_envs.sudoku import SudokuEnv
from pettingllms_envs.sudoku.generator import generate as generate_puzzle
from pettingllms_envs.sudoku.symmetry import canonical


def split_overlap(num_train: int = 20_000, num_test: int = 2_000) -> dict[str, Any]:
    """Contents, up to symmetry, that train and test levels of equal seeds share."""

    def sokoban(rng: random.Random, split: str) -> bytes:
        wanted = request_of(6, 6, 1, 0.25, None, None, split, budget=80)
        return canonical_form(generate(rng, wanted))

    def sudoku(rng: random.Random, split: str) -> bytes:
        while True:
            form = canonical(4, generate_puzzle(rng, 4).clues)
            if split_of(form) == split:
                return form

    found: dict[str, Any] = {"train_levels": num_train, "test_levels": num_test}
    for name, make in (("sokoban 6x6", sokoban), ("sudoku 4x4", sudoku)):
        train, test = (
            {make(rng, split) for _ in range(count)}
            for rng, split, count in (
                (random.Random(0), "train", num_train),
                (random.Random(0), "test", num_test),
            )
        )
        found[name] = {"different_train": len(train), "different_test": len(test)}
        found[name]["common"] = len(train & test)
    return found


def scripted_success(num_levels: int = 200) -> dict[str, dict[str, float]]:
    """Fraction of test levels that the scripted policies of a single agent solve."""
    arms: dict[str, tuple[str, dict[str, Any]]] = {
        "sokoban 6x6, 1 box": ("sokoban_v0", {}),
        "sokoban 6x6, 2 boxes": ("sokoban_v0", {"boxes": 2}),
        "sokoban 8x8, 3 boxes": ("sokoban_v0", {"boxes": 3, "size": 8}),
        "sudoku 4x4": ("sudoku_v0", {}),
        "sudoku 9x9": ("sudoku_v0", {"size": 9}),
    }
    makers: dict[str, Any] = {"sokoban_v0": SokobanEnv, "sudoku_v0": SudokuEnv}
    found: dict[str, dict[str, float]] = {}
    for name, (env_id, arguments) in arms.items():
        env = makers[env_id](team="single", split="test", **arguments)
        found[name] = {}
        for policy in env.scripted_policies:
            rng, solved = random.Random(0), 0
            for seed in range(num_levels):
                env.reset(seed=seed)
                while not (env.terminations["planner_0"] or env.truncations["planner_0"]):
                    env.step(env.scripted_action("planner_0", policy, rng))
                solved += env.infos["planner_0"]["success"]
            found[name][policy] = solved / num_levels
    return found
