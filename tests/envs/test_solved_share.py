"""Certified starts: episodes begin part of the way along a proved solution, and are worth it."""

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pettingllms
from pettingllms.errors import InvalidArgument
from pettingllms.evaluation import EvaluationPlan
from pettingllms.transcript import RecordTranscripts
from pettingllms_envs.datasets import MathProblem
from pettingllms_envs.math.text import WORKED, worked_answer, write_answer

GAMES = {
    "blocksworld_v0": {"team": "proposer-planner", "moves_per_turn": 1, "max_turns": 12},
    "dining_v0": {},
    "plan_path_v0": {"team": "single", "moves_per_turn": 1, "max_turns": 12},
    "panel_v0": {},
    "search_v0": {},
    "sudoku_v0": {},
}


def begun(env_id, seed, share, **kwargs):
    env = pettingllms.make(env_id, checks=False, solved_share=share, **kwargs)
    env.reset(seed=seed)
    return env


def num_turns_left(env):
    """Play the solution on; return the turns that it takes and whether it is one."""
    first, rng = env.turn, random.Random(0)
    while env.acting():
        agent, turn = env.agent_selection, env.turn
        env.step(env.scripted_action(agent, "oracle", rng))
    return turn + 1 - first, env.infos[agent]["success"]


@pytest.mark.parametrize(("env_id", "kwargs"), GAMES.items())
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10**6), share=st.floats(0.01, 0.99))
def test_the_rest_of_a_solution_is_left_and_nothing_is_earned_yet(env_id, kwargs, seed, share):
    whole = begun(env_id, seed, 0, **kwargs)
    num_turns, _ = num_turns_left(whole.fork())
    env = begun(env_id, seed, share, **kwargs)
    assert env.turn == int(share * num_turns)
    assert set(env.rewards.values()) == {0} == set(env._cumulative_rewards.values())
    assert not any(info["success"] for info in env.infos.values())
    assert env.acting()[0] == whole.acting()[0]
    num_left = num_turns - env.turn
    assert num_turns_left(env) == (num_left, True)


@pytest.mark.parametrize(
    ("env_id", "pieces", "between"), [("code_v0", str.splitlines, "\n"), ("sudoku_v0", list, "")]
)
def test_a_solution_of_one_turn_is_shown_in_part(env_id, pieces, between):
    plain, env = (begun(env_id, 3, share) for share in (0, 0.5))
    agent, rng = env.agent_selection, random.Random(0)
    answer = plain.scripted_action(agent, "oracle", rng)
    (*_, before), (*_, after) = (one.messages(agent) for one in (plain, env))
    shown = after["content"].removeprefix(before["content"])
    all_pieces = pieces(answer)
    assert shown.endswith("all of it.\n" + between.join(all_pieces[: len(all_pieces) // 2]))
    assert str(env.observe(agent)).endswith(shown)
    # It is of the first turn, also in forks and after a restore; and of no other episode.
    moment = env.snapshot()
    for _ in env.possible_agents:
        env.step("no answer")
    assert env.messages(agent)[-1]["content"].count(shown) == 0
    env.restore(moment)
    assert env.fork().messages(agent)[-1] == after


GSM8K = {
    "question": "Ann has 3 bags of 4 eggs and eats 2. How many are left?",
    "answer": "She has 3*4 = <<3*4=12>>12 eggs.\nSo 12-2 = <<12-2=10>>10 are left.\n#### 10",
}
MATH = {
    "problem": "What is $1 + 2 + 3$?",
    "solution": "First $1 + 2 = 3$. Then\n$3 + 3$ is left. It is $\\boxed{6}$. Or: $2 \\cdot 3$.",
    "level": "Level 1",
}


def shown_of(share, agent, **kwargs):
    """Return the first part of an agent's answer that a prompt of mathematics shows."""
    env = begun("math_v0", 3, share, **kwargs)
    assert env.turn == 0
    return env.messages(agent)[-1]["content"].partition("all of it.\n")[2]


@pytest.mark.parametrize("family", sorted(WORKED))
def test_generated_mathematics_is_begun_by_the_steps_of_a_right_answer(family):
    env = begun("math_v0", 3, 0, families=[family])
    for agent in env.possible_agents:
        # All of it: what is found to be right, and ends as the oracle's answers do.
        oracle = env.scripted_action(agent, "oracle", random.Random(0))
        whole = "".join(env._worked(env.state(), agent, oracle))
        (*_, last), lines = oracle.splitlines(), whole.splitlines()
        assert lines[-1] == last
        assert len(lines) > len(oracle.splitlines()), "no step"
        shares = [number / 8 for number in range(1, 8)]
        shown = [shown_of(share, agent, families=[family]) for share in shares]
        assert [text.splitlines() for text in shown] == [
            lines[: int(share * len(lines))] for share in shares
        ]
        assert len(shown[0]) < len(shown[3]) < len(shown[-1]) < len(whole)
        env.step(whole)
    assert env.infos[env.possible_agents[-1]]["success"]


def test_steps_have_numbers_and_programs_have_names():
    def lines(agent, family, numbers, answer=""):
        problem = MathProblem(f"{family}:{numbers}", "?", "27")
        return worked_answer(problem, True, agent, answer).splitlines()

    assert lines("reasoner_0", "expression", "7/3/2/4") == [
        r"$7 \cdot 3 = 21$",
        "$4 - 7 = -3$",
        r"$2 \cdot (-3) = -6$",
        "$21 - (-6) = 27$",
    ]
    block = write_answer("tool_0", "27", is_terse=True)
    names = ["a1 = 7 * 3", "a2 = 4 - 7", "a3 = 2 * a2", "a4 = a1 - a3", "print(a4)"]
    assert lines("tool_0", "expression", "7/3/2/4", block) == ["```", *names, "```"]
    assert lines("tool_0", "tree_shadow", "6/20/26", block)[1:4] == [
        "from fractions import Fraction",
        "a1 = 6 * 26",
        "a2 = Fraction(a1, 20)",
    ]


@pytest.mark.parametrize(
    ("row", "steps"),
    [
        (GSM8K, ["She has 3*4 = 12 eggs.", "So 12-2 = 10 are left."]),
        (MATH, ["First $1 + 2 = 3$.", "Then", "$3 + 3$ is left."]),
    ],
)
def test_mathematics_of_a_data_set_is_begun_by_its_own_solution(row, steps, tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(row), encoding="utf-8")
    given = {"source": path, "split": None}
    assert shown_of(0.99, "reasoner_0", **given).splitlines() == steps
    commented = ["```python", *(f"# {step}" for step in steps)]
    assert shown_of(0.7, "tool_0", **given).splitlines() == commented[: int(0.7 * len(steps) + 2.1)]
    plain, other = (begun("math_v0", 3, share, **given) for share in (0, 0.5))
    assert plain.level_hash() == other.level_hash()
    assert "solution" not in json.dumps(plain._state_json(plain.state()))


@pytest.mark.parametrize("team", ["single", "single-tool"])
def test_who_confirms_an_answer_alone_begins_before_it_is_given(team):
    (agent,) = begun("math_v0", 3, 0, team=team).possible_agents
    assert shown_of(0.9, agent, team=team, families=["expression"]).count("\n") >= 3


@pytest.mark.parametrize(
    "given",
    [{"families": ["divisor_sum"]}, {"source": [MathProblem("expression:1/2/3/4", "?", "2")]}],
)
def test_mathematics_without_a_solution_is_refused(given):
    with pytest.raises(InvalidArgument, match=r"without a solution.*joint_work"):
        begun("math_v0", 3, 0.5, **given)


def test_recordings_of_such_episodes_are_replayed():
    env = RecordTranscripts(pettingllms.make("plan_path_v0", team="single", solved_share=0.7))
    env.reset(seed=5)
    while env.agents:
        over = env.terminations[env.agent_selection] or env.truncations[env.agent_selection]
        env.step(None if over else "#### R")
    assert env.transcript.replay().turn > 0


@pytest.mark.parametrize("share", [-0.1, 1, "half", True])
def test_other_shares_are_refused(share):
    with pytest.raises(InvalidArgument, match="solved_share"):
        pettingllms.make("plan_path_v0", solved_share=share)


def test_an_oracle_that_fails_is_no_solution(monkeypatch):
    env = pettingllms.make("plan_path_v0", checks=False, team="single", solved_share=0.5)
    monkeypatch.setattr(env, "_scripted", lambda *_: "no answer")
    with pytest.raises(InvalidArgument, match="oracle does not solve"):
        env.reset(seed=0)


@pytest.mark.parametrize(("env_id", "role"), [("plan_path_v0", "planner"), ("math_v0", "reasoner")])
def test_an_evaluation_plays_whole_levels(env_id, role):
    plan = EvaluationPlan(
        env_id=env_id,
        env_kwargs={"team": "single", "solved_share": 0.5},
        variants={"main": {role: "oracle"}},
        num_levels=1,
    )
    with pytest.raises(InvalidArgument, match="evaluation plays whole levels"):
        plan.make_env()
