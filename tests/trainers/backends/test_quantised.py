"""Four-bit bases and eight-bit moments, by the kernels of bitsandbytes for CPUs."""

import pytest

pytest.importorskip("bitsandbytes", reason="the package bitsandbytes is not installed")

import torch
from backend_toys import add_adapter, base_of, sample_groups, training

from pettingllms_trainers.backends.hf.model import LoadedModel
from pettingllms_trainers.backends.hf.policy import TransformersPolicy
from pettingllms_trainers.backends.hf.tiny import build_tiny
from pettingllms_trainers.cli import main
from pettingllms_trainers.config import EngineConfig

NF4 = [f"--policies.{name}.lora.base-precision=nf4" for name in "tp"]
LORA = [f"--policies.{name}.lora.rank=4" for name in "tp"]
EIGHT = ["--optimizer.state-bits=8", "--every-policy.hidden-size=64"]


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """A tiny model that is sure of itself."""
    folder = tmp_path_factory.mktemp("base")
    return build_tiny(folder, hidden_size=64, num_layers=2, max_length=96, init_std=0.2, seed=1)


def adapter_of(base):
    return policy_of(add_adapter(base))


def policy_of(loaded, **optimizer):
    settings = training(learning_rate=2e-2, **optimizer)
    return TransformersPolicy(loaded, engine=EngineConfig(), training=settings)


def trained(policy):
    return {n: p.detach() for n, p in policy.loaded.model.named_parameters() if "lora_" in n}


def test_the_base_that_engines_get_is_the_one_that_learns(directory, tmp_path):
    """An ordinary model of the weights that are handed over samples and learns the same."""
    quantised = base_of(directory, is_quantised=True)
    own = {name: weight.clone() for name, weight in quantised.named_weights()}
    original = dict(base_of(directory).named_weights())
    different = {name for name in own if not torch.equal(own[name], original[name])}
    assert different == {name for name in own if "_proj" in name}
    quantised.bare().save(tmp_path)
    quantised.tokenizer.save_pretrained(tmp_path)
    handed = base_of(tmp_path)
    assert all(torch.equal(weight, own[name]) for name, weight in handed.named_weights())
    policies = adapter_of(quantised), adapter_of(handed)
    groups = sample_groups(policies[0])
    for policy in policies:
        assert policy.updater.score(groups)[0][0] == pytest.approx(
            groups[0].completions[0].logprobs, abs=1e-4
        )
        policy.updater.update(groups)
    learnt, expected = map(trained, policies)
    assert len(learnt) == 2 * 7 * 2
    for name, weight in learnt.items():
        torch.testing.assert_close(weight, expected[name], rtol=1e-3, atol=1e-4)
    assert all(torch.equal(weight, own[name]) for name, weight in quantised.named_weights())


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_weights_that_are_quantised_again_stay_as_they_are(directory, tmp_path, precision):
    first = base_of(directory, precision, is_quantised=True)
    first.bare().save(tmp_path)
    first.tokenizer.save_pretrained(tmp_path)
    second = base_of(tmp_path, precision, is_quantised=True)
    weights = dict(second.named_weights())
    assert all(torch.equal(weight, weights[name]) for name, weight in first.named_weights())


def test_a_merged_model_is_the_policy_that_was_trained(directory, tmp_path):
    policy = adapter_of(base_of(directory, is_quantised=True))
    policy.save_merged(tmp_path)
    merged = LoadedModel.from_pretrained(tmp_path, precision="float32", is_trained=False)
    ids = torch.arange(4, 24)[None]
    with torch.no_grad(), policy.loaded.active():
        expected = policy.loaded.model(ids).logits
        torch.testing.assert_close(merged.model(ids).logits, expected, rtol=1e-3, atol=1e-3)


def test_moments_have_eight_bits(directory):
    loaded = LoadedModel.from_pretrained(directory, precision="float32", is_trained=True)
    policy = policy_of(loaded, state_bits=8)
    policy.updater.update(sample_groups(policy))
    state = policy.updater.learner.optimizer._adamw.state
    size = sum(p.numel() for p in state if p.numel() >= 4096)
    taken = sum(
        state[p][key].nbytes for p in state for key in ("state1", "state2", "absmax1", "absmax2")
        if p.numel() >= 4096
    )  # fmt: skip
    assert taken == pytest.approx(2 * (1 + 4 / 256) * size, rel=1e-3)


def test_a_resumed_run_ends_bit_for_bit_alike(small_run_file, tmp_path, resumes):
    arguments = [str(small_run_file(2)), "--checkpoint.keep=9", *LORA, *NF4, *EIGHT]
    assert main([*arguments, "--output-dir", str(tmp_path / "run")]) == 0
    resumes(tmp_path / "run", arguments, 1)
