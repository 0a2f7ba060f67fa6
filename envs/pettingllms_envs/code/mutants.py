"""Slightly wrong programs, made from a right one.

Where a source has no known-bad programs, a tester still has to tell right from wrong ones. The
program is parsed and printed again with one change; nothing is run here.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator

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
    """Return up to `limit` different variants of a program, each with one small change.

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
    """Yield node, field and new value of every possible change, in the same order every time."""
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
