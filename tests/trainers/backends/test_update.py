"""What every updater promises (`Update`): each test runs for all that one process can make."""

import functools
from dataclasses import replace

import pytest
import torch
from backend_toys import (
    OLD_NAMES,
    TOKENIZER,
    base_of,
    engine_logprobs,
    flat,
    make_policy,
    sample_groups,
    shifted,
    training,
)
from transformers import AutoModelForCausalLM

from pettingllms.errors import InvalidArgument
from pettingllms_trainers.backends.fsdp import fsdp_learner
from pettingllms_trainers.backends.hf.learner import Together
from pettingllms_trainers.backends.hf.model import LoadedModel
from pettingllms_trainers.backends.hf.policy import TransformersPolicy
from pettingllms_trainers.backends.hf.weights import read_shares
from pettingllms_trainers.config import DeepSpeedConfig, EngineConfig
from pettingllms_trainers.config.sections import LoraConfig
from pettingllms_trainers.errors import CheckpointError, UpdateError
from pettingllms_trainers.learning.batch import weighted_groups
from pettingllms_trainers.types import Demonstration, Imitation

pytestmark = OLD_NAMES


def plain(directory, new_learner=None, device="cpu", **settings):
    learner = {} if new_learner is None else {"new_learner": new_learner}
    return TransformersPolicy(
        LoadedModel.from_pretrained(directory, precision="float32", is_trained=True, device=device),
        engine=EngineConfig(),
        training=training(**settings),
        **learner,
    )


def adapter(directory, **settings):
    loaded = LoadedModel.of_adapter(base_of(directory).add("tool", LoraConfig(rank=4), 0))
    return TransformersPolicy(loaded, engine=EngineConfig(), training=training(**settings))


def eight_bits(directory, **settings):
    pytest.importorskip("bitsandbytes", reason="the package bitsandbytes is not installed")
    return plain(directory, state_bits=8, **settings)


def deepspeed(directory, stage, offload="none", **settings):
    pytest.importorskip("deepspeed", reason="the package deepspeed is not installed")
    from pettingllms_trainers.backends.deepspeed import loading_shards, zero_learner

    config = DeepSpeedConfig(stage=stage, offload=offload)
    learner = functools.partial(zero_learner, deepspeed=config)
    if stage < 3:
        return plain(directory, learner, **settings)
    with loading_shards(training(**settings).optimizer, "float32", config):
        return plain(directory, learner, device=None, **settings)


UPDATERS = {
    "all weights": plain,
    "padded rows, checkpointed": functools.partial(
        plain, packing=False, gradient_checkpointing=True
    ),
    "adapter": adapter,
    "adapter, checkpointed": functools.partial(adapter, gradient_checkpointing=True),
    "eight bits": eight_bits,
    "fsdp": functools.partial(plain, new_learner=fsdp_learner),
    "deepspeed 1": functools.partial(deepspeed, stage=1),
    "deepspeed 2, offloaded": functools.partial(deepspeed, stage=2, offload="optimizer"),
    "deepspeed 3": functools.partial(deepspeed, stage=3),
}


@pytest.fixture(scope="module")
def source(model_directory):
    """A policy with the weights at the start, which samples for all."""
    return make_policy(AutoModelForCausalLM.from_pretrained(model_directory(0)))


@pytest.fixture(scope="module", autouse=True)
def one_process():
    """Take the group apart that shards make where a process is the only one."""
    yield
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


@pytest.fixture(params=UPDATERS)
def make(request, model_directory):
    return functools.partial(UPDATERS[request.param], model_directory(0))


@pytest.fixture
def trained(tmp_path):
    """A function from a policy to a copy of the weights that it trains."""

    def read(policy):
        folder = tmp_path / "trained"
        folder.mkdir(exist_ok=True)
        policy.updater.save_state(folder)
        return {name: weight.clone() for name, weight in read_shares(folder)["model"].items()}

    return read


def is_same(weights, others):
    assert weights.keys() == others.keys()
    return all(torch.equal(weight, others[name]) for name, weight in weights.items())


def test_the_first_ratio_is_one_and_good_completions_become_more_likely(make, source):
    policy, groups = make(num_epochs=2, completions_per_minibatch=9), sample_groups(source)
    before = flat(policy.updater.score(groups))
    assert (before - engine_logprobs(groups)).abs().max() < 1e-4
    stats = policy.updater.update(groups)
    after = flat(policy.updater.score(groups))
    advantages = flat([[[c.advantage] * len(c.token_ids) for c in g.completions] for g in groups])
    assert stats.first_ratio_error < 1e-3
    assert ((after - before) * advantages).sum() > 0
    assert stats.num_optimizer_steps == 4
    assert stats.num_groups == len(groups)
    assert stats.num_completions == sum(len(group.completions) for group in groups)
    assert stats.num_tokens == len(advantages)
    assert stats.entropy > 0
    assert stats.grad_norm > 0
    assert stats.update_kl > 0


def test_no_groups_are_a_skipped_update_and_the_schedule_goes_on(make, source, trained):
    policy = make(num_warmup_steps=4)
    before = trained(policy)
    stats = policy.updater.update([])
    assert stats.num_groups == 0
    assert stats.skipped
    assert is_same(before, trained(policy))
    assert policy.updater.update(sample_groups(source)).learning_rate == pytest.approx(0.5e-2)


def test_an_update_is_that_of_the_plain_way(request, make, source, model_directory):
    kind = request.node.callspec.params["make"]
    if kind == "eight bits":
        pytest.skip("it learns otherwise")
    options = {"weight_decay": 0.1, "max_grad_norm": 0.5, "learning_rate": 1e-3}
    groups = sample_groups(source)
    reference = adapter if "adapter" in kind else plain
    policies = make(**options), reference(model_directory(0), **options)
    one, other = ([each.updater.update(groups) for _ in range(2)] for each in policies)
    assert [stats.grad_norm for stats in one] == pytest.approx(
        [stats.grad_norm for stats in other], rel=1e-2
    )
    scores = [flat(each.updater.score(groups)) for each in policies]
    torch.testing.assert_close(*scores, rtol=1e-3, atol=1e-3)


def test_a_gradient_that_is_not_finite_changes_nothing(make, source, trained):
    """The loss is finite, so that only the gradient's norm tells."""
    policy, again = make(), make()
    before, groups = trained(policy), weighted_groups(sample_groups(source), "token_mean", 12)
    learner = policy.updater.learner
    with policy.loaded.active(), pytest.raises(UpdateError, match=r"gradient is .*not changed"):
        Together([learner]).step(
            [groups], [lambda found, _: (found.logprobs.sum() * 0).sqrt()], [1e-2]
        )
    assert is_same(before, trained(policy))
    for each in (policy, again):
        each.updater.update(sample_groups(source))
    assert is_same(trained(policy), trained(again)), "nor is anything left of it"


def test_what_cannot_be_learnt_from_changes_nothing(make, source, trained):
    policy, groups = make(max_logprob_gap=1.0), sample_groups(source)
    before = trained(policy)
    with pytest.raises(InvalidArgument, match="temperature"):
        policy.updater.update([replace(groups[0], temperature=0.0)])
    with pytest.raises(UpdateError, match=r"1\.5 nats.*engine\.max_logprob_gap"):
        policy.updater.update(shifted(groups, -1.5))
    assert is_same(before, trained(policy))
    assert policy.updater.update(groups).num_groups == len(groups)
    assert not is_same(before, trained(policy))


def test_a_resumed_policy_goes_on_bit_for_bit(make, source, trained, tmp_path):
    """Also with a reference that moves and coefficients that follow measurements."""
    loss = {"kl_coefficient": 0.1, "kl_target": 0.01, "reference_every": 2, "reference_mix": 0.5}
    options = {"loss": loss, "completions_per_minibatch": 6, "final_fraction": 0.1}
    groups = [sample_groups(source, seed=seed) for seed in range(4)]
    straight, again = make(**options), make(**options)
    first, second = (straight.updater.update(group) for group in groups[:2])
    assert first.kl < second.kl
    straight.updater.save_state(tmp_path)
    again.updater.load_state(tmp_path)
    ends = [[each.updater.update(g) for g in groups[2:]] for each in (straight, again)]
    assert ends[0] == ends[1]
    assert is_same(trained(straight), trained(again))


def test_only_the_weights_can_be_taken_over(make, source, trained, tmp_path):
    one, other = make(), make()
    one.updater.update(sample_groups(source))
    one.updater.save_state(tmp_path)
    other.updater.load_weights(tmp_path)
    assert is_same(trained(one), trained(other))


def test_a_state_of_another_model_is_refused_and_changes_nothing(make, trained, tmp_path):
    policy = make()
    before = trained(policy)
    make_policy("llama").updater.save_state(tmp_path)
    with pytest.raises(CheckpointError):
        policy.updater.load_state(tmp_path)
    assert is_same(before, trained(policy))


def test_a_saved_policy_is_loaded_and_says_the_same(make, source, tmp_path):
    policy, groups = make(), sample_groups(source)
    policy.updater.update(groups)
    policy.updater.save_pretrained(tmp_path)
    loaded = TransformersPolicy.from_pretrained(
        tmp_path, engine=EngineConfig(), training=training()
    )
    expected, found = (flat(each.updater.score(groups)) for each in (policy, loaded))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-4)
    assert loaded.chat.encode([{"role": "user", "content": "hi"}])


def test_demonstrations_are_imitated_and_the_optimizer_begins_anew(make, source, trained):
    policy, again = make(), make()
    answer = tuple(TOKENIZER.convert_tokens_to_ids(["a", "b"]))
    imitation = Imitation(num_steps=8, batch_size=2, learning_rate=1e-2, seed=0)
    data = [Demonstration((5, 6, 7), answer), Demonstration((8, 9), answer)]
    steps = [list(each.updater.imitate(data, imitation)) for each in (policy, again)]
    assert steps[0] == steps[1]
    assert [step.step for step in steps[0]] == list(range(8))
    assert steps[0][-1].loss < steps[0][0].loss / 2
    assert is_same(trained(policy), trained(again))
