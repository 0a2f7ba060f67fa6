"""The sandbox against a fresh interpreter per run and the paper's public way of running code.

    python benchmarks/suites/sandbox.py [--rounds 7] [--contests code_contests_sample.jsonl]

Settings: `sandbox` (one tier, written to a file of its own); `spawn` (a fresh `python -I -S` per
run, fed by pipes, no protection; `python -I` where a program imports numpy); `paper` (what the
paper's public code does for every test, without its Ray workers: a folder of its own with the
script and three files for the standard streams, a runner script, and an unbuffered interpreter in
development mode that traces allocations).

Every round runs every setting once, in turn; ratios are formed within a round, since other things
may run on the machine. Written is the median over the rounds with minimum and maximum.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from measuring import REPOSITORY, RESULTS, frame, spread, write
from sandbox_peers import paper, spawn

from pettingllms.sandbox import ExecutionResult, Limits, Sandbox
from pettingllms.sandbox.outcome import clean

CONTESTS = REPOSITORY.parent / "shared" / "data" / "code_contests_sample.jsonl"
LIMITS = Limits(wall_s=60, cpu_s=30)

TRIVIAL = "print(int(input()) ** 2)"
NUMPY = "import numpy as np\nn = int(input())\nprint(np.arange(n).reshape(2, -1).sum())"
GOALS = {
    "trivial_two_streams_over_paper": 30.0,
    "p99_over_p50": 3.0,
    "numpy_over_spawn": 15.0,
    "ten_tests_cpu_spawn_over_sandbox": 3.0,
}
OVER_SPAWN = {"namespaces": 4.0, "landlock": 3.0, "sealed": 3.0}
"""Goal of `trivial_two_streams_over_spawn`, per tier."""

NOISE = {
    "ascii": b"\x01",
    "beyond_ascii": "\x80\u202e\u2066a".encode(),
}
"""What a hostile program fills its output with; cleaning it is work for the trainer's process."""

Runner = Callable[[str, str], str]


def per_second(run: Runner, code: str, stdin: str, seconds: float, expected: str) -> float:
    """Runs per second of one stream, each after the other."""
    count = 0
    start = time.perf_counter()
    while (elapsed := time.perf_counter() - start) < seconds:
        if run(code, stdin) != expected:
            raise AssertionError("a benchmark program gave a wrong answer")
        count += 1
    return count / elapsed


def per_second_two_streams(run: Runner, code: str, stdin: str, seconds: float, out: str) -> float:
    """Runs per second of two streams at once."""
    with ThreadPoolExecutor(2) as threads:
        streams = [threads.submit(per_second, run, code, stdin, seconds, out) for _ in range(2)]
        return sum(stream.result() for stream in streams)


def many_per_second(sandbox: Sandbox, code: str, stdin: str, num_runs: int, out: str) -> float:
    """Runs per second of one `run_many`."""
    start = time.perf_counter()
    results = sandbox.run_many(code, [stdin] * num_runs, LIMITS)
    elapsed = time.perf_counter() - start
    if any(result.stdout != out for result in results):
        raise AssertionError("a benchmark program gave a wrong answer")
    return num_runs / elapsed


def latencies(sandbox: Sandbox, num_runs: int) -> dict[str, float]:
    """p50 and p99 of one stream of trivial programs, in ms."""
    times: list[float] = []
    for _ in range(num_runs):
        start = time.perf_counter()
        sandbox.run(TRIVIAL, "12", LIMITS)
        times.append(1000 * (time.perf_counter() - start))
    cuts = statistics.quantiles(times, n=100)
    return {"p50_ms": cuts[49], "p99_ms": cuts[98], "p99_over_p50": cuts[98] / cuts[49]}


def cpu_s(pids: Sequence[int]) -> float:
    """Processor time so far of this process, of `pids`, and of all their children."""
    total = time.process_time() + os.times().children_user + os.times().children_system
    for pid in pids:
        for member in (pid, *_children(pid)):
            fields = Path(f"/proc/{member}/stat").read_text().rpartition(")")[2].split()
            total += sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return total


def _children(pid: int) -> list[int]:
    return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def ten_tests_cpu_ms(work: Callable[[], object], pids: Sequence[int], repeats: int) -> float:
    """Processor time of ten tests of one program, in ms, on average."""
    before = cpu_s(pids)
    for _ in range(repeats):
        work()
    return 1000 * (cpu_s(pids) - before) / repeats


def cleaning_ms_per_mib(pattern: bytes) -> float:
    """Processor time that a full stdout costs the process that asked for the run."""
    data = (pattern * (1 << 20))[: 1 << 20]
    start = time.process_time()
    for _ in range(20):
        clean(data)
    return 1000 * (time.process_time() - start) / 20


def contests(path: Path, num_problems: int) -> list[tuple[str, list[str]]]:
    """Solutions of real problems with their public tests."""
    found: list[tuple[str, list[str]]] = []
    with open(path) as file:
        for line in file:
            problem = json.loads(line)
            tests = problem["public_tests"]["input"] + problem["private_tests"]["input"][:8]
            found.append((problem["solutions"]["solution"][0], tests))
            if len(found) == num_problems:
                break
    return found


def contest_seconds(run: Callable[[str, list[str]], object], problems: list[Any]) -> float:
    """Time to run every solution on all its tests."""
    start = time.perf_counter()
    for code, stdins in problems:
        run(code, stdins)
    return time.perf_counter() - start


def _two_at_once(run: Runner) -> Callable[[str, list[str]], object]:
    threads = ThreadPoolExecutor(2)
    return lambda code, stdins: list(threads.map(lambda stdin: run(code, stdin), stdins))


def measure_round(lean: Sandbox, science: Sandbox, problems: list[Any]) -> dict[str, float]:
    """All settings of all workloads, once."""
    pids: list[int] = lean.describe()["server_pids"]

    def jailed(code: str, stdin: str) -> str:
        result: ExecutionResult = lean.run(code, stdin, LIMITS)
        return result.stdout

    found = {
        "spawn_trivial_per_s": per_second(spawn, TRIVIAL, "12", 1.5, "144\n"),
        "sandbox_trivial_per_s": per_second(jailed, TRIVIAL, "12", 1.5, "144\n"),
        "spawn_trivial_two_streams_per_s": per_second_two_streams(
            spawn, TRIVIAL, "12", 1.5, "144\n"
        ),
        "sandbox_trivial_two_streams_per_s": many_per_second(lean, TRIVIAL, "12", 600, "144\n"),
        "paper_trivial_two_streams_per_s": per_second_two_streams(
            paper, TRIVIAL, "12", 2.0, "144\n"
        ),
        "spawn_numpy_two_streams_per_s": per_second_two_streams(spawn, NUMPY, "10", 1.5, "45\n"),
        "sandbox_numpy_two_streams_per_s": many_per_second(science, NUMPY, "10", 200, "45\n"),
        "spawn_ten_tests_cpu_ms": ten_tests_cpu_ms(
            lambda: [spawn(TRIVIAL, "12") for _ in range(10)], pids, 5
        ),
        "sandbox_ten_tests_cpu_ms": ten_tests_cpu_ms(
            lambda: lean.run_many(TRIVIAL, ["12"] * 10, LIMITS), pids, 40
        ),
        **latencies(lean, 500),
        **{f"cleaning_{name}_ms_per_mib": cleaning_ms_per_mib(b) for name, b in NOISE.items()},
    }
    if problems:
        found["spawn_contests_s"] = contest_seconds(_two_at_once(spawn), problems)
        found["paper_contests_s"] = contest_seconds(_two_at_once(paper), problems)
        found["sandbox_contests_s"] = contest_seconds(
            lambda code, stdins: lean.run_many(code, stdins, LIMITS), problems
        )
    return found | ratios(found)


def ratios(found: dict[str, float]) -> dict[str, float]:
    """How many times better the sandbox is, within one round."""
    two = "trivial_two_streams"
    jailed = found[f"sandbox_{two}_per_s"]
    result = {
        "trivial_one_stream_over_spawn": found["sandbox_trivial_per_s"]
        / found["spawn_trivial_per_s"],
        "trivial_two_streams_over_spawn": jailed / found[f"spawn_{two}_per_s"],
        "trivial_two_streams_over_paper": jailed / found[f"paper_{two}_per_s"],
        "numpy_over_spawn": found["sandbox_numpy_two_streams_per_s"]
        / found["spawn_numpy_two_streams_per_s"],
        "ten_tests_cpu_spawn_over_sandbox": found["spawn_ten_tests_cpu_ms"]
        / found["sandbox_ten_tests_cpu_ms"],
    }
    if "sandbox_contests_s" in found:
        for setting in ("spawn", "paper"):
            result[f"contests_over_{setting}"] = (
                found[f"{setting}_contests_s"] / found["sandbox_contests_s"]
            )
    return result


def main() -> None:
    """Run the suite and write its result."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--contests", type=Path, default=CONTESTS)
    parser.add_argument("--problems", type=int, default=12)
    parser.add_argument("--isolation", default="auto")
    parser.add_argument("--output", type=Path, help="default: named after the tier")
    options = parser.parse_args()
    result = frame("sandbox", range(options.rounds))
    problems = contests(options.contests, options.problems) if options.contests.exists() else []
    with (
        Sandbox(isolation=options.isolation, workers=2) as lean,
        Sandbox(isolation=options.isolation, flavour="science", workers=2) as science,
    ):
        rounds: list[dict[str, float]] = []
        for number in range(options.rounds):
            rounds.append(measure_round(lean, science, problems))
            print(number, {k: round(v, 2) for k, v in rounds[-1].items()}, flush=True)
        isolation = lean.describe()["isolation"]
    result |= {
        "isolation": isolation,
        "kernel": platform.release(),
        "num_contest_problems": len(problems),
        "goals": {"trivial_two_streams_over_spawn": OVER_SPAWN[isolation], **GOALS},
        "figures": {name: spread([r[name] for r in rounds]) for name in rounds[0]},
    }
    suffix = "" if isolation == "namespaces" else f"_{isolation}"
    write(result, options.output or RESULTS / f"sandbox{suffix}.json")


if __name__ == "__main__":
    main()
