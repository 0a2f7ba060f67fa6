"""Starting a pool of one tier, and showing that its jail holds before anything runs in it."""

from __future__ import annotations

import itertools
import os

from pettingllms.errors import SandboxError
from pettingllms.sandbox.isolation import (
    CANARY,
    LOOKS_UP_FILES,
    Tier,
    jail_uid,
    server_config,
)
from pettingllms.sandbox.library import archive
from pettingllms.sandbox.outcome import Limits, Status
from pettingllms.sandbox.pool import Pool
from pettingllms.sandbox.syscalls import syscall_numbers
from pettingllms.sandbox.worker import ExecutionRequest, Worker

_MAX_SERVERS = 16
_instances = itertools.count()


def open_jail(tier: Tier, flavour: str, workers: int) -> Pool:
    """Start a pool of one tier and show by a canary that it holds.

    Raises:
        SandboxError: The machine does not offer the tier, or the canary got out.
    """
    uid = jail_uid(os.getpid() * 31 + next(_instances))
    num_servers = min(workers, _MAX_SERVERS)
    slots = -(-workers // num_servers)
    config = server_config(tier, flavour, slots, uid)
    library = archive(flavour)
    pool = Pool(lambda: Worker(config, library), num_servers, slots)
    try:
        _check_canary(pool, tier)
    except SandboxError:
        pool.close()
        raise
    return pool


def _check_canary(pool: Pool, tier: Tier) -> None:
    numbers = syscall_numbers()
    stdin = f"{numbers['newfstatat']} {numbers['statx']}".encode()
    result, _ = pool.submit(ExecutionRequest(CANARY.encode(), stdin, Limits())).result()
    if result.status is not Status.OK:
        last_line = result.stderr.strip().rpartition("\n")[2]
        raise SandboxError(f"a canary in the jail ended with {result.status}: {last_line}")
    *possible, end = result.stdout.splitlines()
    if not pool.facts["hides_files"]:
        possible = [name for name in possible if name != LOOKS_UP_FILES]
    if possible or end != "end":
        raise SandboxError(f"the jail {tier!s} does not hold; in it one can {', '.join(possible)}")
