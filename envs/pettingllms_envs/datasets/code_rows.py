"""Rows of public programming data sets, turned into `CodeProblem` records."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pettingllms_envs.datasets.asserts import UnreadableTest, read_asserts, read_check
from pettingllms_envs.datasets.fields import (
    Row,
    RowError,
    json_field,
    json_value,
    list_field,
    mapping_field,
    optional_text,
    row_id,
    text_field,
    texts_field,
)
from pettingllms_envs.datasets.records import CodeProblem, CodeTest
from pettingllms_envs.datasets.str_pickle import text_from_packed_pickle

PYTHON_3 = 3
"""CodeContests' number for Python 3 in its `language` lists."""

MAX_TIME_LIMIT_S = 20.0


def _dumps(value: Any) -> str:
    try:
        return json.dumps(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise RowError("a test holds a value that JSON cannot express") from error


def apps(row: Row, number: int) -> CodeProblem:
    """Read a row of `codeparrot/apps`.

    Raises:
        RowError: A field is missing or damaged, or there are no tests.
    """
    data = json_field(row, "input_output")
    if not isinstance(data, dict):
        raise RowError("input_output is not a JSON object")
    inputs, outputs = list_field(data, "inputs"), list_field(data, "outputs")
    name = optional_text(data, "fn_name")
    solution = row.get("solutions")
    programs = json_value(solution, "solutions") if isinstance(solution, str) and solution else []
    if not isinstance(programs, list):
        raise RowError("solutions is not a JSON list")
    return CodeProblem(
        id=row_id(row, number, "problem_id", "id"),
        statement=text_field(row, "question"),
        tests=_paired(inputs, outputs, name),
        solution=next((p for p in programs if isinstance(p, str) and p.strip()), None),
        starter=optional_text(row, "starter_code"),
        function_name=name,
        difficulty=optional_text(row, "difficulty") or "",
    )


def _paired(inputs: list[Any], outputs: list[Any], name: str | None) -> tuple[CodeTest, ...]:
    if len(inputs) != len(outputs):
        raise RowError(f"{len(inputs)} test inputs but {len(outputs)} outputs")
    if not inputs:
        raise RowError("no tests")
    read = _stdin_test if name is None else _call_test
    return tuple(read(given, wanted) for given, wanted in zip(inputs, outputs, strict=True))


def _stdin_test(given: Any, wanted: Any) -> CodeTest:
    lines = ["\n".join(map(str, v)) if isinstance(v, list) else v for v in (given, wanted)]
    if not all(isinstance(line, str) for line in lines):
        raise RowError("a test of a program is neither a text nor a list of lines")
    return CodeTest(*lines)


def _call_test(given: Any, wanted: Any) -> CodeTest:
    if not isinstance(given, list):
        raise RowError("a test of a function has no list of arguments")
    # APPS wraps most, not all, return values in a list of one.
    value = wanted[0] if isinstance(wanted, list) and len(wanted) == 1 else wanted
    return CodeTest(_dumps(given), _dumps(value))


def contests(row: Row, number: int) -> CodeProblem:
    """Read a row of `deepmind/code_contests`. The golden tests are the private and generated ones.

    Raises:
        RowError: A field is missing or damaged, or there are no hidden tests.
    """
    public = _contest_tests(row, "public_tests")
    hidden = _contest_tests(row, "private_tests")
    if row.get("generated_tests") is not None:
        hidden += _contest_tests(row, "generated_tests")
    shown = {test.input for test in public}
    hidden = tuple(test for test in dict.fromkeys(hidden) if test.input not in shown)
    if not hidden:
        raise RowError("no hidden tests")
    return CodeProblem(
        id=row_id(row, number, "name"),
        statement=text_field(row, "description"),
        tests=hidden,
        public_tests=public,
        solution=next(iter(_python_programs(row, "solutions")), None),
        wrong_programs=_python_programs(row, "incorrect_solutions"),
        time_limit_s=_contest_time_limit(row),
        difficulty=row_id(row, 0, "difficulty"),
    )


def _contest_tests(row: Row, name: str) -> tuple[CodeTest, ...]:
    tests = mapping_field(row, name)
    inputs, outputs = texts_field(tests, "input"), texts_field(tests, "output")
    if len(inputs) != len(outputs):
        raise RowError(f"{name} has {len(inputs)} inputs but {len(outputs)} outputs")
    return tuple(map(CodeTest, inputs, outputs))


def _python_programs(row: Row, name: str) -> tuple[str, ...]:
    if row.get(name) is None:
        return ()
    programs = mapping_field(row, name)
    languages, sources = list_field(programs, "language"), texts_field(programs, "solution")
    if len(languages) != len(sources):
        raise RowError(f"{name} has {len(languages)} languages but {len(sources)} programs")
    pairs = zip(languages, sources, strict=True)
    return tuple(source for language, source in pairs if language == PYTHON_3)


def _contest_time_limit(row: Row) -> float:
    limit = row.get("time_limit")
    if not isinstance(limit, Mapping):
        return CodeProblem._field_defaults["time_limit_s"]
    whole, nanos = limit.get("seconds") or 0, limit.get("nanos") or 0
    if not isinstance(whole, int | float) or not isinstance(nanos, int | float):
        raise RowError("time_limit does not hold numbers")
    seconds = whole + nanos / 1e9
    # Limits were set for C++; the publishers of such data double them for Python.
    return min(MAX_TIME_LIMIT_S, max(1.0, 2 * seconds))


def livecodebench(row: Row, number: int) -> CodeProblem:
    """Read a row of `livecodebench/code_generation_lite`.

    Raises:
        RowError: A field is missing or damaged, or there are no hidden tests.
    """
    public = _bench_tests(json_field(row, "public_test_cases"), "public_test_cases")
    packed = text_field(row, "private_test_cases")
    hidden = _bench_tests(_unpacked(packed), "private_test_cases")
    metadata = json_field(row, "metadata") if row.get("metadata") else {}
    name = metadata.get("func_name") if isinstance(metadata, dict) else None
    kinds = {kind for kind, _ in public + hidden}
    if not hidden:
        raise RowError("no hidden tests")
    if kinds - {"stdin", "functional"} or len(kinds) != 1:
        raise RowError(f"testtype is {sorted(kinds)}, not one of stdin, functional")
    if kinds == {"functional"} and not (isinstance(name, str) and name):
        raise RowError("a functional problem without func_name in its metadata")
    read = _bench_call if kinds == {"functional"} else _same
    starter = optional_text(row, "starter_code")
    return CodeProblem(
        id=row_id(row, number, "question_id"),
        statement=text_field(row, "question_content"),
        tests=tuple(read(test) for _, test in hidden),
        public_tests=tuple(read(test) for _, test in public),
        starter=starter,
        function_name=name if kinds == {"functional"} else None,
        difficulty=optional_text(row, "difficulty") or "",
    )


def _unpacked(packed: str) -> Any:
    try:
        return json.loads(packed)
    except ValueError:
        try:
            return json_value(text_from_packed_pickle(packed), "private_test_cases")
        except ValueError as error:
            raise RowError(f"private_test_cases cannot be decoded: {error}") from error


def _bench_tests(value: Any, name: str) -> list[tuple[str, CodeTest]]:
    if not isinstance(value, list):
        raise RowError(f"{name} is not a JSON list")
    tests: list[tuple[str, CodeTest]] = []
    for entry in value:
        if not isinstance(entry, Mapping):
            raise RowError(f"{name} holds something else than objects")
        given, wanted, kind = (entry.get(field) for field in ("input", "output", "testtype"))
        if not (isinstance(given, str) and isinstance(wanted, str) and isinstance(kind, str)):
            raise RowError(f"{name} has an entry without input, output or testtype")
        tests.append((kind, CodeTest(given, wanted)))
    return tests


def _same(test: CodeTest) -> CodeTest:
    return test


def _bench_call(test: CodeTest) -> CodeTest:
    arguments = [json_value(line, "a test input") for line in test.input.splitlines() if line]
    return CodeTest(_dumps(arguments), _dumps(json_value(test.output, "a test output")))


def mbpp(row: Row, number: int) -> CodeProblem:
    """Read a row of MBPP (full or sanitised): asserts of the form `assert f(...) == value`.

    Raises:
        RowError: A field is missing, or an assert is of another form.
    """
    text = optional_text(row, "text") or text_field(row, "prompt")
    try:
        name, tests = read_asserts(texts_field(row, "test_list"))
    except UnreadableTest as error:
        raise RowError(str(error)) from error
    return CodeProblem(
        id=row_id(row, number, "task_id"),
        statement=f"{text}\n\nThe function must be named {name}.",
        tests=tests,
        solution=text_field(row, "code"),
        function_name=name,
    )


def humaneval(row: Row, number: int) -> CodeProblem:
    """Read a row of HumanEval: `check(candidate)` made of asserts on literal values.

    Raises:
        RowError: A field is missing, or the check holds something else than such asserts.
    """
    prompt, name = text_field(row, "prompt"), text_field(row, "entry_point")
    try:
        tests = read_check(text_field(row, "test"))
    except UnreadableTest as error:
        raise RowError(str(error)) from error
    return CodeProblem(
        id=row_id(row, number, "task_id"),
        statement=f"Complete this function and give the whole program.\n\n{prompt}",
        tests=tests,
        solution=prompt + text_field(row, "canonical_solution"),
        starter=prompt,
        function_name=name,
    )
