"""The record one built-in programming problem is written in.

An exercise is declared once, by hand: the text, a program that solves it, programs that nearly do,
how to draw an input, and how to work out the right output a second way. Everything else (golden
tests, the example shown in the statement, the checks in the test-suite) follows from that.
"""

from __future__ import annotations

import hashlib
import random
import textwrap
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Literal

Difficulty = Literal["introductory", "easy", "medium", "hard"]
DIFFICULTIES: Final[tuple[Difficulty, ...]] = ("introductory", "easy", "medium", "hard")

CASE_SIZES: Final = (1, 1, 2, 2, 3, 4, 5, 7, 9, 10)
"""Sizes of the random golden tests, in the order in which they are run."""


@dataclass(frozen=True, slots=True)
class Exercise:
    """A programming problem with everything needed to pose, solve and judge it.

    Attributes:
        id: Unique lower-case name; also decides the split.
        difficulty: One of `DIFFICULTIES`.
        task: What is asked, in prose.
        input_format: What stands on which line of the standard input, with bounds.
        output_format: What has to be printed.
        example: Input shown in the statement (its output is worked out by `answer`).
        edges: Hand-picked hidden inputs.
        case: Draws a valid input; the size runs from 1 (tiny) to 10 (the stated bounds).
        answer: Trusted second way to the output of an input, independent of `solution`.
        solution: Python source of the reference program. Runs in the sandbox only.
        wrong: Plausible wrong programs: either whole sources, or `(old, new)` pairs that change
            the reference program in one place.
        time_limit_s: Wall-clock seconds a program may take for one test.
    """

    id: str
    difficulty: Difficulty
    task: str
    input_format: str
    output_format: str
    example: str
    edges: tuple[str, ...]
    case: Callable[[random.Random, int], str]
    answer: Callable[[str], str]
    solution: str
    wrong: tuple[str | tuple[str, str], ...]
    time_limit_s: float = 1.0

    def statement(self) -> str:
        """The whole problem text with its example, as an agent reads it."""
        return (
            f"{self.task}\n\nInput\n{self.input_format}\n\nOutput\n{self.output_format}\n\n"
            f"Example input\n{self.example.strip()}\n\n"
            f"Example output\n{self.answer(self.example).strip()}"
        )

    def reference(self) -> str:
        """The reference program, ready to run."""
        return _clean(self.solution)

    def wrong_programs(self) -> tuple[str, ...]:
        """The wrong programs, ready to run.

        Raises:
            ValueError: A change does not apply to exactly one place of the reference program.
        """
        return tuple(self._wrong_program(entry) for entry in self.wrong)

    def _wrong_program(self, entry: str | tuple[str, str]) -> str:
        if isinstance(entry, str):
            return _clean(entry)
        old, new = entry
        reference = self.reference()
        if reference.count(old) != 1:
            raise ValueError(f"{self.id}: {old!r} occurs {reference.count(old)} times, not once")
        return reference.replace(old, new)

    def hidden_inputs(self) -> tuple[str, ...]:
        """Inputs of the golden tests: the edges, then seeded random cases of growing size."""
        seed = int.from_bytes(hashlib.blake2b(self.id.encode(), digest_size=8).digest(), "big")
        rng = random.Random(seed)
        cases = (self.case(rng, size) for size in CASE_SIZES)
        return tuple(dict.fromkeys((*self.edges, *cases)))


def _clean(source: str) -> str:
    return textwrap.dedent(source).strip() + "\n"


def row(values: Iterable[object]) -> str:
    """The values on one line, separated by single spaces."""
    return " ".join(str(value) for value in values)


def rows(*lines: object) -> str:
    """The arguments as the lines of an input."""
    return "\n".join(str(line) for line in lines) + "\n"


def ints(text: str) -> list[int]:
    """All whitespace-separated integers of a text."""
    return [int(token) for token in text.split()]


def scaled(size: int, small: int, large: int) -> int:
    """Bound for a size in 1..10, growing geometrically from `small` to `large`."""
    return round(small * (large / small) ** ((size - 1) / 9))
