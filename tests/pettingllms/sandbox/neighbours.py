"""Honest programs beside hostile ones: `python neighbours.py TIER [names of denied calls]`.

Prints one line of JSON: every honest run whose verdict was not what it is without neighbours. The
tests call `wrong_verdicts` in their own process and run this file as another user, beside those
hostile programs only which take what the kernel counts per user.
"""

import contextlib
import json
import struct
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

NUM_HOSTILE = 3
PROGRAMS = tomllib.loads(Path(__file__).with_name("programs.toml").read_text(encoding="utf-8"))
HOSTILE = {one["name"]: one["code"] for one in PROGRAMS["hostile"]}
COUNTED_PER_USER = tuple(one["name"] for one in PROGRAMS["hostile"] if "per_user" in one)
HONEST = [(o["name"], o["code"], o.get("stdin", ""), o["stdout"]) for o in PROGRAMS["neighbour"]]
HONEST += [("long output", "print('x' * 900_000)", "", "x" * 900_000 + "\n")]


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
            for honest, source, stdin, expected in HONEST:
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
    from pettingllms.sandbox.filter import syscall_numbers

    table = syscall_numbers()
    if len(sys.argv) > 2:
        deny([table[name] for name in sys.argv[2].split(",")], table["seccomp"])
    print(json.dumps(wrong_verdicts(sys.argv[1], COUNTED_PER_USER)))
