"""Honest coders and testers earn more than degenerate ones, on problems of both kinds."""

import importlib
import sys
from pathlib import Path

import pytest

from pettingllms_envs.code import CodeEnv, builtin_problems
from pettingllms_envs.code.judge import default_judge
from pettingllms_envs.datasets import load_code_problems


@pytest.fixture(scope="module")
def suite():
    sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "benchmarks" / "suites"))
    return importlib.import_module("code_rewards")


def check_order(suite, problems):
    """Of problems without a known-bad program no tester learns: they are left out."""
    means = suite.ladder([p for p in problems if default_judge().bad_programs(p)])
    testers, coders = means["testers"], means["coders"]
    degenerate = list(suite.TESTERS)[: suite.NUM_DEGENERATE_TESTERS]
    assert testers["no test"] == -0.25
    assert max(testers[name] for name in degenerate) <= 0.1, testers
    assert testers["the example, last line reversed"] == 0, testers
    assert testers["the example, last number plus one"] == 0, testers
    assert testers["shortest right test"] >= 0.15, testers
    assert testers["reference tester"] >= testers["random right test"] + 0.1, testers
    assert testers["reference tester"] >= 0.7, testers
    assert coders["no program"] == -0.25
    for name in ("crashes", "prints zzz"):
        assert coders[f"a program that {name}"] == 0.0
    assert coders["a program that prints 0"] <= 0.3, coders
    assert coders["the example's output"] <= 0.3, coders
    assert 0.3 < coders["a known-bad program"] < 1.0, coders
    assert coders["the reference program"] == 1.0


def test_the_ladder_on_built_in_problems(suite):
    check_order(suite, list(builtin_problems().values())[::6])


@pytest.mark.nightly
def test_the_ladder_on_code_contests(suite, shared_data):
    problems = load_code_problems(shared_data("code_contests_sample.jsonl")).problems
    check_order(suite, problems[::15])


@pytest.mark.parametrize("opening", ["print('zzz')", "print(input())"])
def test_a_coder_cannot_lift_the_testers_reward(suite, program, opening):
    """What the coder writes first changes nothing that a tester earns for the same test."""
    for problem in list(builtin_problems().values())[:40:10]:
        tester = suite.TESTERS["shortest right test"](problem)
        totals = []
        for first in (opening, problem.solution):
            env = CodeEnv(source=[problem], split=None, max_turns=2)
            env.reset(seed=0)
            total = 0.0
            for text in (program(first), "hm", program(problem.solution), tester):
                if any(env.terminations.values()):
                    break
                agent = env.agent_selection
                env.step(text)
                total += env.infos[agent]["reward_parts"]["local"] * (agent == "tester_0")
            totals.append(total)
        assert totals[0] == totals[1]
