"""Verdicts on programs and tests: everything that runs in the sandbox, remembered.

An `execute` of one program on several inputs bounds what a slow or wrong program costs.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
import sys
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar, cast

from pettingllms.errors import SandboxError
from pettingllms.parsing import one_line
from pettingllms.sandbox import ExecutionResult, Limits, Sandbox, Status, default_sandbox
from pettingllms_envs.code.comparison import (
    MAX_JSON_DEPTH,
    input_extends,
    inputs_match,
    is_shallow,
    json_or_none,
    outputs_match,
    values_match,
)
from pettingllms_envs.code.known_bad import BadProgram, find_bad_programs, thoughtless_tests
from pettingllms_envs.datasets import CodeProblem, CodeTest
from pettingllms_envs.datasets.statements import accepts_any_case

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
_FUTURE = re.compile(r"^from __future__ import (?:\([^()]*\))?.*\n?", re.MULTILINE)
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
    """How the run ended; see `pettingllms.sandbox.Status`."""
    output: str
    """What was printed; for a function, the JSON of what was returned."""
    error: str = ""
    """The last line of the error output, cut at 300 characters; empty if there is none."""
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


T = TypeVar("T")

ENTRY_BYTES = 300
"""What an entry takes besides its value: the digest, its place in the table, and their lists."""


def key_of(*parts: object) -> bytes:
    """The digest that stands for parts of plain values, whatever their size."""
    written = repr(parts).encode("utf-8", errors="surrogatepass")
    return hashlib.blake2b(written, digest_size=16).digest()


def size_of(value: object) -> int:
    """The bytes of a value of texts, tuples and sets; numbers and names are shared."""
    if isinstance(value, tuple | frozenset):
        items = cast("tuple[object, ...]", value)
        return sys.getsizeof(items) + sum(map(size_of, items))
    return sys.getsizeof(value) if type(value) is str else 0


class Memory:
    """A table bounded by bytes, from which the least recently used entry goes first. Thread-safe.

    All entries together take at most `max_bytes`, by `size_of` and `ENTRY_BYTES`. What alone takes
    more is not kept.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._num_bytes = 0
        self._lock = threading.Lock()
        self._entries: OrderedDict[bytes, tuple[Any, int]] = OrderedDict()

    def recall(self, key: bytes) -> Any:
        """What is known under a key, or None."""
        with self._lock:
            if key not in self._entries:
                return None
            # What is used stays: within a run the same few problems come again and again.
            self._entries.move_to_end(key)
            return self._entries[key][0]

    def remember(self, key: bytes, value: object) -> None:
        """Keep a value under a key."""
        size = ENTRY_BYTES + size_of(value)
        with self._lock:
            self._num_bytes += size - self._entries.pop(key, (None, 0))[1]
            self._entries[key] = (value, size)
            while self._num_bytes > self._max_bytes:
                _, (_, freed) = self._entries.popitem(last=False)
                self._num_bytes -= freed


_OUTPUT_FACTOR = 8
"""A program may write this many times the bytes of the longest expected output, for decimals may
have all their digits; a function twice as many, whose value is told in JSON and as its `repr`."""

MAX_BYTES = 1 << 27
"""Bound on what a judge remembers: 128 MiB, some hundred thousand verdicts."""

_MAX_REMEMBERED_CHARS = 20_000


class Judge:
    """Runs programs on tests and remembers what happened, by program and inputs.

    What is remembered are digests and verdicts, at most `MAX_BYTES` of them. Thread-safe. The
    inputs of one program go to the sandbox in portions, so that a program that exceeds its limits
    everywhere is stopped after a few runs.

    Args:
        sandbox: Where programs run; None: the shared one.
    """

    def __init__(self, sandbox: Sandbox | None = None) -> None:
        self._sandbox = sandbox or default_sandbox()
        # Rollouts step environments in threads, and all share one judge.
        self._lock = threading.Lock()
        self._num_starved = 0
        self._memory = Memory(MAX_BYTES)

    def __reduce__(self) -> tuple[Any, ...]:
        return Judge, (self._sandbox,)

    def num_starved(self) -> int:
        """How many runs so far say more about the machine than about their program."""
        return self._num_starved

    def run(
        self, problem: CodeProblem, program: str, inputs: Sequence[str]
    ) -> tuple[Execution, ...]:
        """What a program does on inputs.

        After `MAX_SLOW_RUNS` runs that exceed the time limit the program is not run any more.

        Raises:
            SandboxError: The sandbox itself failed.
        """
        # The time limit is part of the key: the same program may end well under a longer one.
        key = key_of("run", program, problem.function_name, problem.time_limit_s, tuple(inputs))

        def find() -> tuple[Execution, ...]:
            found = self._execute(problem, program, inputs)
            return (*found, *([NOT_RUN] * (len(inputs) - len(found))))

        # Large outputs are cheap to compute again and expensive to keep.
        return self._recalled(
            key, find, lambda runs: sum(len(run.output) for run in runs) <= _MAX_REMEMBERED_CHARS
        )

    def _recalled(
        self, key: bytes, find: Callable[[], T], is_kept: Callable[[T], bool] = lambda found: True
    ) -> T:
        known: T | None = self._memory.recall(key)
        if known is None:
            # If any run was starved meanwhile, by any thread, nothing found is remembered: a slow
            # moment of the machine must not become a lasting verdict.
            num_starved = self._num_starved
            known = find()
            if self._num_starved == num_starved and is_kept(known):
                self._memory.remember(key, known)
        return known

    def passes(
        self, problem: CodeProblem, program: str, tests: tuple[CodeTest, ...]
    ) -> tuple[bool, ...]:
        """Whether a program passes, test by test.

        The work for a wrong program is bounded: after the first failed test each run gets at most
        `SHORT_LIMIT_S`, and after `MAX_SLOW_RUNS` runs that exceed their limit all other tests
        count as failed.

        Raises:
            SandboxError: The sandbox itself failed.
        """
        # Golden tests may be megabytes and are not a model's text: Python keeps the hash of each.
        parts = (problem.function_name, problem.time_limit_s, problem.checker, len(tests))
        any_case = accepts_any_case(problem.statement)
        key = key_of("passes", program, *parts, any_case, hash(tests))

        def find() -> tuple[bool, ...]:
            verdicts = self._verdicts(problem, program, tests, MAX_SLOW_RUNS)
            # Tests that were not run any more count as failed: the documented price of slowness.
            return (*verdicts, *([False] * (len(tests) - len(verdicts))))

        return self._recalled(key, find)

    def played(self, problem: CodeProblem) -> tuple[CodeProblem, str]:
        """A problem as its own solution solves it, and why that solves none of it, or "".

        Without a solution it stays as it is.

        Raises:
            SandboxError: The sandbox itself failed.
        """
        program, tests = problem.solution, (*problem.public_tests, *problem.tests)
        if program is None or all(verdicts := self.passes(problem, program, tests)):
            return problem, ""
        # Lists of one are unwrapped where rows are read, and may have been meant.
        if problem.function_name is not None:
            wrapped = [test._replace(output=f"[{test.output}]") for test in tests]
            if all(self.passes(problem, program, tuple(wrapped))):
                num_public = len(problem.public_tests)
                public, hidden = tuple(wrapped[:num_public]), tuple(wrapped[num_public:])
                return problem._replace(public_tests=public, tests=hidden), ""
        (run,) = self.run(problem, program, [tests[verdicts.index(False)].input])
        if run.status in TOO_SLOW:
            return problem, "its own solution takes longer than its time limit"
        if not run.is_ok:
            return problem, f"its own solution fails: {run.error or run.status}"
        return problem, "its own solution gives other outputs than its tests want"

    def quick_verdicts(
        self, problem: CodeProblem, program: str, tests: tuple[CodeTest, ...]
    ) -> list[bool] | None:
        """Whether a program passes each test within `SHORT_LIMIT_S`; None: too slow once."""
        verdicts = self._verdicts(in_short_time(problem), program, tests, 1)
        return verdicts if len(verdicts) == len(tests) else None

    def _verdicts(
        self, problem: CodeProblem, program: str, tests: tuple[CodeTest, ...], max_slow: int
    ) -> list[bool]:
        """Verdicts test by test; fewer than tests where `max_slow` runs were too slow."""
        verdicts: list[bool] = []

        def is_right(run: Execution) -> bool:
            # Called run by run, so that `execute` can shorten the limit after the first failure.
            verdicts.append(self.matches(problem, run, tests[len(verdicts)]))
            return verdicts[-1]

        # Output far longer than any expected one is wrong anyway; the bound keeps it small.
        size = max((len(test.output.encode("utf-8", "replace")) for test in tests), default=0)
        most = _OUTPUT_FACTOR * (size if problem.function_name is None else 2 * size)
        inputs = [test.input for test in tests]
        self._execute(problem, program, inputs, is_right, max_slow, most)
        return verdicts

    def matches(self, problem: CodeProblem, run: Execution, test: CodeTest) -> bool:
        """Whether a run ended well with a right output for a test."""
        return run.is_ok and self.agrees(problem, run.output, test)

    def agrees(self, problem: CodeProblem, actual: str, test: CodeTest) -> bool:
        """Whether an output is that of a test, or is right by the problem's own checker.

        Raises:
            SandboxError: The sandbox itself failed.
        """
        expected = test.output
        if problem.function_name is None:
            any_case = accepts_any_case(problem.statement)
            is_same = outputs_match(actual, expected, any_case=any_case)
            return is_same or bool(problem.checker and self._is_checked(problem, actual, test))
        wanted = json_or_none(expected, is_returned=True)
        if wanted is None:  # null, or no JSON at all, which nothing matches
            return actual.strip() == expected.strip() == "null"
        return values_match(json_or_none(actual, is_returned=True), wanted)

    def _is_checked(self, problem: CodeProblem, actual: str, test: CodeTest) -> bool:
        # A checker is text of a data set: it runs where the programs run, and one that fails on an
        # output has not found it right.
        stdin = json.dumps([test.input, test.output, actual])
        key = key_of("checked", problem.checker, stdin)

        def find() -> bool:
            run = self._execute(problem._replace(function_name=None), checking(problem), [stdin])[0]
            return run.is_ok and run.output.strip() == "1"

        return self._recalled(key, find)

    def bad_programs(self, problem: CodeProblem) -> tuple[BadProgram, ...]:
        """The known-bad programs of a problem, searched for once; see `find_bad_programs`.

        Raises:
            SandboxError: The sandbox itself failed.
        """
        key = key_of("bad", problem.id, problem.solution, hash(problem))
        verdicts = functools.partial(self.quick_verdicts, problem)
        return self._recalled(
            key, lambda: find_bad_programs(problem, verdicts, self.easy_tests(problem, ()))
        )

    def easy_tests(self, problem: CodeProblem, passing: Sequence[str]) -> tuple[CodeTest, ...]:
        """The right and new ones of `thoughtless_tests`; none where nobody can be asked.

        Raises:
            SandboxError: The sandbox itself failed.
        """
        tests = tuple(thoughtless_tests(problem))
        right = self.right_tests(problem, tests, passing) or ()
        return tuple(test for test in right if self.adds_to_examples(problem, test))

    def adds_to_examples(self, problem: CodeProblem, test: CodeTest) -> bool:
        """Whether a test is more than an example written otherwise.

        It is not where its input is that of an example, however it is written, or holds all tokens
        of an example in their order and the output is the same: whatever was added, such as a line
        that no program needs to read, had no effect.
        """
        is_call = problem.function_name is not None
        # Without this a tester could copy an example, whose output is known to be right, and
        # collect the reward of a new test.
        return not any(
            inputs_match(test.input, example.input, is_call=is_call)
            or (
                not is_call
                and input_extends(test.input, example.input)
                and self.agrees(problem, test.output, example)
            )
            for example in problem.public_tests
        )

    def right_tests(
        self, problem: CodeProblem, tests: tuple[CodeTest, ...], passing: Sequence[str]
    ) -> tuple[CodeTest, ...] | None:
        """The tests that claim a trusted output, or None where no program can be asked.

        Raises:
            SandboxError: The sandbox itself failed.
        """
        inputs = tuple(dict.fromkeys(test.input for test in tests))
        # The output that a test claims is never trusted: a tester would agree with itself.
        outputs = self.trusted_outputs(problem, passing, inputs)
        if outputs is None:
            return None
        trusted = dict(zip(inputs, outputs, strict=True))
        return tuple(
            test
            for test in tests
            if (output := trusted[test.input]) is not None
            and self.agrees(problem, test.output, test._replace(output=output))
        )

    def exposes(self, problem: CodeProblem, program: str, tests: tuple[CodeTest, ...]) -> bool:
        """Whether right tests show that a program is wrong.

        A crash or a wrong output shows it. Slowness shows nothing: else large inputs would be worth
        more than good ones.

        Raises:
            SandboxError: The sandbox itself failed.
        """
        quick = in_short_time(problem)
        runs = self.run(quick, program, [test.input for test in tests])
        return any(
            run.status not in TOO_SLOW and not self.matches(problem, run, test)
            for run, test in zip(runs, tests, strict=True)
        )

    def trusted_outputs(
        self, problem: CodeProblem, passing: Sequence[str], inputs: Sequence[str]
    ) -> list[str | None] | None:
        """The right output of each input, or None where no program can be asked.

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

    def _execute(
        self, problem: CodeProblem, program: str, inputs: Sequence[str], *options: Any
    ) -> list[Execution]:
        """Run a program (see `execute`), and count the runs that were starved.

        Those say more about the machine than about their program: nothing is remembered that was
        found out while there was one, by whichever thread.
        """
        found = execute(self._sandbox, problem, program, inputs, *options)
        with self._lock:
            self._num_starved += sum(run.is_starved for run in found)
        return found


def _agreed(runs: Sequence[Execution]) -> str | None:
    # Compared by tokens, as judged by default; a majority must agree, so that one lucky program
    # cannot decide alone what is right.
    outputs = Counter(" ".join(run.output.split()) for run in runs if run.is_ok)
    if not outputs:
        return None
    output, count = outputs.most_common(1)[0]
    if 2 * count <= len(runs):
        return None
    return next(run.output for run in runs if " ".join(run.output.split()) == output)


@functools.cache
def default_judge() -> Judge:
    """The judge that all environments of this process share."""
    return Judge()


class Worth(NamedTuple):
    """A judgement on the tests of one turn."""

    num_given: int
    """Tests of the turn."""
    num_right: int
    """Tests that agree with the solution and neither repeat nor pad an example."""
    num_bad: int
    """Known-bad programs that no thoughtless test exposes."""
    num_exposed: int
    """Known-bad programs that fail a right test."""
    judged_by: str
    """`solution`, `passing programs`, or `nobody`."""
    value: float
    """From 0 to 1: the share of right tests times the share of exposed programs."""

    def facts(self) -> dict[str, Any]:
        """The judgement under the names that `infos` use."""
        return {
            "tests_given": self.num_given,
            "tests_right": self.num_right,
            "bad_known": self.num_bad,
            "bad_exposed": self.num_exposed,
            "judged_by": self.judged_by,
        }


def worth_of_tests(
    judge: Judge,
    problem: CodeProblem,
    tests: tuple[CodeTest, ...],
    passing: Sequence[str],
) -> Worth:
    """What tests are worth, of which there is at least one.

    Programs of the episode that passed all golden tests judge where the problem has no solution.

    Raises:
        SandboxError: The sandbox itself failed.
    """
    judged_by = "solution" if problem.solution is not None else "passing programs"
    agreeing = judge.right_tests(problem, tests, passing)
    if agreeing is None:
        return Worth(len(tests), 0, 0, 0, "nobody", 0.0)
    right = tuple(test for test in agreeing if judge.adds_to_examples(problem, test))
    bad = _challenging(judge, problem, passing)
    exposed = sum(judge.exposes(problem, program.source, right) for program in bad) if right else 0
    # A product: only tests that are right and telling pay, and adding wrong tests to right ones
    # lowers the worth.
    value = len(right) / len(tests) * exposed / len(bad) if bad else 0.0
    return Worth(len(tests), len(right), len(bad), exposed, judged_by, value)


def _challenging(
    judge: Judge, problem: CodeProblem, passing: Sequence[str]
) -> tuple[BadProgram, ...]:
    """The known-bad programs that no thoughtless test exposes.

    Programs of the episode do not count: a coder could write one that any test exposes.
    """
    bad = judge.bad_programs(problem)
    # With a solution they were found so; without one, right tests are known in the episode only.
    easy = judge.easy_tests(problem, passing) if problem.solution is None else ()
    return tuple(b for b in bad if not (easy and judge.exposes(problem, b.source, easy)))
