"""What judges the tests of a tester: programs known to be wrong, and tests that take no thought.

Known-bad programs are those of the data set. Where it has few, a tester still has to tell right
programs from wrong ones: variants of the solution, parsed and printed again with one change, help
out. Nothing is run here.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from pettingllms.edits import EDITS
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
    """Programs that judge the tests for a problem; the same ones at every call.

    They are the source's own wrong programs and, where these are few, variants of its solution.
    Each fails a golden test, passes another test, and ends in time on all of them: what fails every
    test is not a challenge, and neither is what one of the easy tests exposes. Programs that pass
    the examples come first, because only these show what a test adds to the examples; others fill
    up to `ENOUGH_BAD_PROGRAMS`, those that the fewest golden tests expose first.

    Raises:
        SandboxError: The sandbox itself failed.
    """
    # Made late and one by one: most problems have enough wrong programs of their own.
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
    """What fails a golden test and no easy one, passes some test, and is never too slow."""
    # A tester's test is short: a program that only fails long ones would never be exposed.
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


MAX_SOURCE_CHARS = 20_000

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
}
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
}
_FUNCTIONS = {
    "min": "max",
    "max": "min",
    "any": "all",
    "all": "any",
    "sum": "max",
    "sorted": "list",
    "set": "list",
    "abs": "int",
    "round": "int",
}
"""Name of a function -> another that takes the same arguments."""


def mutants(source: str, limit: int) -> tuple[str, ...]:
    """Up to `limit` different variants of a program, each with one small change.

    Changed are comparisons, arithmetic operators, `and`/`or`, small integers, conditions (to
    always or never) and calls of functions such as `min`, except within `while` loops, which would
    seldom end. The changes are spread over the whole program and the same at every call. A text
    that is not Python, or is longer than `MAX_SOURCE_CHARS`, has no variants. Whether a variant is
    really wrong has to be tested.
    """
    if len(source) > MAX_SOURCE_CHARS:
        return ()
    try:
        tree = ast.parse(source)
        num_changes = sum(1 for _ in _changes(tree))
        # Evenly spread over the program: the first lines often only read the input, and any test
        # exposes a change there.
        chosen = {num_changes * i // limit for i in range(limit)} if num_changes else set[int]()
        return tuple(_changed(tree, index) for index in sorted(chosen))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()


def _changed(tree: ast.Module, index: int) -> str:
    # Changes are found again by number in the copy, since nodes of the original are not in it.
    twin = copy.deepcopy(tree)
    for number, (node, field, value) in enumerate(_changes(twin)):
        if number == index:
            setattr(node, field, value)
            break
    return ast.unparse(ast.fix_missing_locations(twin)) + "\n"


def _changes(tree: ast.Module) -> Iterator[tuple[ast.AST, str, object]]:
    """Node, field and new value of every possible change, in the same order every time."""
    for node in _outside_while(tree):
        match node:
            case ast.Compare(ops=[op]) if type(op) in _COMPARISONS:
                yield node, "ops", [_COMPARISONS[type(op)]()]
            case ast.BinOp(op=op) | ast.AugAssign(op=op) if type(op) in _OPERATORS:
                yield node, "op", _OPERATORS[type(op)]()
            case ast.BoolOp(op=op):
                yield node, "op", ast.Or() if isinstance(op, ast.And) else ast.And()
            case ast.Constant(value=int() as value) if not isinstance(value, bool):
                # Larger numbers are often moduli and sentinels, where one more or less hardly
                # shows.
                if abs(value) < 100:
                    yield node, "value", value + 1
                    yield node, "value", value - 1
            case ast.If(test=test) | ast.IfExp(test=test) if not isinstance(test, ast.Constant):
                yield node, "test", ast.Constant(False)
                yield node, "test", ast.Constant(True)
            case ast.Call(func=ast.Name(id=name), args=[_, *_]) if name in _FUNCTIONS:
                yield node, "func", ast.Name(_FUNCTIONS[name], ast.Load())
            case _:
                pass


def _outside_while(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.While):
            yield child
            yield from _outside_while(child)


MAX_EXAMPLES = 2
"""Examples of a problem that are edited."""


def thoughtless_tests(problem: CodeProblem) -> Iterator[CodeTest]:
    """What a tester without skill writes; whether a test is right is not asked.

    Every edited input comes with the output of the example as it is, and with its last number one
    larger and one smaller.
    """
    for example in problem.public_tests[:MAX_EXAMPLES]:
        output = example.output.strip()
        nearby = (EDITS[f"its last number {sign} one"](output) for sign in ("plus", "minus"))
        outputs = dict.fromkeys((output, *nearby))
        for edit in EDITS.values():
            edited = edit(example.input.strip())
            yield from (CodeTest(edited, output) for output in outputs)
