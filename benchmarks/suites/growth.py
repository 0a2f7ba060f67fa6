"""Rollouts per hour with several workers of a sandbox.

    python benchmarks/suites/growth.py

Every answer of a game without content runs a program in the sandbox; a scripted engine answers at
once. Times are wall times. For more workers than there are cores the planner of fleets plays the
same episodes on simulated workers.
"""

from __future__ import annotations

import asyncio
import random
import zlib
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import measuring

import pettingllms
from pettingllms import PromptTemplate, TextEnv, Transition
from pettingllms.sandbox import Sandbox
from pettingllms_trainers.config import Config
from pettingllms_trainers.config.algorithm import Moment
from pettingllms_trainers.config.loading import config_of
from pettingllms_trainers.fleet.places import Fleet
from pettingllms_trainers.fleet.simulate import rollouts_on
from pettingllms_trainers.fleet.speeds import EngineSpeed
from pettingllms_trainers.fleet.workload import Step, Workload
from pettingllms_trainers.policies.batcher import Batcher
from pettingllms_trainers.policies.pool import ModelPolicy, PolicyPool
from pettingllms_trainers.rollout.environments import make_environments
from pettingllms_trainers.rollout.episode import LocalEpisodes
from pettingllms_trainers.rollout.failures import FailureLog
from pettingllms_trainers.rollout.playing import play_episodes
from pettingllms_trainers.rollout.settings import RolloutSettings, episode_specs
from pettingllms_trainers.types import (
    GenerateRequest,
    RequestLimits,
    SamplingSettings,
    TokenCompletion,
)

GAME = "growth_v0"
NUM_TURNS, NUM_CANDIDATES, NUM_EPISODES = 2, 2, 12
PROGRAM = "print(sum(number * number for number in range(200_000)))"
WORKERS, SIMULATED = (1, 2), (1, 2, 4, 8, 16)
CONFIG = {
    "env": {"id": GAME},
    "policies": {"writer": {"model": "tiny"}},
    "roles": {"writer": "writer"},
    "algorithm": {"num_candidates": NUM_CANDIDATES},
}


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


class Script:
    """An engine that answers at once, with the seed."""

    is_concurrent = False
    limits = RequestLimits(max_batch_tokens=0, context_length=None, vocab_size=256)

    def check(self, request: GenerateRequest) -> None:
        """Refuse nothing."""

    async def generate(self, requests: Sequence[GenerateRequest]) -> list[list[TokenCompletion]]:
        """Answer every request."""
        return [
            [_completion(f"{request.seed + one}") for one in range(request.num_candidates)]
            for request in requests
        ]


def _completion(text: str) -> TokenCompletion:
    ids = tuple(text.encode())
    return TokenCompletion(
        token_ids=ids, logprobs=(-0.5,) * len(ids), text=text, finish_reason="stop"
    )


def play(config: Config, sandbox: Sandbox, num_threads: int) -> None:
    """Play all episodes at once, as training does."""
    policy = ModelPolicy(
        name="writer",
        encode=lambda messages: tuple(messages[-1]["content"].encode()),
        encode_answer=lambda text: tuple(text.encode()),
        batcher=Batcher(Script(), overlaps=True),
        updater=None,
    )
    pool = PolicyPool(policies={"writer": policy}, roles={"writer": "writer"})
    specs = episode_specs(seed=0, step=0, first_level=0, num_levels=NUM_EPISODES)
    episodes = LocalEpisodes(Game(sandbox=sandbox), num_threads)
    settings = RolloutSettings(sampling={"writer": SamplingSettings()})
    strategy = config.algorithm.strategy(Moment())
    asyncio.run(play_episodes(episodes, pool, specs, settings, strategy, FailureLog()))


def simulated_s(config: Config, branch_s: float) -> dict[int, float]:
    """Seconds of the same episodes on simulated workers, each of which runs a program at a time."""
    steps = tuple(Step("writer_0", turn, 10, (10,)) for turn in range(NUM_TURNS))
    work = Workload((steps,), (("writer_0",),), branch_s, {"writer_0": (1.0,)}, "measured")
    (environment,) = make_environments(config)
    found: dict[int, float] = {}
    for num in SIMULATED:
        rollout = config.rollout.model_copy(update={"env_threads": num, "num_levels": NUM_EPISODES})
        own = config.model_copy(update={"rollout": rollout})
        fleet, engines = Fleet((1,), (1,)), {"writer": EngineSpeed()}
        found[num] = rollouts_on(own, environment, work, fleet, engines).seconds
    return found


def main() -> None:
    """Measure, simulate and write the result."""
    options = measuring.parser_of("growth", __doc__).parse_args()
    result = measuring.frame("growth", [0])
    pettingllms.register(GAME, Game)
    config = config_of(CONFIG, {})
    walls: dict[int, float] = {}
    for num in WORKERS:
        with Sandbox(workers=num) as sandbox:
            sandbox.run(PROGRAM)
            walls[num] = measuring.timed(partial(play, config, sandbox, num))[0].wall_s
    branch_s = walls[WORKERS[0]] / (NUM_EPISODES * NUM_TURNS * NUM_CANDIDATES)
    simulated = simulated_s(config, branch_s)
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
