"""Verdicts on programs and tests, and what a judge remembers."""

import json
import random
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pettingllms.edits import EDITS
from pettingllms.errors import InvalidArgument, SandboxError
from pettingllms.sandbox import ExecutionResult, Status
from pettingllms_envs.code import Judge, judge
from pettingllms_envs.code import judge as judging
from pettingllms_envs.code.env import problem_table
from pettingllms_envs.datasets import CodeProblem, CodeTest

WORTH = json.loads(Path(__file__).with_name("worth.json").read_text("utf-8"))
"""Why, the tests of a tester, and their worth."""


class ScriptedSandbox:
    """Ends every run as a script says: program, input -> status and output."""

    def __init__(self, script):
        self.script = script
        self.runs = []

    def run_many(self, code, stdins, limits):
        results = []
        for stdin in stdins:
            self.runs.append((code, stdin, limits))
            status, output = self.script(code, stdin)
            told = output if status is Status.SANDBOX_ERROR else ""
            results.append(ExecutionResult(status, output, told, 0, 0.0, 0.0, 0, truncated=False))
        return results


CHECKER = """
from __future__ import annotations
import sys
from pathlib import Path
given, wanted, answer = (open(path).read().split() for path in sys.argv[1:])
first, second = map(int, answer)
print(1 if first + second == int(given[0]) else 0)
"""


@pytest.mark.parametrize(
    ("program", "is_right"),
    [
        ("print(1, int(input()) - 1)", True),
        ("print(int(input()), 0)", True),
        ("print(1, 1)", False),
        ("print('?')", False),
        ("print(1)", False),
    ],
)
def test_a_checker_of_the_data_decides_where_several_outputs_are_right(judge, program, is_right):
    problem = CodeProblem("sum", "Print any pair.", (CodeTest("7", "3 4"),), checker=CHECKER)
    assert judge.passes(problem, program, problem.tests) == (is_right,)


@pytest.mark.parametrize(
    ("checker", "is_right"),
    [("1/0", False), ("print()", False), ("print(100)", False), ("print('1')", True)],
)
def test_a_checker_that_fails_has_found_nothing_right(judge, checker, is_right):
    problem = CodeProblem("any", "Print any.", (CodeTest("7", "3 4"),), checker=checker)
    assert judge.passes(problem, "print(3, 4)", problem.tests) == (True,), "the expected output"
    assert judge.passes(problem, "print(4, 3)", problem.tests) == (is_right,)


def test_letters_may_have_any_case_where_the_statement_says_so(judge):
    test, program = CodeTest("", "YES"), "print('yEs')"
    for statement, is_right in (
        ("Print YES. You can print each letter in any case.", True),
        ("Print YES.", False),
    ):
        problem = CodeProblem("yes", statement, (test,))
        assert judge.passes(problem, program, problem.tests) == (is_right,)


def test_numbers_of_thousands_of_digits_are_printed_and_compared(judge):
    problem = CodeProblem("power", "Print it.", (CodeTest("", str(10**2000) * 3 + "1"),))
    program = "print((10**6003 - 1) // 9 * 0 + int('{}'))"
    for number, is_right in ((problem.tests[0].output, True), (str(10**2000) * 3 + "2", False)):
        assert judge.passes(problem, program.format(number), problem.tests) == (is_right,)


def test_numbers_of_thousands_of_digits_are_returned_and_compared(judge):
    digits = "7" * 6000
    problem = CodeProblem(
        "power", "Return it.", (CodeTest("[3]", f"[{digits}]"),), function_name="f"
    )
    for number, is_right in (("7", True), ("8", False)):
        program = f"def f(n):\n    return [7 * (10**6000 - 1) // 9 - 7 + {number}]"
        assert judge.passes(problem, program, problem.tests) == (is_right,)
    program = f"def f(n):\n    return ['{digits}']"
    assert judge.passes(problem, program, problem.tests) == (False,), "digits are no number"


@pytest.mark.parametrize(
    "future",
    [
        "",
        "from __future__ import annotations\n",
        "from __future__ import (\n    annotations,\n)\n",
        "from __future__ import (annotations)  # lazy\n",
    ],
)
def test_starter_code_needs_no_imports(judge, add, future):
    lines = ["def add(a: List[int], b: Optional[int]) -> int:", "    return pow(a + b, 1)"]
    assert judge.passes(add, future + "\n".join(lines), add.tests) == (True,) * 3


MANY = CodeProblem(
    id="many",
    statement="Print the number.",
    tests=tuple(CodeTest(str(n), str(n)) for n in range(30)),
    public_tests=(CodeTest("99", "99"),),
    solution="right",
    wrong_programs=tuple(f"wrong {n}" for n in range(40)),
    time_limit_s=4.0,
)


REST = 30 - judging.FIRST_PORTION


@pytest.mark.parametrize(
    ("status", "output", "limits"),
    [
        (Status.CPU_LIMIT, "", [4.0] * judging.FIRST_PORTION),
        (Status.OK, "no", [4.0] * judging.FIRST_PORTION + [judging.SHORT_LIMIT_S] * REST),
        (Status.OK, None, [4.0] * 30),
    ],
    ids=["never ends", "wrong", "right"],
)
def test_how_much_time_a_program_gets_for_its_tests(status, output, limits):
    """One that never ends has no more runs; without an output here it repeats its input."""
    sandbox = ScriptedSandbox(lambda code, stdin: (status, stdin if output is None else output))
    passed = Judge(sandbox).passes(MANY, "program", MANY.tests)
    assert passed == (output is None,) * 30
    assert [given.cpu_s for _, _, given in sandbox.runs] == limits


@pytest.mark.parametrize("num_right", range(0, 30, 3))
@pytest.mark.parametrize("status", [Status.CPU_LIMIT, Status.TIMEOUT])
def test_few_runs_of_one_program_exceed_the_limit(num_right, status):
    """Whatever a program does, the number of slow runs is bounded, and the rest is cheap."""

    def script(code, stdin):
        return (Status.OK, stdin) if int(stdin) < num_right else (status, "")

    sandbox = ScriptedSandbox(script)
    passed = Judge(sandbox).passes(MANY, "slow", MANY.tests)
    assert passed == tuple(n < num_right for n in range(30))
    assert len(sandbox.runs) - num_right <= judging.MAX_SLOW_RUNS - 1 + judging.PORTION


def test_the_output_that_is_read_is_bounded_by_what_is_expected():
    sandbox = ScriptedSandbox(lambda code, stdin: (Status.OK, stdin))
    long = MANY._replace(tests=(*MANY.tests, CodeTest("1", "7" * 100_000)))
    for problem, largest in ((MANY, 1 << 17), (long, 800_000)):
        Judge(sandbox).passes(problem, "right", problem.tests)
        assert sandbox.runs[-1][2].output_bytes == largest


@pytest.mark.parametrize(
    ("value", "shown"),
    [(["\N{GRINNING FACE}" * 100] * 600, "\N{GRINNING FACE}" * 100), ([0.1 + 0.2] * 30_000, "0.3")],
    ids=["bytes of characters", "digits of decimals"],
)
def test_long_right_outputs_are_right_however_they_are_written(judge, value, shown):
    quoted = shown if shown == "0.3" else f'"{shown}"'
    tests = {
        None: ("", "\n".join([shown] * len(value))),
        "f": ("[]", f"[{','.join([quoted] * len(value))}]"),
    }
    program = f"def f(): return [{value[0]!r}] * {len(value)}\nprint(*f())"
    for name, test in tests.items():
        problem = CodeProblem("long", "Say it.", (CodeTest(*test),), function_name=name)
        assert judge.passes(problem, program, problem.tests) == (True,)


def test_the_worst_turn_of_a_tester_costs_a_fixed_number_of_runs():
    """The solution, the known-bad programs and the coder's program, once per test each."""

    def script(code, stdin):
        if code == "right":
            return Status.OK, stdin
        is_hidden = stdin in ("7", "5000")
        return (
            (Status.CPU_LIMIT, "") if stdin == "5000" else (Status.OK, "" if is_hidden else stdin)
        )

    sandbox = ScriptedSandbox(script)
    judge = Judge(sandbox)
    assert len(judge.bad_programs(MANY)) == 6
    found = len(sandbox.runs)
    assert found <= 12 * 17, "finding the known-bad programs, once per problem"
    worth = judging.worth_of_tests(judge, MANY, (CodeTest("5000", "5000"),), ())
    assert (worth.num_right, worth.num_exposed, worth.value) == (1, 0, 0.0)
    assert len(sandbox.runs) - found == 1 + 6
    assert {limits.cpu_s for code, _, limits in sandbox.runs[found:] if code != "right"} == {1.0}


def test_runs_are_remembered_by_program_and_inputs(double):
    judge = Judge(sandbox := Echo())
    first = judge.run(double, double.solution, ["5\n"])
    assert judge.run(double, double.solution, ["5\n"]) == first
    judge.run(double, double.solution, ["6\n"])
    judge.run(double, double.wrong_programs[0], ["5\n"])
    assert sandbox.num_runs == 3


@pytest.mark.parametrize(
    ("source", "statuses"),
    [
        ("print(1/0)", {Status.ERROR}),
        ("print(", {Status.SYNTAX_ERROR}),
        # On a busy machine, it may run out of time on the clock before its processor time is used.
        ("while True: pass", {Status.CPU_LIMIT, Status.TIMEOUT}),
        ("import os; os._exit(3)", {Status.ERROR}),
        ("print('x' * 10**8)", {Status.OUTPUT_LIMIT}),
    ],
)
def test_programs_that_do_not_end_well_pass_nothing(judge, double, source, statuses):
    problem = double._replace(tests=double.tests[:1], time_limit_s=1.0)
    assert judge.run(problem, source, ["1\n"])[0].status in statuses
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
    broken = ScriptedSandbox(lambda code, stdin: (Status.SANDBOX_ERROR, "gone"))
    with pytest.raises(SandboxError, match="gone"):
        Judge(broken).passes(double, "print(1)", double.tests)


def test_bad_programs_are_wrong_end_in_time_and_stay_the_same(judge, double):
    endless, nothing = "while True: pass", "print('zzz')"
    problem = double._replace(
        id="with_endless",
        wrong_programs=(endless, nothing, *double.wrong_programs, double.solution),
    )
    bad = judge.bad_programs(problem)
    assert [b.source for b in bad] == list(double.wrong_programs)
    assert [b.failed for b in bad] == [{2}, {2, 3}, {2}]
    assert judge.bad_programs(problem) == bad


def test_programs_that_an_example_exposes_only_fill_up(judge, double):
    weak = ("n = int(input())\nprint(n + 3)\n", "n = int(input())\nprint(2 * n - (n % 2))\n")
    sources = (*weak, *double.wrong_programs)
    problem = double._replace(id="with_weak", wrong_programs=sources)
    bad = judge.bad_programs(problem)
    assert [b.source for b in bad] == list(double.wrong_programs)
    problem = double._replace(id="weak", wrong_programs=(*weak, double.wrong_programs[0]))
    bad = judge.bad_programs(problem)
    assert bad[0].source == double.wrong_programs[0]
    assert [b.passes_examples for b in bad] == [True, False, False]
    assert len(bad[1].failed) <= len(bad[2].failed)


def test_variants_of_the_solution_help_out(judge, double):
    problem = double._replace(id="without_wrong", wrong_programs=())
    bad = judge.bad_programs(problem)
    assert bad
    for program in bad:
        passed = judge.passes(problem, program.source, problem.tests)
        assert not all(passed)
        assert program.failed == {i for i, ok in enumerate(passed) if not ok}
    assert judge.bad_programs(problem._replace(solution=None)) == ()


@pytest.mark.parametrize(("why", "pairs", "value"), WORTH)
def test_worth_of_tests(judge, double, why, pairs, value):
    tests = tuple(CodeTest(*pair) for pair in pairs)
    examples = (*double.public_tests, CodeTest("-2\n", "-4\n"))  # the second one is telling
    double = double._replace(public_tests=examples)
    worth = judging.worth_of_tests(judge, double, tests, ())
    assert worth.value == pytest.approx(value), why
    assert worth.judged_by == "solution"


@pytest.mark.parametrize(
    ("arguments", "value"),
    [("[-1, 2]", 0.0), ("[-1,2]", 0.0), ("[ -1 ,\n2.0]", 0.0), ("[1, 0]", 1.0), ("[1,3]", 1.0)],
)
def test_a_call_of_the_example_is_worth_nothing_however_written(judge, add, arguments, value):
    wrong = "def add(a, b):\n    return 0 if a == 1 else a + b\n"
    problem = add._replace(public_tests=(CodeTest("[-1, 2]", "1"),), wrong_programs=(wrong,))
    tests = (CodeTest(arguments, str(sum(json.loads(arguments)))),)
    assert judging.worth_of_tests(judge, problem, tests, ()).value == value


ABOVE_FOUR = CodeProblem(
    id="above_four",
    statement="Print the sum of the numbers.",
    tests=tuple(CodeTest(text, str(sum(map(int, text.split())))) for text in ("1 1", "9 8", "7 7")),
    public_tests=(CodeTest("3 5", "8"),),
    solution="print(sum(map(int, input().split())))\n",
    wrong_programs=(
        "a, b = map(int, input().split())\nprint(a + b if a < b else 7)\n",  # 5 3 shows it
        "a, b = map(int, input().split())\nprint(a + b if b != 6 else 7)\n",  # and 3 6 this
        "a, b = map(int, input().split())\nprint(a + b if a < 7 else 7)\n",
    ),
)


@pytest.mark.parametrize("edit", EDITS)
@pytest.mark.parametrize("output", ["7", "8", "9"])
@pytest.mark.parametrize("has_solution", [True, False])
def test_an_example_that_is_edited_without_thought_is_worth_nothing(
    judge, edit, output, has_solution
):
    solution = ABOVE_FOUR.solution if has_solution else None
    problem = ABOVE_FOUR._replace(id=f"above_{has_solution}", solution=solution)
    passing = () if has_solution else (ABOVE_FOUR.solution,)
    edited = CodeTest(EDITS[edit]("3 5"), output)
    assert judging.worth_of_tests(judge, problem, (edited,), passing).value == 0
    honest = judging.worth_of_tests(judge, problem, (CodeTest("8 9", "17"),), passing)
    assert (honest.value, honest.num_bad) == (1.0, 1), "of three one takes more than an edit"


def test_without_a_solution_passing_programs_judge(judge, double):
    problem = double._replace(id="unsolved", solution=None)
    tests = (CodeTest("-3\n", "-6\n"),)
    assert judging.worth_of_tests(judge, problem, tests, ()).judged_by == "nobody"
    assert judging.worth_of_tests(judge, problem, tests, ()).value == 0.0
    passing = ("print(int(input()) * 2)", "print(int(input()) << 1)", "n = input()\nprint(7)")
    worth = judging.worth_of_tests(judge, problem, tests, passing)
    assert worth.judged_by == "passing programs"
    assert worth.value == 1.0
    split = ("print(int(input()) * 2)", "print(7)")
    assert judging.worth_of_tests(judge, problem, tests, split).value == 0.0


def test_a_starved_run_is_not_remembered(double):
    """What a crowded machine did to one run must not be the program's verdict ever after."""

    class Crowded:
        num_runs = 0

        def run_many(self, code, stdins, limits):
            self.num_runs += len(stdins)
            is_starved = self.num_runs <= judging.FIRST_PORTION
            result = ExecutionResult(
                Status.TIMEOUT if is_starved else Status.OK,
                *("6", "", 0, 8.0, 0.2, 0),
                truncated=False,
                starved=is_starved,
            )
            return [result] * len(stdins)

    sandbox = Crowded()
    judge = Judge(sandbox)
    tests = (CodeTest("3", "6"),) * judging.FIRST_PORTION
    assert judge.passes(double, "p", tests) == (False,) * judging.FIRST_PORTION
    assert judge.passes(double, "p", tests) == (True,) * judging.FIRST_PORTION
    assert judge.passes(double, "p", tests) == (True,) * judging.FIRST_PORTION
    assert sandbox.num_runs == 2 * judging.FIRST_PORTION
    sandbox.num_runs = 0
    assert not any(run.is_ok for run in judge.run(double, "p", ["3"] * judging.FIRST_PORTION))
    assert all(run.is_ok for run in judge.run(double, "p", ["3"] * judging.FIRST_PORTION))


def test_a_problem_is_not_left_out_for_good_because_its_own_solution_was_starved():
    class Crowded:
        is_crowded = True

        def run_many(self, code, stdins, limits):
            status = Status.TIMEOUT if self.is_crowded else Status.OK
            result = ExecutionResult(
                status, "1", "", 0, 8.0, 0.2, 0, truncated=False, starved=self.is_crowded
            )
            return [result] * len(stdins)

    sandbox = Crowded()
    problem = CodeProblem("one", "Print 1.", (CodeTest("", "1"),), solution="print(1)")
    table = problem_table([problem], None, None, None, None, Judge(sandbox))
    with pytest.raises(InvalidArgument, match="takes longer than its time limit"):
        table.draw(random.Random(0), {"problem": "one"})
    sandbox.is_crowded = False
    assert table.draw(random.Random(0), {"problem": "one"}) == problem


STEPS = st.lists(st.tuples(st.integers(0, 6), st.booleans()), max_size=40)


@example(2, [(0, True), (1, True), (0, False), (2, True), (0, False)])
@given(st.integers(1, 4), STEPS)
def test_the_least_recently_used_goes_first(size, steps):
    memory, known = judging.Memory(size * judging.ENTRY_BYTES), []
    for number, is_new in steps:
        key = judging.key_of(number)
        if is_new:
            memory.remember(key, number + 0.5)  # a number takes no bytes of its own
            known = [other for other in known if other != number] + [number]
            known = known[-size:]
        elif number in known:
            assert memory.recall(key) == number + 0.5
            known = [other for other in known if other != number] + [number]
        else:
            assert memory.recall(key) is None


def test_keys_keep_neighbouring_parts_apart():
    parts = [("ab", "c"), ("a", "bc"), ("ab", "c", ""), ("a', 'b", "c"), ("ab", None), ("\ud800",)]
    assert len({judging.key_of(*part) for part in parts}) == len(parts)


class Echo:
    """A sandbox whose programs print what they read, and which counts runs."""

    num_runs = 0

    def run_many(self, code, stdins, limits):
        self.num_runs += len(stdins)
        return [ExecutionResult(Status.OK, text, "", 0, 0.1, 0.1, 0, False) for text in stdins]


def bytes_kept(work):
    tracemalloc.start()
    work()
    kept = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return kept


def test_long_programs_and_tests_are_not_kept(double):
    sandbox, tests = Echo(), (CodeTest("1", "1"),)
    judged = Judge(sandbox)

    def work():
        for number in range(400):
            program = f"# {number}\n".ljust(48_000, "x")
            judged.passes(double, program, tests)
            judged.run(double, program, ["1".ljust(5_000)])

    assert bytes_kept(work) < 5 * 10**6, "texts of 20 MB and outputs of 2 MB"
    assert sandbox.num_runs == 800
    work()
    assert sandbox.num_runs == 800, "each was remembered"


def test_what_is_kept_is_bounded_by_bytes(double, monkeypatch):
    monkeypatch.setattr(judge, "MAX_BYTES", 1 << 20)
    sandbox = Echo()
    judged = Judge(sandbox)

    def work():
        for number in range(3000):
            judged.run(double, f"# {number}", ["1".ljust(2000)])

    assert (1 << 19) < bytes_kept(work) < 3 << 19
    judged.run(double, "# 2999", ["1".ljust(2000)])
    assert sandbox.num_runs == 3000
    judged.run(double, "# 0", ["1".ljust(2000)])
    assert sandbox.num_runs == 3001
