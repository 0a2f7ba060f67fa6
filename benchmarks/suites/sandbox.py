"""The sandbox against a fresh interpreter per run and the paper's public way of running code.

    python benchmarks/suites/sandbox.py [--rounds 7] [--isolation landlock]

Settings: the sandbox (one tier, written to a file of its own); `spawn` (a fresh `python -I -S` per
run, fed by pipes, no protection; `python -I` where a program imports numpy); `paper` (what the
paper's public code does for every test, without its Ray workers: a folder of its own with the
script and three files for the standard streams, a runner script, and an unbuffered interpreter in
development mode that traces allocations).

Every round runs every setting once, in turn; ratios are formed within a round, since other things
may run on the machine.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from measuring import RESULTS, frame, parser_of, spread, write

from pettingllms.sandbox import Limits, Sandbox

LIMITS = Limits(wall_s=60, cpu_s=30)
TRIVIAL = ("print(int(input()) ** 2)", "12", "144\n")
NUMPY = (
    "import numpy as np\nn = int(input())\nprint(np.arange(n).reshape(2, -1).sum())",
    *("10", "45\n"),
)
"""Program, standard input, what it prints."""
SECONDS = 1.5
"""Of a measurement of fresh interpreters."""
RUNNER = """
import io, sys, typing
text = sys.stdin.read()
lines = iter(text.splitlines())
sys.stdin = io.StringIO(text)
with open("script.py") as file:
    source = file.read()
exec(source, {"__name__": "__main__", "input": lambda prompt="": next(lines), "List": typing.List})
"""

Runner = Callable[[str, str], str]


def spawn(code: str, stdin: str) -> str:
    """Run a program in a fresh interpreter."""
    # With `-S` an interpreter starts faster, and finds no numpy.
    flags = ["-I"] if "import" in code else ["-I", "-S"]
    command = [sys.executable, *flags, "-c", code]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, check=False).stdout


def paper(code: str, stdin: str) -> str:
    """Run a program as the paper's public code does."""
    options = {"PYTHONFAULTHANDLER": "1", "PYTHONUNBUFFERED": "1", "PYTHONTRACEMALLOC": "5"}
    with tempfile.TemporaryDirectory(prefix="run_") as name:
        folder = Path(name)
        for file, text in (("script.py", code), ("runner.py", RUNNER), ("stdin.txt", stdin)):
            (folder / file).write_text(text)
        with (
            open(folder / "stdin.txt") as source,
            open(folder / "stdout.txt", "w") as output,
            open(folder / "stderr.txt", "w") as errors,
        ):
            subprocess.run(
                [sys.executable, "-X", "dev", "-W", "default", "-u", str(folder / "runner.py")],
                stdin=source,
                stdout=output,
                stderr=errors,
                cwd=folder,
                env=os.environ | options,
                start_new_session=True,
                check=False,
            )
        return (folder / "stdout.txt").read_text()


def streams_per_second(run: Runner, program: tuple[str, str, str], num_streams: int = 2) -> float:
    """Runs per second of streams at once, in each of which one run follows another."""
    code, stdin, expected = program

    def stream() -> float:
        count, start = 0, time.perf_counter()
        while (elapsed := time.perf_counter() - start) < SECONDS:
            # What is fast and wrong must not count.
            assert run(code, stdin) == expected
            count += 1
        return count / elapsed

    with ThreadPoolExecutor(num_streams) as threads:
        streams = [threads.submit(stream) for _ in range(num_streams)]
        return sum(stream.result() for stream in streams)


def many_per_second(sandbox: Sandbox, program: tuple[str, str, str], num_runs: int) -> float:
    """Runs per second of one `run_many`."""
    code, stdin, expected = program
    start = time.perf_counter()
    results = sandbox.run_many(code, [stdin] * num_runs, LIMITS)
    elapsed = time.perf_counter() - start
    assert all(result.stdout == expected for result in results)
    return num_runs / elapsed


def measure_round(lean: Sandbox, science: Sandbox) -> dict[str, float]:
    """All settings of all workloads, once."""

    def jailed(code: str, stdin: str) -> str:
        return lean.run(code, stdin, LIMITS).stdout

    found = {
        "spawn_trivial_per_s": streams_per_second(spawn, TRIVIAL, 1),
        "sandbox_trivial_per_s": streams_per_second(jailed, TRIVIAL, 1),
        "spawn_trivial_two_streams_per_s": streams_per_second(spawn, TRIVIAL),
        "sandbox_trivial_two_streams_per_s": many_per_second(lean, TRIVIAL, 600),
        "paper_trivial_two_streams_per_s": streams_per_second(paper, TRIVIAL),
        "spawn_numpy_two_streams_per_s": streams_per_second(spawn, NUMPY),
        "sandbox_numpy_two_streams_per_s": many_per_second(science, NUMPY, 200),
    }
    for ratio, workload, peer in (
        ("trivial_one_stream_over_spawn", "trivial", "spawn"),
        ("trivial_two_streams_over_spawn", "trivial_two_streams", "spawn"),
        ("trivial_two_streams_over_paper", "trivial_two_streams", "paper"),
        ("numpy_over_spawn", "numpy_two_streams", "spawn"),
    ):
        found[ratio] = found[f"sandbox_{workload}_per_s"] / found[f"{peer}_{workload}_per_s"]
    return found


def main() -> None:
    parser = parser_of("sandbox", __doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--isolation", default="auto", help="a tier; its result has its name")
    options = parser.parse_args()
    result = frame("sandbox", range(options.rounds))
    with (
        Sandbox(isolation=options.isolation, workers=2) as lean,
        Sandbox(isolation=options.isolation, flavour="science", workers=2) as science,
    ):
        rounds = [measure_round(lean, science) for _ in range(options.rounds)]
        isolation = lean.describe()["isolation"]
    figures = {name: spread([one[name] for one in rounds]) for name in rounds[0]}
    result |= {"isolation": isolation, "kernel": platform.release(), "figures": figures}
    if options.output == RESULTS / "sandbox.json" and isolation != "namespaces":
        options.output = RESULTS / f"sandbox_{isolation}.json"
    write(result, options.output)


if __name__ == "__main__":
    main()
