"""The files that come with the package: held-out problems are new, many, and not to be guessed."""

import random
from collections import Counter

import pytest

import pettingllms
from pettingllms.errors import InvalidArgument
from pettingllms_envs.code.judge import default_judge
from pettingllms_envs.datasets import CodeProblem, MathProblem, load_problems
from pettingllms_envs.datasets.loading import read_rows

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
