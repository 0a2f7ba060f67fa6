"""What tests are worth: do they agree with the solution, and do they expose wrong programs?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from pettingllms_envs.code.comparison import input_extends, inputs_match
from pettingllms_envs.code.judge import Judge
from pettingllms_envs.datasets import CodeProblem, CodeTest


class Worth(NamedTuple):
    """A judgement on the tests of one turn."""

    num_given: int
    num_right: int
    """Tests that agree with the solution and neither repeat nor pad an example."""
    num_bad: int
    """Known-bad programs."""
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
    """Return what tests are worth.

    Args:
        judge: Runs the programs.
        problem: The problem that the tests are for.
        tests: The tests, at least one.
        passing: Programs of the episode that passed all golden tests; they judge where the problem
            has no solution.

    Raises:
        SandboxError: The sandbox itself failed.
    """
    judged_by = "solution" if problem.solution is not None else "passing programs"
    inputs = [test.input for test in tests]
    # The output that a test claims is never trusted: a tester would agree with itself.
    trusted = judge.trusted_outputs(problem, passing, inputs)
    if trusted is None:
        return Worth(len(tests), 0, 0, 0, "nobody", 0.0)
    right = tuple(
        test
        for test, output in zip(tests, trusted, strict=True)
        if output is not None
        and judge.agrees(problem, test.output, output)
        and adds_to_examples(judge, problem, test)
    )
    # Programs of the episode do not count: a coder could write one that any test exposes.
    bad = judge.bad_programs(problem)
    exposed = sum(judge.exposes(problem, program.source, right) for program in bad) if right else 0
    # A product: only tests that are right and telling pay, and adding wrong tests to right ones
    # lowers the worth.
    value = len(right) / len(tests) * exposed / len(bad) if bad else 0.0
    return Worth(len(tests), len(right), len(bad), exposed, judged_by, value)


def adds_to_examples(judge: Judge, problem: CodeProblem, test: CodeTest) -> bool:
    """Return whether a test is more than an example written otherwise.

    It is not where its input is that of an example, however it is written, or holds all tokens of
    an example in their order and the output is the same: whatever was added, such as a line that
    no program needs to read, had no effect.
    """
    is_call = problem.function_name is not None
    # Without this a tester could copy an example, whose output is known to be right, and collect
    # the reward of a new test.
    return not any(
        inputs_match(test.input, example.input, is_call=is_call)
        or (
            not is_call
            and input_extends(test.input, example.input)
            and judge.agrees(problem, test.output, example.output)
        )
        for example in problem.public_tests
    )
