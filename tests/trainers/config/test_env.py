"""Environments, their stages, and phases of updates: names, merged files, flags, mistakes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pettingllms_trainers.config import Config, config_hash
from pettingllms_trainers.config.loading import dump_config
from pettingllms_trainers.config.sections import PhaseConfig, UpdatesConfig

POLICIES = """
[policies.a]
model = "tiny"
[policies.b]
model = "tiny"
"""
ROLES = '[roles]\ncaller = "a"\necho = "b"\n'
ONE = '[env]\nid = "toy_echo_v0"\n'
RUN = ONE + POLICIES + ROLES
SHARED = ONE + POLICIES.partition("[policies.b]")[0] + ROLES.replace('"b"', '"a"')
SPLIT = ONE + 'kwargs = { max_turns = 2, split = "train" }\n' + POLICIES + ROLES
TWO = """
[[env]]
id = "toy_echo_v0"
weight = 2.0
kwargs = { max_turns = 2 }
[[env]]
id = "toy_echo_v0"
name = "long"
kwargs = { max_turns = 5 }
[[env.curriculum]]
[[env.curriculum]]
kwargs = { max_turns = 6 }
"""


def test_one_table_is_a_list_of_one(load):
    table = '[env]\nid = "toy_echo_v0"\nkwargs = { max_turns = 2 }\n' + POLICIES + ROLES
    one, listed = load(table), load(table.replace("[env]", "[[env]]"))
    assert one == listed
    assert config_hash(one) == config_hash(listed)
    assert one.env_names == ("",)
    assert one.model_dump()["env"]["id"] == "toy_echo_v0", "as it is written"
    assert load(dump_config(one)) == one


def test_several_have_names_weights_and_stages(load):
    config = load(TWO + POLICIES + ROLES)
    assert config.env_names == ("toy_echo", "long")
    assert [env.weight for env in config.env] == [2.0, 1.0]
    assert config.env[1].stage_kwargs == ({"max_turns": 5}, {"max_turns": 6})
    assert load(dump_config(config)) == config
    assert config_hash(load(dump_config(config))) == config_hash(config)


def test_a_role_of_one_environment_comes_before_that_of_all(load):
    roles = '[roles]\ncaller = "a"\necho = "a"\nlong.echo = "b"\n'
    config = load(TWO + POLICIES + roles)
    assert config.roles == {"caller": "a", "echo": "a", "long.echo": "b"}
    assert [config.policy_of(f"{env}.echo") for env in config.env_names] == ["a", "b"]
    assert config.policy_of("long.caller") == "a"
    assert config.policy_of("long.judge") is None
    quoted = load(TWO + POLICIES + roles.replace("long.echo", '"long.echo"'))
    assert quoted == config


def test_files_and_flags_change_the_environments_that_they_name(load):
    base = TWO + POLICIES + ROLES
    over = load(base, "[env.long]\nweight = 4.0\n[env.long.kwargs]\nalpha = 2\n")
    assert [env.weight for env in over.env] == [2.0, 4.0]
    assert over.env[1].kwargs == {"max_turns": 5, "alpha": 2}
    flags = ["--env.long.kwargs.max-turns", "7", "--env.toy_echo.reward-scale", "0.5"]
    flags += ["--algorithm.norm", "none"]
    flagged = load(base, flags=flags)
    assert (flagged.env[1].kwargs["max_turns"], flagged.env[0].reward_scale) == (7, 0.5)
    one = '[[env]]\nid = "toy_echo_v0"\n' + POLICIES + ROLES
    assert load(one, flags=["--env.curriculum", "[{ }]"]).env[0].curriculum


@pytest.mark.parametrize("key", ["rollout.per_role", "algorithm.branching_roles"])
def test_settings_may_name_roles_of_one_environment(key):
    table = {
        "env": [{"id": "x_v0"}, {"id": "y_v0"}],
        "policies": {"p": {"model": "tiny"}},
        "roles": {"caller": "p", "y.echo": "p"},
    }
    section, _, name = key.partition(".")
    for role in ("caller", "x.caller", "y.echo", "echo"):
        value = {role: {}} if key.endswith("per_role") else [role]
        config = Config.model_validate(table | {section: {name: value}})
        assert config.roles_of("p")


STAGES = """
[[env.curriculum]]
kwargs = { max_turns = 1 }
[[env.curriculum]]
kwargs = { difficulty = "medium" }
"""


def test_arguments_of_a_stage_are_over_those_of_all(load):
    assert load(SPLIT).env[0].stage_kwargs == ({"max_turns": 2, "split": "train"},)
    assert load(SPLIT, STAGES).env[0].stage_kwargs == (
        {"max_turns": 1, "split": "train"},
        {"max_turns": 2, "split": "train", "difficulty": "medium"},
    )


TURNS = """
[updates]
repeat = true
[[updates.phases]]
policies = ["a"]
num_steps = 2
[[updates.phases]]
policies = ["b"]
num_steps = 1
"""
STAGED = """
[[updates.phases]]
policies = ["b"]
num_steps = 2
[[updates.phases]]
policies = ["a"]
num_steps = 1
[[updates.phases]]
"""


@given(st.lists(st.integers(1, 9), min_size=1, max_size=4), st.integers(0, 80))
def test_phases_last_their_steps_and_repeat(lengths, step):
    played = [index for index, length in enumerate(lengths) for _ in range(length)]
    phases = tuple(PhaseConfig(num_steps=length) for length in lengths)
    assert UpdatesConfig(phases=phases, repeat=True).phase_at(step) == played[step % len(played)]
    staged = UpdatesConfig(phases=(*phases, PhaseConfig()))
    assert staged.phase_at(step) == (played[step] if step < len(played) else len(lengths))
    assert UpdatesConfig().phase_at(step) == 0


def updated(config, num_steps=6):
    return [
        "".join(name for name in config.models if config.updates_policy(name, step))
        for step in range(num_steps)
    ]


def test_turns_and_stages(load):
    assert updated(load(RUN)) == ["ab"] * 6
    assert updated(load(RUN + TURNS)) == ["a", "a", "b", "a", "a", "b"]
    assert updated(load(RUN + STAGED)) == ["b", "b", "a", "ab", "ab", "ab"]
    frozen = load(RUN.replace("[policies.a]", "[policies.a]\nfrozen = true"))
    assert updated(frozen) == ["b"] * 6


def test_roles_of_a_shared_policy_take_turns(load):
    config = load(SHARED + TURNS.replace('policies = ["a"]', 'roles = ["echo"]').replace(
        'policies = ["b"]', 'roles = ["caller"]'
    ))  # fmt: skip
    assert updated(config, 3) == ["a", "a", "a"]
    assert [config.trains("echo", step) for step in range(3)] == [True, True, False]
    assert [config.trains("caller", step) for step in range(3)] == [False, False, True]


def test_figures_of_roles_change_no_result(load):
    flag = "--optimizer.role-gradients"
    assert config_hash(load(SHARED, flags=[flag])) == config_hash(load(SHARED)), "up to rounding"
