"""Good and hostile programs, mixed, for long: every result right and nothing left behind."""

import collections
import os
import random
from pathlib import Path
from typing import NamedTuple

import pytest

from pettingllms.sandbox import Limits, Sandbox, Status

HASTY = Limits(wall_s=0.25, cpu_s=1, memory_bytes=64 << 20, output_bytes=20_000)
PATIENT = Limits(wall_s=30, cpu_s=10, memory_bytes=64 << 20, output_bytes=20_000)
BATCH, NUM_RUNS = 20, 500


class Kind(NamedTuple):
    """A program, how its runs end, and how often it comes; an honest one doubles a number."""

    code: str
    status: Status
    weight: int
    limits: Limits = PATIENT


KINDS = (
    Kind("print(int(input()) * 2)", Status.OK, 30),
    Kind("import math, csv\nprint(math.isqrt(4 * int(input()) ** 2))", Status.OK, 15),
    Kind(
        "import threading\nn = int(input())\n"
        "t = [threading.Thread(target=str) for _ in range(4)]\n"
        "[x.start() for x in t], [x.join() for x in t]\nprint(2 * n)",
        Status.OK,
        10,
    ),
    Kind("raise ValueError(input())", Status.ERROR, 8),
    Kind("print(", Status.SYNTAX_ERROR, 5),
    Kind("import os\nwhile True: os.fork()", Status.ERROR, 4),
    Kind("open('/tmp/soaked', 'w')", Status.ERROR, 4),
    Kind(
        "from multiprocessing.shared_memory import SharedMemory as S\nS('soaked', True, 9)",
        Status.ERROR,
        2,
    ),
    Kind("x = [bytearray(1 << 20) for _ in range(1000)]", Status.MEMORY_LIMIT, 5),
    Kind("while True: print('x' * 5000)", Status.OUTPUT_LIMIT, 5),
    Kind("import ctypes\nctypes.CDLL(None).ptrace(0, 0, 0, 0)", Status.VIOLATION, 4),
    Kind("import ctypes\nctypes.string_at(0)", Status.SIGNAL, 4),
    Kind("import os\nos.kill(-1, 9)", Status.ERROR, 3),
    Kind("import time\ntime.sleep(100)", Status.TIMEOUT, 1, HASTY),
    Kind("while True: pass", Status.TIMEOUT, 1, HASTY),
)


def children(pid):
    return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def host(sandbox):
    """What could grow: memory and descriptors of the servers and of this process."""
    servers = [one for pid in sandbox.describe()["server_pids"] for one in (pid, *children(pid))]
    rss = [int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in servers]
    descriptors = [len(os.listdir(f"/proc/{pid}/fd")) for pid in servers]
    return servers, rss, descriptors, len(os.listdir("/proc/self/fd"))


@pytest.mark.nightly
@pytest.mark.slow
def test_soak(any_jail):
    rng, wrong = random.Random(7), collections.Counter()
    with Sandbox(isolation=any_jail.describe()["isolation"], workers=4) as sandbox:
        sandbox.run_many("import csv\nprint(1)", [""] * 100, PATIENT)
        _, rss, descriptors, own = host(sandbox)
        for _ in range(NUM_RUNS // BATCH):
            (kind,) = rng.choices(KINDS, [kind.weight for kind in KINDS])
            numbers = [rng.randrange(10**9) for _ in range(BATCH)]
            results = sandbox.run_many(kind.code, map(str, numbers), kind.limits)
            for number, result in zip(numbers, results, strict=True):
                is_wrong = kind.status is Status.OK and result.stdout != f"{2 * number}\n"
                if is_wrong or result.status is not kind.status:
                    wrong[kind.code, result.status] += 1
        assert not wrong
        assert sandbox.describe()["num_restarts"] == 0
        servers, rss_after, descriptors_after, own_after = host(sandbox)
        assert not [one for pid in servers for one in children(pid) if one not in servers]
    assert descriptors_after == descriptors
    assert own_after <= own
    # 4 MiB, in pages.
    bound = (4 << 20) // os.sysconf("SC_PAGE_SIZE")
    assert all(now < then + bound for now, then in zip(rss_after, rss, strict=True))
    assert not any(Path(folder, "soaked").exists() for folder in ("/tmp", "/var/tmp", "/dev/shm"))
