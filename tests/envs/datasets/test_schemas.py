"""Rows of every schema: good ones, and every way in which one can be bad."""

import contextlib
import json
from pathlib import Path

import pytest

from pettingllms.errors import InvalidArgument
from pettingllms_envs.datasets import (
    SCHEMAS,
    CodeTest,
    RowError,
    detect_schema,
    load_code_problems,
    load_math_problems,
)
from pettingllms_envs.datasets.loading import SEVERAL_ANSWERS
from pettingllms_envs.datasets.rows import find_schema

ROWS = json.loads(Path(__file__).with_name("rows.json").read_text(encoding="utf-8"))
"""`good`: a row of every schema, and of two with functions; `bad`: schema, change, reason."""
GOOD = {name: row for name, row in ROWS["good"].items() if name in SCHEMAS}
APPS, CONTESTS, BENCH, MBPP, HUMANEVAL, OLYMPIAD, DAPO, AIME, MATH, POLARIS, GSM8K = (
    GOOD[name]
    for name in (
        *("apps", "code_contests", "livecodebench", "mbpp", "humaneval", "olympiadbench"),
        *("dapo", "aime_2024", "math", "problem_answer", "question_answer"),
    )
)
APPS_CALL, BENCH_CALL = (ROWS["good"][f"{name}, call"] for name in ("apps", "livecodebench"))


def convert(name, row):
    return SCHEMAS[name].convert(row, 0)


def test_every_schema_is_recognised_by_its_fields():
    assert set(GOOD) == set(SCHEMAS)
    for name, row in GOOD.items():
        assert detect_schema(row).name == name
        assert convert(name, row) is not None
    assert detect_schema({"text": "hello"}) is None


def test_apps_programs():
    problem = convert("apps", APPS)
    assert problem.id == "7"
    assert problem.tests == (CodeTest("1 2\n", "3\n"), CodeTest("3 4\n", "7"))
    assert problem.solution.startswith("print(sum")
    assert problem.function_name is None
    assert problem.difficulty == "introductory"
    assert convert("apps", {**APPS, "solutions": ""}).solution is None


def test_apps_functions():
    problem = convert("apps", APPS_CALL)
    assert problem.function_name == "add"
    assert problem.tests == (CodeTest("[1, 2]", "3"),)
    assert problem.starter


def test_code_contests():
    problem = convert("code_contests", CONTESTS)
    assert [test.input for test in problem.tests] == ["3 4\n", "5 6\n"]
    assert problem.public_tests == (CodeTest("1 2\n", "3\n"),)
    assert problem.solution == "print(1)"
    assert problem.wrong_programs == ("print(2)",)
    assert problem.time_limit_s == 5.0


def test_livecodebench():
    problem = convert("livecodebench", BENCH)
    assert problem.tests == problem.public_tests == (CodeTest("1 2\n", "3\n"),)
    problem = convert("livecodebench", BENCH_CALL)
    assert problem.function_name == "scale"
    assert problem.tests == (CodeTest("[[1, 2], 3]", "[2, 4]"),)


def test_function_benchmarks():
    problem = convert("mbpp", MBPP)
    assert problem.function_name == "add"
    assert len(problem.tests) == 2
    assert "add" in problem.statement
    sanitised = {**MBPP, "prompt": "Write it."}
    del sanitised["text"]
    assert convert("mbpp", sanitised).statement.startswith("Write it.")
    problem = convert("humaneval", HUMANEVAL)
    assert problem.solution == HUMANEVAL["prompt"] + HUMANEVAL["canonical_solution"]
    assert problem.tests == (CodeTest("[1, 2]", "3"),)


def test_mathematics():
    olympiad = convert("olympiadbench", OLYMPIAD)
    assert (olympiad.answer, olympiad.unit, olympiad.tolerance) == ("1, 2", "cm", 0.1)
    assert convert("olympiadbench", {**OLYMPIAD, "context": "C."}).question == "C.\n\nSolve."
    assert convert("dapo", DAPO)[:3] == ("abc", "1+1?", "2")
    assert convert("aime_2024", AIME)[:3] == ("2024-I-1", "1+1?", "2")
    assert convert("math", MATH).answer == r"\frac{4}{2}"
    assert convert("math", {**MATH, "answer": "2"}).answer == "2"
    assert convert("problem_answer", POLARIS).difficulty == "3/8"
    assert convert("problem_answer", {**POLARIS, "answer": 2.0}).answer == "2"
    assert convert("question_answer", GSM8K).answer == "1002"
    assert convert("question_answer", {**GSM8K, "answer": "7"}).answer == "7"


def test_mathematics_has_the_first_solution_of_its_row():
    assert convert("olympiadbench", {**OLYMPIAD, "solution": ["A.", "B."]}).solution == "A."
    assert convert("aime_2024", {**AIME, "Solution": "A."}).solution == "A."
    assert convert("math", MATH).solution == MATH["solution"]
    assert convert("problem_answer", {**POLARIS, "solution": " "}).solution is None
    assert convert("question_answer", GSM8K).solution == "1 + 1 = 2"
    assert convert("question_answer", {**GSM8K, "answer": "7"}).solution is None
    own = {"question": "One?", "answer": "1", "solution": "It is one."}
    assert convert("question_answer", own).solution == "It is one."


@pytest.mark.parametrize(("name", "change", "reason"), ROWS["bad"])
def test_bad_rows_are_refused_with_their_reason(name, change, reason):
    with pytest.raises(RowError) as error:
        convert(name, {**GOOD[name], **change})
    assert reason in str(error.value)


@pytest.mark.parametrize("name", GOOD)
def test_any_single_field_may_be_damaged_in_any_way(name):
    for field in GOOD[name]:
        for value in (None, "", 5, [], {}, [None], {"a": None}, "\x00", b"bytes", float("nan")):
            with contextlib.suppress(RowError):
                assert convert(name, {**GOOD[name], field: value}).id


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_bad_rows_are_skipped_counted_and_explained(tmp_path):
    rows = [APPS, {**APPS, "problem_id": 8, "question": ""}, {**APPS, "problem_id": 9}, APPS]
    loaded = load_code_problems(write(tmp_path / "a.jsonl", rows))
    assert [problem.id for problem in loaded.problems] == ["7", "9"]
    assert loaded.skipped == {"question is empty": (1,), "the id of an earlier row": (3,)}
    assert loaded.num_rows == 4


def test_a_source_without_a_usable_row_is_an_error(tmp_path):
    rows = [{**APPS, "question": ""}] * 3
    with pytest.raises(InvalidArgument, match="question is empty \\(3 rows\\)"):
        load_code_problems(write(tmp_path / "a.jsonl", rows))
    with pytest.raises(InvalidArgument, match="at least one readable row"):
        load_code_problems(write(tmp_path / "b.jsonl", []))


def test_unknown_or_unfit_schemas_are_errors(tmp_path):
    path = write(tmp_path / "a.jsonl", [{"text": "hello"}])
    with pytest.raises(InvalidArgument, match="rename the fields"):
        load_math_problems(path)
    with pytest.raises(InvalidArgument, match='did you mean "apps"'):
        find_schema("app")
    path = write(tmp_path / "b.jsonl", [GSM8K])
    with pytest.raises(InvalidArgument, match="a schema of code problems"):
        load_code_problems(path)
    assert load_math_problems(path, schema="question_answer").problems[0].answer == "1002"


def test_the_real_samples_load_completely(shared_data):
    loaded = load_code_problems(shared_data("code_contests_sample.jsonl"))
    assert {why: len(rows) for why, rows in loaded.skipped.items()} == {SEVERAL_ANSWERS: 5}
    assert len(loaded.problems) == 75
    assert all(problem.solution and problem.tests for problem in loaded.problems)
    for name, count in {"aime_2024": 30, "olympiadbench_sample": 150, "gsm8k_sample": 200}.items():
        loaded = load_math_problems(shared_data(f"{name}.jsonl"))
        assert len(loaded.problems) == count
        assert not loaded.skipped
