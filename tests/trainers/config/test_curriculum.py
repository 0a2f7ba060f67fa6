"""Stages of environment arguments over train steps."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pettingllms_trainers.config import EnvConfig, StageConfig, config_hash
from pettingllms_trainers.config.loading import dump_config, load_config
from pettingllms_trainers.errors import ConfigError

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
num_steps = 50
[[env.curriculum]]
kwargs = { preset = "medium" }
"""


@pytest.fixture
def load(tmp_path):
    """Return a function that loads the run file with some stages, and flags."""

    def load(stages="", *flags):
        (tmp_path / "run.toml").write_text(RUN)
        (tmp_path / "stages.toml").write_text(stages)
        return load_config([tmp_path / "run.toml", tmp_path / "stages.toml"], flags)

    return load


@given(st.lists(st.integers(1, 20), max_size=5), st.integers(0, 120))
def test_every_stage_lasts_its_steps_and_the_last_one_to_the_end(lengths, step):
    stages = [StageConfig(num_steps=length) for length in lengths]
    env = EnvConfig(id="x", curriculum=(*stages, StageConfig()))
    played = [index for index, length in enumerate(lengths) for _ in range(length)]
    assert env.stage_at(step) == (played[step] if step < len(played) else len(lengths))
    assert EnvConfig(id="x").stage_at(step) == 0


def test_arguments_of_a_stage_are_over_those_of_all(load):
    assert load().env[0].stage_kwargs == ({"max_turns": 2, "split": "train"},)
    assert load(STAGES).env[0].stage_kwargs == (
        {"max_turns": 1, "split": "train"},
        {"max_turns": 2, "split": "train", "preset": "medium"},
    )


def test_a_curriculum_is_written_and_read_and_decides_results(load, tmp_path):
    config = load(STAGES)
    (tmp_path / "copy.toml").write_text(dump_config(config))
    copy = load_config(tmp_path / "copy.toml")
    assert copy == config
    hashes = [config_hash(c) for c in (config, load(), load(STAGES.replace("50", "51")))]
    assert len(set(hashes)) == 3
    assert config_hash(copy) == hashes[0]
    # A run of a version without the key can be resumed.
    assert "curriculum" not in load().model_dump(exclude_defaults=True)["env"]


def test_a_flag_sets_all_stages(load):
    flag = "--env.curriculum=[{ kwargs = { max_turns = 4 }, num_steps = 3 }, {}]"
    assert load(STAGES, flag).env[0].curriculum == (
        StageConfig(kwargs={"max_turns": 4}, num_steps=3),
        StageConfig(),
    )


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        (STAGES + "num_steps = 9\n", "stage 2 of env.curriculum has num_steps = 9; the last stage"),
        (STAGES + "[[env.curriculum]]\n", "stage 2 of env.curriculum has no num_steps; only the"),
        (STAGES.replace("50", "0"), "'env.curriculum.0.num_steps' is 0: input should be greater"),
        (
            STAGES.replace("num_steps", "num_step"),
            "unknown key 'env.curriculum.0.num_step'; did you mean 'env.curriculum.0.num_steps'",
        ),
        (
            "[env.curriculum]\nnum_steps = 3\n",
            "'env.curriculum' is .*: input should be a valid tup",
        ),
    ],
)
def test_mistakes_are_named(load, stages, message):
    with pytest.raises(ConfigError) as caught:
        load(stages)
    assert re.search(message, str(caught.value)), caught.value
    assert "stages.toml: " in str(caught.value)
    assert "run.toml" not in str(caught.value)
