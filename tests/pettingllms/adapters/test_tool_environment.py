"""What TRL is given, without TRL."""

import random

import pytest

import pettingllms
from pettingllms.adapters.trl import ENDED, environment_factory, rows
from pettingllms.errors import InvalidArgument, OrderError, UnknownEnvironment


def test_an_episode_played_with_the_tool():
    factory = environment_factory("plan_path_v0", agent="planner_0", partners={"tool": "oracle"})
    environment = factory()
    first = environment.reset(seed=3, prompt=[{"role": "user", "content": ""}])
    twin = pettingllms.make("plan_path_v0", observation_mode="delta")
    twin.reset(seed=3)
    twin.step(twin.scripted_action("tool_0", "oracle", random.Random(3)))
    assert first == twin.observe("planner_0")
    expected = twin.unwrapped.rewards["planner_0"]
    for _ in range(50):
        text = twin.scripted_action("planner_0", "oracle", random.Random(0))
        seen = environment.act(text)
        twin.step(text)
        expected += twin.unwrapped.rewards["planner_0"]
        if twin.unwrapped.terminations["planner_0"]:
            break
        twin.step(twin.scripted_action("tool_0", "oracle", random.Random(3)))
        expected += twin.unwrapped.rewards["planner_0"]
        assert seen == twin.observe("planner_0")
    assert seen == ENDED
    assert environment.act("more") == ENDED
    assert environment.get_reward() == pytest.approx(expected)
    assert expected > 1.05


def test_stopping_is_not_better_than_silence():
    environment = environment_factory("plan_path_v0", max_turns=4)()
    environment.reset(seed=1)
    stopped = environment.get_reward()
    environment.reset(seed=1)
    while environment.act("") != ENDED:
        pass
    assert stopped == environment.get_reward() < 0
    assert stopped == environment.get_reward(), "asking twice plays nothing"


def test_equal_rows_give_equal_levels():
    factory = environment_factory("plan_path_v0")
    row = rows([7])[0]
    assert factory().reset(**row) == factory().reset(**row)
    assert [r["seed"] for r in rows(range(3))] == [0, 1, 2]


def test_wrong_use_is_told():
    environment = environment_factory("plan_path_v0")()
    with pytest.raises(OrderError, match="before reset"):
        environment.get_reward()
    with pytest.raises(InvalidArgument, match="a column `seed`"):
        environment.reset(prompt="")
    with pytest.raises(UnknownEnvironment):
        environment_factory("plan_pth_v0")
    with pytest.raises(InvalidArgument, match="partners"):
        environment_factory("plan_path_v0", agent="planner_0", team="tool-planner")
