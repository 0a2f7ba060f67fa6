"""The state of a programming episode and what programs and tests do to it. No text, no sandbox."""

from __future__ import annotations

from typing import NamedTuple

from pettingllms_envs.datasets import CodeTest

MAX_REMEMBERED = 4
"""Maximum number of passing programs of an episode that judge later tests."""


class Mismatch(NamedTuple):
    """A test on which program and tester did not agree."""

    turn: int
    """Number of the turn, from 0."""
    input: str
    expected: str
    """What the tester expected."""
    actual: str
    """What the program printed or returned, or how it failed."""


class CodeState(NamedTuple):
    """Everything that an episode depends on; the problem itself is looked up by its id."""

    problem_id: str
    turn: int = 0
    """Number of the present turn, from 0."""
    program: str | None = None
    """The standing program: the latest that could be read."""
    num_passed: int = 0
    """Golden tests that the standing program passes."""
    is_program_new: bool = False
    """Whether the standing program was written in the running turn."""
    tests: tuple[CodeTest, ...] = ()
    """Tests of the running turn; after a turn, of the turn before."""
    test_value: float = 0.0
    """Worth of the latest tests that could be read, from 0 to 1."""
    mismatches: tuple[Mismatch, ...] = ()
    """Tests on which program and tester did not agree, the latest last, as many as the history
    holds."""
    remarks: tuple[str, ...] = ()
    """What could not be read in the turn before."""
    passing: tuple[str, ...] = ()
    """Programs of this episode that passed all golden tests, the latest last."""


def with_program(state: CodeState, program: str, num_passed: int, num_tests: int) -> CodeState:
    """The state after a program of which the golden verdict is known."""
    passing = state.passing
    if num_passed == num_tests:
        passing = (*(known for known in passing if known != program), program)[-MAX_REMEMBERED:]
    return state._replace(
        program=program, num_passed=num_passed, is_program_new=True, passing=passing
    )


def with_mismatches(state: CodeState, found: tuple[Mismatch, ...], history: int) -> CodeState:
    """The state with further mismatches; the latest `history` different ones are kept."""
    new = {mismatch[1:] for mismatch in found}
    others = (mismatch for mismatch in state.mismatches if mismatch[1:] not in new)
    return state._replace(mismatches=(*others, *found)[-history:])


def program_value(num_passed: int, num_tests: int) -> float:
    """The potential of a program: the share of tests passed, and 1 more for all of them."""
    return num_passed / num_tests + (num_passed == num_tests)
