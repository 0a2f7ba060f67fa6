"""Verdicts on programs and tests: everything that runs in the sandbox, remembered."""

from __future__ import annotations

import json
import threading
from collections import Counter, OrderedDict
from collections.abc import Sequence
from typing import Any, NamedTuple

from pettingllms.errors import SandboxError
from pettingllms.parsing import one_line
from pettingllms.sandbox import ExecutionResult, Limits, Sandbox, Status, default_sandbox
from pettingllms_envs.code.comparison import (
    MAX_JSON_DEPTH,
    is_shallow,
    json_or_none,
    outputs_match,
    values_match,
)
from pettingllms_envs.code.mutants import mutants
from pettingllms_envs.datasets import CodeProblem, CodeTest

NUM_BAD_PROGRAMS = 6
"""Most known-bad programs that judge the tests of a problem."""

_ENOUGH_BAD_PROGRAMS = 2
"""With fewer of the source's own, variants of the solution are added."""

_MAX_TRIED = 12
_PORTION = 3
_BAD_PROGRAM_LIMIT_S = 1.0
_MAX_REMEMBERED_RUNS = 20_000
_MAX_REMEMBERED_CHARS = 20_000
_NO_VALUE = f"no value was returned that JSON can express within {MAX_JSON_DEPTH} levels"
_TOO_SLOW = (Status.TIMEOUT, Status.CPU_LIMIT)


class Run(NamedTuple):
    """What one program did on one input."""

    status: Status
    output: str
    """What was printed; for a function, the JSON of what was returned."""
    error: str = ""
    """The last line of the error output."""

    @property
    def is_ok(self) -> bool:
        """Whether the program ended well; says nothing about its output."""
        return self.status is Status.OK

    @property
    def told(self) -> str:
        """What a prompt says about it."""
        if self.is_ok:
            return self.output if self.output.strip() else "(nothing)"
        return f"({self.status}) {self.error}".rstrip()


class BadProgram(NamedTuple):
    """A program known to be wrong, and the golden tests that show it."""

    source: str
    failed: frozenset[int]
    """Numbers of the golden tests that it fails."""


class Judge:
    """Runs programs on tests and remembers what happened, by program and inputs.

    Thread-safe. All inputs of one program go to the sandbox in one call.

    Args:
        sandbox: Where programs run; None: the shared one.
        exact: Compare printed texts character by character instead of token by token.
    """

    def __init__(self, sandbox: Sandbox | None = None, *, exact: bool = False) -> None:
        self._sandbox = sandbox or default_sandbox()
        self._exact = exact
        self._lock = threading.Lock()
        self._runs: OrderedDict[tuple[Any, ...], tuple[Run, ...]] = OrderedDict()
        self._passed: OrderedDict[tuple[Any, ...], tuple[bool, ...]] = OrderedDict()
        self._bad: OrderedDict[tuple[Any, ...], tuple[BadProgram, ...]] = OrderedDict()

    def __reduce__(self) -> tuple[Any, ...]:
        return _judge, (self._sandbox, self._exact)

    def run(self, problem: CodeProblem, program: str, inputs: Sequence[str]) -> tuple[Run, ...]:
        """Return what a program does on inputs.

        Raises:
            SandboxError: The sandbox itself failed.
        """
        key = (program, problem.function_name, problem.time_limit_s, tuple(inputs))
        known = self._recall(self._runs, key)
        if known is not None:
            return known
        runs = tuple(self._execute(problem, program, inputs))
        if sum(len(run.output) for run in runs) <= _MAX_REMEMBERED_CHARS:
            self._remember(self._runs, key, runs)
        return runs

    def passes(
        self, problem: CodeProblem, program: str, tests: tuple[CodeTest, ...]
    ) -> tuple[bool, ...]:
        """Return, test by test, whether a program passes.

        Raises:
            SandboxError: The sandbox itself failed.
        """
        key = (program, problem.function_name, problem.time_limit_s, tests)
        known = self._recall(self._passed, key)
        if known is None:
            runs = self._execute(problem, program, [test.input for test in tests])
            pairs = zip(runs, tests, strict=True)
            known = tuple(self.matches(problem, run, test.output) for run, test in pairs)
            self._remember(self._passed, key, known)
        return known

    def matches(self, problem: CodeProblem, run: Run, expected: str) -> bool:
        """Return whether a run ended well with the expected output."""
        return run.is_ok and self.agrees(problem, run.output, expected)

    def agrees(self, problem: CodeProblem, actual: str, expected: str) -> bool:
        """Return whether an output is the expected one."""
        if problem.function_name is None:
            return outputs_match(actual, expected, exact=self._exact)
        wanted = json_or_none(expected)
        if wanted is None:  # null, or no JSON at all, which nothing matches
            return actual.strip() == expected.strip() == "null"
        return values_match(json_or_none(actual), wanted)

    def bad_programs(self, problem: CodeProblem) -> tuple[BadProgram, ...]:
        """Return programs known to be wrong, for judging tests; the same ones at every call.

        They are the source's own wrong programs and, where these are few, variants of its solution.
        Each fails a golden test in time. Those that pass some test come first, because the others
        are no challenge.

        Raises:
            SandboxError: The sandbox itself failed.
        """
        key = (problem.id, problem.solution, problem.wrong_programs, problem.tests)
        known = self._recall(self._bad, key)
        if known is None:
            found = self._judged(problem, problem.wrong_programs[:_MAX_TRIED])
            if len(found) < _ENOUGH_BAD_PROGRAMS and problem.solution is not None:
                found += self._judged(problem, mutants(problem.solution, _MAX_TRIED))
            found.sort(key=lambda bad: len(bad.failed) == len(problem.tests))
            known = tuple(found[:NUM_BAD_PROGRAMS])
            self._remember(self._bad, key, known)
        return known

    def _judged(self, problem: CodeProblem, programs: Sequence[str]) -> list[BadProgram]:
        """Return the programs that are wrong and end in time, with what shows it."""
        quick = _in_short_time(problem)
        order = sorted(range(len(problem.tests)), key=lambda i: len(problem.tests[i].input))
        found: list[BadProgram] = []
        for program in programs:
            failed: set[int] | None = set()
            # In small portions: a program that never ends must not cost a limit for every test.
            for start in range(0, len(order), _PORTION):
                portion = order[start : start + _PORTION]
                runs = self._execute(quick, program, [problem.tests[i].input for i in portion])
                if any(run.status in _TOO_SLOW for run in runs):
                    failed = None
                    break
                failed |= {
                    i
                    for i, run in zip(portion, runs, strict=True)
                    if not self.matches(problem, run, problem.tests[i].output)
                }
            if failed:
                found.append(BadProgram(program, frozenset(failed)))
            if len(found) == NUM_BAD_PROGRAMS:
                break
        return found

    def exposes(self, problem: CodeProblem, program: str, tests: tuple[CodeTest, ...]) -> bool:
        """Return whether right tests show that a program is wrong.

        A crash or a wrong output shows it. Slowness shows nothing: else large inputs would be worth
        more than good ones.

        Raises:
            SandboxError: The sandbox itself failed.
        """
        quick = _in_short_time(problem)
        runs = self.run(quick, program, [test.input for test in tests])
        return any(
            run.status not in _TOO_SLOW and not self.matches(problem, run, test.output)
            for run, test in zip(runs, tests, strict=True)
        )

    def trusted_outputs(
        self, problem: CodeProblem, passing: Sequence[str], inputs: Sequence[str]
    ) -> list[str | None] | None:
        """Return the right output of each input, or None where there is nobody to ask.

        The solution is asked; without one, the programs that passed all golden tests, of which
        more than half must print the same. An input has no right output (None in the list) where
        these fail or differ.

        Raises:
            SandboxError: The sandbox itself failed.
        """
        sources = passing if problem.solution is None else (problem.solution,)
        if not sources:
            return None
        runs = [self.run(problem, source, inputs) for source in sources]
        return [_agreed([run[i] for run in runs]) for i in range(len(inputs))]

    def _execute(self, problem: CodeProblem, program: str, inputs: Sequence[str]) -> list[Run]:
        seconds = problem.time_limit_s
        limits = Limits(wall_s=3 * seconds + 2, cpu_s=seconds)
        if problem.function_name is None:
            results = self._sandbox.run_many(program, inputs, limits)
            return [_checked(result, result.stdout) for result in results]
        arguments = [json_or_none(text) for text in inputs]
        usable = [args for args in arguments if isinstance(args, list)]
        calls = iter(
            self._sandbox.run_calls(program, problem.function_name, usable, limits)
            if usable
            else ()
        )
        runs: list[Run] = []
        for args in arguments:
            if not isinstance(args, list):
                runs.append(Run(Status.ERROR, "", "the input is not a JSON list of arguments"))
                continue
            call = next(calls)
            is_usable = call.has_value and is_shallow(call.value)
            run = _checked(call.execution, json.dumps(call.value) if is_usable else "")
            if run.is_ok and not is_usable:
                run = Run(Status.ERROR, "", _NO_VALUE)
            runs.append(run)
        return runs

    def _recall(self, table: OrderedDict[tuple[Any, ...], Any], key: tuple[Any, ...]) -> Any:
        with self._lock:
            known = table.get(key)
            if known is not None:
                table.move_to_end(key)
            return known

    def _remember(
        self, table: OrderedDict[tuple[Any, ...], Any], key: tuple[Any, ...], value: Any
    ) -> None:
        with self._lock:
            table[key] = value
            if len(table) > _MAX_REMEMBERED_RUNS:
                table.popitem(last=False)


def _in_short_time(problem: CodeProblem) -> CodeProblem:
    return problem._replace(time_limit_s=min(problem.time_limit_s, _BAD_PROGRAM_LIMIT_S))


def _judge(sandbox: Sandbox, exact: bool) -> Judge:
    return Judge(sandbox, exact=exact)


def _checked(result: ExecutionResult, output: str) -> Run:
    if result.status is Status.SANDBOX_ERROR:
        raise SandboxError(f"the sandbox failed: {one_line(result.stderr, 500)}")
    last_line = result.stderr.strip().rpartition("\n")[2]
    return Run(result.status, output, one_line(last_line, 300))


def _agreed(runs: Sequence[Run]) -> str | None:
    outputs = Counter(" ".join(run.output.split()) for run in runs if run.is_ok)
    if not outputs:
        return None
    output, count = outputs.most_common(1)[0]
    if 2 * count <= len(runs):
        return None
    return next(run.output for run in runs if " ".join(run.output.split()) == output)


_default: Judge | None = None
_default_lock = threading.Lock()


def default_judge() -> Judge:
    """Return the judge that all environments of this process share."""
    global _default
    with _default_lock:
        if _default is None:
            _default = Judge()
        return _default
