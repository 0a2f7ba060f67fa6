"""Rows of public data sets, turned into problems by their schema; whatever is wrong has a reason.

`schemas.toml` says which field of a schema means what; the few layouts that take more have a
function here.
"""

from __future__ import annotations

import ast
import json
import math
import re
import string
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from pettingllms.files import packaged
from pettingllms.parsing import boxed_answer, read_program
from pettingllms_envs.datasets.asserts import UnreadableTest, parsed, read_tests
from pettingllms_envs.datasets.records import CodeProblem, CodeTest, MathProblem
from pettingllms_envs.datasets.statements import needed_columns, objection
from pettingllms_envs.datasets.str_pickle import text_from_packed_pickle

PYTHON_3 = 3
"""CodeContests' number for Python 3 in its `language` lists."""

MAX_TIME_LIMIT_S = 20.0

_LONGEST_LIMIT_S = (3600 - 2) // 3
"""Of own files: a run is given three times its limit, and 2 s, of the sandbox's hour at most."""

Row = Mapping[str, Any]
_GSM8K_ANSWER = re.compile(r"####\s*(.+?)\s*$")
_GSM8K_CALCULATION = re.compile(r"<<.*?>>")
_KINDS = {"stdin": False, "stdin_stdout": False, "functional": True, "function_call": True}
"""What data sets call the kind of a test -> whether it calls a function."""


class RowError(ValueError):
    """A row that cannot be used; its message is the reason given in reports."""


@dataclass(frozen=True, slots=True)
class Schema:
    """One published layout of rows; `schemas.toml` says what its other attributes mean.

    Attributes:
        name: What the argument `schema` calls it.
        record: What its rows become; `kind` says it in the table.
        fields: Fields that every row has; the set that names the schema.
        where: Field -> values of the rows that are meant; rows of other values are refused.
    """

    name: str
    record: type[CodeProblem] | type[MathProblem]
    fields: frozenset[str]
    id: tuple[str, ...]
    where: Row = field(default_factory=dict[str, Any])
    reads: tuple[str, ...] = ()
    strings: Mapping[str, str] = field(default_factory=dict[str, str])
    optional: Mapping[str, str] = field(default_factory=dict[str, str])
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    parts: Mapping[str, str] = field(default_factory=dict[str, str])
    asserts: Mapping[str, str] = field(default_factory=dict[str, str])
    tests: tuple[str, ...] = ()
    public: str | None = None
    function: str | None = None
    program: str | None = None
    wrong: str | None = None
    time_limit: str | None = None
    chat: str | None = None
    answer: str | None = None
    solution: str | None = None
    read: str | None = None

    def convert(self, row: Row, number: int) -> CodeProblem | MathProblem:
        """A row as a problem; `number` is its id where it has none.

        Raises:
            RowError: The row cannot be used, or nobody could solve it.
        """
        self._check(row)
        found: dict[str, Any] = {"id": _label(row, *self.id) or str(number), **self._texts(row)}
        if self.answer:
            # A number or a string: AIME has integers, Polaris strings.
            found["answer"] = _answer(_value(row, self.answer), self.answer)
        if self.solution:
            found["solution"] = _solution(_value(row, self.solution))
        if self.tests:
            found |= self._tests(row)
        if self.asserts:
            found |= _asserts(row, self.asserts)
        if self.read:
            found |= _READERS[self.read](row)
        if self.record is MathProblem:
            problem = MathProblem(**found)
            reason = objection(problem.question, "math")
        else:
            problem = _unambiguous(CodeProblem(**found))
            # Of several right outputs the tests hold one, unless a checker knows them all.
            reason = objection(problem.statement, "judged" if problem.checker else "code")
        if reason:
            raise RowError(reason)
        return problem

    def _check(self, row: Row) -> None:
        for column, values in self.where.items():
            if row.get(column) not in (None, *values):
                raise RowError(f"{column} is {row[column]!r}, not {' or '.join(values)}")
        if needed := needed_columns(row, {*self.reads, *self.fields}):
            raise RowError(needed)

    def _texts(self, row: Row) -> dict[str, Any]:
        found: dict[str, Any] = {n: text_field(row, column) for n, column in self.strings.items()}
        for name, column in self.optional.items():
            if text := optional_text(row, column):
                found[name] = text
        if self.chat:
            found["question"], _ = _chat(row, self.chat)
        return found | {name: _label(row, column) for name, column in self.labels.items()}

    def _tests(self, row: Row) -> dict[str, Any]:
        found: dict[str, Any] = {}
        name = _value(row, self.function) if self.function else None
        name = name if isinstance(name, str) and name else None
        hidden, called = read_examples(row, self.tests, name)
        if self.public:
            public, shown = read_examples(row, (self.public,), name)
            if public and called != shown:
                raise RowError("public and private tests are not of one kind")
            # An example as a hidden test would pay a program that prints what it was shown.
            inputs = {_asked(test) for test in public}
            hidden = tuple(test for test in hidden if _asked(test) not in inputs)
            found["public_tests"] = public
        if not hidden:
            raise RowError(f"no hidden tests in {' and '.join(self.tests)}")
        found |= {"tests": hidden, "function_name": called}
        if self.parts:
            found["statement"] = _statement(row, self.parts, found.get("public_tests", ()))
        if self.program:
            found["solution"] = _program(programs_in(_value(row, self.program), self.program))
        if self.wrong:
            found["wrong_programs"] = tuple(programs_in(_value(row, self.wrong), self.wrong))
        if self.time_limit and (seconds := _seconds(_value(row, self.time_limit))):
            # Limits were set for C++; the publishers of such data double them for Python.
            found["time_limit_s"] = min(MAX_TIME_LIMIT_S, max(1.0, 2 * seconds))
        return found


def _asked(test: CodeTest) -> str:
    """An input without the spaces at the ends of lines, with which programs do nothing."""
    return "\n".join(map(str.rstrip, test.input.rstrip().splitlines()))


def _unambiguous(problem: CodeProblem) -> CodeProblem:
    """A problem without repeated tests; refused if two of them want other outputs of one input."""
    outputs: dict[str, list[str]] = {}
    for test in (*problem.public_tests, *problem.tests):
        tokens = test.output.split()
        if outputs.setdefault(_asked(test), tokens) != tokens and not problem.checker:
            raise RowError("the tests want two different outputs of one input")
    return problem._replace(tests=tuple(dict.fromkeys(problem.tests)))


def detect_schema(row: Row, record: type | None = None) -> Schema | None:
    """The first schema of a record, or of any, all of whose fields a row has, or None.

    Where several have the same fields, values of the row decide.
    """
    fit = [s for s in SCHEMAS.values() if s.fields <= row.keys() and record in (None, s.record)]
    # Without one of the asked record, the error says which other schema was found.
    fit = fit or [s for s in SCHEMAS.values() if s.fields <= row.keys()]
    alike = [schema for schema in fit if schema.fields == fit[0].fields]
    meant = (s for s in alike if all(row.get(c) in (None, *v) for c, v in s.where.items()))
    return next(meant, fit[0] if fit else None)


def _refuse(value: object, name: str, wanted: str) -> RowError:
    return RowError(f"{name} is {'missing' if value is None else f'not {wanted}'}")


def _value(row: Row, column: str) -> Any:
    """What a column holds: the first that is there of `a|b`; of `a.b` the part `b` of `a`."""
    for path in column.split("|"):
        value: Any = row
        for name in path.split("."):
            value = _data(value, path) if value != "" else None
            value = cast("Row", value).get(name) if isinstance(value, Mapping) else None
        if value is not None and value != "":
            return value
    return row.get(column)


def text_field(row: Row, name: str) -> str:
    """A string that is not blank; `RowError` if the field is missing or holds something else."""
    value = _value(row, name)
    if not isinstance(value, str):
        raise _refuse(value, name, "a string")
    if not value.strip():
        raise RowError(f"{name} is empty")
    return value


def optional_text(row: Row, name: str) -> str | None:
    """A string, or None where the field is missing or empty; else `RowError`."""
    return None if _value(row, name) in (None, "") else text_field(row, name)


def list_field(row: Row, name: str) -> list[Any]:
    """A list (a tuple counts); `RowError` if the field is missing or something else."""
    value = _value(row, name)
    if not isinstance(value, list | tuple):
        raise _refuse(value, name, "a list")
    return list(cast("list[Any]", value))


def texts_field(row: Row, name: str) -> list[str]:
    """A list of strings; `RowError` if the field is missing or something else."""
    values = list_field(row, name)
    if not all(isinstance(value, str) for value in values):
        raise RowError(f"{name} holds something else than strings")
    return values


def _data(value: Any, name: str) -> Any:
    """A value, or what a text says it is: JSON, or literals of Python, as some publish."""
    if not isinstance(value, str):
        return value
    for read in (json.loads, ast.literal_eval):
        try:
            return read(value)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            continue
    raise RowError(f"{name} is not JSON")


def _label(row: Row, *names: str) -> str:
    """The first of the named fields that is a string or number and not blank, or ""."""
    values = (_value(row, name) for name in names)
    return next((str(v) for v in values if isinstance(v, str | int | float) and str(v).strip()), "")


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


def _multiple_choice(row: Row) -> dict[str, Any]:
    """MMLU: an answer is the number of a choice, from 0, or its letter."""
    choices, answer = list_field(row, "choices"), row.get("answer")
    if len(choices) > len(string.ascii_uppercase):
        raise RowError("more choices than letters")
    letters = string.ascii_uppercase[: len(choices)]
    if isinstance(answer, int) and 0 <= answer < len(letters):
        answer = letters[answer]
    if answer not in tuple(letters):
        raise RowError("answer is neither the number nor the letter of a choice")
    lines = [
        f"{letter}. {_answer(c, 'choices')}" for letter, c in zip(letters, choices, strict=True)
    ]
    return {"question": "\n".join([text_field(row, "question"), *lines]), "answer": answer}


def _olympiadbench(row: Row) -> dict[str, Any]:
    """Proofs, and errors that are not numbers, are refused."""
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
        "tolerance": _tolerance(tolerance, "error"),
    }


def _tolerance(value: Any, name: str) -> float:
    # True is an int to Python, and no tolerance.
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _refuse(value, name, "a number")
    if not 0 <= value <= sys.float_info.max:
        raise RowError(f"{name} is not a finite number of at least 0")
    return value


def _chat(row: Row, column: str) -> tuple[str, str]:
    """The question of a chat, and its last answer, or "" where it ends with the question."""
    if isinstance(_value(row, column), str):
        return text_field(row, column), ""
    messages = [cast("Row", m) for m in list_field(row, column) if isinstance(m, dict)]
    said = [(m.get("role"), text_field(m, "content")) for m in messages]
    # Messages of the system say how to answer. Of several turns no single one is the question.
    asked = [text for role, text in said if role == "user"]
    if len(asked) != 1:
        raise RowError(f"{column} holds {len(asked)} messages of a user, not one")
    return asked[0], said[-1][1] if said[-1][0] == "assistant" else ""


def _conversation(row: Row) -> dict[str, Any]:
    """TRL's layouts: `messages`, or `prompt` with `completion` or a column for the reward."""
    question, said = _chat(row, "messages|prompt")
    columns = "answer|ground_truth|solution|completion"
    value = _value(row, columns) or said
    if isinstance(value, list) and value and isinstance(value[-1], dict):
        value = cast("Row", value[-1]).get("content")
    text = _answer(value or None, columns)
    answer = boxed_answer(text) or _question_answer({"answer": text})["answer"]
    return {"question": question, "answer": answer, "solution": None if answer == text else text}


def _competition_math(row: Row) -> dict[str, Any]:
    """The answer is the last box of the solution, unless it has its own field."""
    answer = row.get("answer")
    if answer is None:
        answer = boxed_answer(text_field(row, "solution"))
        if answer is None:
            raise RowError("solution has no \\boxed answer")
    return {"answer": _answer(answer, "answer")}


def read_examples(
    row: Row, columns: Sequence[str], function: str | None
) -> tuple[tuple[CodeTest, ...], str | None]:
    """The tests of all columns that are there, and the function to call, or None for programs.

    Read are an object of `inputs`, `outputs` and `fn_name`, as APPS has, and a list of objects with
    `input`, `output` and a type each, as LiveCodeBench has; either may be written as JSON.

    Raises:
        RowError: The tests are damaged, or not of one kind.
    """
    entries: list[Row] = []
    for column in columns:
        value = _value(row, column)
        value = _unpacked(value, column) if value != "" else None
        if isinstance(value, Mapping):
            function = optional_text(cast("Row", value), "fn_name") or function
            value = _paired(cast("Row", value), column)
        if not isinstance(value, list | None):
            raise RowError(f"{column} is neither a list nor an object")
        entries += cast("list[Row]", value or [])
    name = " and ".join(columns)
    if not all(isinstance(entry, Mapping) for entry in entries):
        raise RowError(f"{name} holds something else than objects")
    if not entries:
        return (), None
    named = (_value(entry, "fn_name|metadata.func_name") for entry in entries)
    function = next((one for one in named if isinstance(one, str)), function)
    kinds = {_is_call(entry, function, name) for entry in entries}
    # A problem is run in one way; rows that mix both are damaged.
    if len(kinds) != 1:
        raise RowError(f"{name} mixes tests of programs and of functions")
    if kinds == {False}:
        return tuple(map(_stdin_test, entries)), None
    if function is None:
        raise RowError(f"{name} tests a function without its name")
    return _call_tests(entries), function


def _unpacked(value: Any, name: str) -> Any:
    # Early releases of LiveCodeBench are plain JSON, later ones packed.
    if not isinstance(value, str) or value.lstrip()[:1] in ("[", "{"):
        return _data(value, name)
    try:
        return _data(text_from_packed_pickle(value), name)
    except ValueError as error:
        raise RowError(f"{name} cannot be decoded: {error}") from error


def _paired(tests: Row, name: str) -> list[Row]:
    inputs, outputs = (list_field(tests, f"{side}s|{side}") for side in ("input", "output"))
    if len(inputs) != len(outputs):
        raise RowError(f"{name} has {len(inputs)} inputs but {len(outputs)} outputs")
    return [{"input": i, "output": o} for i, o in zip(inputs, outputs, strict=True)]


def _is_call(entry: Row, function: str | None, name: str) -> bool:
    kind = _value(entry, "testtype|type")
    if kind is not None and kind not in [*_KINDS]:
        raise RowError(f"{name} has tests of the type {kind!r}, not one of {', '.join(_KINDS)}")
    return function is not None if kind is None else _KINDS[kind]


def _stdin_test(entry: Row) -> CodeTest:
    sides = (entry.get("input"), entry.get("output"))
    lines = ["\n".join(map(str, v)) if isinstance(v, list) else v for v in sides]
    texts = [line for line in lines if isinstance(line, str)]
    if len(texts) < 2:
        raise RowError("a test of a program is neither a string nor a list of lines")
    return CodeTest(*texts)


def _call_tests(entries: Sequence[Row]) -> tuple[CodeTest, ...]:
    """Tests of a function: texts with an argument a line, or lists of arguments."""
    found: list[tuple[Any, Any]] = []
    for given, wanted in ((entry.get("input"), entry.get("output")) for entry in entries):
        if isinstance(given, str) and isinstance(wanted, str):
            arguments = [_data(line, "a test input") for line in given.splitlines() if line]
            found.append((arguments, [_data(wanted, "a test output")]))
        elif isinstance(given, list):
            found.append((given, wanted))
        else:
            raise RowError("a test of a function has no list of arguments")
    # APPS and its kin wrap the return values of a row in lists of one, all or none.
    if all(isinstance(wanted, list) and len(wanted) == 1 for _, wanted in found):
        found = [(given, wanted[0]) for given, wanted in found]
    try:
        return tuple(CodeTest(json.dumps(given), json.dumps(wanted)) for given, wanted in found)
    except (TypeError, ValueError, RecursionError) as error:
        raise RowError("a test holds a value that JSON cannot express") from error


def programs_in(value: Any, name: str) -> list[str]:
    """The Python programs of a field: one or a list, as JSON too, or with a language each.

    Raises:
        RowError: The field is damaged.
    """
    if isinstance(value, str):
        value = _data(value, name) if value.lstrip().startswith("[") else [value]
    if isinstance(value, Mapping):
        languages = list_field(cast("Row", value), "language")
        sources = texts_field(cast("Row", value), "solution")
        if len(languages) != len(sources):
            raise RowError(f"{name} has {len(languages)} languages but {len(sources)} programs")
        value = [one for spoken, one in zip(languages, sources, strict=True) if spoken == PYTHON_3]
    texts = list_field({name: value or []}, name)
    found = [one for one in texts if isinstance(one, str)]
    fenced = (read_program(one, len(one)) if "```" in one else one for one in found)
    return [one for one in fenced if isinstance(one, str) and one.strip()]


def _program(programs: Iterable[str]) -> str | None:
    """The first program that Python 3 can read."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)
        return next((one for one in programs if parsed(one)), None)


def _seconds(limit: Any) -> float:
    parts: Row = cast("Row", limit) if isinstance(limit, Mapping) else {"seconds": limit}
    whole, nanos = parts.get("seconds") or 0, parts.get("nanos") or 0
    if not isinstance(whole, int | float) or not isinstance(nanos, int | float):
        raise RowError("time_limit does not hold numbers")
    try:
        return float(whole) + nanos / 1e9
    except OverflowError:  # of more than 308 digits
        return math.inf


def _statement(row: Row, parts: Mapping[str, str], examples: Iterable[CodeTest]) -> str:
    """A statement of several fields, each with its title, and of examples."""
    texts = [(title, optional_text(row, column)) for column, title in parts.items()]
    shown = [f"Example input\n{test.input}\n\nExample output\n{test.output}" for test in examples]
    return "\n\n".join([*(f"{t}\n{text}".strip() for t, text in texts if text), *shown])


def _asserts(row: Row, columns: Mapping[str, str]) -> dict[str, Any]:
    """A problem whose tests are asserts; `entry_point` names the function, if it is there."""
    value = _value(row, columns["tests"])
    lines = texts_field(row, columns["tests"]) if isinstance(value, list) else [value]
    source = "\n".join(one for one in lines if isinstance(one, str))
    solution = "".join(text_field(row, column) for column in columns["solution"].split("+"))
    name = (optional_text(row, "entry_point") or "").removeprefix("Solution().")
    try:
        tested, tests = read_tests(source, solution, name)
    except UnreadableTest as error:
        raise RowError(str(error)) from error
    if name and tested not in (name, "candidate"):
        raise RowError(f"the tests do not call {name}")
    statement = columns.get("before", "") + text_field(row, columns["statement"])
    if not name:
        statement = f"{statement}\n\nThe function must be named {tested}."
    found: dict[str, Any] = {"statement": statement, "tests": tests}
    return found | {"function_name": name or tested, "solution": _program([solution])}


def _own_tests(row: Row) -> dict[str, Any]:
    """Fields of `CodeProblem` that are neither strings nor labels; tests are pairs of strings."""
    found: dict[str, Any] = {}
    for name in ("tests", "public_tests"):
        pairs = [pair if isinstance(pair, list | tuple) else [] for pair in list_field(row, name)]
        if not all([*map(type, pair)] == [str, str] for pair in pairs):
            raise RowError(f"{name} holds something else than pairs of strings")
        found[name] = tuple(CodeTest(*pair) for pair in pairs)
    if not found["tests"]:
        raise RowError("no tests")
    if row.get("wrong_programs") is not None:
        found["wrong_programs"] = tuple(texts_field(row, "wrong_programs"))
    if row.get("time_limit_s") is not None:
        seconds = _seconds(row["time_limit_s"])
        if not 0.001 <= seconds <= _LONGEST_LIMIT_S:
            raise RowError(f"time_limit_s is not from 0.001 to {_LONGEST_LIMIT_S} seconds")
        found["time_limit_s"] = seconds
    return found


def _own_tolerance(row: Row) -> dict[str, Any]:
    return {"tolerance": _tolerance(row.get("tolerance"), "tolerance")}


_READERS: Mapping[str, Callable[[Row], dict[str, Any]]] = {
    "competition_math": _competition_math,
    "conversation": _conversation,
    "multiple_choice": _multiple_choice,
    "olympiadbench": _olympiadbench,
    "own_tests": _own_tests,
    "own_tolerance": _own_tolerance,
    "question_answer": _question_answer,
}


def _schema(name: str, table: dict[str, Any]) -> Schema:
    record = {"code": CodeProblem, "math": MathProblem}[table.pop("kind")]
    return Schema(name, record, frozenset(table.pop("fields")), **table)


SCHEMAS: Mapping[str, Schema] = {
    name: _schema(name, table)
    for name, table in packaged("pettingllms_envs.datasets", "schemas.toml").items()
}
"""Name -> schema, the more specific ones first. `problem_answer` is AIME 2025 and Polaris,
`question_answer` is GSM8K and your own files."""
