"""Real CodeContests problems through the public path."""

import pytest

import pettingllms
from pettingllms_envs.code.known_bad import mutants
from pettingllms_envs.datasets import CodeProblem, load_problems

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
    problems = load_problems(CodeProblem, path).problems
    assert len(problems) == 69
    survivors = []
    for problem in problems:
        total, success = first_return(env, problem.id, problem.solution)
        assert (total, success) == (FULL_REWARD, True), problem.id
        quick = pettingllms.make(
            "code_v0", source=[problem._replace(time_limit_s=1.0)], split=None, max_tests=4
        )
        for variant in mutants(problem.solution, 4):
            total, success = first_return(quick, problem.id, variant)
            if not success:
                assert total < 2.0
                break
        else:
            survivors.append(problem.id)
    assert len(survivors) <= 8, survivors
