"""The terms of reward that the games share, and what prompts say about them."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pettingllms
from pettingllms_envs.reward import EMPTY, LOST, PROGRESS, SUCCESS, costs, costs_text, shaped

GAMES = json.loads(Path(__file__).with_name("idle_answers.json").read_text("utf-8"))
"""By game: a level, and answers that change nothing at its start, with the reason that is told."""
CASES = [(env_id, *case) for env_id, game in GAMES.items() for case in game["answers"].items()]


@given(start=st.integers(1, 500), near=st.integers(0, 2000), far=st.integers(0, 2000))
def test_the_potential_falls_with_the_distance_and_stays_within_its_bounds(start, near, far):
    near, far = sorted((near, far))
    assert LOST < shaped(far, start) <= shaped(near, start) <= PROGRESS
    assert (shaped(far, start) < shaped(near, start)) == (near < far)
    assert shaped(start, start) == 0
    assert shaped(0, start) == PROGRESS
    assert shaped(-1, start) == LOST


@given(max_turns=st.integers(1, 1000), max_illegal=st.integers(1, 10_000))
def test_costs_of_an_episode_stay_below_progress(max_turns, max_illegal):
    terms = costs(max_turns, max_illegal)
    assert terms.malformed < terms.empty < 0
    assert terms.illegal * max_illegal == pytest.approx(terms.empty)
    assert -max_turns * terms.malformed == pytest.approx(0.05)
    assert -max_turns * terms.malformed < PROGRESS < SUCCESS
    told = costs_text(terms, "illegal move", "shaped")
    assert f"changes nothing {EMPTY / max_turns:.3g};" in told


@pytest.mark.parametrize(("env_id", "text", "reason"), CASES)
@pytest.mark.parametrize("observation_mode", ["full", "delta"])
@pytest.mark.parametrize("team", ["single", "proposer-planner"])
def test_a_turn_that_changed_nothing_costs_and_is_told(
    env_id, text, reason, observation_mode, team
):
    env = pettingllms.make(env_id, checks=False, team=team, observation_mode=observation_mode)
    env.reset(seed=0, options={"level": GAMES[env_id]["level"]})
    assert "changed nothing" not in env.observe(env.agent_selection)
    for agent in env.possible_agents:
        env.step(text)
        expected = -(0.05 if not text else 0.04) / env.max_turns
        assert env.infos[agent]["reward_parts"]["local"] == pytest.approx(expected)
    for agent in env.possible_agents:
        assert f"The last turn changed nothing: {reason}." in env.observe(agent)
        env.step("")
    assert reason not in env.observe(env.agent_selection) or not text


@pytest.mark.parametrize("env_id", GAMES)
def test_prompts_tell_what_bad_answers_cost(env_id):
    env = pettingllms.make(env_id, checks=False, team="single", max_turns=5)
    env.reset(seed=0)
    told = "cannot be read 0.01; one that is empty or changes nothing 0.008; each"
    assert told in env.observe("planner_0")


@pytest.mark.parametrize("env_id", GAMES)
def test_prompts_say_what_is_paid(env_id):
    def prompt(**kwargs):
        env = pettingllms.make(env_id, checks=False, **kwargs)
        env.reset(seed=0)
        return env.messages(env.agent_selection)[0]["content"]

    assert "Costs: an answer" in prompt()
    assert "Only a solved" not in prompt()
    assert "Only a solved task is rewarded." in prompt(reward="outcome")
    assert "Costs:" not in prompt(reward="outcome")
