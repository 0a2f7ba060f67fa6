"""Reports on sources, and the problems of a split."""

import json
import os

import pytest

from pettingllms.errors import InvalidArgument, UnreachableRequest
from pettingllms.seeding import SPLITS, split_of
from pettingllms_envs.datasets import CodeProblem, MathProblem, check, check_overlap
from pettingllms_envs.datasets.loading import problems_of


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def questions(count, prefix=""):
    return [
        {"id": f"{prefix}{i}", "question": f"{prefix} what is {i} plus {i * i} minus {7 * i}?",
         "answer": str(i)}
        for i in range(count)
    ]  # fmt: skip


def test_a_report_says_what_is_usable_and_why_the_rest_is_not(tmp_path):
    rows = [*questions(3), {"question": "", "answer": "1"}, {"question": "x", "answer": ""}]
    path = write(tmp_path / "a.jsonl", [*rows, *[{"question": "", "answer": "1"}] * 30])
    report = check(path)
    assert (report.num_rows, report.num_usable, report.schema) == (35, 3, "question_answer")
    text = str(report)
    assert "35 rows, 3 usable, 32 skipped" in text
    assert "skipped 31: question is empty (rows 3, 5, 6" in text
    assert ", ..." in text
    assert "skipped 1: answer is empty (rows 4)" in text


def test_a_report_on_real_data(shared_data):
    report = check(shared_data("code_contests_sample.jsonl"))
    assert report.kind == "code"
    assert (report.num_rows, report.num_usable) == (80, 69)
    assert report.facts["with a solution"] == 69
    assert "551 golden tests" in str(report)
    assert "skipped 5: several outputs are right by its statement" in str(report)
    report = check(shared_data("olympiadbench_sample.jsonl"))
    assert report.facts["with a unit"] == 2


def test_overlap_names_the_pairs(tmp_path):
    train = write(tmp_path / "train.jsonl", questions(40, "a"))
    rows = [*questions(5, "b"), {**questions(40, "a")[17], "id": "leak"}]
    report = check_overlap(train, write(tmp_path / "test.jsonl", rows))
    assert report.pairs[0] == ("a17", "leak", 1.0)
    assert "1 of 6 problems" in str(report)
    assert "a17  ~  leak  (1.00)" in str(report)


def test_code_and_mathematics_can_be_compared(shared_data):
    report = check_overlap(
        shared_data("code_contests_sample.jsonl"), shared_data("aime_2024.jsonl")
    )
    assert report.pairs == ()
    assert report.num_second == 30


def test_a_file_is_read_once_until_it_changes(tmp_path):
    path = write(tmp_path / "a.jsonl", questions(50))
    first = problems_of(MathProblem, str(path), None, None)
    assert problems_of(MathProblem, str(path), None, None) is first
    write(path, questions(60))
    os.utime(path, ns=(1, 1))
    assert len(problems_of(MathProblem, str(path), None, None)) == 60


def test_splits_are_checked(tmp_path):
    path = str(write(tmp_path / "a.jsonl", questions(1)))
    with pytest.raises(InvalidArgument, match="split"):
        problems_of(MathProblem, path, "holdout", None)
    empty = [split for split in SPLITS if split != split_of(b"0")]
    with pytest.raises(UnreachableRequest, match="split=None"):
        problems_of(MathProblem, path, empty[0], None)
    with pytest.raises(InvalidArgument):
        problems_of(CodeProblem, path, None, None)
