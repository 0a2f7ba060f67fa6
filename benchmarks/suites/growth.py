"""How cost grows: episodes in flight, parts of a train step, train steps, workers of a sandbox.

    python benchmarks/suites/growth.py [--most 10000] [--steps 2000]

A game without content is played by a scripted policy in one process, all episodes at once, through
the gate of training; then its trees are compared, cut into batches and written for the viewer.
Times are CPU seconds for each episode. The memory is that of a run of two tiny policies after so
many train steps. With workers every answer runs a program in the sandbox, in wall time; for more of
them than there are cores the planner of fleets plays the same episodes on simulated workers.
"""

from __future__ import annotations

import asyncio
import gc
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import measuring

import pettingllms
from pettingllms import PromptTemplate, TextEnv, Transition
from pettingllms.sandbox import Sandbox
from pettingllms_trainers.config import Config
from pettingllms_trainers.config.algorithm import Moment
from pettingllms_trainers.config.loading import config_of
from pettingllms_trainers.files import read_lines
from pettingllms_trainers.fleet.places import Fleet
from pettingllms_trainers.fleet.simulate import rollouts_on
from pettingllms_trainers.fleet.speeds import EngineSpeed
from pettingllms_trainers.fleet.workload import Step, Workload
from pettingllms_trainers.learning.batch import micro_batches
from pettingllms_trainers.learning.groups import score_decisions, training_groups
from pettingllms_trainers.learning.minibatch import mini_batch, mini_batches, parts_of
from pettingllms_trainers.policies.batcher import Batcher
from pettingllms_trainers.policies.pool import ModelPolicy, PolicyPool
from pettingllms_trainers.rollout.environments import make_environments
from pettingllms_trainers.rollout.episode import LocalEpisodes
from pettingllms_trainers.rollout.failures import FailureLog
from pettingllms_trainers.rollout.flight import Flight, Gate, Voyage
from pettingllms_trainers.rollout.playing import play_episodes
from pettingllms_trainers.rollout.settings import RolloutSettings, episode_specs
from pettingllms_trainers.runs.tree_json import tree_to_json
from pettingllms_trainers.types import (
    GenerateRequest,
    RequestLimits,
    RolloutTree,
    SamplingSettings,
    TokenCompletion,
)

GAME = "growth_v0"
NUM_TURNS, NUM_CANDIDATES = 2, 2
PROGRAM = "print(sum(number * number for number in range(200_000)))"
WORKERS, SIMULATED = (1, 2), (1, 2, 4, 8, 16)
NUM_SANDBOXED = 12
TINY = [
    "--policies.tool.hidden-size=16",
    "--policies.planner.hidden-size=16",
    "--env.kwargs.max-turns=2",
    "--algorithm.num-candidates=2",
    "--rollout.num-levels=1",
    "--warm-start.num-steps=0",
    "--evaluation.num-episodes=1",
    "--evaluation.every=0",
    "--checkpoint.every=500",
    "--logging.progress=off",
    "--logging.no-tensorboard",
]


class Game(TextEnv[int]):
    """One agent answers a number; the reward is a hash of both, and may take a program to know."""

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


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure all and write the result."""
    parser = measuring.parser_of("growth", __doc__)
    parser.add_argument("--most", type=int, default=10_000, help="episodes in flight")
    parser.add_argument("--steps", type=int, default=2000, help="train steps of the long run")
    options = parser.parse_args(arguments)
    result = measuring.frame("growth", [0])
    pettingllms.register(GAME, Game)
    config = config_of(
        {
            "env": {"id": GAME},
            "policies": {"writer": {"model": "tiny"}},
            "roles": {"writer": "writer"},
            "algorithm": {"num_candidates": NUM_CANDIDATES},
        },
        {},
    )
    sizes = [size for size in (100, 1000, 10_000) if size <= options.most]
    measured(config, sizes[0])  # imports and caches
    gc.collect()
    gc.freeze()  # as a run does: libraries are not searched for garbage again and again
    result["episodes"] = [measured(config, size) for size in sizes]
    print(result["episodes"], flush=True)
    result["workers"] = with_workers(config)
    print(result["workers"], flush=True)
    measuring.write(result, options.output)
    result["memory"] = memory(options.steps)
    print(result["memory"], flush=True)
    measuring.write(result, options.output)


def measured(config: Config, size: int) -> dict[str, Any]:
    """Return CPU microseconds per episode of every part of a step of so many episodes."""
    env = Game()
    levels, _ = measuring.timed(lambda: [env.reset(seed=seed) for seed in range(size)])
    before = _peak_mib()
    played, trees = measuring.timed(lambda: played_at_once(config, Game(), size))
    grown = _peak_mib() - before
    compared, scored = measuring.timed(lambda: score_decisions(trees, config.algorithm))

    def batches() -> None:
        groups = [group for own in training_groups(scored.decisions).values() for group in own]
        parts = parts_of(groups, None, None, by_completion=False)
        for indices in mini_batches(parts, config.optimizer, (0, 0)):
            step = mini_batch([parts[index] for index in indices], "token_mean", 64)
            for _ in micro_batches(step, max_tokens=4096, is_packed=True):
                pass

    batched, _ = measuring.timed(batches)
    written, _ = measuring.timed(partial(_texts, trees, scored.decisions))
    parts = {
        "levels": levels, "rollouts": played, "groups": compared, "batches": batched,
        "viewer": written,
    }  # fmt: skip
    micros = {name: round(1e6 * spent.cpu_s / size, 1) for name, spent in parts.items()}
    return {"num_episodes": size, "us_per_episode": micros, "grown_mib": round(grown, 1)}


def _texts(trees: Sequence[RolloutTree], scored: Sequence[Any]) -> None:
    known = {decision.key: decision for decision in scored}
    for tree in trees:
        json.dumps(tree_to_json(tree, known))


def played_at_once(config: Config, env: Game, size: int, num_threads: int = 0) -> list[RolloutTree]:
    """Return the trees of so many episodes, all in flight at once, as training plays them."""
    policy = ModelPolicy(
        name="writer",
        encode=lambda messages: tuple(messages[-1]["content"].encode()),
        encode_answer=lambda text: tuple(text.encode()),
        batcher=Batcher(Script(), overlaps=num_threads > 0),
        updater=None,
    )
    pool = PolicyPool(policies={"writer": policy}, roles={"writer": "writer"})
    gate, flight = Gate(), Flight(step=0, version=0, memory={}, records={})
    settings = RolloutSettings(
        sampling={"writer": SamplingSettings()}, answering=Voyage(flight, gate).answer
    )
    specs = episode_specs(seed=0, step=0, first_level=0, num_levels=size)
    episodes, strategy = LocalEpisodes(env, num_threads), config.algorithm.strategy(Moment())

    async def play() -> list[RolloutTree]:
        playing = asyncio.ensure_future(
            play_episodes(episodes, pool, specs, settings, strategy, FailureLog())
        )
        await gate.settled()  # all wait for the weights
        gate.open(0)
        return await playing

    return asyncio.run(play())


def with_workers(config: Config) -> dict[str, Any]:
    """Return rollouts per hour, measured with real workers and simulated with more."""
    walls: dict[int, float] = {}
    for num in WORKERS:
        with Sandbox(workers=num) as sandbox:
            sandbox.run(PROGRAM)
            play: Callable[[], Any] = partial(
                played_at_once, config, Game(sandbox=sandbox), NUM_SANDBOXED, num
            )
            spent, _ = measuring.timed(play)
            walls[num] = spent.wall_s
    num_runs = NUM_SANDBOXED * NUM_TURNS * NUM_CANDIDATES
    steps = tuple(Step("writer_0", turn, 10, (10,)) for turn in range(NUM_TURNS))
    work = Workload(
        (steps,), (("writer_0",),), walls[WORKERS[0]] / num_runs, {"writer_0": (1.0,)}, "measured"
    )
    (environment,) = make_environments(config)
    simulated: dict[int, float] = {}
    for num in SIMULATED:
        rollout = {"env_threads": num, "num_levels": NUM_SANDBOXED}
        own = config.model_copy(update={"rollout": config.rollout.model_copy(update=rollout)})
        found = rollouts_on(own, environment, work, Fleet((1,), (1,)), {"writer": EngineSpeed()})
        simulated[num] = found.seconds
    return {
        "num_episodes": NUM_SANDBOXED,
        "program_wall_s": round(work.branch_s, 4),
        "measured_per_hour": {n: round(3600 * NUM_SANDBOXED / wall) for n, wall in walls.items()},
        "simulated_per_hour": {
            n: round(3600 * NUM_SANDBOXED / wall) for n, wall in simulated.items()
        },
    }


def memory(num_steps: int) -> dict[str, Any]:
    """Return the memory of a run after tenths of its train steps."""
    found: dict[int, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        command = [sys.executable, "-m", "pettingllms_trainers.cli", "recipe:plan_path", *TINY]
        command += [f"--num-steps={num_steps}", f"--output-dir={out}"]
        process = subprocess.Popen(command, stdout=sys.stderr)
        while process.poll() is None:
            time.sleep(0.5)
            done = len(read_lines(out / "metrics.jsonl")) - 1
            tenth = done * 10 // num_steps
            if tenth > 0 and tenth not in found:
                found[tenth] = _resident_mib(process.pid)
        if process.returncode:
            raise SystemExit(f"the long run ended with {process.returncode}")
    found = {tenth: mib for tenth, mib in found.items() if mib}
    return {
        "num_steps": num_steps,
        "mib_after": {tenth * num_steps // 10: mib for tenth, mib in found.items()},
    }


def _resident_mib(pid: int) -> float:
    """Return the memory of a process; 0 when it has just ended."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return round(pages * resource.getpagesize() / (1 << 20), 1)


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
