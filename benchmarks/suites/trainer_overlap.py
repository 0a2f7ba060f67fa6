"""What overlap saves: step times with a vLLM server, rollouts and updates in turn or overlapping.

    VLLM_PYTHON benchmarks/suites/trainer_overlap.py

Needs vLLM, on a CPU too, and two cores: the server computes on one of them, the trainer on the
other. A team of one tiny policy is warmed up once; then every variant takes the same train steps
from the same weights, with a learning rate near zero, round by round. Times are wall times, since
waiting is what is measured: the machine should have nothing else to do. The first two steps of a
run are left out and the last two: with `rollout.max_staleness` the first one finds no rollouts, and
beside the last ones less is played.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import httpx2
import measuring

from pettingllms_trainers.cli import main as train
from pettingllms_trainers.files import read_lines

VARIANTS: dict[str, list[str]] = {
    "in turn": [],
    "max_staleness = 1": ["--rollout.max-staleness=1"],
    "max_staleness = 2": ["--rollout.max-staleness=2"],
}
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
FIGURES = ("step_s", "rollout_s", "update_s", "wait_s", "sync_s")
_NUM_AT_ENDS = 2
_START_S = 180.0


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure all variants and write the result."""
    parser = measuring.parser_of("trainer_overlap", __doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=9, help="train steps of a run")
    options = parser.parse_args(arguments)
    result = measuring.frame("trainer_overlap", range(options.rounds))
    result["hardware"] = "Linux x86_64, 2 cores, no GPU: one for the server, one for the trainer"
    with tempfile.TemporaryDirectory() as folder:
        found = measured(Path(folder), options.rounds, options.steps)
    result |= found
    measuring.write(result, options.output)
    for name, entry in result["variants"].items():
        print(name, entry)


def measured(folder: Path, num_rounds: int, num_steps: int) -> dict[str, Any]:
    """Return the step times of all variants."""
    (name,) = _policies()
    run(["warm-start", CONFIG, "--output-dir", str(folder / "team")], TEAM, name)
    model = folder / "team" / "policies" / name
    cores = sorted(os.sched_getaffinity(0))
    times: dict[str, list[dict[str, float]]] = {variant: [] for variant in VARIANTS}
    with served(model, folder / "server.log", cores[-1]) as url:
        os.sched_setaffinity(0, cores[:1])
        for index in range(num_rounds):
            for variant, flags in VARIANTS.items():
                out = folder / f"{variant}-{index}"
                own = [f"--policies.{name}.model={model}", f"--policies.{name}.endpoints", url]
                own += [f"--seed={index}", f"--num-steps={num_steps}", *flags]
                run([CONFIG, "--output-dir", str(out), *own], STEPS, name)
                lines = read_lines(out / "metrics.jsonl")[1 + _NUM_AT_ENDS : -_NUM_AT_ENDS]
                times[variant].append(_medians(lines))
                print(f"round {index}, {variant}: {times[variant][-1]}", flush=True)
    in_turn = [each["step_s"] for each in times["in turn"]]
    return {
        "variants": {
            variant: {figure: measuring.spread([e[figure] for e in own]) for figure in FIGURES}
            | {
                "tokens": measuring.spread([e["tokens"] for e in own]),
                "faster": measuring.ratios(in_turn, [e["step_s"] for e in own]),
            }
            for variant, own in times.items()
        }
    }


def _medians(lines: Sequence[dict[str, float]]) -> dict[str, float]:
    found = {figure: median(line[f"time/{figure}"] for line in lines) for figure in FIGURES}
    return found | {"tokens": median(line["rollout/num_completion_tokens"] for line in lines)}


def _policies() -> list[str]:
    from pettingllms_trainers.config.loading import load_config

    return list(load_config(CONFIG).models)


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
