"""Verdicts on programs and tests."""

import json

import pytest

from pettingllms.errors import SandboxError
from pettingllms.sandbox import ExecutionResult, Status
from pettingllms_envs.code import Judge
from pettingllms_envs.code.worth import worth_of_tests
from pettingllms_envs.datasets import CodeTest


class CountingSandbox:
    """Passes calls on and counts them."""

    def __init__(self, sandbox):
        self.sandbox = sandbox
        self.calls = []

    def run_many(self, code, stdins, limits):
        self.calls.append((code, len(list(stdins))))
        return self.sandbox.run_many(code, stdins, limits)


@pytest.fixture
def counting(judge):
    sandbox = CountingSandbox(judge._sandbox)
    return Judge(sandbox), sandbox.calls


def test_all_tests_of_a_program_go_in_one_call_and_only_once(counting, double):
    judge, calls = counting
    for _ in range(3):
        assert judge.passes(double, double.solution, double.tests) == (True,) * 4
    assert calls == [(double.solution, 4)]


def test_runs_are_remembered_by_program_and_inputs(counting, double):
    judge, calls = counting
    first = judge.run(double, double.solution, ["5\n"])
    assert judge.run(double, double.solution, ["5\n"]) == first
    judge.run(double, double.solution, ["6\n"])
    judge.run(double, double.wrong_programs[0], ["5\n"])
    assert len(calls) == 3


@pytest.mark.parametrize(
    ("source", "status"),
    [
        ("print(1/0)", Status.ERROR),
        ("print(", Status.SYNTAX_ERROR),
        ("while True: pass", Status.CPU_LIMIT),
        ("import os; os._exit(3)", Status.ERROR),
        ("print('x' * 10**8)", Status.OUTPUT_LIMIT),
    ],
)
def test_programs_that_do_not_end_well_pass_nothing(judge, double, source, status):
    problem = double._replace(tests=double.tests[:1], time_limit_s=1.0)
    assert judge.run(problem, source, ["1\n"])[0].status is status
    assert judge.passes(problem, source, problem.tests) == (False,)


def test_printing_the_answer_before_crashing_is_no_pass(judge, double):
    source = "print(2 * int(input()), flush=True)\nraise SystemExit(1)\n"
    assert not any(judge.passes(double, source, double.tests))


def test_functions_are_called(judge, add):
    assert all(judge.passes(add, add.solution, add.tests))
    assert judge.passes(add, add.wrong_programs[0], add.tests) == (True, False, True)
    method = "class Solution:\n    def add(self, a, b):\n        return a + b\n"
    assert all(judge.passes(add, method, add.tests))
    assert not any(judge.passes(add, "def other(): pass", add.tests))
    assert not any(judge.passes(add, "def add(a, b): return object()", add.tests))
    runs = judge.run(add, add.solution, ["[1, 2]", "not json", "[3, 4]"])
    assert [run.output for run in runs] == ["3", "", "7"]


def test_a_failure_of_the_sandbox_is_raised_not_judged(double):
    class Broken:
        def run_many(self, code, stdins, limits):
            failed = ExecutionResult(Status.SANDBOX_ERROR, "", "gone", -1, 0, 0, 0, False)
            return [failed for _ in stdins]

    with pytest.raises(SandboxError, match="gone"):
        Judge(Broken()).passes(double, "print(1)", double.tests)


def test_bad_programs_are_wrong_end_in_time_and_stay_the_same(judge, double):
    endless = "while True: pass"
    problem = double._replace(
        id="with_endless", wrong_programs=(endless, *double.wrong_programs, double.solution)
    )
    bad = judge.bad_programs(problem)
    assert [b.source for b in bad] == list(double.wrong_programs)
    assert bad[0].failed == {2}
    assert judge.bad_programs(problem) is bad


def test_variants_of_the_solution_help_out(judge, double):
    problem = double._replace(id="without_wrong", wrong_programs=())
    bad = judge.bad_programs(problem)
    assert bad
    for program in bad:
        passed = judge.passes(problem, program.source, problem.tests)
        assert not all(passed)
        assert program.failed == {i for i, ok in enumerate(passed) if not ok}
    assert judge.bad_programs(problem._replace(solution=None)) == ()


@pytest.mark.parametrize(
    ("pairs", "value"),
    [
        ([("-3\n", "-6\n")], 1.0),  # both wrong programs fail it
        ([("5\n", "10\n")], 0.5),  # only one of them fails it
        ([("3\n", "6\n")], 0.0),  # right, but both pass it
        ([("5\n", "11\n")], 0.0),  # wrong
        ([("1\n", "2\n")], 0.0),  # the example
        ([(" 1 ", "2")], 0.0),  # the example in disguise
        ([("-02\n", "-4\n")], 0.0),  # with a zero more
        ([("-0_2\n", "-4\n")], 0.0),
        ([("-20\n", "-40\n")], 1.0),
        ([("-3\n", "-6\n"), ("5\n", "11\n")], 0.5),  # one of two is wrong
        ([("x\n", "1\n")], 0.0),  # not an input
    ],
)
def test_worth_of_tests(judge, double, pairs, value):
    tests = tuple(CodeTest(*pair) for pair in pairs)
    examples = (*double.public_tests, CodeTest("-2\n", "-4\n"))  # the second one is telling
    double = double._replace(public_tests=examples)
    worth = worth_of_tests(judge, double, tests, (), ())
    assert worth.value == value
    assert worth.judged_by == "solution"


@pytest.mark.parametrize(
    ("arguments", "value"),
    [("[-1, 2]", 0.0), ("[-1,2]", 0.0), ("[ -1 ,\n2.0]", 0.0), ("[2, -1]", 1.0), ("[-1,3]", 1.0)],
)
def test_a_call_of_the_example_is_worth_nothing_however_written(judge, add, arguments, value):
    problem = add._replace(public_tests=(CodeTest("[-1, 2]", "1"),))
    tests = (CodeTest(arguments, str(sum(json.loads(arguments)))),)
    assert worth_of_tests(judge, problem, tests, (), ()).value == value


def test_programs_of_the_episode_count_as_known_bad(judge, double):
    tests = (CodeTest("3\n", "6\n"),)
    seen = "n = int(input())\nprint(n)\n"
    worth = worth_of_tests(judge, double, tests, (seen,), ())
    assert (worth.num_bad, worth.num_exposed, worth.value) == (3, 1, pytest.approx(1 / 3))


def test_without_a_solution_passing_programs_judge(judge, double):
    problem = double._replace(id="unsolved", solution=None)
    tests = (CodeTest("-3\n", "-6\n"),)
    assert worth_of_tests(judge, problem, tests, (), ()).judged_by == "nobody"
    assert worth_of_tests(judge, problem, tests, (), ()).value == 0.0
    passing = ("print(int(input()) * 2)", "print(int(input()) << 1)", "n = input()\nprint(7)")
    worth = worth_of_tests(judge, problem, tests, (), passing)
    assert worth.judged_by == "passing programs"
    assert worth.value == 1.0
    split = ("print(int(input()) * 2)", "print(7)")
    assert worth_of_tests(judge, problem, tests, (), split).value == 0.0
