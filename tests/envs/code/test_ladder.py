"""Honest coders and testers earn more than degenerate ones, on problems of both kinds."""

import random
import statistics

import pytest

from pettingllms.edits import EDITS
from pettingllms_envs.code import CodeEnv, builtin_problems
from pettingllms_envs.code.judge import default_judge
from pettingllms_envs.datasets import CodeProblem, load_problems

BUILTIN = list(builtin_problems().values())


def example(change=lambda text: text):
    """A tester that writes the example with its input changed."""

    def test(problem):
        shown = problem.public_tests[0]
        return change(shown.input.rstrip("\n")), shown.output

    return test


def respelled(text):
    words = (f"0{word}" if word.isdigit() else word for word in text.split(" "))
    return "  ".join(words) + " \n"


def shortest(problem):
    return min(problem.tests, key=lambda test: len(test.input))


def any_right(problem):
    tests = [test for test in problem.tests if len(test.input) <= 20_000]
    return random.Random(problem.id).choice(tests)


DEGENERATE = {
    "a guess": lambda problem: ("1", "1"),
    "the example": example(),
    "respelled": example(respelled),
    "a line of junk": example(lambda text: f"{text}\njunk"),
    "a line of numbers": example(lambda text: f"{text}\n7 7"),
    "a word of junk": example(lambda text: text.replace("\n", " 7\n", 1)),
    "reversed": example(EDITS["its last line reversed"]),
    "plus one": example(EDITS["its last number plus one"]),
}


def local(problem, coder, tester):
    """The local rewards of one turn; without a tester's text it is the scripted one."""
    env = CodeEnv(source=[problem], split=None, max_turns=1)
    env.reset(seed=0)
    env.step(coder)
    env.step(tester or env.scripted_action("tester_0", "oracle", random.Random(0)))
    return [env.infos[agent]["reward_parts"]["local"] for agent in env.possible_agents]


def check_order(problems, program, test_text):
    """Of problems without a known-bad program no tester learns: they are left out."""
    problems = [p for p in problems if default_judge().bad_programs(p)]

    def tester(text_of):
        played = (local(p, program(p.solution), text_of(p))[1] for p in problems)
        return statistics.fmean(played)

    def coder(source_of):
        return statistics.fmean(local(p, program(source_of(p)), None)[0] for p in problems)

    def earned(test_of):
        return tester(lambda problem: test_text(test_of(problem)))

    degenerate = {name: earned(test_of) for name, test_of in DEGENERATE.items()}
    assert max(degenerate.values()) <= 0.1, degenerate
    assert degenerate["reversed"] == degenerate["plus one"] == 0
    assert tester(lambda _: "I do not know.") == -0.25
    assert earned(shortest) >= 0.15
    reference = tester(lambda _: None)
    assert reference >= max(0.7, earned(any_right) + 0.1)
    assert coder(lambda p: p.solution) == 1.0
    assert local(problems[0], "I do not know.", None)[0] == -0.25
    assert coder(lambda _: "print(1 / 0)") == coder(lambda _: "print('zzz')") == 0.0
    assert coder(lambda _: "print(0)") <= 0.3
    assert coder(lambda p: f"print({p.public_tests[0].output.strip()!r})") <= 0.3
    assert 0.3 < coder(lambda p: default_judge().bad_programs(p)[0].source) < 1.0


@pytest.mark.parametrize("step", [12, pytest.param(6, marks=pytest.mark.nightly)])
def test_the_ladder_on_built_in_problems(program, test_text, step):
    check_order(BUILTIN[::step], program, test_text)


@pytest.mark.nightly
def test_the_ladder_on_code_contests(shared_data, program, test_text):
    problems = load_problems(CodeProblem, shared_data("code_contests_sample.jsonl")).problems
    check_order(problems[::15], program, test_text)


@pytest.mark.parametrize("opening", ["print('zzz')", "print(input())"])
@pytest.mark.parametrize("problem", BUILTIN[:40:10], ids=lambda problem: problem.id)
def test_a_coder_cannot_lift_the_testers_reward(problem, program, test_text, opening):
    """What the coder writes first changes nothing that a tester earns for the same test."""
    totals = []
    for first in (opening, problem.solution):
        env = CodeEnv(source=[problem], split=None, max_turns=2)
        env.reset(seed=0)
        total = 0.0
        for text in (program(first), "hm", program(problem.solution), test_text(shortest(problem))):
            if any(env.terminations.values()):
                break
            agent = env.agent_selection
            env.step(text)
            total += env.infos[agent]["reward_parts"]["local"] * (agent == "tester_0")
        totals.append(total)
    assert totals[0] == totals[1]
