"""One workload of ours, run in a process of its own; see env_speed.py.

    python env_speed_here.py WORKLOAD SEED SECONDS

Prints units per CPU second as the last line. Environments are made with `checks=False`, as for
training. Steps are those of a team of two on a fresh level in every episode: the time is that of
`env.step(text)` and `env.last()`, which builds the observation; that of `reset` and of the first
observation is not in it.
"""

from __future__ import annotations

import itertools
import random
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from env_speed_there import rate

import pettingllms

Units = Iterator[tuple[int, float]]
"""Yields (units done, CPU seconds that they took)."""
Texts = Callable[[Any, random.Random], list[str]]
"""The answers of an episode."""


def fills_of(env: Any, rng: random.Random) -> list[str]:
    """Right fills in random order, each proposed by one agent and written by the other."""
    puzzle = env.state().level
    size = puzzle.size
    empty = [cell for cell, clue in enumerate(puzzle.clues) if not clue]
    rng.shuffle(empty)
    texts = [
        f"#### [[{cell // size + 1},{cell % size + 1},{puzzle.solution[cell]}]]" for cell in empty
    ]
    return [text for text in texts for _ in range(2)]


def moves_of(env: Any, rng: random.Random) -> list[str]:
    """50 random moves, one in each text."""
    return [f'#### ["{move}"]' for move in rng.choices("UDLR", k=50)]


def steps(env_id: str, texts_of: Texts, **kwargs: Any) -> Any:
    """`env.step(text)` and `env.last()` of the agents of a team, on fresh levels."""

    def work(seed: int) -> Units:
        env = pettingllms.make(env_id, checks=False, **kwargs)
        rng, step, last = random.Random(seed), env.step, env.last
        for episode in itertools.count(seed):
            env.reset(seed=episode)
            last()  # the peers' `reset` returns the first observation, too
            # Written before the clock runs: answers are the model's work.
            texts = texts_of(env, rng)
            num_steps, begin = 0, time.process_time()
            for text in texts:
                step(text)
                num_steps += 1
                _, _, terminated, truncated, _ = last()
                if terminated or truncated:
                    break
            yield num_steps, time.process_time() - begin

    return work


def levels(env_id: str, **kwargs: Any) -> Any:
    """`env.reset(seed=...)` and the observation of the first agent."""

    def work(seed: int) -> Units:
        env = pettingllms.make(env_id, checks=False, **kwargs)
        for episode in itertools.count(seed):
            begin = time.process_time()
            env.reset(seed=episode)
            env.last()
            yield 1, time.process_time() - begin

    return work


def forks(seed: int) -> Units:
    """`env.fork()` of a team of two in the middle of an episode."""
    env = pettingllms.make("sokoban_v0", checks=False, team="proposer-planner")
    env.reset(seed=seed)
    for _ in range(3):
        env.step("no list")
    while True:
        begin = time.process_time()
        # A fork takes microseconds, less than the clock can tell.
        for _ in range(200):
            env.fork()
        yield 200, time.process_time() - begin


def shown(board: str) -> dict[str, Any]:
    """Arguments with which agents read as much as in the peers: the board, not the rules."""
    first, second = f"Turn {{turn}}.\n{{{board}}}", f"{{{board}}}\n{{proposal}}"
    prompts = {"proposer": {"update": first}, "planner": {"update": second}}
    return {"observation_mode": "delta", "prompts": prompts}


PAIR = "proposer-planner"
SUDOKU: dict[str, Any] = {"team": PAIR, "size": 4, "max_turns": 16}
PLAN_PATH: dict[str, Any] = {"team": PAIR, "max_turns": 25}
# peers do not end lost levels
SOKOBAN: dict[str, Any] = {**PLAN_PATH, "stop_when_lost": False}
WORKLOADS: dict[str, Callable[[int], Units]] = {
    "sudoku_4x4_steps": steps("sudoku_v0", fills_of, **SUDOKU),
    "sudoku_9x9_steps": steps("sudoku_v0", fills_of, team=PAIR, size=9, max_turns=81),
    "sudoku_16x16_steps": steps("sudoku_v0", fills_of, team=PAIR, size=16, max_turns=256),
    "plan_path_steps": steps("plan_path_v0", moves_of, **PLAN_PATH),
    "sokoban_steps": steps("sokoban_v0", moves_of, **SOKOBAN),
    "sokoban_1_box_levels": levels("sokoban_v0", boxes=1),
    "sokoban_2_boxes_levels": levels("sokoban_v0", boxes=2),
    "sokoban_3_boxes_levels": levels("sokoban_v0", boxes=3),
    "sudoku_4x4_levels": levels("sudoku_v0", size=4, clues=6),
    "sudoku_9x9_40_clues_levels": levels("sudoku_v0", size=9, clues=40),
    "sudoku_9x9_31_clues_levels": levels("sudoku_v0", size=9, clues=31),
    "plan_path_levels": levels("plan_path_v0"),
    "forks": forks,
    "sudoku_4x4_board_steps": steps("sudoku_v0", fills_of, **SUDOKU, **shown("grid")),
    "sudoku_9x9_board_steps": steps(
        "sudoku_v0", fills_of, team=PAIR, size=9, max_turns=81, **shown("grid")
    ),
    "sokoban_board_steps": steps("sokoban_v0", moves_of, **SOKOBAN, **shown("board")),
}


def main() -> None:
    workload, seed, seconds = sys.argv[1:]
    print(rate(WORKLOADS[workload](1_000_000 * int(seed)), float(seconds)))


if __name__ == "__main__":
    main()
