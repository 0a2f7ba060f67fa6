"""Every built-in exercise is certified: the reference passes, wrong programs do not."""

import random
import re

import pytest

from pettingllms.splits import split_of
from pettingllms_envs.code import EXERCISES
from pettingllms_envs.code.builtin import DIFFICULTIES
from pettingllms_envs.code.builtin.exercise import CASE_SIZES
from pettingllms_envs.code.problems import builtin_problem, problem_table
from pettingllms_envs.datasets import near_duplicates

IDS = [exercise.id for exercise in EXERCISES]


def test_there_are_enough_of_every_difficulty_in_every_split():
    assert len(EXERCISES) >= 60
    assert len(set(IDS)) == len(IDS)
    for difficulty in DIFFICULTIES:
        for split in ("train", "validation", "test"):
            assert problem_table("builtin", split, None, difficulty, None)


@pytest.mark.parametrize("problem_id", IDS)
def test_reference_passes_and_wrong_programs_fail(judge, problem_id):
    problem = builtin_problem(problem_id)
    tests = problem.public_tests + problem.tests
    assert all(judge.passes(problem, problem.solution, tests)), "the reference program is wrong"
    assert len(set(problem.wrong_programs)) >= 2
    for wrong in problem.wrong_programs:
        passed = judge.passes(problem, wrong, problem.tests)
        assert not all(passed), "no golden test catches this program"


@pytest.mark.parametrize("exercise", EXERCISES, ids=IDS)
def test_answers_are_pure_and_cases_seeded(exercise):
    first = [exercise.case(random.Random(5), size) for size in CASE_SIZES]
    assert first == [exercise.case(random.Random(5), size) for size in CASE_SIZES]
    for text in first:
        assert exercise.answer(text) == exercise.answer(text) != ""
        assert len(text) < 100_000
    assert exercise.hidden_inputs() == exercise.hidden_inputs()


@pytest.mark.parametrize("problem_id", IDS)
def test_hidden_tests_are_not_the_example(problem_id):
    problem = builtin_problem(problem_id)
    shown = {tuple(test.input.split()) for test in problem.public_tests}
    assert len(problem.tests) >= 10
    assert not shown & {tuple(test.input.split()) for test in problem.tests}
    assert len({test.input for test in problem.tests}) == len(problem.tests)


@pytest.mark.parametrize("exercise", EXERCISES, ids=IDS)
def test_statements_are_complete(exercise):
    text = exercise.statement()
    for part in ("\n\nInput\n", "\n\nOutput\n", "\n\nExample input\n", "\n\nExample output\n"):
        assert part in text
    assert text.isascii()
    assert re.fullmatch(r"[a-z]+(_[a-z]+)*", exercise.id)
    assert text.strip() == text


def test_no_statement_repeats_another_one():
    statements = [exercise.task for exercise in EXERCISES]
    pairs = near_duplicates(statements, statements, threshold=0.3)
    assert {(pair.first, pair.second) for pair in pairs if pair.first != pair.second} == set()


def test_splits_follow_the_id():
    for split in ("train", "validation", "test"):
        table = problem_table("builtin", split, None, None, None)
        assert {split_of(problem_id.encode()) for problem_id in table} == {split}
    assert len(problem_table("builtin", None, None, None, None)) == len(EXERCISES)
