"""What every child does, done in the server first, with stand-ins for what cannot be undone.

What is written to for the first time after a fork costs a copy of its page. The interpreter writes
when it looks a name up for the first time and when it specialises byte code; after a rehearsal,
each child finds that done.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import linecache
import os
import resource
import socket
import sys
from collections.abc import Generator
from mmap import mmap
from typing import Any, NoReturn

from . import child, kernel, program, protocol

_TIMES = 24  # more than it takes until the interpreter specialises a function
_UNLIMITED = sys.maxsize

_INPUT = b"3 4\n"
_PROGRAM = b"""
import sys, math
from collections import Counter, defaultdict, deque
def solve(numbers):
    seen = defaultdict(list)
    for index, number in enumerate(numbers):
        seen[number].append(index)
    return max(len(places) for places in seen.values()) + math.gcd(*numbers)
class Node:
    def __init__(self, value, rest=None):
        self.value, self.rest = value, rest
numbers = list(map(int, input().split()))
queue = deque(sorted(numbers, key=lambda number: -number))
while queue:
    node = Node(queue.popleft())
words = "a b".split()
print(solve(numbers), node.value, *words, f"{numbers[0]:.2f}", Counter(words).most_common(1))
sys.stdout.write(" ".join(str(number * 2) for number in numbers) + "\\n")
for line in sys.stdin:
    print(line)
"""


@contextlib.contextmanager
def _replaced(owner: Any, **values: object) -> Generator[None, None, None]:
    kept = {name: getattr(owner, name) for name in values}
    try:
        for name, value in values.items():
            setattr(owner, name, value)
        yield
    finally:
        for name, value in kept.items():
            setattr(owner, name, value)


def _fail(code: int) -> NoReturn:
    raise RuntimeError(f"a rehearsed run ended with {code}: {sys.exc_info()[1]!r}")


def rehearse(locks: child.Locks) -> None:
    """Run a usual program in this process as if it were a child.

    Descriptors 0 and 1 must be empty memory files; they and the standard streams are empty and new
    afterwards.

    Raises:
        RuntimeError: A step of a child failed.
    """
    main = sys.modules["__main__"]
    channel, other_end = kernel.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    source = os.memfd_create("rehearsal", os.MFD_CLOEXEC)
    os.write(source, _PROGRAM)
    os.write(0, _INPUT)
    files = child.Descriptors(source, 0, 1, 2, -1)
    job = protocol.Job(
        number=0,
        program_bytes=len(_PROGRAM),
        wall_s=0.0,
        cpu_s=float(_UNLIMITED),
        memory_bytes=_UNLIMITED,
        output_bytes=_UNLIMITED,
        open_files=_UNLIMITED,
        threads=0,
        calls_function=0,
    )
    # The server needs descriptors for all its children: what bounds each of them does not bound it.
    _, own_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    locks = locks._replace(hard_limits=(*locks.hard_limits[:-1], own_files))
    if locks.server_pid:
        locks = locks._replace(server_pid=os.getppid())
    with (
        _replaced(kernel, _syscall=kernel.harmless()),
        _replaced(os, setsid=os.getpid, _exit=_fail),
        _replaced(atexit, _run_exitfuncs=os.getpid),
        _replaced(program, _exit=abs),
    ):
        for _ in range(_TIMES):
            os.lseek(0, 0, os.SEEK_SET)
            pages = [mmap(-1, resource.getpagesize()) for _ in range(2)]
            child.run(job, files, locks, channel, pages[0], pages[1:])
            other_end.recv(protocol.NUMBER.size)
    if locks.server_pid:
        kernel.prctl(kernel.PR_SET_PDEATHSIG, 0)
    for descriptor in (0, 1):
        os.ftruncate(descriptor, 0)
        os.lseek(descriptor, 0, os.SEEK_SET)
    os.close(source)
    channel.close()
    other_end.close()
    linecache.cache.clear()
    sys.modules["__main__"] = main
    program.prepare()
    gc.collect()
    gc.freeze()
