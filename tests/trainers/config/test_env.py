"""One environment or several: names, roles, merged files, flags, mistakes."""

import re

import pytest

from pettingllms_trainers.config import Config, config_hash
from pettingllms_trainers.config.loading import dump_config, load_config
from pettingllms_trainers.errors import ConfigError

POLICIES = """
[policies.a]
model = "tiny"
[policies.b]
model = "tiny"
"""
ROLES = '[roles]\ncaller = "a"\necho = "b"\n'
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


@pytest.fixture
def load(tmp_path):
    """Return a function that loads texts as run files, one over the other."""

    def load(*texts, flags=()):
        paths = []
        for index, text in enumerate(texts):
            paths.append(tmp_path / f"{index}.toml")
            paths[-1].write_text(text)
        return load_config(paths, flags)

    return load


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
    assert load(dump_config(config)) == config
    quoted = load(TWO + POLICIES + roles.replace("long.echo", '"long.echo"'))
    assert quoted == config


def test_files_and_flags_change_the_environments_that_they_name(load):
    base = TWO + POLICIES + ROLES
    over = load(base, "[env.long]\nweight = 4.0\n[env.long.kwargs]\nalpha = 2\n")
    assert [env.weight for env in over.env] == [2.0, 4.0]
    assert over.env[1].kwargs == {"max_turns": 5, "alpha": 2}
    flags = ["--env.long.kwargs.max-turns", "7", "--env.toy_echo.reward-scale", "0.5"]
    with pytest.raises(ConfigError, match=r"reward_scale = 0.5 of toy_echo would change nothing"):
        load(base, flags=flags)
    flags += ["--algorithm.norm", "none"]
    flagged = load(base, flags=flags)
    assert (flagged.env[1].kwargs["max_turns"], flagged.env[0].reward_scale) == (7, 0.5)
    with pytest.raises(ConfigError, match=r"name one of them: env\.toy_echo\.weight, env\.long\.w"):
        load(base, flags=["--env.weight", "3"])
    one = '[[env]]\nid = "toy_echo_v0"\n' + POLICIES + ROLES
    assert load(one, flags=["--env.curriculum", "[{ }]"]).env[0].curriculum


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (TWO.replace('name = "long"', ""), "2 environments have the name 'toy_echo'"),
        (TWO.replace('"long"', '"a.b"'), r"the name 'a\.b'; allowed are letters.*name = \"a_b\""),
        (TWO.replace("2.0", "0.0"), r"'env\.0\.weight' is 0\.0: input should be greater than 0"),
        (TWO.replace("2.0", "-1.0"), r"'env\.0\.weight' is -1\.0: input should be greater than 0"),
        (TWO + "reward_scale = 0\n", r"'env\.1\.curriculum\.1\.reward_scale'"),
        (
            TWO.replace("weight", "wieght"),
            r"unknown key 'env\.0\.wieght'; did you mean 'env\.0\.we",
        ),
        ("env = []\n", "env is an empty list"),
        ("", "the key 'env' is missing"),
    ],
)
def test_mistakes_are_named(load, text, message):
    with pytest.raises(ConfigError) as caught:
        load(text + POLICIES + ROLES)
    assert re.search(message, str(caught.value)), caught.value


@pytest.mark.parametrize(
    ("roles", "message"),
    [
        ('"lng.echo" = "b"\n', "names the environment 'lng'; did you mean \"long\"?"),
        ('"long.echo" = "c"\n', "names the policy 'c', which is not defined"),
    ],
)
def test_roles_name_environments_and_policies_that_there_are(load, roles, message):
    with pytest.raises(ConfigError) as caught:
        load(TWO + POLICIES + ROLES + roles)
    assert message in str(caught.value), caught.value


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
    value = {"z.echo": {}} if key.endswith("per_role") else ["z.echo"]
    with pytest.raises(ValueError, match=r"names the role 'z\.echo'"):
        Config.model_validate(table | {section: {name: value}})
