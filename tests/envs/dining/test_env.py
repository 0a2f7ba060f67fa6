"""The environment: simultaneous actions, rewards, endings, prompts."""

import random

import pytest

import pettingllms
from pettingllms.errors import InvalidArgument
from pettingllms.testing import play, transcript_of
from pettingllms.testing.play import mixed_actor, scripted_actor
from pettingllms_envs.dining import DiningEnv
from pettingllms_envs.dining.rules import is_deadlock, shortest_schedule

LEVEL = "1 1 1 / . . ."


def started(level=LEVEL, **kwargs):
    env = pettingllms.make("dining_v0", checks=False, **kwargs)
    env.reset(seed=0, options={"level": level})
    return env


def turn(env, *texts):
    for text in texts:
        env.step(text)


@pytest.mark.parametrize("observation_mode", ["full", "delta"])
def test_golden_transcripts(golden, observation_mode):
    rng = random.Random(0)

    def player(env, agent):
        if env.turn == 0:
            return "Let me think about it."
        if env.turn == 1:
            return env.scripted_action(agent, "random", rng)
        return env.scripted_action(agent, "oracle", rng)

    env = pettingllms.make(
        "dining_v0", checks=False, split="validation", observation_mode=observation_mode
    )
    suffix = "_delta" if observation_mode == "delta" else ""
    golden(f"dining{suffix}", transcript_of(env, 3, player))


def test_the_documented_example_runs():
    example = (DiningEnv.__doc__ or "").split("```python\n")[1].split("```")[0]
    lines = [line.removeprefix("    ") for line in example.split("\n")]
    scope = {}
    exec(compile("\n".join(lines), "example", "exec"), scope)
    assert scope["info"]["success"]


def test_choices_of_a_turn_are_not_seen_before_its_end():
    env = started()
    before = env.observe("philosopher_2")
    env.step("#### left")
    env.step("#### right")
    assert env.observe("philosopher_2") == before
    assert env.acting() == ("philosopher_2",)
    env.step("#### wait")
    seen = env.observe("philosopher_0")
    assert "Last turn: philosopher 0 left, philosopher 1 right, philosopher 2 wait." in seen
    assert "philosopher 0: 1 to eat, holds the left fork" in seen


@pytest.mark.parametrize("level", [None, *DiningEnv.levels.names])
def test_the_oracle_takes_the_turns_of_a_shortest_schedule(level):
    env = pettingllms.make("dining_v0", checks=False, level=level, split="test")
    for seed in range(4):
        env.reset(seed=seed)
        steps = play(env, scripted_actor("oracle", random.Random(0)))
        assert steps[-1]["info"]["success"]
        assert steps[-1]["info"]["turn"] + 1 == steps[-1]["info"]["shortest"]


def test_a_deadlock_ends_the_episode_and_costs():
    env = started()
    turn(env, *["#### left"] * 3)
    info = env.infos["philosopher_2"]
    assert all(env.terminations.values())
    assert not info["success"]
    assert info["deadlock"]
    assert info["distance"] == -1
    assert info["reward_parts"]["team"] == pytest.approx(-0.01)


def test_infos_are_about_the_table_after_the_turn():
    for seed in range(40):
        env = pettingllms.make("dining_v0", checks=False, split=None)
        env.reset(seed=seed)
        rng = random.Random(seed)
        while not any(env.terminations.values()) and env.turn < env.max_turns:
            for agent in env.possible_agents:
                env.step(env.scripted_action(agent, "greedy", rng))
            table = env.state().table
            schedule = shortest_schedule(table)
            for info in env.infos.values():
                assert info["deadlock"] == is_deadlock(table)
                assert info["distance"] == (-1 if schedule is None else len(schedule))
                assert info["meals_left"] == sum(table.hunger)


def returned(env, player):
    totals = dict.fromkeys(env.possible_agents, 0.0)
    for step in play(env, player):
        for agent, reward in step["rewards"].items():
            totals[agent] += reward
    return totals.values()


def test_doing_nothing_pays_less_than_anything_else():
    """The reward of arXiv 2606.07845 has a maximum at zero actions; this one has its minimum."""
    nothing = max(returned(started(), lambda env, agent: "#### wait"))
    assert nothing == pytest.approx(-0.02)
    assert min(returned(started(), lambda env, agent: "#### left")) > nothing
    assert max(returned(started(), lambda env, agent: "")) < nothing
    holding = [
        lambda env, agent: "#### left" if agent == "philosopher_0" else "#### wait",
        lambda env, agent: (
            "#### release"
            if env.turn % 2
            else "#### left"
            if agent < "philosopher_2"
            else "#### wait"
        ),
    ]
    for player in holding:
        assert max(returned(started(), player)) < -0.01


def test_time_that_is_too_short_is_a_lost_level():
    env = started(max_turns=4)
    needed = env.state().level.shortest
    assert needed == 4
    turn(env, *["#### wait"] * 3)
    assert env.infos["philosopher_2"]["reward_parts"]["team"] == pytest.approx(-0.02)
    turn(env, *["#### wait"] * 3)
    assert env.infos["philosopher_2"]["reward_parts"]["team"] == 0


def test_team_parts_add_up_to_the_potential_of_the_end():
    env = pettingllms.make("dining_v0", checks=False)
    for seed in range(30):
        env.reset(seed=seed)
        steps = play(env, mixed_actor(random.Random(seed)))
        total = sum(step["info"]["reward_parts"]["team"] for step in steps)
        info = steps[-1]["info"]
        lost = -0.01 if info["deadlock"] else -0.02
        assert total == pytest.approx(1.1 if info["success"] else lost)


@pytest.mark.parametrize(
    ("level", "text", "cost"),
    [
        (LEVEL, "#### left", 0),
        (LEVEL, "#### wait", 0),
        (LEVEL, "#### release", 0.04),
        (LEVEL, "nothing", 0.05),
        ("1 1 1 / 2 . .", "#### left", 0.04),
        ("0 1 1 / . . .", "#### wait", 0),
        ("0 1 1 / 0 . .", "#### release", 0),
    ],
)
def test_local_parts(level, text, cost):
    env = started(level)
    env.step(text)
    local = env.infos["philosopher_0"]["reward_parts"]["local"]
    assert local == pytest.approx(-cost / env.max_turns)


def test_other_tables_are_refused():
    with pytest.raises(InvalidArgument, match="a table of 4 philosophers who need 4 turns"):
        started("1 1 1 1 / . . . .")
    with pytest.raises(InvalidArgument, match="raise max_turns"):
        pettingllms.make("dining_v0", max_turns=3, levels=[LEVEL])


def test_terse_prompts_get_letters():
    prompts = {"philosopher": {"system": "", "user": "{seat}{table_compact}"}}
    env = started(prompts=prompts)
    assert env.observe("philosopher_1") == "1111..."
    assert env.scripted_action("philosopher_0", "greedy", random.Random(0)) == "L"
