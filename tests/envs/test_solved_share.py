"""Certified starts: episodes begin part of the way along a proved solution, and are worth it."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pettingllms
from pettingllms.errors import InvalidArgument
from pettingllms.evaluation import EvaluationPlan
from pettingllms.transcript import RecordTranscripts

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


@pytest.mark.parametrize("env_id", ["code_v0", "sudoku_v0"])
def test_a_solution_of_one_turn_is_shown_in_part(env_id):
    plain, env = (begun(env_id, 3, share) for share in (0, 0.5))
    agent, rng = env.agent_selection, random.Random(0)
    answer = plain.scripted_action(agent, "oracle", rng)
    (*_, before), (*_, after) = (one.messages(agent) for one in (plain, env))
    shown = after["content"].removeprefix(before["content"])
    assert shown.endswith("\n" + answer[: len(answer) // 2])
    assert str(env.observe(agent)).endswith(shown)
    # It is of the first turn, also in forks and after a restore; and of no other episode.
    moment = env.snapshot()
    for _ in env.possible_agents:
        env.step("no answer")
    assert env.messages(agent)[-1]["content"].count(shown) == 0
    env.restore(moment)
    assert env.fork().messages(agent)[-1] == after


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


def test_an_evaluation_plays_whole_levels():
    plan = EvaluationPlan(
        env_id="plan_path_v0",
        env_kwargs={"team": "single", "solved_share": 0.5},
        variants={"main": {"planner": "oracle"}},
        num_levels=1,
    )
    with pytest.raises(InvalidArgument, match="evaluation plays whole levels"):
        plan.make_env()
