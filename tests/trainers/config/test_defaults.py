"""Defaults that follow what is trained: chosen once, visible in the configuration of a run."""

import pytest
from run_toys import config_of

from pettingllms_trainers.config import config_hash
from pettingllms_trainers.config.loading import dump_config, load_config
from pettingllms_trainers.config.root import learning_rates, warm_start_rates

TINY = {"model": "tiny"}
FULL = {"model": "some/model"}
ADAPTER = {"model": "some/model", "lora": {"rank": 8}}


@pytest.mark.parametrize(
    ("policy", "rate", "warm_start", "completion", "microbatch", "kwargs"),
    [
        (TINY, 1e-3, 3e-3, 64, 16384, {}),
        ({**TINY, "lora": {"rank": 2}}, 1e-3, 3e-3, 64, 16384, {}),
        (ADAPTER, 1e-5, 2e-4, 512, 0, {"enable_thinking": False}),
        (FULL, 1e-6, 1e-5, 512, 0, {"enable_thinking": False}),
        (
            {**FULL, "chat_template_kwargs": {"enable_thinking": True}},
            1e-6, 1e-5, 4096, 0, {"enable_thinking": True},
        ),
        ({**FULL, "chat_template_kwargs": {}}, 1e-6, 1e-5, 512, 0, {}),
    ],
)  # fmt: skip
def test_they_follow_what_is_trained(policy, rate, warm_start, completion, microbatch, kwargs):
    config = config_of(policy)
    assert config.optimizer.learning_rate == rate
    assert warm_start_rates(config) == {"p": warm_start}
    assert config.warm_start.learning_rate == 0, "there is none"
    assert config.rollout.max_completion_tokens == completion
    assert config.optimizer.tokens_per_microbatch == microbatch
    assert config.policies["p"].chat_template_kwargs == kwargs


def test_what_is_given_counts():
    config = config_of(
        ADAPTER,
        optimizer={"learning_rate": 0.1, "tokens_per_microbatch": 7},
        warm_start={"learning_rate": 0.2},
        rollout={"max_completion_tokens": 2000},
    )
    assert learning_rates(config) == {"p": 0.1}
    assert warm_start_rates(config) == {"p": 0.2}
    assert config.optimizer.tokens_per_microbatch == 7
    assert config.policies["p"].chat_template_kwargs == {}, "there is room to think"
    short = {"max_completion_tokens": 2000, "per_role": {"echo": {"max_completion_tokens": 99}}}
    two = config_of(FULL, FULL, rollout=short)
    assert two.policies["p"].chat_template_kwargs == {}
    assert two.policies["q"].chat_template_kwargs == {"enable_thinking": False}
    several = config_of(
        FULL,
        FULL,
        env=[{"id": "toy_echo_v0", "name": name} for name in "ab"],
        roles={"a.echo": "q", "b.echo": "p", "caller": "p"},
        rollout=short,
    )
    assert several.policies["q"].chat_template_kwargs == {"enable_thinking": False}


def test_policies_of_several_kinds_have_a_rate_each():
    config = config_of(ADAPTER, FULL)
    assert config.optimizer.learning_rate == 0
    assert learning_rates(config) == {"p": 1e-5, "q": 1e-6}
    assert warm_start_rates(config) == {"p": 2e-4, "q": 1e-5}
    frozen = config_of(ADAPTER, {**FULL, "frozen": True})
    assert frozen.optimizer.learning_rate == 1e-5
    assert config_hash(config) != config_hash(frozen)


@pytest.mark.parametrize("policies", [(TINY,), (ADAPTER,), (ADAPTER, FULL)])
def test_a_run_writes_what_was_chosen_and_reads_it_back(policies, tmp_path):
    config = config_of(*policies)
    path = tmp_path / "config.toml"
    path.write_text(dump_config(config))
    again = load_config(path)
    assert again == config
    assert config_hash(again) == config_hash(config)
    if len(policies) == 1:
        assert f"learning_rate = {config.optimizer.learning_rate}" in path.read_text()
