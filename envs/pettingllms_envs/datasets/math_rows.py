"""Rows of public mathematics data sets, turned into `MathProblem` records."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, cast

from pettingllms.markup import last_boxed
from pettingllms_envs.datasets.fields import (
    Row,
    RowError,
    list_field,
    mapping_field,
    optional_text,
    row_id,
    text_field,
)
from pettingllms_envs.datasets.records import MathProblem

_GSM8K_ANSWER = re.compile(r"####\s*(.+?)\s*$")
_GSM8K_CALCULATION = re.compile(r"<<.*?>>")


def _solution(value: Any) -> str | None:
    """Return a worked solution, the first of several; None where the source has none."""
    if isinstance(value, list | tuple) and value:
        value = cast("Sequence[Any]", value)[0]
    return (value.strip() or None) if isinstance(value, str) else None


def _answer(value: Any, name: str) -> str:
    """Return a reference answer as text: integers are written as such."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise RowError(f"{name} is {'missing' if value is None else 'not a text or number'}")
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    text = str(value).strip()
    if not text:
        raise RowError(f"{name} is empty")
    return text


def aime_2024(row: Row, number: int) -> MathProblem:
    """Read a row of `Maxwell-Jia/AIME_2024`.

    Raises:
        RowError: A field is missing.
    """
    return MathProblem(
        id=row_id(row, number, "ID"),
        question=text_field(row, "Problem"),
        answer=_answer(row.get("Answer"), "Answer"),
        solution=_solution(row.get("Solution")),
    )


def problem_answer(row: Row, number: int) -> MathProblem:
    """Read a row with `problem` and `answer`: AIME 2025, Polaris.

    Raises:
        RowError: A field is missing.
    """
    return MathProblem(
        id=row_id(row, number, "id", "ID", "unique_id"),
        question=text_field(row, "problem"),
        answer=_answer(row.get("answer"), "answer"),
        difficulty=row_id(row, 0, "difficulty") if row.get("difficulty") is not None else "",
        solution=_solution(row.get("solution")),
    )


def question_answer(row: Row, number: int) -> MathProblem:
    """Read a row with `question` and `answer`; GSM8K's `#### N` ends its answers.

    Raises:
        RowError: A field is missing.
    """
    answer = _answer(row.get("answer"), "answer")
    final = _GSM8K_ANSWER.search(answer)
    if final is None and "\n" in answer:
        raise RowError("answer is a text of several lines without a final '#### N'")
    return MathProblem(
        id=row_id(row, number, "id", "idx"),
        question=text_field(row, "question"),
        answer=final.group(1).replace(",", "") if final else answer,
        solution=_solution(_GSM8K_CALCULATION.sub("", answer[: final.start()])) if final else None,
    )


def olympiadbench(row: Row, number: int) -> MathProblem:
    """Read a text-only, open-ended row of `Hothan/OlympiadBench`.

    Raises:
        RowError: A field is missing, the row needs a picture, or its answer is only right within an
            error that is not a number.
    """
    if any(row.get(f"image_{i}") is not None for i in range(1, 10)):
        raise RowError("the question needs a picture")
    answers = list_field(row, "final_answer")
    if not answers:
        raise RowError("no final_answer (a proof)")
    parts = [_answer(answer, "final_answer") for answer in answers]
    context = optional_text(row, "context")
    question = text_field(row, "question")
    return MathProblem(
        id=row_id(row, number, "id"),
        question=f"{context}\n\n{question}" if context else question,
        answer=", ".join(part.strip().strip("$") if len(parts) > 1 else part for part in parts),
        unit=optional_text(row, "unit") or "",
        tolerance=_tolerance(row),
        difficulty=optional_text(row, "subfield") or "",
        solution=_solution(row.get("solution")),
    )


def _tolerance(row: Row) -> float:
    text = optional_text(row, "error")
    try:
        return float(text) if text else 0.0
    except ValueError as problem:
        raise RowError("error is not a number") from problem


def dapo(row: Row, number: int) -> MathProblem:
    """Read a row of `BytedTsinghua-SIA/DAPO-Math-17k`.

    Raises:
        RowError: A field is missing.
    """
    messages = list_field(row, "prompt")
    if not messages or not isinstance(messages[-1], dict):
        raise RowError("prompt holds no message")
    extra = row.get("extra_info")
    return MathProblem(
        id=row_id(extra if isinstance(extra, dict) else row, number, "index"),
        question=text_field(messages[-1], "content"),
        answer=_answer(mapping_field(row, "reward_model").get("ground_truth"), "ground_truth"),
    )


def competition_math(row: Row, number: int) -> MathProblem:
    """Read a row of MATH: the answer is the last box of the solution, unless it has its own field.

    Raises:
        RowError: A field is missing, or the solution has no box.
    """
    answer = row.get("answer")
    if answer is None:
        answer = last_boxed(text_field(row, "solution"))
        if answer is None:
            raise RowError("solution has no \\boxed answer")
    return MathProblem(
        id=row_id(row, number, "unique_id", "id"),
        question=text_field(row, "problem"),
        answer=_answer(answer, "answer"),
        difficulty=row_id(row, 0, "level"),
        solution=_solution(row.get("solution")),
    )
