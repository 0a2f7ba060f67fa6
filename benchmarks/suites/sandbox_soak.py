"""Good and hostile programs, mixed, for long: every result right, nothing left behind.

Beside them, two hostile programs run at any time that take what there is to take.

    python benchmarks/suites/sandbox_soak.py [--runs 20000]

Written are the number of results by kind of program, how many were wrong, what processes, memory,
descriptors and files were there before and after, and how long one honest program takes that is run
between two batches: alone, and beside the hostile ones.
"""

from __future__ import annotations

import collections
import contextlib
import itertools
import json
import os
import platform
import random
import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from measuring import frame, parser_of, write

from pettingllms.sandbox import Limits, Sandbox, Status

LIMITS = Limits(wall_s=0.25, cpu_s=1, memory_bytes=64 << 20, output_bytes=20_000)
NEIGHBOUR = Limits(wall_s=1.5, cpu_s=1, memory_bytes=512 << 20)
PATIENT = Limits(wall_s=30, cpu_s=10, memory_bytes=64 << 20, output_bytes=20_000)


class Kind(NamedTuple):
    """A program, what its end must be called, and how often it comes."""

    code: str
    status: Status
    weight: int
    limits: Limits = PATIENT


KINDS = {
    "doubles": Kind("print(int(input()) * 2)", Status.OK, 30),
    "imports": Kind("import math, csv\nprint(math.isqrt(4 * int(input()) ** 2))", Status.OK, 15),
    "threads": Kind(
        "import threading\nn = int(input())\n"
        "t = [threading.Thread(target=str) for _ in range(4)]\n"
        "[x.start() for x in t], [x.join() for x in t]\nprint(2 * n)",
        Status.OK,
        10,
    ),
    "raises": Kind("raise ValueError(input())", Status.ERROR, 8),
    "is not Python": Kind("print(", Status.SYNTAX_ERROR, 5),
    "forks": Kind("import os\nwhile True: os.fork()", Status.ERROR, 4),
    "writes files": Kind("open('/tmp/soaked', 'w')", Status.ERROR, 4),
    "shares memory": Kind(
        "from multiprocessing.shared_memory import SharedMemory as S\nS('soaked', True, 9)",
        Status.ERROR,
        2,
    ),
    "eats memory": Kind("x = [bytearray(1 << 20) for _ in range(1000)]", Status.MEMORY_LIMIT, 5),
    "floods": Kind("while True: print('x' * 5000)", Status.OUTPUT_LIMIT, 5),
    "traces": Kind("import ctypes\nctypes.CDLL(None).ptrace(0, 0, 0, 0)", Status.VIOLATION, 4),
    "crashes": Kind("import ctypes\nctypes.string_at(0)", Status.SIGNAL, 4),
    "kills all": Kind("import os\nos.kill(-1, 9)", Status.ERROR, 3),
    "sleeps": Kind("import time\ntime.sleep(100)", Status.TIMEOUT, 1, LIMITS),
    "spins": Kind("while True: pass", Status.TIMEOUT, 1, LIMITS),
}
BATCH = 20
NUM_ALONE = 500

NEIGHBOURS = (
    "import threading, time\nwhile True: threading.Thread(target=time.sleep, args=(9,)).start()",
    "import hashlib, threading\ndef spin():\n"
    "    while True: hashlib.pbkdf2_hmac('sha256', b'', b'', 100_000)\n"
    "for _ in range(32): threading.Thread(target=spin).start()\nspin()",
    "import threading\nwhile True: threading.Thread(target=int).start()",
    "import time\nx = []\ntry:\n    while True: x.append(bytearray(1 << 20))\n"
    "except MemoryError: time.sleep(9)",
    "while True: print('\\x01' * 5000)",
)
"""They end with their time; each start has a number of its own, so that none is known as slow."""
NUM_NEIGHBOURS = 2


@contextlib.contextmanager
def hostile_neighbours(sandbox: Sandbox) -> Iterator[collections.Counter[str]]:
    """Keep hostile programs running; counts how they ended."""
    ends: collections.Counter[str] = collections.Counter()
    stop = threading.Event()

    def keep_running(first: int) -> None:
        for number in itertools.count(first, NUM_NEIGHBOURS):
            if stop.is_set():
                return
            code = f"{NEIGHBOURS[number % len(NEIGHBOURS)]}\n# {number}"
            ends[str(sandbox.run(code, limits=NEIGHBOUR).status)] += 1

    with ThreadPoolExecutor(NUM_NEIGHBOURS) as threads:
        for number in range(NUM_NEIGHBOURS):
            threads.submit(keep_running, number)
        try:
            yield ends
        finally:
            stop.set()


def state_of_host(pids: Sequence[int]) -> dict[str, Any]:
    """What could grow, and does not: processes, memory, descriptors, files.

    Only processes of the sandbox are looked at; this process may have other children.
    """
    servers = [member for pid in pids for member in (pid, *_children(pid))]
    left = [member for pid in servers for member in _children(pid) if member not in servers]
    return {
        "server_rss_kib": [_rss_kib(pid) for pid in servers],
        "parent_rss_kib": _rss_kib(os.getpid()),
        "parent_descriptors": len(os.listdir("/proc/self/fd")),
        "server_descriptors": [len(os.listdir(f"/proc/{pid}/fd")) for pid in servers],
        "zombies": sum(_state(pid) == "Z" for pid in (*servers, *left)),
        "processes_left": len(left),
        "files_left": sum(
            Path(folder, "soaked").exists() for folder in ("/tmp", "/var/tmp", "/dev/shm")
        ),
        "shared_memory_segments": len(Path("/proc/sysvipc/shm").read_text().splitlines()) - 1,
    }


def _children(pid: int) -> list[int]:
    return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def _rss_kib(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") // 1024


def wrong_results(sandbox: Sandbox, name: str, numbers: Sequence[int]) -> list[str]:
    """Run one kind of program on numbers; says what did not end as it must."""
    kind = KINDS[name]
    results = sandbox.run_many(kind.code, map(str, numbers), kind.limits)
    wrong: list[str] = []
    for number, result in zip(numbers, results, strict=True):
        is_right = result.status is kind.status
        if kind.status is Status.OK:
            is_right = is_right and result.stdout == f"{2 * number}\n"
        if not is_right:
            wrong.append(f"{name}: {result.status}: {result.stderr[-200:]}")
    return wrong


def seconds_of_an_honest_run(sandbox: Sandbox) -> float:
    """Return how long a caller waits for a program that doubles a number."""
    start = time.perf_counter()
    sandbox.run(KINDS["doubles"].code, "1", PATIENT)
    return time.perf_counter() - start


def in_ms(seconds: Sequence[float]) -> dict[str, float]:
    """Return the median and the 99th percentile in milliseconds, and their ratio."""
    cuts = statistics.quantiles(seconds, n=100)
    shown = {"p50_ms": 1000 * cuts[49], "p99_ms": 1000 * cuts[98], "ratio": cuts[98] / cuts[49]}
    return {name: round(value, 2) for name, value in shown.items()} | {"runs": len(seconds)}


def soak(sandbox: Sandbox, num_runs: int, seed: int) -> dict[str, Any]:
    """Run `num_runs` programs of random kinds and compare every result with what it must be."""
    rng = random.Random(seed)
    names, weights = list(KINDS), [kind.weight for kind in KINDS.values()]
    sandbox.run_many("import csv\nprint(1)", [""] * 100, PATIENT)
    pids: list[int] = sandbox.describe()["server_pids"]
    before = state_of_host(pids)
    counts: collections.Counter[str] = collections.Counter()
    wrong: list[str] = []
    alone = [seconds_of_an_honest_run(sandbox) for _ in range(NUM_ALONE)]
    beside: list[float] = []
    start = time.perf_counter()
    with hostile_neighbours(sandbox) as ends:
        for _ in range(num_runs // BATCH):
            name = rng.choices(names, weights)[0]
            numbers = [rng.randrange(10**9) for _ in range(BATCH)]
            wrong += wrong_results(sandbox, name, numbers)
            counts[name] += BATCH
            beside.append(seconds_of_an_honest_run(sandbox))
    return {
        "num_runs": sum(counts.values()),
        "seconds": round(time.perf_counter() - start, 1),
        "num_wrong": len(wrong),
        "wrong": wrong[:10],
        "runs_by_kind": dict(counts),
        "neighbours_by_end": dict(ends),
        "honest_run_alone": in_ms(alone),
        "honest_run_beside_hostile_ones": in_ms(beside),
        "num_restarts": sandbox.describe()["num_restarts"],
        "before": before,
        "after": state_of_host(sandbox.describe()["server_pids"]),
    }


def main() -> None:
    """Run the soak and write its result."""
    parser = parser_of("sandbox_soak", __doc__)
    parser.add_argument("--runs", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--isolation", default="auto")
    options = parser.parse_args()
    result = frame("sandbox_soak", [options.seed])
    with Sandbox(isolation=options.isolation, workers=2 + NUM_NEIGHBOURS) as sandbox:
        report = soak(sandbox, options.runs, options.seed)
        isolation = sandbox.describe()["isolation"]
    result |= {"kernel": platform.release(), "isolation": isolation, **report}
    write(result, options.output)
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
