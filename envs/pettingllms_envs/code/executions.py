"""Runs of one program on several inputs, with a bound on what a slow or wrong program costs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from pettingllms.errors import SandboxError
from pettingllms.parsing import one_line
from pettingllms.sandbox import ExecutionResult, Limits, Sandbox, Status
from pettingllms_envs.code.comparison import MAX_JSON_DEPTH, is_shallow, json_or_none
from pettingllms_envs.datasets import CodeProblem

MAX_SLOW_RUNS = 2
"""After this many runs beyond the time limit, the other runs of a program count as too slow."""

FIRST_PORTION, PORTION = 2, 4
"""Runs of a program that start together; between portions it is decided whether to stop."""

SHORT_LIMIT_S = 1.0
"""Time limit of a program that is known to be wrong: of each run after a failed golden test."""

TOO_SLOW = (Status.TIMEOUT, Status.CPU_LIMIT)

PRELUDE = "; ".join(
    [
        "import collections, functools, heapq, itertools, math, re, string, sys, typing",
        *(f"from {name} import *" for name in ("typing", "collections", "itertools", "functools")),
        *(f"from {name} import *" for name in ("heapq", "bisect", "math", "builtins")),
    ]
)
"""What graders of function problems put before a program: starter code names `List`, say, and not
the module that it is from."""
_FUTURE = re.compile(r"^from __future__ import .*\n?", re.MULTILINE)
_FILES = ("input.txt", "correct_output.txt", "solution_output.txt")
# Files that exist in memory only, because there are no others in the sandbox.
_CHECKING = f"""\
import builtins, io, json, sys
sys.argv = ["checker.py", *{_FILES}]
_files, _open = dict(zip(sys.argv[1:], json.load(sys.stdin))), open
def _open_file(name, *args, **options):
    return io.StringIO(_files[name]) if str(name) in _files else _open(name, *args, **options)
builtins.open = io.open = _open_file
"""

_OUTPUT_BYTES = 1 << 17
_NO_VALUE = f"no value was returned that JSON can express within {MAX_JSON_DEPTH} levels"


class Execution(NamedTuple):
    """What one program did on one input."""

    status: Status
    output: str
    """What was printed; for a function, the JSON of what was returned."""
    error: str = ""
    """The last line of the error output."""
    is_starved: bool = False
    """Whether the machine gave it too little processor time, even when it was repeated alone."""

    @property
    def is_ok(self) -> bool:
        """Whether the program ended well; says nothing about its output."""
        return self.status is Status.OK

    @property
    def reported(self) -> str:
        """What a prompt says about it."""
        if self.is_ok:
            return self.output if self.output.strip() else "(nothing)"
        return f"({self.status}) {self.error}".rstrip()


NOT_RUN = Execution(Status.TIMEOUT, "", f"not run: {MAX_SLOW_RUNS} other inputs took too long")


def checking(problem: CodeProblem) -> str:
    """What runs a problem's checker on a JSON list of input, expected output and output."""
    return _behind(_CHECKING, problem.checker)


def _behind(prelude: str, program: str) -> str:
    # Imports from the future come first, or not at all.
    return "".join([*_FUTURE.findall(program), prelude, "\n", _FUTURE.sub("", program)])


def in_short_time(problem: CodeProblem) -> CodeProblem:
    """A problem with a time limit of at most `SHORT_LIMIT_S`."""
    return problem._replace(time_limit_s=min(problem.time_limit_s, SHORT_LIMIT_S))


def execute(
    sandbox: Sandbox,
    problem: CodeProblem,
    program: str,
    inputs: Sequence[str],
    is_right: Callable[[Execution], bool] = lambda run: True,
    max_slow: int = MAX_SLOW_RUNS,
    output_bytes: int = 0,
) -> list[Execution]:
    """Run a program on inputs, in portions; there are fewer executions where it was too slow.

    `is_right` is called with every execution, in order. After the first that is not right, runs get
    `SHORT_LIMIT_S`; after `max_slow` runs over the time limit there are no others. A run may print
    128 KiB, or `output_bytes` if that is more.

    Raises:
        SandboxError: The sandbox itself failed.
    """
    runs: list[Execution] = []
    num_slow, is_wrong, size = 0, False, FIRST_PORTION
    while len(runs) < len(inputs) and num_slow < max_slow:
        limited = in_short_time(problem) if is_wrong else problem
        seconds = limited.time_limit_s
        limits = Limits(
            wall_s=3 * seconds + 2, cpu_s=seconds, output_bytes=max(output_bytes, _OUTPUT_BYTES)
        )
        portion = inputs[len(runs) : len(runs) + size]
        found = _execute_portion(sandbox, problem.function_name, program, portion, limits)
        is_wrong = not all([is_right(run) for run in found]) or is_wrong
        num_slow += sum(run.status in TOO_SLOW for run in found)
        runs += found
        # The first portion is small: most programs that are too slow are so on any input.
        size = PORTION
    return runs


def _execute_portion(
    sandbox: Sandbox,
    function_name: str | None,
    program: str,
    inputs: Sequence[str],
    limits: Limits,
) -> list[Execution]:
    if function_name is None:
        results = sandbox.run_many(program, inputs, limits)
        return [_checked(result, result.stdout) for result in results]
    arguments = [json_or_none(text) for text in inputs]
    usable = [args for args in arguments if isinstance(args, list)]
    program = _behind(PRELUDE, program)
    calls = iter(sandbox.run_calls(program, function_name, usable, limits) if usable else ())
    runs: list[Execution] = []
    for args in arguments:
        if not isinstance(args, list):
            problem_with_input = "the input is not a JSON list of arguments"
            runs.append(Execution(Status.ERROR, "", problem_with_input))
            continue
        call = next(calls)
        is_usable = call.has_value and is_shallow(call.value)
        run = _checked(call.execution, json.dumps(call.value) if is_usable else "")
        if run.is_ok and not is_usable:
            run = Execution(Status.ERROR, "", _NO_VALUE)
        runs.append(run)
    return runs


def _checked(result: ExecutionResult, output: str) -> Execution:
    if result.status is Status.SANDBOX_ERROR:
        raise SandboxError(f"the sandbox failed: {one_line(result.stderr, 500)}")
    last_line = result.stderr.strip().rpartition("\n")[2]
    return Execution(result.status, output, one_line(last_line, 300), result.starved)
