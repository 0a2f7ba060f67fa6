"""Stages: tables of environment arguments."""

from pettingllms_trainers.config import StageConfig, config_hash
from pettingllms_trainers.config.loading import dump_config

RUN = """
[env]
id = "toy_echo_v0"
kwargs = { max_turns = 2, split = "train" }
[policies.both]
model = "tiny"
[roles]
caller = "both"
echo = "both"
"""
STAGES = """
[[env.curriculum]]
kwargs = { max_turns = 1 }
[[env.curriculum]]
kwargs = { difficulty = "medium" }
"""


def test_arguments_of_a_stage_are_over_those_of_all(load):
    assert load(RUN).env[0].stage_kwargs == ({"max_turns": 2, "split": "train"},)
    assert load(RUN, STAGES).env[0].stage_kwargs == (
        {"max_turns": 1, "split": "train"},
        {"max_turns": 2, "split": "train", "difficulty": "medium"},
    )


def test_a_curriculum_is_written_and_read_and_decides_results(load):
    config = load(RUN, STAGES)
    copy = load(dump_config(config))
    assert copy == config
    hashes = [config_hash(c) for c in (config, load(RUN), load(RUN, STAGES.replace("1", "3")))]
    assert len(set(hashes)) == 3
    assert config_hash(copy) == hashes[0]
    # A run of a version without the key can be resumed.
    assert "curriculum" not in load(RUN).model_dump(exclude_defaults=True)["env"]


def test_a_flag_sets_all_stages(load):
    flag = "--env.curriculum=[{ kwargs = { max_turns = 4 } }, {}]"
    assert load(RUN, STAGES, flags=[flag]).env[0].curriculum == (
        StageConfig(kwargs={"max_turns": 4}),
        StageConfig(),
    )
