"""The two records that every source of problems is turned into."""

from __future__ import annotations

from typing import NamedTuple


class CodeTest(NamedTuple):
    """One test of a program.

    For a program that reads standard input, both fields are the plain texts. For a function,
    `input` is the JSON list of its arguments and `output` the JSON of the value it must return.
    """

    input: str
    """What the program reads or the function is given."""
    output: str
    """What the program must print or the function return."""


class CodeProblem(NamedTuple):
    """A programming problem."""

    id: str
    """Unique within its source."""
    statement: str
    """What the agents read."""
    tests: tuple[CodeTest, ...]
    """Golden tests: they decide on rewards and success and are never shown."""
    public_tests: tuple[CodeTest, ...] = ()
    """Examples that the statement gives away; a tester gets nothing for repeating them."""
    solution: str | None = None
    """A program that is right, where the source has one."""
    wrong_programs: tuple[str, ...] = ()
    """Programs known to be wrong, where the source has some."""
    starter: str | None = None
    """Code that the program is meant to continue."""
    function_name: str | None = None
    """Name of the function to call; None for programs that read standard input."""
    time_limit_s: float = 4.0
    """Wall-clock seconds that one test may take."""
    difficulty: str = ""
    """The source's own word for it."""
    checker: str = ""
    """A Python program that judges outputs, where several are right: open-r1/codeforces has some,
    and runs them as `checker.py input.txt correct_output.txt solution_output.txt`. One that ends
    well and prints 1, and nothing else, has found the output right."""


class MathProblem(NamedTuple):
    """A mathematical question with a reference answer."""

    id: str
    """Unique within its source."""
    question: str
    """What the agents read."""
    answer: str
    """The reference answer: LaTeX or plain text, without `$` around it."""
    unit: str = ""
    """Unit that an answer may carry or leave out."""
    tolerance: float = 0.0
    """Maximum absolute error that still counts as right."""
    form: str = ""
    """Kind of answer, where the reference does not say it: `fraction` refuses decimals and what is
    not in lowest terms. Empty: see `pettingllms_envs.math.notation.objection`."""
    difficulty: str = ""
    """The source's own word for it."""
    solution: str | None = None
    """How one comes to the answer, in words, where the source says it; no agent reads it whole."""
