"""All that is measured on a GPU, in one command and in parts of a few minutes.

    python benchmarks/gpu_campaign.py --output runs/gpu_campaign

The first ten minutes say what the GPU computes like the CPU (the trainer's own checks,
FlexAttention beside padded rows with its gradient), whether an update takes the memory that is
planned, that a team trains on Plan-Path, and how fast roles learn together. Then come
other models, and the rest of that run. Call it again until nothing is left (exit code 3:
more is left; 0: all is done; 1: all is done, and something failed). Each measurement has a process
of its own, its result is written at once, and one that fails is tried once more.

Needs one GPU of 80 GB or more, torch 2.11 and transformers 5.17; no network, no vLLM and no model:
weights are random, in the shapes of Qwen3. `--size toy` runs the same code in minutes on a CPU.
For a machine that has torch and transformers alone, `make gpu-pack DIR=PATH` makes a folder of
40 MiB with all else.

An H100 has done its first half: `results/gpu_campaign.json`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

MODELS = {
    "full": ("Qwen/Qwen3-0.6B", "Qwen/Qwen3-1.7B", "Qwen/Qwen3-8B"),
    "toy": ("toy",),
}
COMMIT = "commit.txt"
"""Where a folder without a repository says what it was made of."""
_COMMAND = "python benchmarks/gpu_campaign.py --output PATH"
_DONE, _FAILED, _LEFT = 0, 1, 3
_NUM_ATTEMPTS = 2
_PATIENCE = 3.0
"""What does not end within so many times its expected time has failed."""


class Job(NamedTuple):
    """One measurement."""

    name: str
    """What is measured, with its arguments; see `gpu_jobs.work_of`."""
    expected_s: float
    """Seconds that it takes; it does not begin with less time left."""
    fills_part: bool = False
    """Whether it takes all the time that is left, in several parts."""


def commit_of(directory: Path) -> str:
    """The commit that a folder is of.

    Raises:
        SystemExit: It has changes that are not committed.
    """
    written = directory / COMMIT
    if written.exists():
        return written.read_text(encoding="utf-8")
    git = ["git", "-C", str(directory)]
    changes = subprocess.check_output(
        [*git, "status", "--porcelain", "--untracked-files=no"], text=True
    )
    if changes:
        raise SystemExit(f"measure what is committed; these are not:\n{changes}")
    return subprocess.check_output([*git, "rev-parse", "HEAD"], text=True).strip()


class Results:
    """The file with all results; written before and after every measurement."""

    def __init__(self, path: Path, size: str) -> None:
        self._path = path
        self.data: dict[str, Any] = {"suite": "gpu_campaign", "size": size}
        self.data |= {"date": date.today().isoformat(), "command": _COMMAND, "jobs": {}}
        if path.exists():
            self.data = json.loads(path.read_text(encoding="utf-8"))
            if self.data["size"] != size:
                raise SystemExit(
                    f"{path} has results of size {self.data['size']}: choose another --output"
                )
        for name, found in self.jobs.items():
            if found["status"] == "begun":
                self.put(name, found | {"status": "failed", "error": "the campaign was ended"})

    @property
    def jobs(self) -> dict[str, Any]:
        """Name to result."""
        return self.data["jobs"]

    @property
    def failed(self) -> list[str]:
        """Measurements that have failed as often as they are tried."""
        return [name for name, found in self.jobs.items() if found["status"] == "failed"]

    def is_left(self, name: str) -> bool:
        """Whether a measurement has no result and can be tried."""
        found = self.jobs.get(name, {"status": "left"})
        return found["status"] == "left" or (
            found["status"] == "failed" and found["num_attempts"] < _NUM_ATTEMPTS
        )

    def put(self, name: str, result: dict[str, Any]) -> None:
        """Record a result, all or nothing."""
        self.jobs[name] = result
        # A part may be ended at any moment; the file is then the old or the new one.
        new = self._path.with_suffix(".new")
        new.write_text(json.dumps(self.data, indent=2) + "\n", encoding="utf-8")
        new.replace(self._path)


def jobs_of(size: str) -> list[Job]:
    """All measurements, what decides whether a GPU computes rightly first.

    Times are those of an H100, with the start of a process and some room; those of mixed roles and
    of the largest model are guessed from them. A team trains, and its update is measured with and
    without adapters, within ten minutes; all but the end of its run are done within fifteen.
    """
    first, *others = MODELS[size]
    jobs = [
        Job("machine", 25),
        Job("self_checks", 45),
        Job("packed_attention", 45),
        Job(f"update {first} lora", 60),
        Job("plan_path two minutes", 150),
        Job(f"roles {first}", 90),
        Job(f"update {first} full", 45),
        Job(f"generate {first}", 55),
    ]
    for model, expected_s in zip(others, (45, 80), strict=False):
        kinds = (f"update {model} lora", f"update {model} full", f"generate {model}")
        jobs += [Job(kind, expected_s) for kind in kinds]
    return [*jobs, Job("plan_path to the end", 120, fills_part=True)]


Run = Callable[[Job, float], dict[str, Any]]
"""From a measurement and the seconds that it may take to its result."""


def in_own_process(size: str, output: Path, commit: str) -> Run:
    """What measures in a new process, whose output goes to a log."""
    script, result = Path(__file__).with_name("gpu_jobs.py"), output / "result.json"

    def run(job: Job, seconds: float) -> dict[str, Any]:
        result.unlink(missing_ok=True)
        command = [sys.executable, str(script), job.name, "--size", size, "--output", str(output)]
        command += ["--seconds", f"{seconds:.0f}", "--result", str(result)]
        log = output / f"{job.name.replace('/', '-').replace(' ', '_')}.log"
        with log.open("w", encoding="utf-8") as file:
            limit = seconds if job.fills_part else _PATIENCE * job.expected_s
            code = subprocess.run(command, stdout=file, stderr=file, timeout=limit).returncode
        if code:
            raise RuntimeError(f"exit code {code}: {log.read_text(encoding='utf-8')[-2000:]}")
        return json.loads(result.read_text(encoding="utf-8")) | {"commit": commit}

    return run


def do_part(results: Results, jobs: list[Job], deadline: float, run: Run) -> int:
    """Do what is left until the time is over; return the exit code."""
    for job in jobs:
        while results.is_left(job.name):
            left_s = deadline - time.monotonic()
            # Better nothing than a measurement that is cut off.
            if left_s < job.expected_s:
                return _LEFT
            earlier = results.jobs.get(job.name, {})
            attempt = {"num_attempts": earlier.get("num_attempts", 0) + 1}
            results.put(job.name, {"status": "begun"} | attempt)
            begin = time.monotonic()
            try:
                found = run(job, left_s if job.fills_part else job.expected_s)
                is_left = job.fills_part and not found["is_complete"]
                # A part of a run that goes on is not an attempt.
                attempt["num_attempts"] -= is_left
                found |= {"status": "left" if is_left else "done"}
            except (OSError, RuntimeError, ValueError, subprocess.TimeoutExpired) as error:
                found = {"status": "failed", "error": f"{type(error).__name__}: {error}"}
            spent = time.monotonic() - begin + earlier.get("wall_s", 0.0)
            results.put(job.name, found | attempt | {"wall_s": round(spent, 2)})
            print(job.name, json.dumps(results.jobs[job.name]), flush=True)
            if found["status"] == "left":
                return _LEFT
    return _FAILED if results.failed else _DONE


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, required=True, help="folder of results and runs")
    parser.add_argument("--minutes", type=float, default=9.5, help="of this part")
    parser.add_argument("--size", choices=sorted(MODELS), default="full")
    options = parser.parse_args(arguments)
    options.output.mkdir(parents=True, exist_ok=True)
    results = Results(options.output / "gpu_campaign.json", options.size)
    deadline = time.monotonic() + 60 * options.minutes
    # A toy measures nothing, and runs while something is being changed.
    commit = commit_of(Path(__file__).resolve().parent) if options.size == "full" else "none"
    run = in_own_process(options.size, options.output.resolve(), commit)
    code = do_part(results, jobs_of(options.size), deadline, run)
    state = "more is left: run the same command again" if code == _LEFT else "all is done"
    print(state + (f"; failed: {', '.join(results.failed)}" if results.failed else ""))
    return code


if __name__ == "__main__":
    sys.exit(main())
