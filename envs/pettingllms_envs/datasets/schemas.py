"""The public data schemas that are understood, and how one is recognised."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pettingllms.arguments import check_choice
from pettingllms_envs.datasets import code_rows, math_rows
from pettingllms_envs.datasets.records import CodeProblem, MathProblem


@dataclass(frozen=True, slots=True)
class Schema:
    """One published layout of rows.

    Attributes:
        name: What the argument `schema` calls it.
        kind: Whether its rows are programming or mathematical problems.
        fields: Fields that every row has; the set that names the schema.
        convert: Row and its number -> record. Raises `RowError` for a row that cannot be used.
    """

    name: str
    kind: Literal["code", "math"]
    fields: frozenset[str]
    convert: Callable[[Mapping[str, Any], int], CodeProblem | MathProblem]


def _schema(
    name: str,
    kind: Literal["code", "math"],
    fields: str,
    convert: Callable[[Mapping[str, Any], int], CodeProblem | MathProblem],
) -> Schema:
    return Schema(name, kind, frozenset(fields.split()), convert)


_ALL = (
    _schema("apps", "code", "question solutions input_output", code_rows.apps),
    _schema("code_contests", "code", "description public_tests private_tests", code_rows.contests),
    _schema("livecodebench", "code", "question_content public_test_cases", code_rows.livecodebench),
    _schema("humaneval", "code", "prompt entry_point test canonical_solution", code_rows.humaneval),
    _schema("mbpp", "code", "test_list code", code_rows.mbpp),
    _schema("olympiadbench", "math", "question final_answer", math_rows.olympiadbench),
    _schema("dapo", "math", "prompt reward_model", math_rows.dapo),
    _schema("aime_2024", "math", "Problem Answer", math_rows.aime_2024),
    _schema("math", "math", "problem solution level", math_rows.competition_math),
    _schema("problem_answer", "math", "problem answer", math_rows.problem_answer),
    _schema("question_answer", "math", "question answer", math_rows.question_answer),
)

SCHEMAS: Mapping[str, Schema] = {schema.name: schema for schema in _ALL}
"""Name -> schema, the more specific ones first. `problem_answer` is AIME 2025 and Polaris,
`question_answer` is GSM8K and your own files."""


def detect_schema(fields: Iterable[str]) -> Schema | None:
    """Return the first schema all of whose fields are there, or None."""
    present = set(fields)
    return next((schema for schema in _ALL if schema.fields <= present), None)


def find_schema(name: str) -> Schema:
    """Return a schema by name.

    Raises:
        InvalidArgument: There is no such schema.
    """
    check_choice("schema", name, SCHEMAS)
    return SCHEMAS[name]
