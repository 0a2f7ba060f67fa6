"""Run files with old names of keys are still read, and give the runs that they gave."""

import pytest

from pettingllms_trainers.config import Config, config_hash, flat_table
from pettingllms_trainers.config.loading import load_config
from pettingllms_trainers.config.renamed import RENAMED, current_names, first_name
from pettingllms_trainers.errors import ConfigError

OLD = """
[env]
id = "toy_echo_v0"
[policies.shared]
model = "tiny"
[policies.friend]
player = "two"
[roles]
caller = "shared"
echo = "friend"
[optimizer]
learning_rate = 1e-6
[rollout]
advance = "softmax"
advance_temperature = 0.5
[evaluation]
references = ["two"]
"""
HASH = "c089ed87c8e57f6f"
"""Of the file above, by the version that had these names, and this rate as its default."""


@pytest.fixture
def old_file(tmp_path):
    path = tmp_path / "old.toml"
    path.write_text(OLD)
    return path


def test_old_names_are_read_with_one_warning(old_file, caplog):
    config = load_config(old_file)
    assert (config.rollout.branch_choice, config.rollout.branch_temperature) == ("softmax", 0.5)
    assert config.evaluation.scripted == ("two",)
    assert config.policies["friend"].fixed == "two"
    (record,) = caplog.records
    assert "policies.friend.player is now policies.friend.fixed" in record.message
    assert record.message.count(" is now ") == len(RENAMED)


def test_checkpoints_of_the_old_version_belong_to_the_same_run(old_file):
    assert config_hash(load_config(old_file)) == HASH
    # What has another default now is another run, unless it is given.
    old_file.write_text(OLD.replace("learning_rate = 1e-6", ""))
    assert config_hash(load_config(old_file)) != HASH


def test_a_key_under_both_names_is_refused():
    table = {"rollout": {"advance": "random", "branch_choice": "random"}}
    with pytest.raises(ConfigError, match=r"x.toml: rollout.advance is the old name of rollout.br"):
        current_names(table, "x.toml")


def test_a_key_with_another_unit_is_refused():
    table = {"optimizer": {"groups_per_minibatch": 64}}
    with pytest.raises(ConfigError, match=r"is now optimizer.completions_per_minibatch.*times as"):
        current_names(table, "x.toml")


def test_policies_may_be_called_like_old_keys():
    table = {"policies": {"player": {"model": "tiny"}}, "rollout": {"num_levels": 2}}
    assert current_names(table, "x.toml") == table


def test_no_old_name_is_a_key(old_file):
    keys = flat_table(load_config(old_file).model_dump())
    assert not {key for key in keys if first_name(key) in keys and first_name(key) != key}
    assert set(Config.model_fields) >= {old.partition(".")[0] for old in RENAMED}
