"""Honest programs beside hostile ones: `python neighbours.py TIER [names of denied calls]`.

Prints one line of JSON: every honest run whose verdict was not what it is without neighbours. The
tests call `wrong_verdicts` in their own process and run this file as another user, beside those
hostile programs only which take what the kernel counts per user.
"""

import contextlib
import json
import struct
import sys
from concurrent.futures import ThreadPoolExecutor

NUM_HOSTILE = 3

BUSY = """
import hashlib
def spin():
    while True: hashlib.pbkdf2_hmac("sha256", b"", b"", 100_000)
"""
HOSTILE = {
    "takes all threads": """
import threading, time
try:
    while True: threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
except RuntimeError:
    time.sleep(1000)
""",
    "takes threads behind Python's back": """
import ctypes, time
libc = ctypes.CDLL(None)
thread = ctypes.c_ulong()
while True:
    if libc.pthread_create(ctypes.byref(thread), None, libc.pause, None): time.sleep(0.01)
""",
    "33 busy threads": BUSY
    + """
import threading
for _ in range(32): threading.Thread(target=spin, daemon=True).start()
spin()
""",
    "starts threads and ends them": """
import threading
while True: threading.Thread(target=int).start()
""",
    "takes all memory": """
import time
kept = []
try:
    while True: kept.append(bytearray(1 << 20))
except MemoryError:
    time.sleep(1000)
""",
    "fills pipes": """
import os, time
try:
    while True:
        writer = os.pipe()[1]
        os.set_blocking(writer, False)
        try:
            while True: os.write(writer, bytes(4096))
        except BlockingIOError: pass
except OSError:
    time.sleep(1000)
""",
    "forks, kills, opens": """
import os
while True:
    for action in (os.fork, os.pipe, lambda: os.kill(-1, 9), lambda: os.open("/", 0)):
        try: action()
        except OSError: pass
""",
    "floods its output": """
import sys
while True:
    sys.stdout.write("\\x01" * 100_000)
    sys.stdout.flush()
    sys.stdout.seek(0)
""",
}

POOL = """
from concurrent.futures import ThreadPoolExecutor
import time
def work(n):
    time.sleep(0.001)
    return n * n
with ThreadPoolExecutor({}) as pool: print(sum(pool.map(work, range(200))))
"""
HONEST = {
    "adds": ("print(sum(map(int, input().split())))", "1 2 3", "6\n"),
    "computes": ("print(sum(i * i for i in range(1_000_000)))", "", "333332833333500000\n"),
    "pool of 12": (POOL.format(12), "", "2646700\n"),
    "pool of 32": (POOL.format(32), "", "2646700\n"),
    "big list": ("x = bytearray(300 << 20)\nprint(len(x))", "", f"{300 << 20}\n"),
    "long output": ("print('x' * 900_000)", "", "x" * 900_000 + "\n"),
    "asyncio": (
        "import asyncio\nasync def main(): print(await asyncio.to_thread(len, 'abc'))\n"
        "asyncio.run(main())",
        "",
        "3\n",
    ),
    "pipes": ("import os\nends = [os.pipe() for _ in range(28)]\nprint(len(ends))", "", "28\n"),
}


COUNTED_PER_USER = (
    "takes all threads",
    "takes threads behind Python's back",
    "fills pipes",
    "forks, kills, opens",
)


def wrong_verdicts(tier, hostile=tuple(HOSTILE)):
    """Run each honest program beside each hostile one; returns what went wrong, in words."""
    from pettingllms.errors import SandboxError
    from pettingllms.sandbox import Limits, Sandbox

    wrong = []
    patient = Limits(wall_s=120, cpu_s=60)
    for name in hostile:
        with (
            ThreadPoolExecutor(NUM_HOSTILE) as threads,
            Sandbox(tier, workers=NUM_HOSTILE + 2) as sandbox,
        ):
            running = [
                threads.submit(sandbox.run, HOSTILE[name], "", patient) for _ in range(NUM_HOSTILE)
            ]
            for honest, (source, stdin, expected) in HONEST.items():
                for result in sandbox.run_many(source, [stdin] * 2, patient):
                    if (result.status, result.stdout) != ("ok", expected):
                        end = result.stderr[-200:]
                        wrong.append(f"{honest} beside {name}: {result.status} {end}")
            sandbox.close()
            for run in running:
                # It still ran when the sandbox was closed, as it was meant to.
                with contextlib.suppress(SandboxError):
                    run.result()
    return wrong


def deny(numbers, seccomp):
    """Make system calls fail in this process, as a container's filter does."""
    from pettingllms.sandbox.jail import kernel

    code = struct.pack("=HBBI", 0x20, 0, 0, 0)
    for index, number in enumerate(numbers):
        code += struct.pack("=HBBI", 0x15, len(numbers) - index, 0, number)
    code += struct.pack("=HBBI", 6, 0, 0, 0x7FFF0000) + struct.pack("=HBBI", 6, 0, 0, 0x50001)
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    kernel.Filter(seccomp, code).load()


if __name__ == "__main__":
    from pettingllms.sandbox.syscalls import syscall_numbers

    table = syscall_numbers()
    if len(sys.argv) > 2:
        deny([table[name] for name in sys.argv[2].split(",")], table["seccomp"])
    print(json.dumps(wrong_verdicts(sys.argv[1], COUNTED_PER_USER)))
