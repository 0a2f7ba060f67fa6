"""Tests of function benchmarks read as data: `assert f(args) == value` becomes a test.

The text is parsed, never run. Only literals are accepted, because the comparison happens outside
the sandbox on plain values.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from pettingllms_envs.datasets.records import CodeTest


class UnreadableTest(ValueError):
    """An assert that is not a call compared with a literal value."""


class _Invocation(NamedTuple):
    """A call of the tested function, with literal arguments."""

    function: str
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]


_Names = dict[str, Any]
"""Name of a variable -> its value, or the call that gives it."""


def read_tests(
    source: str, solution: str | None = None, entry_point: str = ""
) -> tuple[str, tuple[CodeTest, ...]]:
    """The name of the function that a text tests, and its tests.

    Asserts may stand alone, in functions `check` and `test...`, and in methods `test...` of a
    class of unittest; variables may hold literals and results.

    Args:
        source: The text of the tests.
        solution: A program with the function, whose parameters say where keyword arguments belong.
        entry_point: The function that `candidate` stands for; "" where tests name it.

    Raises:
        UnreadableTest: A test is of another form, or several functions are tested.
    """
    calls = [call for body in _bodies(source) for call in _compared(body)]
    names = {call.function for call, _ in calls}
    if len(names) != 1:
        raise UnreadableTest(f"the tests call {len(names)} functions, not one")
    name = names.pop()
    is_named = any(call.keywords for call, _ in calls)
    parameters = _parameters(solution, entry_point or name) if is_named else ()
    return name, tuple(
        CodeTest(_json(_in_order(call, parameters)), _json(wanted)) for call, wanted in calls
    )


def parsed(text: str) -> ast.Module | None:
    """A text as Python 3, or None."""
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _bodies(source: str) -> Iterator[Sequence[ast.stmt]]:
    module = parsed(source.strip())
    if module is None:
        raise UnreadableTest("the tests are not Python")
    alone: list[ast.stmt] = []
    for node in module.body:
        if isinstance(node, ast.FunctionDef):
            yield from [node.body] if _is_test(node) else []
        elif isinstance(node, ast.ClassDef):
            yield from [
                part.body
                for part in node.body
                if isinstance(part, ast.FunctionDef) and _is_test(part)
            ]
        # Not a test, but what starts the tests from a command line: `if __name__ == "__main__":`.
        elif not isinstance(node, ast.Import | ast.ImportFrom | ast.If):
            alone.append(node)
    yield alone


def _is_test(node: ast.FunctionDef) -> bool:
    return node.name == "check" or node.name.startswith("test")


def _compared(body: Sequence[ast.stmt]) -> Iterator[tuple[_Invocation, Any]]:
    names: _Names = {}
    for node in body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                names[name] = _call(value, names) or _literal(value, names)
            case ast.Assert(test=test) if not isinstance(test, ast.Constant):
                yield _test(test, names)
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name("self"), attr=method))):
                yield _test(_as_assert(method, node.value), names)
            case _ if not _says_nothing(node):
                raise UnreadableTest(f"the tests hold a {type(node).__name__}, not only asserts")
            case _:
                pass


def _says_nothing(node: ast.stmt) -> bool:
    """Tell whether a statement is a bare text, `pass`, `print(...)` or an assert of a constant."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        return isinstance(node.value.func, ast.Name) and node.value.func.id == "print"
    return isinstance(node, ast.Pass | ast.Assert) or (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    )


def _as_assert(method: str, call: ast.expr) -> ast.expr:
    """What a method of unittest asserts of its arguments, as an expression."""
    arguments = call.args if isinstance(call, ast.Call) else []
    match method.removeprefix("assert"), arguments:
        case "Equal" | "ListEqual" | "DictEqual" | "TupleEqual", [left, right, *_]:
            return ast.Compare(left, [ast.Eq()], [right])
        case "IsNone", [value, *_]:
            return ast.Compare(value, [ast.Is()], [ast.Constant(None)])
        case "AlmostEqual", [left, right, *_]:
            return ast.Call(ast.Attribute(left, "isclose"), [left, right], [])
        case "True", [value, *_]:
            return value
        case "False", [value, *_]:
            return ast.UnaryOp(ast.Not(), value)
        case _:
            raise UnreadableTest(f"the tests use {method}")


def _test(test: ast.expr, names: _Names) -> tuple[_Invocation, Any]:
    tested, wanted = test, True
    match test:
        case ast.Compare(left=ast.Call(func=ast.Name(id="abs"), args=[ast.BinOp() as gap])):
            if isinstance(gap.op, ast.Sub) and isinstance(test.ops[0], ast.Lt | ast.LtE):
                tested, wanted = gap.left, _decimal(gap.right, names)
        case ast.Call(func=ast.Attribute(attr="isclose"), args=[left, right, *_]):
            tested, wanted = left, _decimal(right, names)
        case ast.Compare(left=left, ops=[ast.Eq() | ast.Is()], comparators=[right]):
            # Either side may be the call.
            call, value = (left, right) if _call(left, names) else (right, left)
            tested, wanted = call, _expected(value, names)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            tested, wanted = operand, False
        case _:
            pass
    found = _call(tested, names)
    if found is None:
        raise UnreadableTest("an assert is not a function call compared with a value")
    return found, wanted


def _expected(value: ast.expr, names: _Names) -> Any:
    match value:
        case ast.Call(func=ast.Attribute(attr="approx") | ast.Name(id="approx"), args=[inner, *_]):
            return _decimal(inner, names)
        case _:
            return _literal(value, names)


def _call(node: ast.expr, names: _Names) -> _Invocation | None:
    """The call that an expression is, or a variable stands for; None if it is none."""
    match node:
        case ast.Name(id=name):
            found = names.get(name)
            return found if isinstance(found, _Invocation) else None
        case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords):
            pass
        case ast.Call(
            func=ast.Attribute(value=ast.Call(func=ast.Name(id="Solution"), args=[]), attr=name),
            args=args,
            keywords=keywords,
        ):
            pass
        case _:
            return None
    given = {str(keyword.arg): _literal(keyword.value, names) for keyword in keywords}
    return _Invocation(name, tuple(_literal(argument, names) for argument in args), given)


def _parameters(solution: str | None, name: str) -> Sequence[str]:
    module = parsed(solution or "")
    for node in ast.walk(module) if module else ():
        # LeetCodeDataset has helpers before the function, each with parameters of its own.
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return [part.arg for part in node.args.args if part.arg != "self"]
    return ()


def _in_order(call: _Invocation, parameters: Sequence[str]) -> list[Any]:
    rest = parameters[len(call.arguments) :][: len(call.keywords)]
    if set(rest) != set(call.keywords):
        raise UnreadableTest("a test names arguments that the solution does not say the order of")
    return [*call.arguments, *(call.keywords[name] for name in rest)]


def _literal(node: ast.expr, names: _Names) -> Any:
    found = names.get(node.id) if isinstance(node, ast.Name) else None
    if found is not None and not isinstance(found, _Invocation):
        return found
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, MemoryError, RecursionError) as error:
        raise UnreadableTest("an assert uses something else than literal values") from error


def _decimal(node: ast.expr, names: _Names) -> Any:
    """A literal; an integer as a decimal, because the assert allows for an error."""
    value = _literal(node, names)
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
