import html
import json
import math
import random

import numpy as np
import pytest

import pettingllms
from pettingllms import TextEnv, Transition
from pettingllms.errors import InvalidAction, InvalidArgument, OrderError


def started(cls, seed=0, **kwargs):
    env = cls(**kwargs)
    env.reset(seed=seed)
    return env


@pytest.mark.parametrize("simultaneous", [False, True])
def test_the_first_moment(guess_env, simultaneous):
    env = guess_env(simultaneous=simultaneous)
    for _ in range(2):
        env.reset(seed=0)
        assert env.metadata["is_parallelizable"] is simultaneous
        assert env.rewards == env._cumulative_rewards == {"teller_0": 0.0, "guesser_0": 0.0}
        parts = {"team": 0.0, "local": 0.0}
        first = {"reward_parts": parts, "parse_error": None, "success": False, "turn": 0}
        assert env.infos == {agent: first for agent in env.possible_agents}
        observation, reward, terminated, truncated, info = env.last()
        assert observation == env.observe("teller_0")
        assert (reward, terminated, truncated, info) == (0.0, False, False, first)
        env.step("1")
        env.step(str(env.state().secret))
    assert env.rewards == {"teller_0": 1.0, "guesser_0": 1.0}


def test_five_agents_in_three_stages(guess_env):
    stages = (("teller_0",), ("teller_1", "guesser_0", "guesser_1"), ("guesser_2",))

    class Five(guess_env):
        def __init__(self):
            TextEnv.__init__(self, stages=stages, max_turns=1)

    env = started(Five)
    assert env.stages == stages
    assert env.metadata["is_parallelizable"] is False
    assert env.max_episode_steps == 5
    assert (env.alpha, env.observation_space("teller_0").max_length) == (1.0, 1_000_000)
    for agent in env.possible_agents:
        assert env.agent_selection == agent
        env.step("0")
    for agent in env.possible_agents:
        assert env.agent_selection == agent
        env.step(None)


def test_prompts_after_the_last_turn_are_of_the_last_turn(guess_env):
    class Counts(guess_env):
        def _fields(self, state, agent, turn):
            return {**state._asdict(), "hint": turn}

    env = started(Counts, max_turns=2)
    shown = []
    for _ in range(4):
        shown.append(env.observe("guesser_0"))
        env.step("0")
    shown.append(env.observe("guesser_0"))
    assert [text.partition("Hint: ")[2][0] for text in shown] == ["0", "0", "1", "1", "1"]


def test_a_difficulty_is_in_every_info(guess_env):
    env = guess_env()
    env.difficulty = 2
    env.reset(seed=0)
    env.step("1")
    assert [info["difficulty"] for info in env.infos.values()] == [2, 2]


@pytest.mark.parametrize("simultaneous", [False, True])
def test_who_acts_now(guess_env, simultaneous):
    env = started(guess_env, simultaneous=simultaneous, max_turns=1)
    apart = (("teller_0",), ("guesser_0",))
    assert env.stages == ((("teller_0", "guesser_0"),) if simultaneous else apart)
    assert env.acting() == (("teller_0", "guesser_0") if simultaneous else ("teller_0",))
    env.step("0")
    assert env.acting() == ("guesser_0",)
    env.step("0")
    assert all(env.truncations.values())
    assert env.acting() == ()
    env.step(None)
    env.step(None)
    assert env.acting() == ()


def test_a_game_may_decide_who_acts_next(guess_env):
    class Stubborn(guess_env):
        """The teller acts until it has said the number."""

        def _next_agent(self, state):
            return "guesser_0" if state.hint == str(state.secret) else "teller_0"

    env = started(Stubborn, max_turns=2)
    for _ in range(2):
        env.step("0")
        assert env.acting() == ("teller_0",)
        assert env.fork().state_hash() == env.state_hash()
    env.step(str(env.state().secret))
    assert env.agent_selection == "guesser_0"
    assert f"Hint: {env.state().secret}." in env.observe("guesser_0")
    env.step("0")
    assert all(env.truncations.values())


def test_simultaneous_agents_see_the_start_of_the_stage(guess_env):
    env = started(guess_env, simultaneous=True)
    env.step("41")
    assert "Hint: ." in env.observe("guesser_0")
    env.step("7")
    assert "Hint: 41. Last answer: 7." in env.observe("guesser_0")


def test_only_the_outcome_is_paid_when_it_is_asked_for(guess_env):
    assert started(guess_env, alpha=0.5).alpha == 0.5
    env = started(guess_env, alpha=2.0, reward="outcome")
    secret = str(env.state().secret)
    env.step(secret)
    assert env.rewards == {"teller_0": 0.0, "guesser_0": 0.0}
    env.step(secret)
    assert env.rewards == {"teller_0": 2.0, "guesser_0": 2.0}
    assert env.infos["guesser_0"]["reward_parts"] == {"team": 2.0, "local": 0.0}


def test_rewards_mix_team_and_local(guess_env):
    env = started(guess_env, alpha=2.0)
    secret = str(env.state().secret)
    env.step(secret)
    assert env.rewards == {"teller_0": 0.5, "guesser_0": 0.0}
    assert env.infos["teller_0"]["reward_parts"] == {"team": 0.0, "local": 0.5}
    assert env.infos["teller_0"]["told"] == int(secret)
    env.step(secret)
    assert env.rewards == {"teller_0": 2.0, "guesser_0": 2.0}
    assert env.last(observe=False)[:2] == (None, 2.5)
    assert all(env.terminations.values())
    assert not any(env.truncations.values())
    assert all(info["success"] for info in env.infos.values())


@pytest.mark.parametrize("one", [1, True, np.float64(1), np.float32(1), np.int64(1), np.array(1)])
def test_numbers_of_other_libraries_become_pythons(guess_env, one):
    class Computes(guess_env):
        def _act(self, state, agent, action):
            is_over = np.bool_(agent == "guesser_0")
            return Transition(state, one, one, is_over, is_over, {"n": one}, {"m": np.int8(3)})

    env = started(Computes)
    env.step("1")
    env.step("1")
    assert env.rewards == {"teller_0": 1.0, "guesser_0": 2.0}
    seen = json.loads(json.dumps([env.rewards, env.terminations, env.infos["guesser_0"]]))
    assert seen == [env.rewards, env.terminations, env.infos["guesser_0"]]
    assert (seen[2]["n"], seen[2]["m"], seen[2]["success"]) == (1, 3, True)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"team": math.nan}, "team reward: got nan"),
        ({"local": math.inf}, "local reward: got inf"),
        ({"team": 1e308}, r"team reward: got 1e\+308; allowed: .*1e\+18"),
        ({"local": "1"}, "local reward: got '1'"),
        ({"terminated": 1}, "terminated: got 1; allowed: True or False"),
        ({"success": None}, "success: got None"),
    ],
)
def test_what_is_no_reward_and_no_end_is_refused_by_name(guess_env, change, message):
    class Wrong(guess_env):
        def _act(self, state, agent, action):
            return Transition(state)._replace(**change)

    with pytest.raises(InvalidArgument, match=message):
        started(Wrong).step("1")


def test_infos_are_completed_without_a_change_of_what_the_environment_keeps(guess_env):
    kept = {"turn": 99, "told": 7}

    class KeepsItsInfo(guess_env):
        def _act(self, state, agent, action):
            return Transition(state, 0.5, 0.25, info=kept)

    env = started(KeepsItsInfo, alpha=2.0)
    env.step("1")
    env.step("no number")
    parts = {"team": 1.0, "local": 0.25}
    common = {"reward_parts": parts, "success": False, "turn": 0, "told": 7}
    assert env.infos == {
        "teller_0": {**common, "parse_error": None},
        "guesser_0": {**common, "parse_error": "not a short number"},
    }
    assert list(env.infos["teller_0"]) == list(env.infos["guesser_0"])
    assert kept == {"turn": 99, "told": 7}


def test_what_last_returned_stays_as_it_was(guess_env):
    env = started(guess_env)
    env.step("12")
    env.step("13")
    rewards, infos, (*_, info) = env.rewards, env.infos, env.last()
    kept = dict(rewards), dict(infos), dict(info)
    env.step("unreadable, which costs something")
    assert (rewards, infos, info) == kept


def test_agents_leave_one_by_one_after_the_end(guess_env):
    env = started(guess_env, max_turns=1)
    env.step("0")
    env.step("x")
    with pytest.raises(InvalidAction, match="has ended and needs None"):
        env.step("more")
    left = []
    for agent in env.agent_iter():
        left.append(agent)
        env.step(None)
        assert set(env.infos) == set(env.terminations) == set(env.truncations) == set(env.agents)
        assert env.rewards == env._cumulative_rewards | dict.fromkeys(env.agents, 0.0)
    assert left == ["teller_0", "guesser_0"]
    assert env.agents == []
    assert env.rewards == {}


@pytest.mark.parametrize("action", [None, 3, b"3", ["3"]])
def test_what_is_no_text_is_refused(guess_env, action):
    env = started(guess_env)
    with pytest.raises(InvalidAction, match="needs a text"):
        env.step(action)


def test_delta_mode_repeats_no_rules(guess_env):
    env = started(guess_env, observation_mode="delta")
    assert env.observe("teller_0").startswith("Hint at")
    assert [message["role"] for message in env.messages("guesser_0")] == ["system", "user"]
    env.step("12")
    env.step("13")
    assert env.observe("teller_0") == "Now '12'."
    assert env.observe("guesser_0") == "Hint: 12. Last answer: 13."
    assert env.messages("teller_0") == [{"role": "user", "content": "Now '12'."}]


def test_messages_are_system_and_user(guess_env):
    env = started(guess_env)
    assert env.messages("guesser_0") == [
        {"role": "system", "content": "Say the number."},
        {"role": "user", "content": "Hint: . Last answer: ."},
    ]
    assert "A brace: {}." in env.observe("teller_0")


def test_an_environment_that_was_never_reset_can_be_forked(guess_env):
    twin = guess_env().fork()
    twin.reset(seed=1)
    assert twin.state_hash() == started(guess_env, seed=1).state_hash()


def test_what_callers_change_stays_in_one_branch(guess_env):
    env = started(guess_env)
    env.step("12")
    twin, snapshot = env.fork(), env.snapshot()
    for branch in (twin, env):
        branch.infos["teller_0"]["reward_parts"]["team"] = 99.0
        branch.rewards["teller_0"] = 99.0
        branch.agents.clear()
        env.restore(snapshot)
        assert env.infos["teller_0"]["reward_parts"]["team"] == 0.0
        assert env.rewards["teller_0"] != 99.0
        assert len(env.agents) == 2


@pytest.mark.parametrize("env_id", ["sokoban_v0", "sudoku_v0", "plan_path_v0"])
def test_snapshot_of_another_board_is_refused(env_id):
    small = pettingllms.make(env_id, checks=False, team="single", size=6)
    large = pettingllms.make(env_id, checks=False, team="single", size=9)
    small.reset(seed=0)
    large.reset(seed=0)
    with pytest.raises(InvalidArgument, match=r"snapshot: .*'6x6'.*'9x9'.*board.*same arguments"):
        large.restore(small.snapshot())
    twin = pettingllms.make(env_id, checks=False, team="single", size=6)
    twin.restore(small.snapshot())
    assert twin.state_hash() == small.state_hash()


def test_what_the_agents_of_a_stage_still_see_is_part_of_the_state_hash(guess_env):
    hashes = set()
    for hint in ("1", "3"):
        env = guess_env(simultaneous=True)
        env.reset(seed=0, options={"secret": 50})
        for text in (hint, "2", "5"):
            env.step(text)
        hashes.add(env.state_hash())
    assert len(hashes) == 2, "the state is the same, and the guesser reads the hint before"


def test_state_hash_tells_moments_apart(guess_env):
    class Idle(guess_env):
        def _act(self, state, agent, action):
            return Transition(state)

    env, hashes = started(Idle), []
    for _ in range(4):
        hashes.append(env.state_hash())
        env.step("1")
    assert len(set(hashes)) == 4


def test_a_key_is_of_what_counts_at_a_moment(guess_env):
    class Blind(guess_env):
        def _key_json(self, state):
            return "anything"

    def keys(kind, secret):
        env = kind()
        env.reset(seed=0, options={"secret": secret})
        found = [env.state_key()]
        env.step("1")
        return [*found, env.state_key()]

    assert keys(Blind, 50) == keys(Blind, 60)
    assert len(set(keys(Blind, 50))) == 2
    assert keys(guess_env, 50) != keys(guess_env, 60)


def test_seeds(guess_env):
    env = guess_env()
    env.reset()
    seed = env.episode_seed
    secret = env.state().secret
    env.reset()
    assert env.episode_seed != seed
    env.reset(seed=seed)
    assert env.state().secret == secret
    for bad in (-1, 1.5, "seven"):
        with pytest.raises(InvalidArgument, match="seed"):
            env.reset(seed=bad)


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"max_turns": 0}, "max_turns"),
        ({"max_turns": 1_000_001}, "max_turns.* 1000000"),
        ({"max_turns": True}, "max_turns"),
        ({"alpha": -1}, "alpha"),
        ({"reward": "sparse"}, "reward"),
        ({"alpha": float("nan")}, "alpha"),
        ({"observation_mode": "short"}, "observation_mode"),
        ({"render_mode": "film"}, "render_mode"),
        ({"prompts": {"gueser": {"user": "x"}}}, 'did you mean "guesser"'),
        ({"prompts": {"guesser": {"user": "{hnt}"}}}, 'did you mean "hint"'),
        ({"prompts": {"guesser": {"user": "{hint"}}}, "balanced braces"),
        ({"prompts": {"guesser": {"usr": "x"}}}, "keys from system, user, update"),
        ({"prompts": {"guesser": 3}}, "a PromptTemplate or a mapping"),
    ],
)
def test_bad_arguments_are_named(guess_env, kwargs, message):
    with pytest.raises(InvalidArgument, match=message):
        guess_env(**kwargs)


def test_scripted_actions(guess_env):
    env = started(guess_env)
    rng = random.Random(0)
    assert env.scripted_action("guesser_0", "oracle", rng) == str(env.state().secret)
    with pytest.raises(InvalidArgument, match='did you mean "oracle"'):
        env.scripted_action("guesser_0", "oracel", rng)
    with pytest.raises(InvalidArgument, match="agent"):
        env.scripted_action("judge_0", "oracle", rng)
    with pytest.raises(InvalidArgument, match="allowed: oracle, random"):
        env.scripted_action("guesser_0", "best", rng)


@pytest.mark.parametrize(
    "stages", [None, 3, [], "a_0", ["a_0"], [[3]], [None], [["a_0"], ["a_0"]], [["a"]]], ids=repr
)
def test_what_are_no_stages_is_told(guess_env, stages):
    class Other(guess_env):
        def __init__(self):
            TextEnv.__init__(self, stages=stages, max_turns=1)

    with pytest.raises(InvalidArgument, match=r"invalid stages: got .*; allowed: "):
        Other()


@pytest.mark.parametrize("snapshot", [None, 3, (("GuessEnv", (), 3), ())], ids=repr)
def test_what_is_no_snapshot_is_told(guess_env, snapshot):
    with pytest.raises(InvalidArgument, match="invalid snapshot: got"):
        started(guess_env).restore(snapshot)
    with pytest.raises(InvalidArgument, match="snapshot"):
        started(guess_env).restore(started(guess_env, max_turns=5).snapshot())


def test_rendering(guess_env, capsys):
    env = started(guess_env)
    assert env.render() == f"secret {env.state().secret}"
    env.render_mode = "human"
    assert env.render() is None
    assert capsys.readouterr().out == f"secret {env.state().secret}\n"


def test_a_notebook_shows_the_state_and_the_next_prompt(guess_id):
    env = pettingllms.make(guess_id)
    assert "before reset" in env._repr_html_()
    env.reset(seed=1)
    shown = env._repr_html_()
    assert f"<pre>secret {env.state().secret}</pre>" in shown
    assert f"<summary>{env.agent_selection} reads</summary>" in shown
    assert html.escape(str(env.last()[0])) in shown
    for agent in env.agent_iter():
        over = env.terminations[agent] or env.truncations[agent]
        env.step(None if over else "<script>")
    assert "episode is over" in env._repr_html_()


class TestChecks:
    def test_wrong_order_is_told(self, guess_id, guess_env):
        env = pettingllms.make(guess_id)
        calls = {guess_env(): ("snapshot", "acting", "render"), env: ("last", "fork", "render")}
        for of, call in ((of, name) for of, names in calls.items() for name in names):
            with pytest.raises(OrderError, match=f"{call} was called before reset"):
                getattr(of, call)()
        with pytest.raises(OrderError, match="step was called before reset"):
            env.step("1")
        env.reset(seed=0)
        for _ in range(6):
            env.step("0")
        env.step(None)
        env.step(None)
        with pytest.raises(OrderError, match="after the last agent had left"):
            env.step("1")
        with pytest.raises(OrderError, match="last was called after the last agent had left"):
            env.last()

    def test_unknown_agents_are_told(self, guess_id):
        env = pettingllms.make(guess_id)
        env.reset(seed=0)
        with pytest.raises(InvalidArgument, match="teller_0, guesser_0"):
            env.observe("judge_0")

    def test_forks_stay_wrapped_and_independent(self, guess_id):
        env = pettingllms.make(guess_id)
        env.reset(seed=0)
        env.step("5")
        twin = env.fork()
        assert type(twin) is type(env)
        twin.step("0")
        assert env.agent_selection == "guesser_0"
        snapshot = env.snapshot()
        env.step("0")
        env.restore(snapshot)
        assert env.agent_selection == "guesser_0"

    def test_raw_env_is_there_for_speed(self, guess_id, guess_env):
        raw = pettingllms.make(guess_id, checks=False)
        assert type(raw) is guess_env
        assert type(pettingllms.make(guess_id).unwrapped) is guess_env
