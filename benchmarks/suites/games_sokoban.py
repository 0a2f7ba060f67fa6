"""The workloads of sokoban_v0; part of games.py."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator

from pettingllms_envs.sokoban import SokobanEnv
from pettingllms_envs.sokoban.generator import Request, request_of
from pettingllms_envs.sokoban.generator import generate as generate_level
from pettingllms_envs.sokoban.rules import deltas_of, step
from pettingllms_envs.sokoban.text import board_text, level_text


def request(num_boxes: int, split: str | None) -> Request:
    """Return the request of default 6x6 levels."""
    return request_of(6, 6, num_boxes, 0.25, None, None, split, budget=80)


def sokoban_levels(num_boxes: int, split: str | None = None) -> Callable[[int], Iterator[int]]:
    """6x6 levels with their exact shortest length; no box starts on a goal."""

    def work(seed: int) -> Iterator[int]:
        rng, wanted = random.Random(seed), request(num_boxes, split)
        while True:
            for _ in range(20):
                generate_level(rng, wanted)
            yield 20

    return work


def sokoban_core_steps(seed: int) -> Iterator[int]:
    """Single moves with the new board's text, without PettingZoo."""
    rng = random.Random(seed)
    level = generate_level(rng, request(1, None))
    floor, delta = level.floor, deltas_of(level.stride)
    player, boxes = level.player, level.boxes
    changes = [delta[move] for move in rng.choices("UDLR", k=5000)]
    while True:
        for change in changes:
            player, boxes = step(floor, player, boxes, change)
            board_text(level, player, boxes)
        yield len(changes)


def sokoban_aec_steps(seed: int) -> Iterator[int]:
    """`step` and `last` of the two-agent environment, one move in each text, on fresh levels.

    Episodes have 50 turns, that is 100 steps. Resets are part of it, so everything that is computed
    once per level is; making the levels is not.
    """
    rng, wanted = random.Random(seed), request(1, None)
    levels = [level_text(generate_level(rng, wanted)) for _ in range(300)]
    env = SokobanEnv(team="proposer-planner", max_turns=50, levels=levels, stop_when_lost=False)
    texts = [f'#### ["{move}"]' for move in rng.choices("UDLR", k=1009)]  # no multiple of 100
    step, last, todo = env.step, env.last, itertools.cycle(texts)
    for episode in itertools.count():
        env.reset(seed=episode)
        num_steps = 0
        for text in todo:
            step(text)
            num_steps += 1
            _, _, terminated, truncated, _ = last()
            if terminated or truncated:
                break
        yield num_steps


def sokoban_aec_steps_on_one_level(seed: int) -> Iterator[int]:
    """The same, on and on in one level, as the peers are timed, which keep nothing per level."""
    env = SokobanEnv(team="proposer-planner", max_turns=10**6, stop_when_lost=False)
    env.reset(seed=seed)
    texts = [f'#### ["{move}"]' for move in random.Random(seed).choices("UDLR", k=1000)]
    step, last = env.step, env.last
    while True:
        for text in texts:
            step(text)
            _, _, terminated, truncated, _ = last()
            if terminated or truncated:
                env.reset(seed=seed)
        yield len(texts)
