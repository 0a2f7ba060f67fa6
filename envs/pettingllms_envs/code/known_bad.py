"""Programs known to be wrong, which judge the tests of a tester."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from pettingllms_envs.code.mutants import mutants
from pettingllms_envs.datasets import CodeProblem, CodeTest

Verdicts = Callable[[str, tuple[CodeTest, ...]], list[bool] | None]
"""Program, tests -> whether it passes each; None where it is too slow."""

NUM_BAD_PROGRAMS = 6
"""Maximum number of known-bad programs of a problem."""

ENOUGH_BAD_PROGRAMS = 3
"""With fewer, variants of the solution and programs that fail an example are added."""

MAX_TRIED = 12
"""Maximum number of the source's programs, and of variants, that are looked at."""

MAX_GOLDEN_TESTS = 16
"""Golden tests that known-bad programs are run on, the shortest ones: testers write short tests."""


class BadProgram(NamedTuple):
    """A program known to be wrong, and the golden tests that show it."""

    source: str
    failed: frozenset[int]
    """Numbers of the golden tests that it fails."""
    passes_examples: bool
    """Whether it passes every example; if not, repeating an example would expose it."""


def find_bad_programs(
    problem: CodeProblem, verdicts: Verdicts, easy_tests: tuple[CodeTest, ...] = ()
) -> tuple[BadProgram, ...]:
    """Return programs that judge the tests for a problem; the same ones at every call.

    They are the source's own wrong programs and, where these are few, variants of its solution.
    Each fails a golden test, passes another test, and ends in time on all of them: what fails
    every test is no challenge, and neither is what an easy one exposes. Programs that pass the
    examples come first, because only these show what a test adds to the examples; others fill up
    to `ENOUGH_BAD_PROGRAMS`, those that the fewest golden tests expose first.

    Args:
        problem: The problem.
        verdicts: Runs a program on tests.
        easy_tests: Right tests that take no thought; programs that fail one are left out.

    Raises:
        SandboxError: The sandbox itself failed.
    """
    variants = () if problem.solution is None else mutants(problem.solution, MAX_TRIED)
    strong: list[BadProgram] = []
    weak: list[BadProgram] = []
    wanted = NUM_BAD_PROGRAMS
    # The source's own wrong programs first: their mistakes are ones that people made.
    for sources in (problem.wrong_programs[:MAX_TRIED], variants):
        for bad in _judged(problem, dict.fromkeys(sources), verdicts, easy_tests):
            (strong if bad.passes_examples else weak).append(bad)
            if len(strong) >= wanted:
                return tuple(strong)
        wanted = ENOUGH_BAD_PROGRAMS
        if len(strong) >= wanted:
            return tuple(strong)
    # The fewer golden tests expose a program, the more a test that does is worth.
    weak.sort(key=lambda bad: len(bad.failed))
    return tuple((*strong, *weak[: ENOUGH_BAD_PROGRAMS - len(strong)]))


def _judged(
    problem: CodeProblem,
    sources: Iterable[str],
    verdicts: Verdicts,
    easy_tests: tuple[CodeTest, ...],
) -> Iterator[BadProgram]:
    """Yield what fails a golden test and no easy one, passes some test, and is never too slow."""
    shortest = sorted(range(len(problem.tests)), key=lambda i: len(problem.tests[i].input))
    shortest = shortest[:MAX_GOLDEN_TESTS]
    num_easy, num_examples = len(easy_tests), len(problem.public_tests)
    tests = (*easy_tests, *problem.public_tests, *(problem.tests[i] for i in shortest))
    for source in sources:
        passed = verdicts(source, tests)
        # Too slow, or wrong everywhere: exposing it takes no skill.
        if passed is None or not any(passed) or not all(passed[:num_easy]):
            continue
        of_examples, of_golden = passed[num_easy:][:num_examples], passed[num_easy + num_examples :]
        golden = zip(shortest, of_golden, strict=True)
        failed = frozenset(number for number, is_right in golden if not is_right)
        if failed:
            yield BadProgram(source, failed, all(of_examples))
