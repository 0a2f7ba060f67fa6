"""Rows of every schema: good ones, and every way in which one can be bad."""

import base64
import contextlib
import json
import pickle
import zlib

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

APPS = {
    "problem_id": 7,
    "question": "Add.",
    "solutions": json.dumps(["print(sum(map(int, input().split())))"]),
    "input_output": json.dumps({"inputs": ["1 2\n", ["3 4", ""]], "outputs": ["3\n", "7"]}),
    "difficulty": "introductory",
    "url": "",
    "starter_code": "",
}
APPS_CALL = {
    **APPS,
    "input_output": json.dumps({"fn_name": "add", "inputs": [[1, 2]], "outputs": [[3]]}),
    "starter_code": "class Solution:\n    def add(self, a, b):",
}
CONTESTS = {
    "name": "1_A. Sum",
    "description": "Add.",
    "public_tests": {"input": ["1 2\n"], "output": ["3\n"]},
    "private_tests": {"input": ["3 4\n", "1 2\n"], "output": ["7\n", "3\n"]},
    "generated_tests": {"input": ["5 6\n"], "output": ["11\n"]},
    "solutions": {"language": [2, 3], "solution": ["int main", "print(1)"]},
    "incorrect_solutions": {"language": [3, 4], "solution": ["print(2)", "class"]},
    "difficulty": 7,
    "source": 2,
    "time_limit": {"seconds": 2, "nanos": 500000000},
}
BENCH_TESTS = [{"input": "1 2\n", "output": "3\n", "testtype": "stdin"}]
BENCH = {
    "question_title": "Sum",
    "question_content": "Add.",
    "question_id": "abc_a",
    "starter_code": "",
    "difficulty": "easy",
    "public_test_cases": json.dumps(BENCH_TESTS),
    "private_test_cases": json.dumps(BENCH_TESTS),
    "metadata": "{}",
}
CALL_TESTS = [{"input": "[1, 2]\n3", "output": "[2, 4]", "testtype": "functional"}]
BENCH_CALL = {
    **BENCH,
    "public_test_cases": json.dumps(CALL_TESTS),
    "private_test_cases": base64.b64encode(
        zlib.compress(pickle.dumps(json.dumps(CALL_TESTS)))
    ).decode(),
    "metadata": json.dumps({"func_name": "scale"}),
    "starter_code": "class Solution: ...",
}
MBPP = {
    "task_id": 3,
    "text": "Write a function to add.",
    "code": "def add(a, b):\n    return a + b",
    "test_list": ["assert add(1, 2) == 3", "assert add(0, 0) == 0"],
}
HUMANEVAL = {
    "task_id": "HumanEval/0",
    "prompt": 'def add(a, b):\n    """Add."""\n',
    "entry_point": "add",
    "canonical_solution": "    return a + b\n",
    "test": "def check(candidate):\n    assert candidate(1, 2) == 3\n",
}
OLYMPIAD = {
    "id": 5,
    "subfield": "Algebra",
    "context": None,
    "question": "Solve.",
    "solution": ["..."],
    "final_answer": ["$1$", "$2$"],
    "is_multiple_answer": True,
    "unit": "cm",
    "answer_type": "Numerical",
    "error": "1e-1",
}
DAPO = {
    "prompt": [{"role": "user", "content": "1+1?"}],
    "reward_model": {"ground_truth": "2", "style": "rule"},
    "extra_info": {"index": "abc"},
}
AIME = {"ID": "2024-I-1", "Problem": "1+1?", "Solution": "...", "Answer": 2}
MATH = {
    "problem": "1+1?",
    "solution": "It is \\boxed{\\frac{4}{2}}.",
    "level": "Level 2",
    "type": "Algebra",
}
POLARIS = {"problem": "1+1?", "answer": "2", "difficulty": "3/8"}
GSM8K = {"question": "Count.", "answer": "1 + 1 = <<1+1=2>>2\n#### 1,002"}
GOOD = {
    "apps": APPS,
    "code_contests": CONTESTS,
    "livecodebench": BENCH,
    "humaneval": HUMANEVAL,
    "mbpp": MBPP,
    "olympiadbench": OLYMPIAD,
    "dapo": DAPO,
    "aime_2024": AIME,
    "math": MATH,
    "problem_answer": POLARIS,
    "question_answer": GSM8K,
}


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


BAD = [
    ("apps", {"input_output": ""}, "input_output is empty"),
    ("apps", {"input_output": "{"}, "not JSON"),
    ("apps", {"input_output": "[]"}, "not a JSON object"),
    ("apps", {"input_output": '{"inputs": ["1"], "outputs": []}'}, "1 test inputs but 0 outputs"),
    ("apps", {"input_output": '{"inputs": [], "outputs": []}'}, "no tests"),
    ("apps", {"input_output": '{"inputs": [1], "outputs": ["1"]}'}, "neither a string"),
    ("apps", {"question": " "}, "question is empty"),
    ("apps", {"solutions": "{"}, "solutions is not JSON"),
    ("code_contests", {"description": None}, "description is missing"),
    ("code_contests", {"public_tests": []}, "public_tests is not an object"),
    (
        "code_contests",
        {"private_tests": {"input": [], "output": []}, "generated_tests": None},
        "no hidden tests",
    ),
    ("code_contests", {"private_tests": {"input": ["1"], "output": []}}, "1 inputs but 0 outputs"),
    ("code_contests", {"private_tests": {"input": [1], "output": [2]}}, "else than strings"),
    ("code_contests", {"solutions": {"language": [3], "solution": []}}, "1 languages but 0"),
    ("code_contests", {"time_limit": {"seconds": "2"}}, "time_limit"),
    ("livecodebench", {"private_test_cases": "####"}, "cannot be decoded"),
    ("livecodebench", {"private_test_cases": "[]"}, "no hidden tests"),
    ("livecodebench", {"private_test_cases": '[{"input": "1"}]'}, "without input, output"),
    ("livecodebench", {"private_test_cases": "[1]"}, "else than objects"),
    ("livecodebench", {"public_test_cases": "{}"}, "not a JSON list"),
    (
        "livecodebench",
        {"private_test_cases": json.dumps(CALL_TESTS)},
        "testtype is",
    ),
    (
        "livecodebench",
        {key: json.dumps(CALL_TESTS) for key in ("public_test_cases", "private_test_cases")},
        "without func_name",
    ),
    ("mbpp", {"test_list": ["assert f(x) == 1"]}, "literal"),
    ("mbpp", {"text": None}, "prompt is missing"),
    ("humaneval", {"test": "x = 1"}, "no function check"),
    ("olympiadbench", {"final_answer": []}, "a proof"),
    ("olympiadbench", {"final_answer": None}, "final_answer is missing"),
    ("olympiadbench", {"image_1": "x"}, "picture"),
    ("olympiadbench", {"error": "small"}, "error is not a number"),
    ("dapo", {"prompt": []}, "no message"),
    ("dapo", {"reward_model": {}}, "ground_truth is missing"),
    ("aime_2024", {"Answer": None}, "Answer is missing"),
    ("aime_2024", {"Answer": True}, "not a string or number"),
    ("math", {"solution": "no box"}, "no \\boxed"),
    ("problem_answer", {"answer": " "}, "answer is empty"),
    ("question_answer", {"answer": "a\nb"}, "without a final"),
]


@pytest.mark.parametrize(("name", "change", "reason"), BAD)
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
