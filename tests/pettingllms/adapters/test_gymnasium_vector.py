import itertools
import random

import gymnasium
import pytest
from gymnasium.utils.env_checker import check_env as check_gymnasium_env

import pettingllms
from pettingllms import Transition
from pettingllms.adapters.gymnasium import (
    SingleAgentView,
    gymnasium_id,
    gymnasium_spec,
    make_single,
    make_vector,
)
from pettingllms.errors import InvalidArgument, OrderError


@pytest.mark.parametrize("asynchronous", [False, True])
def test_vectors_keep_their_texts(asynchronous):
    envs = make_vector("plan_path_v0", 3, asynchronous=asynchronous, size=6, max_turns=2)
    try:
        observations, _ = envs.reset(seed=[1, 2, 3])
        single = make_single("plan_path_v0", size=6, max_turns=2)
        assert [single.reset(seed=seed)[0] for seed in (1, 2, 3)] == list(observations)
        assert all(observations)
        for _ in range(2):
            observations, rewards, terminated, truncated, _ = envs.step(("#### []",) * 3)
        assert rewards.shape == (3,)
        assert truncated.all()
        assert not terminated.any()
    finally:
        envs.close()


def test_shared_memory_is_refused_instead_of_handing_out_blanks():
    with pytest.raises(ValueError, match="shared_memory=False") as error:
        gymnasium.make_vec(
            "pettingllms/PlanPath-v0", num_envs=2, vectorization_mode="async", size=6
        )
    assert "cannot carry the texts" in str(error.value.__cause__)
    envs = gymnasium.make_vec(
        "pettingllms/PlanPath-v0",
        num_envs=2,
        vectorization_mode="async",
        vector_kwargs={"shared_memory": False},
        size=6,
    )
    try:
        observations, _ = envs.reset(seed=[1, 2])
        assert all("Turn 1 of 4" in text for text in observations)
    finally:
        envs.close()


@pytest.mark.parametrize("env_id", ["plan_path_v0", "dining_v0", "panel_v0"])
def test_the_spec_says_how_long_an_episode_is(env_id):
    env = gymnasium.make(gymnasium_spec(env_id), max_turns=12)
    raw = env.unwrapped.env
    assert env.spec.max_episode_steps == raw.max_episode_steps == 12 * len(raw.possible_agents)
    assert make_single(env_id).spec is None, "Gymnasium did not make it"
    env.reset(seed=1)
    steps = (env.step("nothing") for _ in range(env.spec.max_episode_steps))
    assert any(terminated or truncated for _, _, terminated, truncated, _ in steps)
    again = gymnasium.make(env.spec)
    assert again.spec.max_episode_steps == env.spec.max_episode_steps
    again.close()


def test_bad_numbers_are_told():
    with pytest.raises(InvalidArgument, match="num_envs"):
        make_vector("plan_path_v0", 0)


@pytest.mark.parametrize(
    ("env_id", "arguments"),
    [
        *((name, {}) for name in pettingllms.registered_ids() if pettingllms.spec(name).package),
        *((name, {"max_turns": 1}) for name in ("plan_path_v0", "relay_v0", "math_v0")),
    ],
)
def test_every_id_is_made_without_arguments_and_passes_gymnasiums_own_test(env_id, arguments):
    env = gymnasium.make(gymnasium_id(env_id), **arguments)
    check_gymnasium_env(env.unwrapped, skip_render_check=True)


@pytest.mark.parametrize("agent", ["tool_0", "planner_0"])
def test_returns_equal_those_of_the_aec_environment(agent):
    arguments = {"size": 6, "team": "tool-planner", "max_turns": 4}
    (partner,) = {"tool_0", "planner_0"} - {agent}
    view = make_single("plan_path_v0", agent, {partner: "greedy"}, **arguments)
    env = pettingllms.make("plan_path_v0", checks=False, **arguments)
    for seed in range(6):
        view.reset(seed=seed)
        total, ended, rng = 0.0, False, random.Random(9)
        while not ended:
            text = view.env.scripted_action(agent, "random", rng)
            _, reward, terminated, truncated, _ = view.step(text)
            total += reward
            ended = terminated or truncated
        env.reset(seed=seed)
        expected, own, partners = 0.0, random.Random(9), random.Random(seed)
        while not (env.terminations[agent] or env.truncations[agent]):
            actor = env.agent_selection
            policy, rng = ("random", own) if actor == agent else ("greedy", partners)
            env.step(env.scripted_action(actor, policy, rng))
            expected += env.rewards[agent]
        assert total == pytest.approx(expected)


def test_wrong_moments_are_told(guess_id):
    env = SingleAgentView(pettingllms.make(guess_id), "guesser_0", {"teller": "oracle"})
    with pytest.raises(OrderError, match="call reset"):
        env.step("1")
    env.reset(seed=3)
    env.step(str(env.env.state().secret))
    with pytest.raises(OrderError, match="call reset"):
        env.step("1")


def test_a_team_mate_may_end_the_episode_before_the_first_turn(guess_env):
    class Impatient(guess_env):
        def _act(self, state, agent, action):
            return Transition(state, team=0.5, terminated=True)

    env = SingleAgentView(Impatient(), "guesser_0", {"teller": "oracle"})
    env.reset(seed=0)
    _, reward, terminated, truncated, _ = env.step("too late")
    assert (reward, terminated, truncated) == (0.5, True, False)


def test_no_text_is_played_as_that_of_a_team_mate_who_has_failed(guess_id):
    calls = itertools.count()

    def unreliable(observation):
        if next(calls) % 2:
            raise ConnectionError
        return "1"

    env = SingleAgentView(pettingllms.make(guess_id), "guesser_0", {"teller": unreliable})
    env.reset(seed=3)
    with pytest.raises(ConnectionError):
        env.step("0")
    with pytest.raises(OrderError, match="after a call that failed; call reset first"):
        env.step("0")
    env.reset(seed=3)
    with pytest.raises(ConnectionError):
        env.reset(seed=3)
    with pytest.raises(OrderError, match="after a call that failed; call reset first"):
        env.step("0")


def test_infos_of_the_environment_are_not_shared(guess_id):
    env = SingleAgentView(pettingllms.make(guess_id), "guesser_0", {"teller": "oracle"})
    _, info = env.reset(seed=0)
    info["mine"] = 1
    assert "mine" not in env.env.infos["guesser_0"]


def test_a_missing_partner_is_told(guess_id):
    env = pettingllms.make(guess_id)
    with pytest.raises(InvalidArgument, match=r"partners\['teller_0'\].*'oracle', 'random'"):
        SingleAgentView(env, "guesser_0")
    with pytest.raises(InvalidArgument, match="partners"):
        SingleAgentView(env, "guesser_0", {"teller": "no such policy"})
    with pytest.raises(InvalidArgument, match="teller_0, guesser_0"):
        SingleAgentView(env, "guesser")


def test_the_script_runs(run_script):
    assert "turn 3: rewards" in run_script("gymnasium_vector.py")
