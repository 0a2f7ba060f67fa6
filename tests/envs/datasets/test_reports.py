"""Reports on sources, near-duplicates, splits, and rows played with their own solution."""

import json
import os
import random
import re
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pettingllms
from pettingllms.errors import InvalidArgument, UnreachableRequest
from pettingllms.seeding import SPLITS, split_of
from pettingllms_envs.code.judge import default_judge
from pettingllms_envs.datasets import (
    CodeProblem,
    MathProblem,
    check,
    check_overlap,
    load_problems,
    near_duplicates,
)
from pettingllms_envs.datasets.loading import problems_of, read_rows


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


WORDS = [f"w{i}" for i in range(400)]


def plain_similarity(a, b, n):
    def grams(text):
        words = re.findall(r"\w+|[^\w\s]", text.lower())
        return {tuple(words[i : i + n]) for i in range(max(1, len(words) - n + 1))}

    return len(grams(a) & grams(b)) / len(grams(a) | grams(b))


def text(rng, length=60):
    return " ".join(rng.choice(WORDS) for _ in range(length))


def changed(rng, original, count):
    words = original.split()
    for place in rng.sample(range(len(words)), count):
        words[place] = "changed"
    return " ".join(words)


def test_copies_are_found_and_others_are_not():
    rng = random.Random(0)
    train = [text(rng) for _ in range(200)]
    test = [text(rng) for _ in range(50)]
    test[7] = train[30].upper()
    test[9] = "  " + train[31].replace(" ", "  ")
    test[11] = changed(rng, train[32], 1)
    found = {(pair.first, pair.second): pair.similarity for pair in near_duplicates(train, test)}
    assert set(found) == {(30, 7), (31, 9), (32, 11)}
    assert found[30, 7] == found[31, 9] == 1.0
    assert found[32, 11] == pytest.approx(plain_similarity(train[32], test[11], 5))


@given(st.integers(0, 10**6))
def test_exactly_the_similar_pairs_are_reported(seed):
    rng = random.Random(seed)
    train = [text(rng, rng.randint(1, 30)) for _ in range(5)]
    test = [changed(rng, t, rng.randint(0, min(3, len(t.split())))) for t in train]
    found = {(a, b): s for a, b, s in near_duplicates(train, test, threshold=0.3, n=3)}
    exact = {
        (i, j): plain_similarity(a, b, 3) for i, a in enumerate(train) for j, b in enumerate(test)
    }
    assert found == pytest.approx({pair: s for pair, s in exact.items() if s >= 0.3})


def test_empty_collections_and_short_texts():
    assert near_duplicates([], ["a"]) == []
    assert near_duplicates(["a"], []) == []
    assert near_duplicates(["one two"], ["One Two", ""]) == [(0, 0, 1.0)]


@pytest.mark.parametrize("kwargs", [{"threshold": 0}, {"threshold": 1.5}, {"n": 0}, {"n": 2.5}])
def test_arguments_are_checked(kwargs):
    with pytest.raises(InvalidArgument, match=next(iter(kwargs))):
        near_duplicates(["a"], ["b"], **kwargs)
    with pytest.raises(InvalidArgument, match="second"):
        near_duplicates(["a"], "b")


ADD = "def add(a, b):\n    return a + b"


def calls(outputs, solution, inputs=((1, 2), (3, 4))):
    """A row of APPS about the function `add`."""
    tests = {"fn_name": "add", "inputs": inputs, "outputs": outputs}
    return {
        "question": "Add.",
        "solutions": json.dumps([solution]),
        "input_output": json.dumps(tests),
    }


UNSOLVED = json.loads(Path(__file__).with_name("unsolved.json").read_text("utf-8"))
"""Rows, and why their own solution does not solve them."""


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        *UNSOLVED,
        ({"problem": "1+1?", "answer": "9" * 5000}, "its own answer is not accepted"),
    ],
)
def test_a_row_that_its_own_solution_does_not_solve_is_neither_usable_nor_drawn(
    tmp_path, row, reason
):
    path = write(tmp_path / "a.jsonl", [row])
    report = check(path)
    assert report.num_usable == 1
    env = pettingllms.make(f"{report.kind}_v0", source=path, split="all")
    with pytest.raises(UnreachableRequest, match=re.escape(reason)):
        env.reset(seed=0)
    report = check(path, play=True)
    assert report.num_usable == 0
    assert reason in str(report)


def test_what_cannot_be_played_stays_and_is_counted(tmp_path):
    python_2 = {**calls([3, 7], ADD), "solutions": json.dumps(["print 3", ADD])}
    path = write(tmp_path / "a.jsonl", [{**python_2, "problem_id": "2"}, calls([3, 7], "print 3")])
    report = check(path, play=True)
    assert (report.num_usable, report.facts["played with their own solution"]) == (2, 1)
    row = {"problem": "1+1?", "answer": "2", "solution": "Two."}
    report = check(write(tmp_path / "b.jsonl", [row]), play=True)
    assert (report.num_usable, report.facts["played with their own solution"]) == (1, 0)


def test_lists_of_one_are_what_the_solution_returns_and_the_written_file_says_so(tmp_path):
    listed = calls([[3], [7]], "def add(a, b):\n    return [a + b]")
    path = write(tmp_path / "a.jsonl", [calls([[3], [7]], ADD), listed, calls([1, 1], ADD)])
    report = check(path, play=True, out=tmp_path / "out.jsonl")
    assert (report.num_usable, report.repaired, sum(map(len, report.skipped.values()))) == (
        2,
        (1,),
        1,
    )
    assert "repaired 1: return values are lists of one" in str(report)
    env = pettingllms.make("code_v0", source=tmp_path / "a.jsonl", split="all")
    for seed in range(6):  # the third row is never drawn, and both others are won
        env.reset(seed=seed)
        env.step(env.scripted_action("coder_0", "oracle", random.Random(0)))
        assert env.infos["coder_0"]["golden_passed"] == 2
    with pytest.raises(InvalidArgument, match="gives other outputs"):
        env.reset(options={"problem": "2"})
    problems = load_problems(CodeProblem, tmp_path / "out.jsonl").problems
    assert [[test.output for test in problem.tests] for problem in problems] == [
        ["3", "7"],
        ["[3]", "[7]"],
    ]
    assert check(tmp_path / "out.jsonl", play=True).num_usable == 2


def test_where_nothing_can_be_written_it_is_said(tmp_path):
    row = {"problem": "1+1?", "answer": "2", "solution": "\\boxed{3}"}
    path = write(tmp_path / "a.jsonl", [row])
    with pytest.raises(InvalidArgument, match=r"None can: .*another answer"):
        check(path, play=True, out=tmp_path / "b.jsonl")
    with pytest.raises(InvalidArgument, match=r"ends in \.jsonl"):
        check(path, out=tmp_path / "b.csv")


def test_a_written_file_loads_as_the_problems_that_it_was_written_from(tmp_path, shared_data):
    for name, record in (
        ("code_contests_sample", CodeProblem),
        ("olympiadbench_sample", MathProblem),
    ):
        source = shared_data(f"{name}.jsonl")
        written = tmp_path / f"{name}.jsonl"
        check(source, out=written)
        assert (
            load_problems(record, tmp_path / f"{name}.jsonl").problems
            == load_problems(record, source).problems
        )


def test_real_rows_are_solved_by_their_solutions(shared_data):
    report = check(shared_data("code_contests_sample.jsonl"), play=True)
    assert report.num_usable == report.facts["played with their own solution"] == 69


FILES = {
    "word_problems": (MathProblem, "math_v0", "question"),
    "small_programs": (CodeProblem, "code_v0", "statement"),
}


@pytest.mark.parametrize("name", FILES)
def test_every_row_is_used_and_no_problem_is_in_both_files(name):
    record, _, field = FILES[name]
    train, test = (load_problems(record, f"packaged:{name}_{split}") for split in ("train", "test"))
    assert not train.skipped
    assert not test.skipped
    asked = [
        {getattr(one, field).split("\n")[0] for one in found.problems} for found in (train, test)
    ]
    assert not asked[0] & asked[1]
    assert len(asked[1]) == len(test.problems) >= 128
    # What is known of one, such as that a level is held out, is known by its id.
    assert {one.id for one in train.problems}.isdisjoint(one.id for one in test.problems)
    families = [{one.id.rpartition("-")[0] for one in found.problems} for found in (train, test)]
    assert families[0] < families[1]
    assert len(families[1]) >= {"word_problems": 30, "small_programs": 48}[name]


@pytest.mark.parametrize("name", FILES)
def test_nothing_scripted_guesses_the_held_out_answers(name):
    env_id = FILES[name][1]
    env = pettingllms.make(env_id, source=f"packaged:{name}_test", split="all", checks=False)
    for policy in set(env.scripted_policies) - {"oracle", "formula", "disagreeing"}:
        solved, rng = 0, random.Random(policy)
        for seed in range(40):
            env.reset(seed=seed)
            while not env.terminations[env.agent_selection]:
                env.step(env.scripted_action(env.agent_selection, policy, rng))
            solved += env.infos[env.agent_selection]["success"]
        assert solved <= 4, policy


def test_tests_of_a_tester_have_something_to_find():
    """A wrong program that any thoughtless test exposes would pay a tester for nothing."""
    problems = load_problems(CodeProblem, "packaged:small_programs_test").problems
    known = [len(default_judge().bad_programs(problem)) for problem in problems[::8]]
    assert known.count(0) <= 1
    assert sum(known) / len(known) > 1.5


@pytest.mark.parametrize("split", ["train", "test"])
def test_no_program_that_ignores_its_input_passes_most_tests(split):
    for problem in load_problems(CodeProblem, f"packaged:small_programs_{split}").problems:
        outputs = Counter(test.output for test in problem.tests)
        assert max(outputs.values()) <= (outputs.total() + 1) // 2, problem.id


def test_an_unknown_name_says_which_there_are():
    with pytest.raises(InvalidArgument, match="packaged:word_problems_test"):
        list(read_rows("packaged:word_problems"))
