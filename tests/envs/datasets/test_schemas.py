"""Rows of every schema: good ones, and every way in which one can be bad."""

import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pettingllms.errors import InvalidArgument
from pettingllms_envs.code import builtin_problems
from pettingllms_envs.datasets import (
    SCHEMAS,
    CodeProblem,
    CodeTest,
    MathProblem,
    RowError,
    detect_schema,
    load_problems,
)
from pettingllms_envs.datasets.statements import REASONS, accepts_any_case, accepts_several

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
    assert problem.public_tests == (CodeTest("1 2\n", "3\n"),)
    assert problem.tests == (CodeTest("3 4\n", "7\n"),)
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


def test_public_code_sets_of_reinforcement_learning():
    problem = convert("codeforces", GOOD["codeforces"])
    assert problem.statement.startswith(
        "Theatre\n\nAdd.\n\nInput\nTwo numbers.\n\nOutput\nTheir sum."
    )
    assert problem.statement.endswith("Example input\n1 2\n\nExample output\n3")
    assert (problem.public_tests, problem.tests) == ((("1 2", "3"),), (("3 4", "7"),))
    assert (problem.checker, problem.time_limit_s, problem.difficulty) == ("print(1)", 3.0, "800")
    for name in ("deepcoder", "synthetic_1_code"):
        problem = convert(name, GOOD[name])
        assert (problem.solution, problem.function_name) == ("print(3)\n", None)
        assert problem.tests == (CodeTest("1 2", "3"),)
    for form in ("call", "typed call", "lcb"):
        problem = convert("deepcoder", ROWS["good"][f"deepcoder, {form}"])
        assert (problem.function_name, problem.tests) == ("add", (CodeTest("[1, 2]", "3"),))
    problem = convert("leetcode", GOOD["leetcode"])
    assert problem.function_name == "scale"
    assert problem.tests == (CodeTest("[[1, 2], 3]", "[3, 6]"), CodeTest("[[], 3]", "[]"))
    problem = convert("bigcodebench", GOOD["bigcodebench"])
    assert problem.tests == (CodeTest("[4]", "2.0"), CodeTest("[2]", "1.414"))
    problem = convert("kodcode", GOOD["kodcode"])
    assert problem.statement == "Add.\n\nThe function must be named add."
    assert problem.tests == (CodeTest("[[1], [2]]", "[1, 2]"), CodeTest("[0.5, 1]", "1.5"))


@pytest.mark.parametrize(
    ("outputs", "wanted"),
    [
        ([[3], [4]], ["3", "4"]),
        ([[2, 4], [2]], ["[2, 4]", "[2]"]),
        ([[[1]], [[2, 3]]], ["[1]", "[2, 3]"]),
        ([3, [4]], ["3", "[4]"]),
    ],
)
def test_return_values_are_unwrapped_in_all_tests_of_a_row_or_in_none(outputs, wanted):
    data = {"fn_name": "f", "inputs": [[i] for i in range(len(outputs))], "outputs": outputs}
    problem = convert("apps", {**APPS_CALL, "input_output": json.dumps(data)})
    assert [test.output for test in problem.tests] == wanted


def test_rows_of_mixed_data_sets_are_read_by_their_task():
    code, maths = GOOD["synthetic_1_code"], GOOD["synthetic_1_math"]
    assert detect_schema(code, MathProblem).name == detect_schema(maths).name == "synthetic_1_math"
    assert convert("synthetic_1_math", maths)[:3] == ("vfm_1", "1+1?", "2")
    assert convert("code_problem", GOOD["code_problem"]).time_limit_s == 2.5
    assert convert("math_problem", GOOD["math_problem"]).tolerance == 0.5


def test_mathematics_of_chats_and_choices():
    assert convert("deepmath", GOOD["deepmath"])[1:3] == ("1+1?", "2")
    problem = convert("multiple_choice", GOOD["multiple_choice"])
    assert (problem.question, problem.answer) == ("1+1?\nA. 1\nB. 2\nC. 3\nD. 4", "B")
    row = GOOD["prompt"]
    completion = [{"role": "assistant", "content": "#### 2"}]
    for change in (
        {},
        {"prompt": "1+1?"},
        {"solution": None, "answer": 2},
        {"solution": None, "completion": completion},
    ):
        assert convert("prompt", {**row, **change})[1:3] == ("1+1?", "2")
    assert convert("messages", GOOD["messages"])[1:3] == ("1+1?", "2")


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
    loaded = load_problems(CodeProblem, write(tmp_path / "a.jsonl", rows))
    assert [problem.id for problem in loaded.problems] == ["7", "9"]
    assert loaded.skipped == {"question is empty": (1,), "the id of an earlier row": (3,)}
    assert loaded.num_rows == 4


def test_a_source_without_a_usable_row_is_an_error(tmp_path):
    rows = [{**APPS, "question": ""}] * 3
    with pytest.raises(InvalidArgument, match="question is empty \\(3 rows\\)"):
        load_problems(CodeProblem, write(tmp_path / "a.jsonl", rows))
    with pytest.raises(InvalidArgument, match="at least one readable row"):
        load_problems(CodeProblem, write(tmp_path / "b.jsonl", []))


def test_unknown_or_unfit_schemas_are_errors(tmp_path):
    path = write(tmp_path / "a.jsonl", [{"text": "hello"}])
    with pytest.raises(InvalidArgument, match="rename the fields"):
        load_problems(MathProblem, path)
    with pytest.raises(InvalidArgument, match='did you mean "apps"'):
        load_problems(MathProblem, path, schema="app")
    path = write(tmp_path / "b.jsonl", [GSM8K])
    with pytest.raises(InvalidArgument, match="a schema of a CodeProblem"):
        load_problems(CodeProblem, path)
    assert load_problems(MathProblem, path, schema="question_answer").problems[0].answer == "1002"


def test_the_real_samples_load_completely(shared_data):
    loaded = load_problems(CodeProblem, shared_data("code_contests_sample.jsonl"))
    skipped = {why: len(rows) for why, rows in loaded.skipped.items()}
    assert skipped == {REASONS["several"]: 5, REASONS["formula"]: 6}
    assert len(loaded.problems) == 69
    assert all(problem.solution and problem.tests for problem in loaded.problems)
    for name, count in {"aime_2024": 30, "olympiadbench_sample": 150, "gsm8k_sample": 200}.items():
        loaded = load_problems(MathProblem, shared_data(f"{name}.jsonl"))
        assert len(loaded.problems) == count
        assert not loaded.skipped


CASES = json.loads(Path(__file__).with_name("several_answers.json").read_text("utf-8"))


@pytest.mark.parametrize("sentence", CASES["several"])
def test_any_of_several_will_do(sentence):
    assert accepts_several(sentence)
    assert accepts_several(f"Do something. {sentence} Good luck!")


@pytest.mark.parametrize("sentence", CASES["one"])
def test_one_answer_is_right(sentence):
    assert not accepts_several(sentence)


@pytest.mark.parametrize(
    ("sentence", "is_any"),
    [(one, kind == "any case") for kind in ("any case", "one case") for one in CASES[kind]],
)
def test_the_case_of_letters_may_be_free(sentence, is_any):
    assert accepts_any_case(f"Do something. {sentence} Good luck!") == is_any


@pytest.mark.parametrize("is_free", [accepts_several, accepts_any_case])
def test_the_built_in_problems_have_one_answer(is_free):
    assert not [p.id for p in builtin_problems().values() if is_free(p.statement)]


@given(st.text())
def test_no_statement_raises(text):
    accepts_several(text)
    accepts_any_case(text)
