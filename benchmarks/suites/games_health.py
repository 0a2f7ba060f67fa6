"""A million steps of sokoban_v0 and sudoku_v0 with random, malformed and hostile texts.

    python benchmarks/suites/games_health.py [--steps 1000000]

Nothing may raise, memory must stay flat, and the global generators must not be touched. Programs
of tool agents are left to the sandbox's own soak test; here tools are called.
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
import random
import resource
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

import pettingllms
from pettingllms.testing import HOSTILE_TEXTS
from pettingllms_envs.sokoban import SokobanEnv
from pettingllms_envs.sudoku import SudokuEnv

RESULT = Path(__file__).resolve().parents[2] / "benchmarks" / "results" / "games_health.json"
NUM_SAMPLES = 10


def environments() -> list[Any]:
    """Return one environment of each kind that is stepped in turn."""
    return [
        SokobanEnv(team="proposer-planner"),
        SokobanEnv(tool="call", boxes=2, size=8),
        SokobanEnv(team="single", stop_when_lost=False, max_turns=50),
        SudokuEnv(team="proposer-planner"),
        SudokuEnv(tool="call", size=9),
        SudokuEnv(team="single", size=6, max_turns=50),
    ]


def text_of(env: Any, agent: str, rng: random.Random) -> str:
    """Return a text of any kind: hostile, random, half an answer, or a policy's."""
    kind = rng.random()
    if kind < 0.25:
        return rng.choice(HOSTILE_TEXTS)
    if kind < 0.5:
        return "".join(chr(rng.randrange(1, 0x2FF)) for _ in range(rng.randrange(60)))
    if kind < 0.75:
        pieces = ["#### ", "[", "]", '"U"', "R", ",", "[1,2,3]", "[2,2,0]", "push(2, 2, R, 1)", " "]
        return "".join(rng.choices(pieces, k=rng.randrange(12)))
    return env.scripted_action(agent, "random", rng)


def main() -> None:
    """Step, write the JSON result, print it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--output", type=Path, default=RESULT)
    options = parser.parse_args()
    rng, envs = random.Random(0), environments()
    state, numpy_state = random.getstate(), np.random.get_state()[1].tolist()
    memory: list[int] = []
    steps, seed, begin = 0, 0, time.process_time()
    while steps < options.steps:
        env = envs[seed % len(envs)]
        env.reset(seed=seed)
        seed += 1
        while not (any(env.terminations.values()) or any(env.truncations.values())):
            agent = env.agent_selection
            env.last()
            env.step(text_of(env, agent, rng))
            steps += 1
        if steps >= len(memory) * options.steps / NUM_SAMPLES:
            gc.collect()
            memory.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
    result = {
        "suite": "games_health",
        "date": datetime.now(UTC).date().isoformat(),
        "command": "python benchmarks/suites/games_health.py",
        "hardware": f"{platform.system()} {platform.machine()}, one process",
        "versions": {
            "python": platform.python_version(),
            "pettingllms": pettingllms.__version__,
        },
        "steps": steps,
        "episodes": seed,
        "errors": 0,
        "cpu_s": round(time.process_time() - begin, 1),
        "peak_rss_mib_after_each_tenth": memory,
        "global_generators_untouched": random.getstate() == state
        and np.random.get_state()[1].tolist() == numpy_state,
    }
    options.output.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
