"""Tasks of reasoning-gym, with the real package where it is installed (the extra `tasks`)."""

import ast
import importlib.util
import inspect
import random
import sys
import textwrap

import pytest

import pettingllms
from pettingllms.errors import InvalidArgument, MissingDependency
from pettingllms.testing import play
from pettingllms.testing.play import scripted_actor
from pettingllms_envs.datasets import MathProblem
from pettingllms_envs.math.base import REFUSED, Tasks, _dataset, _item, _library, same_text
from pettingllms_envs.math.verifier import Outcome

needs_package = pytest.mark.skipif(
    importlib.util.find_spec("reasoning_gym") is None,
    reason="reasoning-gym is not installed: pip install '.[tasks]'",
)
EVALUATES = {"eval", "exec", "compile", "parse_expr", "sympify", "S"}


def episode(env, policy, seed=0):
    env.reset(seed=seed)
    return play(env, scripted_actor(policy, random.Random(seed)))


def test_the_extra_is_named_where_the_package_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "reasoning_gym", None)
    with pytest.raises(MissingDependency, match=r"pip install .reasoning-gym<"):
        pettingllms.make("reasoning_gym:gcd")


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [("1 2\n3 4", " 1 2 3  4\n", True), ("Yes", "yes", True), ("12", "1 2", False)],
)
def test_agreement_is_of_texts(first, second, same):
    assert same_text(first, second) is same


@needs_package
@pytest.mark.parametrize("team", ["single", "reasoner-tool", "single-tool"])
@pytest.mark.parametrize("name", ["gcd", "futoshiki"])
def test_the_teams_of_questions_play_tasks_of_one_line_and_of_many(name, team):
    env = pettingllms.make(f"reasoning_gym:{name}", team=team, difficulty="easy", checks=False)
    assert env.spec.package == "pettingllms"
    steps = episode(env, "oracle")
    assert steps[-1]["info"]["success"]
    assert steps[-1]["info"]["difficulty"] == 0
    assert "mathematician" not in steps[0]["observation"]
    assert not episode(env, "constant")[-1]["info"]["success"]


@needs_package
def test_a_judge_decides_on_tasks_too():
    env = pettingllms.make("math_ensemble_v0", source="reasoning_gym:ab", checks=False)
    assert episode(env, "oracle")[-1]["info"]["success"]
    assert "mathematician" not in env.messages("judge_0")[0]["content"]


@needs_package
def test_splits_share_no_question_and_difficulties_differ():
    found = {}
    for split in ("train", "test"):
        drawn = Tasks("gcd", split, (3, 3))
        found[split] = {drawn.draw(random.Random(seed), {}).question for seed in range(60)}
    assert len(found["train"]) > 40
    assert not found["train"] & found["test"]
    lengths = [
        sum(
            len(Tasks("chain_sum", None, (level, level)).draw(random.Random(seed), {}).question)
            for seed in range(10)
        )
        for level in range(1, 6)
    ]
    assert lengths == sorted(lengths)


@needs_package
def test_questions_that_were_forgotten_are_judged_as_before():
    problem = Tasks("family_relationships", None, (2, 2)).draw(random.Random(3), {})
    _item.cache_clear()
    _dataset.cache_clear()
    of_task = Tasks("family_relationships", None, (2, 2))
    assert of_task.judge(problem, problem.answer).is_correct
    assert of_task.judge(problem, problem.answer + "x").outcome is Outcome.WRONG


@needs_package
def test_an_answer_is_never_an_error(monkeypatch):
    def score(*_):
        raise RuntimeError("odd answer")

    monkeypatch.setattr(_dataset("gcd", 1), "score_answer", score)
    problem = MathProblem("gcd:1:7", "", "")
    assert Tasks("gcd", None, (1, 1)).judge(problem, "7").outcome is Outcome.VERIFIER_FAILED
    assert Tasks("gcd", None, (1, 1)).judge(problem, "7" * 5000).outcome is Outcome.UNPARSABLE


@needs_package
@pytest.mark.parametrize(
    ("name", "message"), [("countdown", "runs texts as Python"), ("gdc", "did you mean .gcd")]
)
def test_tasks_that_are_not_played_are_refused(name, message):
    with pytest.raises(InvalidArgument, match=message):
        pettingllms.make(f"reasoning_gym:{name}")


def evaluated(cls):
    """Return the functions by which a scorer, or what it calls, would run a text."""
    found, seen, left = set(), set(), [cls.score_answer]
    while left:
        function = inspect.unwrap(left.pop())
        if function in seen:
            continue
        seen.add(function)
        for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(function)))):
            if isinstance(node, ast.Call):
                name = getattr(node.func, "id", getattr(node.func, "attr", ""))
                found |= {name} & EVALUATES
                called = getattr(cls, name, getattr(sys.modules[function.__module__], name, None))
                if inspect.isfunction(called) and called.__module__.startswith("reasoning_gym"):
                    left.append(called)
    return found


@needs_package
def test_no_scorer_of_a_task_runs_an_answer():
    factory = _library("factory")
    assert set(REFUSED) <= set(factory.CURRICULA)
    played = set(factory.CURRICULA) - set(REFUSED)
    assert len(played) > 60
    assert not {name for name in played if evaluated(factory.DATASETS[name][0])}
    assert evaluated(factory.DATASETS["countdown"][0])
