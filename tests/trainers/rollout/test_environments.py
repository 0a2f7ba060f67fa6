"""Training and evaluation never share levels, and every decision is a whole prompt."""

import pytest

from pettingllms_trainers.config.loading import load_config
from pettingllms_trainers.errors import ConfigError
from pettingllms_trainers.rollout.environments import held_out_kwargs, make_environments


@pytest.fixture
def load(repository):
    return lambda *flags: load_config(repository / "trainers/configs/default.toml", list(flags))


def test_other_arguments_of_the_evaluation_leave_it_on_the_test_split(load):
    config = load("--evaluation.kwargs.max_turns", "8")
    assert held_out_kwargs(config)["split"] == "test"
    env, held_out = make_environments(config)
    assert (env.max_turns, held_out.max_turns) == (6, 8)


def test_a_named_split_is_taken(load):
    config = load("--evaluation.kwargs.split", "validation")
    assert held_out_kwargs(config)["split"] == "validation"


@pytest.mark.parametrize(
    "flags",
    [("--env.kwargs.split", "test"), ("--evaluation.kwargs.split", "train")],
)
def test_one_split_for_both_is_refused(load, flags):
    with pytest.raises(ConfigError, match="training and evaluation both use split"):
        make_environments(load(*flags))


def test_observations_without_their_chat_are_refused(load):
    with pytest.raises(ConfigError, match="observation_mode"):
        make_environments(load("--env.kwargs.observation_mode", "delta"))
