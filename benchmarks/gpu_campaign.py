"""All that is measured on a GPU, in one command and in parts of a few minutes.

    python benchmarks/gpu_campaign.py --output runs/gpu_campaign

Says what the GPU computes like the CPU, how fast it generates and learns, whether memory is as
planned, and whether a team learns Plan-Path 10x10 from random weights. Call it again until it says
that all is done (exit code 0; 3: more is left): each call does what is left, as long as its time
lasts. A measurement that fails is recorded with its error, and the next one begins.

Needs one GPU of 80 GB or more, torch 2.11 and transformers 5.17; no network, no vLLM and no model:
weights are random, in the shapes of Qwen3. `--size toy` runs the same code in seconds on a CPU.
The rest is taken from this folder of the repository, and from these wheels, 63 MiB in all, which a
machine without a network needs beside torch, transformers and what those require (`pip download
--no-deps` elsewhere, `pip install --no-index --no-deps` there):

    accelerate aiolimiter cloudpickle contourpy cycler farama-notifications fonttools gymnasium
    jiter kiwisolver matplotlib openai peft pettingzoo pillow psutil pyparsing python-dateutil
    scipy sniffio tomli-w tzdata

Experimental: it has run at toy size on a CPU, and on no GPU yet.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import torch
from gpu_kernels import matmul_tflops, packed_attention
from gpu_models import SIZES, GpuWorkload, chunked_logits, generation, self_checks, update

REPOSITORY = Path(__file__).resolve().parents[1]
_LEFT = 3
"""Exit code when another part is needed."""

_TO_SAVE_S = 60.0
"""Kept of a part for a run that must save its checkpoint."""


class Measurement(NamedTuple):
    """One measurement."""

    name: str
    work: Callable[[], dict[str, Any]]
    most_s: float
    """It is not begun with less time than this."""


class Results:
    """The file with all results; written after every measurement."""

    def __init__(self, path: Path, size: str) -> None:
        self._path = path
        self.data: dict[str, Any] = {"suite": "gpu_campaign", "size": size, "jobs": {}}
        if path.exists():
            self.data = json.loads(path.read_text(encoding="utf-8"))
            if self.data["size"] != size:
                raise SystemExit(
                    f"{path} has results of size {self.data['size']}: choose another --output"
                )
        self.data |= _machine()
        # What was begun and has no result has ended the process: it is not tried again.
        for name, found in self.jobs.items():
            if found.get("status") == "begun":
                self.put(name, {"status": "failed", "error": "it ended the process"})

    @property
    def jobs(self) -> dict[str, Any]:
        """Name to result."""
        return self.data["jobs"]

    def is_done(self, name: str) -> bool:
        """Return whether a measurement needs no other part."""
        return self.jobs.get(name, {}).get("status") in {"done", "failed"}

    def put(self, name: str, result: dict[str, Any]) -> None:
        """Record a result, all or nothing."""
        self.jobs[name] = result
        new = self._path.with_suffix(".new")
        new.write_text(json.dumps(self.data, indent=2) + "\n", encoding="utf-8")
        new.replace(self._path)


def _machine() -> dict[str, Any]:
    has_gpu = torch.cuda.is_available()
    return {
        "gpu": torch.cuda.get_device_name() if has_gpu else None,
        "gpu_gib": round(torch.cuda.get_device_properties(0).total_memory / 2**30, 1)
        if has_gpu
        else None,
        "versions": {"python": platform.python_version()}
        | {name: version(name) for name in ("torch", "transformers")},
    }


def jobs_of(size: str, output: Path, deadline: float) -> list[Measurement]:
    """Return all measurements, those that find mistakes first."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    load = GpuWorkload.of(size)
    jobs = [
        Measurement("matmul", partial(matmul_tflops, device, load.matmul), 30),
        Measurement("self_checks", partial(self_checks, device, load), 120),
        Measurement("packed_attention", partial(packed_attention, device, load.kernel_groups), 120),
        Measurement("chunked_logits", partial(chunked_logits, device, load), 60),
    ]
    for model in SIZES[size]:
        jobs.append(Measurement(f"generate {model}", partial(generation, device, load, model), 120))
        jobs += [
            Measurement(f"update {model} {kind}", partial(update, device, load, model, kind), 150)
            for kind in ("lora", "full")
        ]
    learn = partial(learning, size, output / f"plan_path_{size}", deadline)
    return [*jobs, Measurement("learn_plan_path", learn, 2 * _TO_SAVE_S if size == "full" else 0)]


def learning(size: str, directory: Path, deadline: float) -> dict[str, Any]:
    """Train a team on Plan-Path from random weights, for as long as this part lasts."""
    config = REPOSITORY / "benchmarks" / "configs" / f"gpu_plan_path_{size}.toml"
    command = [sys.executable, "-m", "pettingllms_trainers.cli", str(config)]
    command += ["--output-dir", str(directory)]
    if directory.exists():
        command.append("--resume")
    paths = [REPOSITORY, REPOSITORY / "envs", REPOSITORY / "trainers"]
    known = os.environ.get("PYTHONPATH", "")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([*map(str, paths), known])}
    begin = time.monotonic()
    log = directory.with_suffix(".log")
    with log.open("a", encoding="utf-8") as file:
        run = subprocess.Popen(command, stdout=file, stderr=file, env=environment)
        try:
            code = run.wait(max(deadline - _TO_SAVE_S - time.monotonic(), 1.0))
        except subprocess.TimeoutExpired:
            run.send_signal(signal.SIGTERM)  # it saves, and a later part continues it
            code = run.wait()
    is_complete = (directory / "eval.json").exists()
    if not is_complete and not (directory / "checkpoints").is_dir():
        text = log.read_text(encoding="utf-8")
        raise RuntimeError(f"the run ended with code {code}: {text[-800:]}")
    return {
        "status": "done" if is_complete else "left",
        "part_s": round(time.monotonic() - begin, 1),
        "evaluations": _evaluations(directory),
    }


def _evaluations(directory: Path) -> list[dict[str, Any]]:
    """Return the success on held-out levels by train step."""
    path = directory / "evaluations.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    names = ("success", "success_low", "success_high", "num_episodes")
    return [
        {"step": line["step"]}
        | {
            variant: {name: figures[name] for name in names}
            for variant, figures in line["variants"].items()
        }
        for line in map(json.loads, lines)
    ]


def do_part(results: Results, jobs: list[Measurement], deadline: float) -> int:
    """Do what is left until the time is over; return the exit code."""
    for job in jobs:
        if results.is_done(job.name):
            continue
        if deadline - time.monotonic() < job.most_s:
            return _LEFT
        earlier = results.jobs.get(job.name, {})
        results.put(job.name, {"status": "begun"})
        begin = time.monotonic()
        try:
            found = {"status": "done", **job.work()}
        except Exception as error:  # noqa: BLE001 - recorded, and the others are still measured
            traceback.print_exc()
            found = {"status": "failed", "error": f"{type(error).__name__}: {error}"[:2000]}
        spent = time.monotonic() - begin + earlier.get("wall_s", 0.0)
        results.put(job.name, found | {"wall_s": round(spent, 2)})
        print(job.name, json.dumps(results.jobs[job.name]), flush=True)
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        if found["status"] == "left":
            return _LEFT
    return 0


def main(arguments: list[str] | None = None) -> int:
    """Do one part; return 0 when all is done, 3 when more is left."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, required=True, help="folder of results and runs")
    parser.add_argument("--minutes", type=float, default=8.5, help="of this part")
    parser.add_argument("--size", choices=sorted(SIZES), default="full")
    options = parser.parse_args(arguments)
    deadline = time.monotonic() + 60 * options.minutes
    if options.size == "full" and not torch.cuda.is_available():
        parser.error("there is no GPU: --size toy runs on a CPU")
    options.output.mkdir(parents=True, exist_ok=True)
    results = Results(options.output / "gpu_campaign.json", options.size)
    code = do_part(results, jobs_of(options.size, options.output, deadline), deadline)
    failed = [name for name, found in results.jobs.items() if found["status"] == "failed"]
    state = "all is done" if code == 0 else "more is left: run the same command again"
    print(state + (f"; failed: {', '.join(failed)}" if failed else ""))
    return code


if __name__ == "__main__":
    sys.exit(main())
