"""Real CodeContests problems through the public path."""

import pytest

import pettingllms
from pettingllms_envs.code.judge import default_judge
from pettingllms_envs.datasets import load_code_problems

FULL_REWARD = 3.0


def first_return(env, problem_id, source):
    """Return of the coder for one program, and whether the episode was a success."""
    env.reset(seed=0, options={"problem": problem_id})
    env.step(f"```python\n{source}\n```")
    total = env.rewards["coder_0"]
    return total, env.infos["coder_0"]["golden_passed"] == env.infos["coder_0"]["golden_total"]


@pytest.mark.slow
def test_references_earn_everything_and_mutants_do_not(shared_data):
    path = str(shared_data("code_contests_sample.jsonl"))
    env = pettingllms.make("code_v0", source=path, split=None)
    problems = load_code_problems(path).problems
    assert len(problems) == 80
    judge = default_judge()
    without_mutant = []
    for problem in problems:
        total, success = first_return(env, problem.id, problem.solution)
        assert (total, success) == (FULL_REWARD, True), problem.id
        bad = judge.bad_programs(problem)
        if not bad:
            without_mutant.append(problem.id)
            continue
        total, success = first_return(env, problem.id, bad[0].source)
        assert total < 2.0, problem.id
        assert not success
    assert len(without_mutant) <= 4, without_mutant


def test_a_few_references_earn_everything_in_whole_episodes(shared_data):
    path = str(shared_data("code_contests_sample.jsonl"))
    env = pettingllms.make("code_v0", source=path, split=None)
    for problem in load_code_problems(path).problems[:10]:
        env.reset(seed=0, options={"problem": problem.id})
        test = min(problem.tests, key=lambda t: len(t.input))
        env.step(f"```python\n{problem.solution}\n```")
        env.step(f"```input\n{test.input.rstrip()}\n```\n```output\n{test.output.rstrip()}\n```")
        assert env.terminations == {"coder_0": True, "tester_0": True}
        assert env.infos["tester_0"]["success"]
        assert env.infos["tester_0"]["tests_right"] == 1
