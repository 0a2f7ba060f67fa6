"""Program of a verifier process: reads requests, writes verdicts, one JSON object per line.

It is started by `verifier_process.py` as a plain script with a number of seconds, imports nothing
of this project, and can be killed at any moment. A comparison that takes more processor time than
its limit is killed: math-verify's own limit works by a Python signal handler, which does not
interrupt long integer arithmetic, and time on the clock says more about the machine than the text.
So comparisons are a child's; when it dies, the number of the signal is the answer, and another
takes its place at once, for the library is loaded.
"""

from __future__ import annotations

import json
import logging
import os
import resource
import signal
import sys
from typing import Any

MEMORY_BYTES = 2 << 30

_USUAL = (("1/2", "0.5"), ("x+3", "1+x"), (r"\sqrt{12}", r"2\sqrt{3}"), ("[0,1]", r"0\le x\le 1"))
"""Compared before the first child is made: the library fills its caches, which take longer than
most comparisons."""


def _parsed(answer: str) -> list[Any]:
    # LaTeX only: the reader of plain expressions would pass model text on to sympy's parse_expr.
    return math_verify.parse(
        rf"\boxed{{{answer}}}",
        extraction_config=(math_verify.LatexExtractionConfig(boxed_match_priority=0),),
        fallback_mode="no_fallback",
        parsing_timeout=None,  # pyright: ignore[reportArgumentType]
    )


def _is_near(reference: list[Any], candidate: list[Any], tolerance: float) -> bool:
    try:
        gap = abs(float(reference[0]) - float(candidate[0]))
    except (TypeError, ValueError, OverflowError):
        return False
    return gap <= tolerance * (1 + 1e-9)


def judge(reference: str, candidate: str, tolerance: float) -> tuple[str, str]:
    """Return the name of the outcome of comparing two answers in LaTeX, and a remark."""
    wanted, given = _parsed(reference), _parsed(candidate)
    if not given:
        return "unparsable", "not a formula"
    if not wanted:
        return "verifier_failed", "the reference cannot be read"
    is_equal = math_verify.verify(
        wanted, given, timeout_seconds=None, allow_set_relation_comp=True, raise_on_error=True
    )
    if is_equal or (tolerance and _is_near(wanted, given, tolerance)):
        return "correct", ""
    return "wrong", ""


def serve(wall_limit_s: int) -> None:
    """Answer requests until standard input ends; die of one that takes longer than a limit."""
    for line in sys.stdin:
        cpu_limit_s, *request = json.loads(line)
        # Without handlers: the kernel ends the process, whatever it does. The alarm is for the
        # case that nobody is left to end a process that waits for nothing.
        signal.setitimer(signal.ITIMER_PROF, cpu_limit_s)
        signal.alarm(wall_limit_s)
        try:
            outcome, detail = judge(*request)
        except Exception as error:  # noqa: BLE001  whatever the library raises on odd mathematics
            outcome, detail = "verifier_failed", type(error).__name__
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.alarm(0)
        print(json.dumps([outcome, detail]), flush=True)  # noqa: T201  the parent reads this


def main(wall_limit_s: int) -> None:
    """Have children answer requests, one child after the other, until standard input ends."""
    for reference, candidate in _USUAL:
        judge(reference, candidate, 0.0)
    print(json.dumps("ready"), flush=True)  # noqa: T201  the parent reads this
    while True:
        # Requests come one at a time, so no child has read one that was meant for the next.
        pid = os.fork()
        if pid == 0:
            serve(wall_limit_s)
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if code >= 0:
            return
        print(json.dumps(-code), flush=True)  # noqa: T201  the parent reads this


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    import math_verify

    logging.disable(logging.CRITICAL)
    main(int(sys.argv[1]))
