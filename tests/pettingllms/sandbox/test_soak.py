"""Good and hostile programs, mixed, for a while: every result right and nothing left behind."""

import os
import random
from pathlib import Path

import pytest

from pettingllms.sandbox import Limits, Sandbox, Status

PROGRAMS = (
    ("print(int(input()) * 2)", Status.OK),
    ("import math\nprint(math.isqrt(int(input()) ** 2 * 4))", Status.OK),
    ("raise ValueError(input())", Status.ERROR),
    ("print(", Status.SYNTAX_ERROR),
    ("import os\nos.fork()", Status.ERROR),
    ("open('/etc/passwd')", Status.ERROR),
    ("x = bytearray(1 << 40)", Status.MEMORY_LIMIT),
    ("while True: print('x' * 5000)", Status.OUTPUT_LIMIT),
    ("import ctypes\nctypes.CDLL(None).ptrace(0, 0, 0, 0)", Status.VIOLATION),
    ("import ctypes\nctypes.string_at(0)", Status.SIGNAL),
    ("import time\ntime.sleep(100)", Status.TIMEOUT),
)
WEIGHTS = (30, 20, 8, 5, 5, 5, 5, 5, 5, 5, 1)


def resident_bytes(pid):
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def zombies():
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[0] == "Z" and int(fields[1]) == os.getpid():
            found.append(path)
    return found


@pytest.mark.slow
def test_soak(any_jail):
    rng = random.Random(7)
    limits = Limits(wall_s=0.3, cpu_s=1, memory_bytes=64 << 20, output_bytes=20_000)
    with Sandbox(isolation=any_jail.describe()["isolation"], workers=2, limits=limits) as sandbox:
        pids = sandbox.describe()["server_pids"]
        sandbox.run_many("print(1)", [""] * 50)
        before = [resident_bytes(pid) for pid in pids]
        descriptors = len(os.listdir("/proc/self/fd"))
        num_wrong = 0
        for _ in range(100):
            code, expected = rng.choices(PROGRAMS, WEIGHTS)[0]
            numbers = [rng.randrange(10**9) for _ in range(10)]
            for number, result in zip(
                numbers, sandbox.run_many(code, map(str, numbers)), strict=True
            ):
                is_right = result.status is expected
                if expected is Status.OK:
                    is_right = is_right and int(result.stdout) == 2 * number
                # On an overloaded machine a short time limit may come first.
                num_wrong += not is_right and result.status is not Status.TIMEOUT
        assert num_wrong == 0
        assert sandbox.describe()["server_pids"] == pids
        for pid, bytes_before in zip(pids, before, strict=True):
            assert resident_bytes(pid) < bytes_before + (4 << 20)
        assert len(os.listdir("/proc/self/fd")) <= descriptors
    assert not zombies()
