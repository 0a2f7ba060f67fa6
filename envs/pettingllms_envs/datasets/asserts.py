"""Asserts of function benchmarks read as data: `assert f(args) == value` becomes a test.

The text is parsed, never run. Only literals are accepted, because the comparison happens outside
the sandbox on plain values.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Sequence
from typing import Any

from pettingllms_envs.datasets.records import CodeTest

CANDIDATE = "candidate"
"""What HumanEval calls the function under test."""


class UnreadableTest(ValueError):
    """An assert that is not a call compared with a literal value."""


def read_asserts(asserts: Sequence[str]) -> tuple[str, tuple[CodeTest, ...]]:
    """The function's name and the tests of a list of assert statements.

    Raises:
        UnreadableTest: An assert is of another form, or they call different functions.
    """
    found = [_test(statement) for text in asserts for statement in _statements(text)]
    names = {name for name, _ in found}
    if len(names) != 1:
        raise UnreadableTest(f"the asserts call {len(names)} functions, not one")
    return names.pop(), tuple(test for _, test in found)


def read_check(source: str) -> tuple[CodeTest, ...]:
    """The tests in the function `check(candidate)` of a source text.

    Raises:
        UnreadableTest: There is no such function, or it holds something else than asserts on
            literals.
    """
    checks = [
        node
        for node in _statements(source)
        if isinstance(node, ast.FunctionDef) and node.name == "check"
    ]
    if not checks:
        raise UnreadableTest("test defines no function check")
    body = [node for node in checks[-1].body if not _says_nothing(node)]
    found = [_test(node) for node in body]
    if not found or any(name != CANDIDATE for name, _ in found):
        raise UnreadableTest("check does not test its candidate")
    return tuple(test for _, test in found)


def _statements(text: str) -> list[ast.stmt]:
    try:
        return ast.parse(text.strip()).body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise UnreadableTest("the tests are not Python") from error


def _says_nothing(node: ast.stmt) -> bool:
    """Tell whether a statement is a bare text, `pass`, `print(...)` or an assert of a constant."""
    if isinstance(node, ast.Assert):
        return isinstance(node.test, ast.Constant)
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        return isinstance(node.value.func, ast.Name) and node.value.func.id == "print"
    return isinstance(node, ast.Pass) or (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    )


def _test(node: ast.stmt) -> tuple[str, CodeTest]:
    if not isinstance(node, ast.Assert):
        raise UnreadableTest(f"the tests hold a {type(node).__name__}, not only asserts")
    call, wanted = _call_and_value(node.test)
    if not isinstance(call, ast.Call) or call.keywords or not isinstance(call.func, ast.Name):
        raise UnreadableTest("an assert is not a plain function call compared with a value")
    arguments = [_literal(argument) for argument in call.args]
    return call.func.id, CodeTest(_json(arguments), _json(wanted))


def _call_and_value(test: ast.expr) -> tuple[ast.expr, Any]:
    match test:
        case ast.Compare(left=ast.Call(func=ast.Name(id="abs"), args=[ast.BinOp() as gap])):
            if isinstance(gap.op, ast.Sub) and isinstance(test.ops[0], ast.Lt | ast.LtE):
                return gap.left, _decimal(gap.right)
        case ast.Compare(left=call, ops=[ast.Eq() | ast.Is()], comparators=[value]):
            return call, _literal(value)
        case ast.UnaryOp(op=ast.Not(), operand=call):
            return call, False
        case ast.Call():
            return test, True
        case _:
            pass
    raise UnreadableTest("an assert is not a function call compared with a value")


def _literal(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, MemoryError, RecursionError) as error:
        raise UnreadableTest("an assert uses something else than literal values") from error


def _decimal(node: ast.expr) -> Any:
    """A literal; an integer as a decimal, because the assert allows for an error."""
    value = _literal(node)
    try:
        return float(value) if isinstance(value, int) else value
    except OverflowError as error:
        raise UnreadableTest("an assert has a number beyond the range of decimals") from error


def _json(value: Any) -> str:
    if _has_no_json(value):
        raise UnreadableTest("an assert uses a value that JSON cannot express")
    return json.dumps(value)


def _has_no_json(value: Any) -> bool:
    if isinstance(value, dict):
        return any(not isinstance(k, str) or _has_no_json(v) for k, v in value.items())
    if isinstance(value, list | tuple):
        return any(map(_has_no_json, value))
    return not (value is None or isinstance(value, bool | int | float | str))
