"""The ensemble: any number of candidates, a judge, and the baselines."""

import random

import pytest

from pettingllms.errors import InvalidArgument
from pettingllms.testing import play
from pettingllms.testing.play import scripted_actor, transcript_of
from pettingllms_envs.datasets import MathProblem
from pettingllms_envs.math import MathEnsembleEnv
from pettingllms_envs.math.rules import majority

HALF = MathProblem("half", "What is one half?", r"\frac{1}{2}")


def boxed(text):
    return f"\\boxed{{{text}}}"


def started(reasoners, tools=0, **more):
    env = MathEnsembleEnv(source=[HALF], split=None, reasoners=reasoners, tools=tools, **more)
    env.reset(seed=0)
    return env


def act(env, *texts):
    infos = {}
    for text in texts:
        agent = env.agent_selection
        env.step(text)
        infos[agent] = env.infos[agent]
    return infos


@pytest.mark.parametrize(("reasoners", "tools"), [(1, 0), (0, 1), (3, 2), (0, 4)])
def test_any_numbers_of_candidates(reasoners, tools):
    env = MathEnsembleEnv(reasoners=reasoners, tools=tools)
    assert len(env.possible_agents) == reasoners + tools + 1
    for seed in range(5):
        env.reset(seed=seed)
        steps = play(env, scripted_actor("oracle", random.Random(seed)))
        assert len(steps) == reasoners + tools + 1
        assert steps[-1]["info"]["success"]
        assert steps[-1]["terminated"]


@pytest.mark.parametrize(("reasoners", "tools"), [(0, 0), (-1, 2), (60, 5)])
def test_impossible_numbers_are_refused(reasoners, tools):
    with pytest.raises(InvalidArgument):
        MathEnsembleEnv(reasoners=reasoners, tools=tools)


def test_a_tiny_team_types_the_formula_and_judges_short_answers():
    users = {"tool": "{question}", "reasoner": "{question}", "judge": "{candidates_compact}:"}
    prompts = {role: {"system": "", "user": user} for role, user in users.items()}
    env = MathEnsembleEnv(families=["expression"], reasoners=1, tools=2, prompts=prompts)
    env.reset(seed=1)
    problem = env.state().problem
    a, b, c, d = problem.id.partition(":")[2].split("/")
    said = {}
    rng = random.Random(1)
    while env.agents and not env.terminations[env.agent_selection]:
        agent = env.agent_selection
        said[agent] = (env.observe(agent), env.scripted_action(agent, "formula", rng))
        env.step(said[agent][1])
    program = f"```\nprint({a}*{b}-{c}*({d}-{a}))\n```"
    assert said["tool_0"] == said["tool_1"] == (problem.question, program)
    question, guess = said["reasoner_0"]
    assert question == problem.question
    other = guess.removeprefix("\\boxed{").removesuffix("}")
    assert guess == boxed(other)
    assert other != problem.answer
    answers = f"{other}|{problem.answer}|{problem.answer}:"
    assert said["judge_0"] == (answers, boxed(problem.answer))


def test_success_is_the_judges_answer():
    env = started(3)
    infos = act(env, boxed("2"), boxed("0.5"), boxed("2.0"), boxed("1/2"))
    assert infos["judge_0"]["success"]
    assert infos["judge_0"]["reward_parts"] == {"team": 1.0, "local": 0.0}
    assert infos["reasoner_1"]["reward_parts"] == {"team": 0.0, "local": 1.0}
    env.reset(seed=0)
    infos = act(env, boxed("0.5"), boxed("0.5"), boxed("0.5"), boxed("2"))
    assert not infos["judge_0"]["success"]
    assert infos["judge_0"]["any_correct"]


def test_baselines_count_equivalent_answers_together():
    env = started(4)
    judge = act(env, boxed("2"), boxed("0.5"), boxed("1/2"), "none", boxed("2"))["judge_0"]
    assert judge["num_answers"] == 3
    assert judge["majority_answer"] == "0.5"
    assert judge["majority_correct"]
    assert judge["any_correct"]
    env.reset(seed=0)
    judge = act(env, "none", "none", "none", "none", "none")["judge_0"]
    assert judge["majority_answer"] is None
    assert not judge["majority_correct"]
    assert not judge["any_correct"]
    assert judge["final_answer"] is None
    assert judge["reward_parts"]["local"] == -0.25


def test_several_turns_end_when_the_judge_repeats_itself():
    env = started(1, max_turns=4)
    act(env, boxed("3"), boxed("3"))
    assert not any(env.terminations.values())
    assert "3" in env.observe("reasoner_0")
    act(env, boxed("1/2"), boxed("1/2"), boxed("1/2"), boxed("0.5"))
    assert all(env.terminations.values())
    assert env.infos["judge_0"]["success"]


@pytest.mark.parametrize("mode", ["full", "delta"])
def test_prompts_claim_nothing_about_the_answers_before(mode):
    env = started(2, max_turns=2, observation_mode=mode)
    act(env, boxed("1/2"), boxed("0.5"), boxed("1/2"))
    prompt = str(env.messages("reasoner_0"))
    assert "reasoner_1 answered: 0.5" in prompt
    assert not any(claim in prompt for claim in ("wrong", "agree", "settled"))


def test_majority_prefers_the_most_frequent_then_the_earliest():
    same = lambda a, b: a.lower() == b.lower()  # noqa: E731
    assert majority(["b", "a", "A"], same) == "a"
    assert majority(["b", "a"], same) == "b"
    assert majority([], same) is None


def test_golden_transcript(golden):
    env = MathEnsembleEnv(reasoners=2, tools=1, split="test")
    golden("math_ensemble", transcript_of(env, 3, scripted_actor("majority", random.Random(1))))
