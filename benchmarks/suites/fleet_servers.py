"""Does the planner of fleets predict train steps with vLLM servers? Fitted to one setting.

    VLLM_PYTHON benchmarks/suites/fleet_servers.py

Needs vLLM, on a CPU too, and two cores: one for a server, one for the trainer and a second server.
So two servers are measured while the trainer waits for them, not while it learns; the trainer then
runs on either core, and two servers have less than a core each. A team of one
tiny policy is warmed up once; with a learning rate near zero it then writes alike in every step.
Engine, update and environment are fitted to one setting, in which the server answers one batch
after another; the train steps of all settings are planned from that and measured, in turn. Written
are medians over rounds, each with a fit of its own, of the medians of the measured steps. Times are
wall times: the machine should have nothing else to do.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple
from unittest import mock

import httpx2
import measuring
from fleet import compared, planned, step_seconds, taken

from pettingllms_trainers.cli import main as train
from pettingllms_trainers.config import Config
from pettingllms_trainers.config.loading import load_config
from pettingllms_trainers.fleet.here import Watch, measured_here
from pettingllms_trainers.fleet.places import Fleet
from pettingllms_trainers.policies.pool import PolicyPool
from pettingllms_trainers.rollout.environments import make_environments

NAME = "team"
CONFIG = "recipe:plan_path_shared"
TEAM = [
    "--policies.{name}.hidden-size=128",
    "--policies.{name}.num-heads=4",
    "--warm-start.num-steps=40",
    "--warm-start.num-episodes=150",
    "--logging.progress=off",
    "--logging.no-tensorboard",
]
STEPS = [
    "--rollout.num-levels=16",
    "--algorithm.num-candidates=8",
    "--rollout.temperature=1.3",
    "--rollout.max-completion-tokens=24",
    "--env.kwargs.max-turns=3",
    "--optimizer.learning-rate=1e-9",
    "--warm-start.num-steps=0",
    "--evaluation.num-episodes=1",
    "--evaluation.every=0",
    "--checkpoint.every=1000",
    "--logging.rollouts-every=0",
    "--logging.progress=off",
    "--logging.no-tensorboard",
    "--engine.kind=vllm_server",
]
SERVER = [
    "--dtype=float32",
    "--enable-scale-out",
    "--generation-config=vllm",
    "--logprobs-mode=processed_logprobs",
    "--worker-extension-cls=pettingllms_trainers.backends.vllm.worker.TrainedWeights",
    "--enforce-eager",
    "--distributed-executor-backend=uni",
    "--block-size=32",
    f"--kv-cache-memory-bytes={256 << 20}",
    "--no-enable-chunked-prefill",
    "--max-num-batched-tokens=4096",
]
_START_S = 180.0


class Setting(NamedTuple):
    """What of a run is varied."""

    num_servers: int
    is_continuous: bool
    is_ahead: bool

    def __str__(self) -> str:
        servers = "one server" if self.num_servers == 1 else f"{self.num_servers} servers"
        asked = "each goes on" if self.is_continuous else "one batch after another"
        return f"{servers}, {asked}, {'one step ahead' if self.is_ahead else 'in turn'}"


SETTINGS = [
    Setting(num, is_continuous, is_ahead)
    for num in (1, 2)
    for is_continuous in (False, True)
    for is_ahead in (False, True)[: 3 - num]
]
"""The first is fitted."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure all settings, predict them from the first, and write the result."""
    parser = measuring.parser_of("fleet_servers", __doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=6, help="train steps of a setting and round")
    options = parser.parse_args(arguments)
    result = measuring.frame("fleet_servers", [0])
    result["hardware"] = "Linux x86_64, 2 cores, wall time"
    with tempfile.TemporaryDirectory() as folder:
        result["settings"] = settings(Path(folder), options.rounds, options.steps)
    measuring.write(result, options.output)
    print(result)


def settings(folder: Path, num_rounds: int, num_steps: int) -> list[dict[str, Any]]:
    """The train steps of all settings, planned and measured."""
    run(["warm-start", CONFIG, "--output-dir", str(folder / "team")], TEAM, NAME)
    model, cores = folder / "team" / "policies" / NAME, sorted(os.sched_getaffinity(0))
    with contextlib.ExitStack() as servers:
        urls = [
            servers.enter_context(served(model, folder / f"server-{number}.log", core))
            for number, core in enumerate((cores[-1], cores[0]))
        ]
        configs = {one: _config(model, urls, one) for one in SETTINGS}
        environments = make_environments(configs[SETTINGS[0]])
        planned_s: dict[Setting, list[float]] = {one: [] for one in SETTINGS}
        measured_s: dict[Setting, list[float]] = {one: [] for one in SETTINGS}
        for _ in range(num_rounds):
            os.sched_setaffinity(0, cores[:1])
            fitted = measured_here(configs[SETTINGS[0]], environments, num_steps=num_steps)
            for one, config in configs.items():
                # Beside two servers the trainer has what they leave of either core.
                os.sched_setaffinity(0, cores[: one.num_servers])
                with waiting(one):
                    fleet = Fleet((one.num_servers,), (1,))
                    planned_s[one].append(planned(config, fitted, environments[0], fleet))
                    steps = taken(config, environments, num_steps, _watch(one, config))
                measured_s[one].append(median(step_seconds(steps)))
                print(one, planned_s[one][-1], measured_s[one][-1], flush=True)
    return [{"setting": str(one), **compared(planned_s[one], measured_s[one])} for one in SETTINGS]


def _config(model: Path, urls: Sequence[str], setting: Setting) -> Config:
    flags = [flag.format(name=NAME) for flag in STEPS]
    flags += [f"--policies.{NAME}.model={model}", f"--rollout.max-staleness={setting.is_ahead:d}"]
    return load_config(
        CONFIG, [*flags, f"--policies.{NAME}.endpoints", *urls[: setting.num_servers]]
    )


@contextlib.contextmanager
def waiting(setting: Setting) -> Iterator[None]:
    """Let the trainer and the planner join requests where the setting does."""
    with contextlib.ExitStack() as stack:
        if not setting.is_continuous:
            stack.enter_context(mock.patch.object(Config, "is_continuous", False))
        yield


def _watch(setting: Setting, config: Config) -> Callable[[PolicyPool], PolicyPool]:
    return (lambda pool: pool) if setting.is_continuous else Watch(config, math.inf).watched


def run(words: Sequence[str], flags: Sequence[str], name: str) -> None:
    """Call the command; it must succeed."""
    code = train([*words, *(flag.format(name=name) for flag in flags)])
    if code:
        raise SystemExit(f"pettingllms-train {' '.join(words)} ended with {code}")


@contextlib.contextmanager
def served(model: Path, log: Path, core: int) -> Iterator[str]:
    """Start a vLLM server on a core; yield its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server"]
    command += [f"--model={model}", "--host=127.0.0.1", f"--port={port}", *SERVER]
    own = {"VLLM_SERVER_DEV_MODE": "1", "OMP_NUM_THREADS": "1", "VLLM_LOGGING_LEVEL": "ERROR"}
    own |= {"VLLM_CPU_OMP_THREADS_BIND": str(core), "VLLM_NO_USAGE_STATS": "1"}
    # The engine computes itself: a worker beside it spins while it waits.
    own |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})  # what the server starts inherits it
    with log.open("w") as file:
        process = subprocess.Popen(
            command, env={**os.environ, **own}, stdout=file, stderr=file, start_new_session=True
        )
    os.sched_setaffinity(0, cores)
    try:
        deadline = time.monotonic() + _START_S
        while not _answers(f"http://127.0.0.1:{port}/health"):
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(log.read_text(encoding="utf-8")[-3000:])
            time.sleep(0.5)
        yield f"http://127.0.0.1:{port}"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _answers(url: str) -> bool:
    try:
        return httpx2.get(url, timeout=5).is_success
    except httpx2.TransportError:
        return False


if __name__ == "__main__":
    main()
