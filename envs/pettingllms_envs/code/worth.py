"""What tests are worth: do they agree with the solution, and do they expose wrong programs?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from pettingllms_envs.code.judge import Judge
from pettingllms_envs.code.known_bad import BadProgram
from pettingllms_envs.datasets import CodeProblem, CodeTest


class Worth(NamedTuple):
    """A judgement on the tests of one turn."""

    num_given: int
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
    """Return the known-bad programs that no thoughtless test exposes.

    Programs of the episode do not count: a coder could write one that any test exposes.
    """
    bad = judge.bad_programs(problem)
    # With a solution they were found so; without one, right tests are known in the episode only.
    easy = judge.easy_tests(problem, passing) if problem.solution is None else ()
    return tuple(b for b in bad if not (easy and judge.exposes(problem, b.source, easy)))
