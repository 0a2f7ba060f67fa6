"""Whatever is answered, a step returns, and the work is a fixed number of comparisons."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pettingllms.testing import play
from pettingllms_envs.datasets import MathProblem
from pettingllms_envs.math import MathEnsembleEnv, MathEnv
from pettingllms_envs.math.base import MAX_FAILURES
from pettingllms_envs.math.rules import MAX_COMPARED_GROUPS

PIECES = st.one_of(
    st.text(max_size=20),
    st.text(st.characters(categories=["Cs", "Cc", "Nd", "Sm"]), max_size=20),
    st.text(r"0123456789.,+-*/^_{}()[]\=<>! ", max_size=40),
    st.tuples(st.sampled_from(["(", "[", "{", r"\frac{1}{", r"\sqrt{", "^{"]), st.integers(1, 900))
    .map(lambda pair: pair[0] * pair[1]),
    st.integers(1, 5000).map(lambda n: "7" * n),
    st.integers(1, 5000).map(lambda n: rf"0.\overline{{{'3' * n}}}"),
    st.integers(1, 400).map(lambda n: ",".join(["1"] * n)),
    st.integers(1, 300).map(lambda n: "5" + " " * n + r"\text{" * n),
    st.sampled_from([r"\boxed{", "}", "x=", r"\text{ hours}", "9^{9^{9^{9}}}", "10^{9999999}"]),
)  # fmt: skip
ANSWERS = st.lists(PIECES, min_size=1, max_size=3).map("".join)
PROBLEMS = [
    MathProblem("number", "?", "45", unit="minute"),
    MathProblem("root", "?", r"2\sqrt{3}"),
    MathProblem("interval", "?", "(1,2]"),
    MathProblem("list", "?", "1,1,2"),
]


@pytest.fixture(scope="module")
def env():
    return MathEnv(source=PROBLEMS, split=None, max_turns=1)


@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(boxed=ANSWERS, printed=ANSWERS, problem=st.sampled_from(PROBLEMS))
def test_a_step_returns_whatever_is_answered(env, boxed, printed, problem):
    texts = {
        "reasoner_0": rf"So \boxed{{{boxed}}}",
        "tool_0": f"```python\nprint({printed!r})\n```",
    }
    env.reset(seed=0, options={"problem": problem.id})
    steps = list(play(env, lambda env, agent: texts[agent]))
    assert len(steps) == 2
    assert all(env.terminations.values())
    assert all(-0.25 <= step["info"]["reward_parts"]["local"] <= 1 for step in steps)


FAILURE = ["verifier_failed", "more than 2 s of processor time"]


def costs_of_a_turn(env, sandbox):
    """Play a turn and return the number of comparisons of each step."""
    env.reset(seed=0)
    costs = []
    for number, agent in enumerate(env.possible_agents):
        before = len(sandbox.asked)
        env.step(rf"\boxed{{x+{number}}}" if "tool" not in agent else "nothing")
        costs.append(len(sandbox.asked) - before)
        assert number + 1 == len(costs)
    return costs


@pytest.mark.parametrize("num_reasoners", [2, 9, 30])
def test_the_comparisons_of_a_turn_are_linear_in_the_answers(fake, num_reasoners):
    verifier, sandbox = fake
    env = MathEnsembleEnv(
        reasoners=num_reasoners, tools=0, source=PROBLEMS[1:2], split=None, verifier=verifier
    )
    costs = costs_of_a_turn(env, sandbox)
    assert costs[:-1] == [1] * num_reasoners
    assert costs[-1] <= 1 + 2 * MAX_COMPARED_GROUPS * num_reasoners


def test_failed_comparisons_of_a_turn_have_a_budget(fake):
    verifier, sandbox = fake
    env = MathEnsembleEnv(
        reasoners=30, tools=0, source=PROBLEMS[1:2], split=None, verifier=verifier
    )
    between = verifier.equivalence

    def failing(first, second, *, unit=""):
        sandbox.value = FAILURE
        return between(first, second, unit=unit)

    verifier.equivalence = failing
    costs = costs_of_a_turn(env, sandbox)
    assert costs[-1] <= 1 + MAX_FAILURES


def test_an_answer_that_could_not_be_judged_is_compared_as_text(fake):
    verifier, sandbox = fake
    sandbox.value = FAILURE
    env = MathEnsembleEnv(
        reasoners=30, tools=0, source=PROBLEMS[1:2], split=None, verifier=verifier
    )
    costs = costs_of_a_turn(env, sandbox)
    assert costs == [1] * 31
