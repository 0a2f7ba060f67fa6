"""The terms of reward that the games share, and what prompts say about them."""

import json
from pathlib import Path

import pytest

import pettingllms

GAMES = json.loads(Path(__file__).with_name("idle_answers.json").read_text("utf-8"))
"""By game: a level, and answers that change nothing at its start, with the reason that is told."""
CASES = [(env_id, *case) for env_id, game in GAMES.items() for case in game["answers"].items()]


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
