import random

import pytest
from pettingzoo.test import parallel_api_test

import pettingllms
from pettingllms.adapters.pettingzoo import ParallelView
from pettingllms.errors import InvalidAction, OrderError


@pytest.mark.parametrize("simultaneous", [True, False])
@pytest.mark.filterwarnings("ignore:.*not a:UserWarning")
def test_pettingzoos_own_test_passes(guess_id, simultaneous):
    env = ParallelView(pettingllms.make(guess_id, simultaneous=simultaneous))
    parallel_api_test(env, num_cycles=50)


def test_simultaneous_agents_act_in_one_step(guess_id):
    env = ParallelView(pettingllms.make(guess_id, simultaneous=True))
    observations, infos = env.reset(seed=3)
    assert set(observations) == set(infos) == {"teller_0", "guesser_0"}
    assert env.acting == ("teller_0", "guesser_0")
    observations, rewards, terminations, truncations, infos = env.step(
        {"teller_0": "x", "guesser_0": str(env.state().secret)}
    )
    assert rewards == {"teller_0": 0.75, "guesser_0": 1.0}
    assert all(terminations.values())
    assert not any(truncations.values())
    assert env.agents == []
    assert infos["guesser_0"]["success"]
    with pytest.raises(OrderError, match="call reset"):
        env.step({})


def test_a_later_stage_reads_what_an_earlier_one_wrote(guess_id):
    env = ParallelView(pettingllms.make(guess_id))
    env.reset(seed=3, options={"secret": 7})
    assert env.acting == ("teller_0",)
    observations, rewards, terminations, _, infos = env.step({"teller_0": "7", "guesser_0": "9"})
    assert rewards == {"teller_0": 0.5, "guesser_0": 0.0}
    assert "Hint: 7." in observations["guesser_0"]
    assert [infos[agent]["acts"] for agent in env.agents] == [False, True]
    assert env.acting == ("guesser_0",)
    _, rewards, terminations, _, _ = env.step({"guesser_0": "7"})
    assert all(terminations.values())


def test_an_episode_may_end_within_a_stage(guess_env):
    """PettingZoo's aec_to_parallel would hand a text to an agent that has ended."""

    class FirstWins(guess_env):
        def _act(self, state, agent, action):
            done = super()._act(state, agent, action)
            return done._replace(terminated=True, success=True) if agent == "teller_0" else done

    env = ParallelView(FirstWins(simultaneous=True))
    env.reset(seed=0)
    _, rewards, terminations, _, _ = env.step({"teller_0": "x", "guesser_0": "x"})
    assert all(terminations.values())
    assert rewards == {"teller_0": -0.25, "guesser_0": 0.0}


def test_a_missing_action_is_told(guess_id):
    env = ParallelView(pettingllms.make(guess_id))
    with pytest.raises(OrderError, match="before reset"):
        env.step({"teller_0": "1"})
    env.reset(seed=0)
    with pytest.raises(InvalidAction, match="teller_0 acts now"):
        env.step({"guesser_0": "1"})


def test_a_stage_is_played_whole_or_not_at_all():
    env = ParallelView(pettingllms.make("code_v0"))
    env.reset(seed=0)
    texts = dict.fromkeys(env.acting, "a text")
    before, last = env.env.state_hash(), env.acting[-1]
    with pytest.raises(InvalidAction, match=f"{last} acts now and needs a text; got none"):
        env.step({**texts, last: None})
    assert env.env.state_hash() == before


def test_returns_equal_those_of_the_aec_environment():
    view = ParallelView(pettingllms.make("plan_path_v0", team="tool-planner", max_turns=3))
    env = pettingllms.make("plan_path_v0", team="tool-planner", max_turns=3, checks=False)
    for seed in range(5):
        view.reset(seed=seed)
        totals = dict.fromkeys(view.possible_agents, 0.0)
        rng = random.Random(seed)
        while view.agents:
            texts = {a: view.env.scripted_action(a, "random", rng) for a in view.acting}
            _, rewards, _, _, _ = view.step(texts)
            totals = {agent: totals[agent] + rewards[agent] for agent in totals}
        env.reset(seed=seed)
        expected = dict.fromkeys(env.possible_agents, 0.0)
        rng = random.Random(seed)
        while not (env.terminations["tool_0"] or env.truncations["tool_0"]):
            env.step(env.scripted_action(env.agent_selection, "random", rng))
            expected = {agent: expected[agent] + env.rewards[agent] for agent in expected}
        assert totals == pytest.approx(expected)


def test_infos_of_the_environment_are_not_shared(guess_id):
    env = ParallelView(pettingllms.make(guess_id))
    _, infos = env.reset(seed=0)
    infos["teller_0"]["mine"] = 1
    assert "mine" not in env.env.infos["teller_0"]
    assert "acts" not in env.env.infos["teller_0"]


def test_the_script_runs(run_script):
    said = run_script("pettingzoo_parallel.py")
    assert "every agent has left: True" in said
    assert "parallel: success" in said
