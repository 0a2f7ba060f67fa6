"""Rollouts per hour with several workers of a sandbox.

    python benchmarks/suites/growth.py

Every answer of a game without content runs a program in the sandbox, and each of two candidates of
a decision is played in a fork. As many threads as there are workers play the episodes; times are
wall times. For more workers than there are cores the planner of fleets plays the same episodes on
simulated workers.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, ClassVar

import measuring

import pettingllms
from pettingllms import PromptTemplate, TextEnv, Transition
from pettingllms.sandbox import Sandbox
from pettingllms_trainers.config.loading import config_of
from pettingllms_trainers.fleet.simulate import Fleet, rollouts_on
from pettingllms_trainers.fleet.speeds import EngineSpeed
from pettingllms_trainers.fleet.workload import Step, Workload
from pettingllms_trainers.rollout.environments import make_environments

GAME = "growth_v0"
NUM_TURNS, NUM_CANDIDATES, NUM_EPISODES = 2, 2, 12
PROGRAM = "print(sum(number * number for number in range(200_000)))"
WORKERS, SIMULATED = (1, 2), (1, 2, 4, 8, 16)


class Game(TextEnv[int]):
    """One agent answers a number; the reward is a hash of both, and takes a program to know."""

    default_prompts: ClassVar = {"writer": PromptTemplate("", "{number}")}
    prompt_fields: ClassVar = {"number": "a number"}

    def __init__(self, split: str = "train", sandbox: Sandbox | None = None) -> None:
        super().__init__(stages=(("writer_0",),), max_turns=NUM_TURNS)
        self.split, self.sandbox = split, sandbox

    def _generate(self, rng: random.Random, options: Mapping[str, Any]) -> int:
        return rng.randrange(10**9)

    def _fields(self, state: int, agent: str, turn: int) -> Mapping[str, object]:
        return {"number": state}

    def _parse(self, state: int, agent: str, text: str) -> str:
        return text

    def _act(self, state: int, agent: str, action: str) -> Transition:
        if self.sandbox is not None:
            self.sandbox.run(PROGRAM)
        after = zlib.crc32(f"{state} {action}".encode())
        return Transition(after, local=after / 2**32)

    def _ansi(self, state: int) -> str:
        return str(state)


def play(sandbox: Sandbox, num_threads: int) -> None:
    """Play all episodes: of every decision, the best of the candidates is followed."""

    def episode(seed: int) -> None:
        env: TextEnv[int] = Game(sandbox=sandbox)
        env.reset(seed=seed)
        for _ in range(NUM_TURNS):
            branches = [env.fork() for _ in range(NUM_CANDIDATES)]
            for number, branch in enumerate(branches):
                branch.step(str(number))
            # What is followed is what the trainer would follow.
            env = max(branches, key=lambda branch: branch.rewards["writer_0"])

    with ThreadPoolExecutor(num_threads) as threads:
        list(threads.map(episode, range(NUM_EPISODES)))


def simulated_s(num_workers: int, branch_s: float) -> float:
    """Seconds of the same episodes on simulated workers, each of which runs a program at a time."""
    config = config_of(
        {
            "env": {"id": GAME},
            "policies": {"writer": {"model": "tiny"}},
            "roles": {"writer": "writer"},
            "algorithm": {"num_candidates": NUM_CANDIDATES},
            "rollout": {"env_threads": num_workers, "num_levels": NUM_EPISODES},
        },
        {},
    )
    steps = tuple(Step("writer_0", turn, 10, (10,)) for turn in range(NUM_TURNS))
    work = Workload((steps,), (("writer_0",),), branch_s, {"writer_0": (1.0,)}, "measured")
    (environment,) = make_environments(config)
    engines = {"writer": EngineSpeed()}
    return rollouts_on(config, environment, work, Fleet((1,), (1,)), engines).seconds


def main() -> None:
    options = measuring.parser_of("growth", __doc__).parse_args()
    result = measuring.frame("growth", [0])
    pettingllms.register(GAME, Game)
    walls: dict[int, float] = {}
    for num in WORKERS:
        with Sandbox(workers=num) as sandbox:
            # The first run starts the servers.
            sandbox.run(PROGRAM)
            walls[num] = measuring.timed(partial(play, sandbox, num))[0].wall_s
    # With one worker programs run one after another, so this is what one takes.
    branch_s = walls[WORKERS[0]] / (NUM_EPISODES * NUM_TURNS * NUM_CANDIDATES)
    simulated = {num: simulated_s(num, branch_s) for num in SIMULATED}
    result["workers"] = {
        "num_episodes": NUM_EPISODES,
        "program_wall_s": round(branch_s, 4),
        "measured_per_hour": {n: round(3600 * NUM_EPISODES / s) for n, s in walls.items()},
        "simulated_per_hour": {n: round(3600 * NUM_EPISODES / s) for n, s in simulated.items()},
    }
    print(result["workers"])
    measuring.write(result, options.output)


if __name__ == "__main__":
    main()
