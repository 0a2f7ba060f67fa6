"""One measurement of the GPU campaign, in this process: its result goes to a file.

`gpu_campaign.py` starts one for each, so that an error that CUDA does not recover from, or memory
that is not given back, ends with it.
"""

from __future__ import annotations

import argparse
import json
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from gpu_kernels import packed_attention
from gpu_models import GpuWorkload, generation, self_checks, update

CONFIGS = Path(__file__).resolve().parent / "configs"
TO_SAVE_S = 60.0
"""Kept of its time for a run that must save its checkpoint."""

Work = Callable[[], dict[str, Any]]


def work_of(name: str, size: str, output: Path, seconds: float) -> Work:
    """A measurement by its name, such as ``update Qwen/Qwen3-0.6B lora``."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    load = GpuWorkload.of(size)
    kind, *rest = name.split()
    works: dict[str, Work] = {
        "machine": machine,
        "self_checks": partial(self_checks, device, load),
        "packed_attention": partial(packed_attention, device, load.kernel_groups),
        "generate": partial(generation, device, load, *rest),
        "update": partial(update, device, load, *rest),
        "plan_path": partial(learning, size, output / f"plan_path_{size}", seconds),
    }
    return works[kind]


def machine() -> dict[str, Any]:
    """What is measured on."""
    found: dict[str, Any] = {"gpu": None}
    if torch.cuda.is_available():
        num_bytes = torch.cuda.get_device_properties(0).total_memory
        found = {"gpu": torch.cuda.get_device_name(), "gpu_gib": round(num_bytes / 2**30, 1)}
    packages = ("torch", "transformers", "pettingllms", "pettingllms-trainers")
    return (
        found | {"python": platform.python_version()} | {name: version(name) for name in packages}
    )


def learning(size: str, directory: Path, seconds: float) -> dict[str, Any]:
    """Train a team on Plan-Path from random weights, for some time or to the end."""
    begin = time.monotonic()
    if (directory / "eval.json").exists():
        return {"is_complete": True, "part_s": 0.0, "evaluations": _evaluations(directory)}
    config = CONFIGS / f"gpu_plan_path_{size}.toml"
    command = [sys.executable, "-m", "pettingllms_trainers.cli", str(config)]
    command += ["--output-dir", str(directory)]
    if directory.exists():
        command.append("--resume")
    log = directory.with_suffix(".log")
    with log.open("a", encoding="utf-8") as file:
        run = subprocess.Popen(command, stdout=file, stderr=file)
        try:
            code = run.wait(max(seconds - TO_SAVE_S, 1.0))
        except subprocess.TimeoutExpired:
            run.send_signal(signal.SIGTERM)  # it saves, and a later part continues it
            code = run.wait()
    is_complete = (directory / "eval.json").exists()
    if not is_complete and not (directory / "checkpoints").is_dir():
        text = log.read_text(encoding="utf-8")
        raise RuntimeError(f"the run ended with code {code}: {text[-800:]}")
    return {
        "is_complete": is_complete,
        "part_s": round(time.monotonic() - begin, 1),
        "evaluations": _evaluations(directory),
    }


def _evaluations(directory: Path) -> list[dict[str, Any]]:
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name")
    parser.add_argument("--size", required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--result", type=Path, required=True)
    options = parser.parse_args()
    found = work_of(options.name, options.size, options.output, options.seconds)()
    options.result.write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
