"""Starting a pool of one tier, and showing that its jail holds before anything runs in it."""

from __future__ import annotations

import itertools
import logging
import os
from pathlib import Path

from pettingllms.errors import SandboxError
from pettingllms.sandbox.isolation import (
    CANARY,
    LOOKS_UP_FILES,
    Tier,
    jail_uid,
    server_config,
)
from pettingllms.sandbox.library import archive
from pettingllms.sandbox.outcome import MAX_OPEN_FILES, Limits, Status
from pettingllms.sandbox.pool import Pool
from pettingllms.sandbox.syscalls import syscall_numbers
from pettingllms.sandbox.worker import ExecutionRequest, Worker

_MAX_SERVERS = 16
_PIPE_BUDGET = Path("/proc/sys/fs/pipe-user-pages-soft")
_PAGES_PER_PIPE = 16
_CALLERS_SHARE = 4
logger = logging.getLogger(__name__)
_instances = itertools.count()


def open_jail(tier: Tier, flavour: str, workers: int) -> Pool:
    """Start a pool of one tier and show by a canary that it holds.

    Raises:
        SandboxError: The machine does not offer the tier, or the canary got out.
    """
    uid = jail_uid(os.getpid() * 31 + next(_instances))
    num_servers = min(workers, _MAX_SERVERS)
    slots = -(-workers // num_servers)
    config = server_config(tier, flavour, slots, uid, open_files_of(workers))
    library = archive(flavour)
    pool = Pool(lambda: Worker(config, library), num_servers, slots)
    try:
        _check_canary(pool, tier)
    except SandboxError:
        pool.close()
        raise
    return pool


def open_files_of(workers: int) -> int:
    """How many descriptors each of so many runs may have.

    The kernel counts the pages of all pipes of a user; beyond a budget, every further pipe of that
    user holds two pages instead of 16, whoever makes it. All runs together stay below it, with a
    quarter left for the caller.
    """
    try:
        pages = int(_PIPE_BUDGET.read_text())
    except (OSError, ValueError):
        pages = 16_384  # the kernel's own choice
    if not pages:
        return MAX_OPEN_FILES
    pipes = (pages - pages // _CALLERS_SHARE) // _PAGES_PER_PIPE // workers
    # Besides them the standard streams, and the file of a called function.
    number = min(MAX_OPEN_FILES, 2 * pipes + 4)
    if number < Limits().max_open_files:
        logger.warning(
            "each of workers=%d can open %d descriptors only, so that their pipes do not use up "
            "the budget of this user. Raise fs.pipe-user-pages-soft (now %d) for more.",
            *(workers, number, pages),
        )
    return number


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
