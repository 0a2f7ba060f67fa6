"""Rows of public data sets, turned into problems by their schema; whatever is wrong has a reason.

`schemas.toml` says which field of a schema means what. What takes more than a field, such as tests
that are packed or a solution that ends with its answer, has a function here.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import Any, Literal, cast

from pettingllms.arguments import check_choice
from pettingllms.parsing import boxed_answer
from pettingllms_envs.datasets.asserts import UnreadableTest, read_asserts, read_check
from pettingllms_envs.datasets.records import CodeProblem, CodeTest, MathProblem
from pettingllms_envs.datasets.str_pickle import text_from_packed_pickle

PYTHON_3 = 3
"""CodeContests' number for Python 3 in its `language` lists."""

MAX_TIME_LIMIT_S = 20.0

Row = Mapping[str, Any]
_GSM8K_ANSWER = re.compile(r"####\s*(.+?)\s*$")
_GSM8K_CALCULATION = re.compile(r"<<.*?>>")


class RowError(ValueError):
    """A row that cannot be used; its message is the reason given in reports."""


@dataclass(frozen=True, slots=True)
class Schema:
    """One published layout of rows; see `schemas.toml` for what is read from which field.

    Attributes:
        name: What the argument `schema` calls it.
        kind: Whether its rows are programming or mathematical problems.
        fields: Fields that every row has; the set that names the schema.
    """

    name: str
    kind: Literal["code", "math"]
    fields: frozenset[str]
    id: tuple[str, ...]
    strings: Mapping[str, str] = field(default_factory=dict[str, str])
    optional: Mapping[str, str] = field(default_factory=dict[str, str])
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    answer: str | None = None
    solution: str | None = None
    read: str | None = None

    def convert(self, row: Row, number: int) -> CodeProblem | MathProblem:
        """A row as a problem; `number` is its id where it has none.

        Raises:
            RowError: The row cannot be used.
        """
        found: dict[str, Any] = {"id": _label(row, *self.id) or str(number)}
        found |= {name: text_field(row, column) for name, column in self.strings.items()}
        for name, column in self.optional.items():
            if text := optional_text(row, column):
                found[name] = text
        found |= {name: _label(row, column) for name, column in self.labels.items()}
        if self.answer:
            # A number or a string: AIME has integers, Polaris strings.
            found["answer"] = _answer(row.get(self.answer), self.answer)
        if self.solution:
            found["solution"] = _solution(row.get(self.solution))
        if self.read:
            try:
                found |= _READERS[self.read](row)
            except UnreadableTest as error:
                raise RowError(str(error)) from error
        return CodeProblem(**found) if self.kind == "code" else MathProblem(**found)


def detect_schema(fields: Iterable[str]) -> Schema | None:
    """The first schema all of whose fields are there, or None."""
    present = set(fields)
    return next((schema for schema in SCHEMAS.values() if schema.fields <= present), None)


def find_schema(name: str) -> Schema:
    """A schema by name.

    Raises:
        InvalidArgument: There is no such schema.
    """
    check_choice("schema", name, SCHEMAS)
    return SCHEMAS[name]


def _refuse(value: object, name: str, wanted: str) -> RowError:
    return RowError(f"{name} is {'missing' if value is None else f'not {wanted}'}")


def text_field(row: Row, name: str) -> str:
    """A string that is not blank; `RowError` if the field is missing or holds something else."""
    value = row.get(name)
    if not isinstance(value, str):
        raise _refuse(value, name, "a string")
    if not value.strip():
        raise RowError(f"{name} is empty")
    return value


def optional_text(row: Row, name: str) -> str | None:
    """A string, or None where the field is missing or empty; else `RowError`."""
    return None if row.get(name) in (None, "") else text_field(row, name)


def list_field(row: Row, name: str) -> list[Any]:
    """A list (a tuple or array counts); `RowError` if the field is missing or something else."""
    value = row.get(name)
    if hasattr(value, "tolist"):
        # Parquet gives arrays where JSON has lists.
        value = cast("Any", value).tolist()
    if not isinstance(value, list | tuple):
        raise _refuse(value, name, "a list")
    return list(cast("list[Any]", value))


def texts_field(row: Row, name: str) -> list[str]:
    """A list of strings; `RowError` if the field is missing or something else."""
    values = list_field(row, name)
    if not all(isinstance(value, str) for value in values):
        raise RowError(f"{name} holds something else than strings")
    return values


def mapping_field(row: Row, name: str) -> Row:
    """Names with values; `RowError` if the field is missing or something else."""
    value = row.get(name)
    if not isinstance(value, Mapping):
        raise _refuse(value, name, "an object")
    return cast("Row", value)


def json_value(text: str, name: str) -> Any:
    """The value of a JSON text; `RowError` if it is not JSON, with what the reason calls it."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RowError(f"{name} is not JSON") from error


def _label(row: Row, *names: str) -> str:
    """The first of the named fields that is a string or whole number and not blank, or ""."""
    values = (row.get(name) for name in names)
    return next((str(v) for v in values if isinstance(v, str | int) and str(v).strip()), "")


def _solution(value: Any) -> str | None:
    if isinstance(value, list | tuple) and value:
        value = cast("list[Any]", value)[0]
    return (value.strip() or None) if isinstance(value, str) else None


def _answer(value: Any, name: str) -> str:
    """A reference answer as text: whole numbers are written as such."""
    # True is an int to Python, and no answer.
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise _refuse(value, name, "a string or number")
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    text = str(value).strip()
    if not text:
        raise RowError(f"{name} is empty")
    return text


def _question_answer(row: Row) -> dict[str, Any]:
    """GSM8K's `#### N` ends its answers."""
    answer = _answer(row.get("answer"), "answer")
    # Own files may hold the bare answer, and then in one line.
    final = _GSM8K_ANSWER.search(answer)
    if final is None and "\n" in answer:
        raise RowError("answer is a text of several lines without a final '#### N'")
    if final is None:
        return {"answer": answer}
    solution = _solution(_GSM8K_CALCULATION.sub("", answer[: final.start()]))
    return {"answer": final.group(1).replace(",", ""), "solution": solution}


def _olympiadbench(row: Row) -> dict[str, Any]:
    """Rows that need a picture, proofs, and errors that are not numbers are refused."""
    if any(row.get(f"image_{i}") is not None for i in range(1, 10)):
        raise RowError("the question needs a picture")
    answers = list_field(row, "final_answer")
    if not answers:
        raise RowError("no final_answer (a proof)")
    parts = [_answer(answer, "final_answer") for answer in answers]
    context, error = optional_text(row, "context"), optional_text(row, "error")
    try:
        tolerance = float(error) if error else 0.0
    except ValueError as problem:
        raise RowError("error is not a number") from problem
    question = text_field(row, "question")
    return {
        "question": f"{context}\n\n{question}" if context else question,
        "answer": ", ".join(p.strip().strip("$") if len(parts) > 1 else p for p in parts),
        "tolerance": tolerance,
    }


def _dapo(row: Row) -> dict[str, Any]:
    # The last message is the question; those before it say how to answer.
    messages = list_field(row, "prompt")
    if not messages or not isinstance(messages[-1], dict):
        raise RowError("prompt holds no message")
    truth = mapping_field(row, "reward_model").get("ground_truth")
    extra = row.get("extra_info")
    number = _label(cast("Row", extra), "index") if isinstance(extra, dict) else ""
    found = {"question": text_field(messages[-1], "content")}
    found["answer"] = _answer(truth, "ground_truth")
    return found | ({"id": number} if number else {})


def _competition_math(row: Row) -> dict[str, Any]:
    """The answer is the last box of the solution, unless it has its own field."""
    answer = row.get("answer")
    if answer is None:
        answer = boxed_answer(text_field(row, "solution"))
        if answer is None:
            raise RowError("solution has no \\boxed answer")
    return {"answer": _answer(answer, "answer")}


def _dumps(value: Any) -> str:
    try:
        return json.dumps(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise RowError("a test holds a value that JSON cannot express") from error


def _apps(row: Row) -> dict[str, Any]:
    data = json_value(text_field(row, "input_output"), "input_output")
    if not isinstance(data, dict):
        raise RowError("input_output is not a JSON object")
    data = cast("Row", data)
    inputs, outputs = list_field(data, "inputs"), list_field(data, "outputs")
    if len(inputs) != len(outputs):
        raise RowError(f"{len(inputs)} test inputs but {len(outputs)} outputs")
    if not inputs:
        raise RowError("no tests")
    # With a name the inputs are arguments, without one what a program reads.
    name = optional_text(data, "fn_name")
    read = _stdin_test if name is None else _call_test
    solution = row.get("solutions")
    programs = json_value(solution, "solutions") if isinstance(solution, str) and solution else []
    if not isinstance(programs, list):
        raise RowError("solutions is not a JSON list")
    written = (p for p in cast("list[Any]", programs) if isinstance(p, str) and p.strip())
    return {
        "tests": tuple(map(read, inputs, outputs)),
        "solution": next(written, None),
        "function_name": name,
    }


def _stdin_test(given: Any, wanted: Any) -> CodeTest:
    lines = ["\n".join(map(str, v)) if isinstance(v, list) else v for v in (given, wanted)]
    if not all(isinstance(line, str) for line in lines):
        raise RowError("a test of a program is neither a string nor a list of lines")
    return CodeTest(*lines)


def _call_test(given: Any, wanted: Any) -> CodeTest:
    if not isinstance(given, list):
        raise RowError("a test of a function has no list of arguments")
    # APPS wraps most, not all, return values in a list of one.
    value = wanted[0] if isinstance(wanted, list) and len(wanted) == 1 else wanted
    return CodeTest(_dumps(given), _dumps(value))


def _contests(row: Row) -> dict[str, Any]:
    """The golden tests of CodeContests are the private and the generated ones."""
    public = _contest_tests(row, "public_tests")
    hidden = _contest_tests(row, "private_tests")
    if row.get("generated_tests") is not None:
        hidden += _contest_tests(row, "generated_tests")
    # An example as a hidden test would pay a program that prints what it was shown.
    shown = {test.input for test in public}
    hidden = tuple(test for test in dict.fromkeys(hidden) if test.input not in shown)
    if not hidden:
        raise RowError("no hidden tests")
    return {
        "tests": hidden,
        "public_tests": public,
        "solution": next(iter(_python_programs(row, "solutions")), None),
        "wrong_programs": _python_programs(row, "incorrect_solutions"),
        "time_limit_s": _contest_time_limit(row),
    }


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


def _livecodebench(row: Row) -> dict[str, Any]:
    cases = json_value(text_field(row, "public_test_cases"), "public_test_cases")
    public = _bench_tests(cases, "public_test_cases")
    hidden = _bench_tests(_unpacked(text_field(row, "private_test_cases")), "private_test_cases")
    metadata = json_value(text_field(row, "metadata"), "metadata") if row.get("metadata") else {}
    name = metadata.get("func_name") if isinstance(metadata, dict) else None
    # A problem is run in one way; rows that mix both are damaged.
    kinds = {kind for kind, _ in public + hidden}
    if not hidden:
        raise RowError("no hidden tests")
    if kinds - {"stdin", "functional"} or len(kinds) != 1:
        raise RowError(f"testtype is {sorted(kinds)}, not one of stdin, functional")
    is_call = kinds == {"functional"}
    if is_call and not (isinstance(name, str) and name):
        raise RowError("a functional problem without func_name in its metadata")
    return {
        "tests": tuple(_bench_call(test) if is_call else test for _, test in hidden),
        "public_tests": tuple(_bench_call(test) if is_call else test for _, test in public),
        "function_name": name if is_call else None,
    }


def _unpacked(packed: str) -> Any:
    try:
        # Early releases are plain JSON, later ones packed.
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
    for entry in cast("list[Any]", value):
        if not isinstance(entry, Mapping):
            raise RowError(f"{name} holds something else than objects")
        given, wanted, kind = (entry.get(field) for field in ("input", "output", "testtype"))
        if not (isinstance(given, str) and isinstance(wanted, str) and isinstance(kind, str)):
            raise RowError(f"{name} has an entry without input, output or testtype")
        tests.append((kind, CodeTest(given, wanted)))
    return tests


def _bench_call(test: CodeTest) -> CodeTest:
    arguments = [json_value(line, "a test input") for line in test.input.splitlines() if line]
    return CodeTest(_dumps(arguments), _dumps(json_value(test.output, "a test output")))


def _mbpp(row: Row) -> dict[str, Any]:
    """MBPP, full or sanitised: asserts of the form `assert f(...) == value`."""
    # The sanitised version calls the same field otherwise.
    text = optional_text(row, "text") or text_field(row, "prompt")
    name, tests = read_asserts(texts_field(row, "test_list"))
    statement = f"{text}\n\nThe function must be named {name}."
    return {"statement": statement, "tests": tests, "function_name": name}


def _humaneval(row: Row) -> dict[str, Any]:
    """HumanEval's `check(candidate)` is made of asserts on literal values."""
    prompt = text_field(row, "prompt")
    return {
        "statement": f"Complete this function and give the whole program.\n\n{prompt}",
        "tests": read_check(text_field(row, "test")),
        "solution": prompt + text_field(row, "canonical_solution"),
    }


_READERS: Mapping[str, Callable[[Row], dict[str, Any]]] = {
    "apps": _apps,
    "competition_math": _competition_math,
    "contests": _contests,
    "dapo": _dapo,
    "humaneval": _humaneval,
    "livecodebench": _livecodebench,
    "mbpp": _mbpp,
    "olympiadbench": _olympiadbench,
    "question_answer": _question_answer,
}


def _schema(name: str, table: dict[str, Any]) -> Schema:
    table["fields"] = frozenset(table["fields"])
    return Schema(name=name, **table)


_TEXT = resources.files("pettingllms_envs.datasets").joinpath("schemas.toml").read_text("utf-8")
SCHEMAS: Mapping[str, Schema] = {
    name: _schema(name, table) for name, table in tomllib.loads(_TEXT).items()
}
"""Name -> schema, the more specific ones first. `problem_answer` is AIME 2025 and Polaris,
`question_answer` is GSM8K and your own files."""
