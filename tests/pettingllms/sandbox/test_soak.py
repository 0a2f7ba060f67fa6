"""Good and hostile programs, mixed, for long: every result right and nothing left behind."""

import collections
import os
import random
import tomllib
from pathlib import Path

import pytest

from pettingllms.sandbox import Limits, Sandbox, Status

HASTY = Limits(wall_s=0.25, cpu_s=1, memory_bytes=64 << 20, output_bytes=20_000)
PATIENT = Limits(wall_s=30, cpu_s=10, memory_bytes=64 << 20, output_bytes=20_000)
BATCH, NUM_RUNS = 20, 500


PROGRAMS = tomllib.loads(Path(__file__).with_name("programs.toml").read_text(encoding="utf-8"))
KINDS = PROGRAMS["soak"]


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
            (kind,) = rng.choices(KINDS, [kind["weight"] for kind in KINDS])
            numbers = [rng.randrange(10**9) for _ in range(BATCH)]
            limits = HASTY if "hasty" in kind else PATIENT
            results = sandbox.run_many(kind["code"], map(str, numbers), limits)
            for number, result in zip(numbers, results, strict=True):
                is_wrong = kind["status"] == Status.OK and result.stdout != f"{2 * number}\n"
                if is_wrong or result.status != kind["status"]:
                    wrong[kind["code"], result.status] += 1
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
