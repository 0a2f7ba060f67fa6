"""LoRA adapters of several policies on one base: what is shared, what learns, what is saved."""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import backend_toys as toys
import peft
import pytest
import torch
from transformers import AutoModelForCausalLM

from pettingllms.errors import InvalidArgument
from pettingllms_trainers.backends.hf.adapters import load_model
from pettingllms_trainers.backends.hf.model import LoadedModel
from pettingllms_trainers.backends.hf.policy import TransformersPolicy
from pettingllms_trainers.backends.hf.tiny import build_tiny
from pettingllms_trainers.config import EngineConfig
from pettingllms_trainers.config.sections import LoraConfig
from pettingllms_trainers.types import Demonstration, Imitation

DEMONSTRATIONS = [Demonstration((5, 6, 7), (8, 2))]
IMITATION = Imitation(num_steps=3, batch_size=1, learning_rate=1e-2, seed=0)


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """A tiny model that is sure of itself."""
    return build_tiny(
        tmp_path_factory.mktemp("base"),
        hidden_size=32,
        num_layers=2,
        max_length=96,
        init_std=0.2,
        seed=1,
    )


@pytest.fixture
def base(directory):
    return toys.base_of(directory)


def settings(*, engine=None, frozen=False, **options):
    learning = None if frozen else toys.training(**{"learning_rate": 2e-2} | options)
    return {"engine": EngineConfig(**(engine or {})), "training": learning}


def add(base, name="tool", seed=0, lora=None, **options):
    return TransformersPolicy(toys.add_adapter(base, name, seed, lora), **settings(**options))


def requests(count=4, seed=0):
    return toys.make_requests(count, seed=seed, candidates=(3,), max_completion_tokens=8)


def sample(policy, seed=0):
    wanted = requests(seed=seed)
    return toys.groups_of(wanted, policy.engine.generate_now(wanted), ("tool",), seed)


def snapshot(base):
    return {name: p.detach().clone() for name, p in base.model.named_parameters()}


def changed(base, before):
    return {n for n, p in base.model.named_parameters() if not torch.equal(p, before[n])}


def logits(model):
    with torch.no_grad():
        return model(torch.arange(4, 24)[None]).logits


def test_policies_share_the_base_and_only_the_one_that_learns_changes(base):
    tool, planner = add(base), add(base, "planner", seed=1)
    assert tool.loaded.model is planner.loaded.model
    before = snapshot(base)
    tool.updater.update(sample(tool))
    moved = changed(base, before)
    assert moved
    assert all(".policy-tool." in name for name in moved)
    assert {name.rpartition(".lora_")[2][0] for name in moved} == {"A", "B"}
    before = snapshot(base)
    list(planner.updater.imitate(DEMONSTRATIONS, IMITATION))
    assert all(".policy-planner." in name for name in changed(base, before))
    assert changed(base, before)


@pytest.mark.parametrize(("attention", "packing"), [("shared_prefix", True), ("expanded", False)])
def test_every_policy_computes_with_its_own_adapter(base, attention, packing):
    options = {"engine": {"attention": attention}, "packing": packing}
    policies = [add(base, name, seed, **options) for seed, name in enumerate(("a", "b", "c.d"))]
    groups = [sample(policy) for policy in policies]
    for policy, own in zip(policies, groups, strict=True):
        gaps = [
            (toys.flat(policy.updater.score(g)) - toys.engine_logprobs(g)).abs().max()
            for g in groups
        ]
        assert gaps[policies.index(policy)] < 1e-4
        assert sorted(gaps)[1] > 0.1, "another adapter would be noticed"
        assert policy.updater.update(own).first_ratio_error < 1e-4


@pytest.mark.parametrize(
    "optimizer",
    [
        {},
        {"packing": False, "gradient_checkpointing": True},
        {"completions_per_minibatch": 4, "shuffle": True, "max_grad_norm": 0.05},
    ],
)
def test_adapters_that_learn_in_one_pass_learn_what_they_learn_alone(directory, optimizer):
    """Groups of several adapters share micro-batches; one has more steps, and one no groups."""
    names, counts = ("a", "b", "c", "idle"), (4, 7, 3, 0)
    options = {"loss": {"kl_coefficient": 0.1}, "learning_rate": 1e-3} | optimizer
    ends, stats = [], []
    for is_mixed in (True, False):
        base = toys.base_of(directory)
        policies = [
            add(base, name, seed, lora={"rank": 2 + seed}, **options)
            for seed, name in enumerate(names)
        ]
        found = []
        for step in range(2):
            groups = [
                sample(p, seed=step)[:n] * (n > 0) for p, n in zip(policies, counts, strict=True)
            ]
            updates = [(p.updater, g) for p, g in zip(policies, groups, strict=True)]
            parts = [updates] if is_mixed else [[one] for one in updates]
            found += [s for part in parts for s in updates[0][0].update_together(part)]
        ends.append(snapshot(base))
        stats.append(found)
    for name, weight in ends[0].items():
        torch.testing.assert_close(weight, ends[1][name], rtol=0, atol=1e-6)
    for mixed, alone in zip(*stats, strict=True):
        assert mixed.grad_norm == pytest.approx(alone.grad_norm, rel=1e-4)
        assert (mixed.num_optimizer_steps, mixed.num_tokens) == (
            alone.num_optimizer_steps, alone.num_tokens,
        )  # fmt: skip


@pytest.mark.parametrize("attention", ["shared_prefix", "expanded"])
def test_a_batch_has_rows_of_several_adapters(base, attention):
    options = {"engine": {"attention": attention, "tokens_per_batch": 150}}
    policies = [add(base, name, seed, **options) for seed, name in enumerate(("a", "b"))]
    bare = TransformersPolicy(
        LoadedModel.of_adapter(base.bare()), **settings(frozen=True, **options)
    )
    wanted = requests(9)
    mixed = [
        replace(one, adapter=policy.loaded.adapter.name or "")
        for one in wanted
        for policy in (*policies, bare)
    ]
    found = policies[0].engine.generate_now(mixed)
    for index, policy in enumerate((*policies, bare)):
        expected = policy.engine.generate_now(wanted)
        assert toys.token_ids(found[index::3]) == toys.token_ids(expected)
    assert toys.token_ids(found[0::3]) != toys.token_ids(found[2::3])


def test_a_frozen_policy_plays_as_the_bare_base(base, directory):
    own = TransformersPolicy.from_pretrained(directory, engine=EngineConfig())
    expected = own.engine.generate_now(requests())
    tool = add(base)
    bare = TransformersPolicy(LoadedModel.of_adapter(base.bare()), **settings(frozen=True))
    assert bare.engine.generate_now(requests()) == expected
    assert tool.engine.generate_now(requests()) != expected
    tool.updater.update(sample(tool))
    assert bare.engine.generate_now(requests()) == expected
    assert torch.equal(logits(base.model), logits(own.loaded.model)), "nothing is active outside"
    assert bare.updater is None


def test_a_new_adapter_changes_nothing_and_its_seed_decides_it(base):
    before = logits(base.model)
    state = torch.get_rng_state()
    adapters = [base.add(str(n), LoraConfig(rank=4), seed) for n, seed in enumerate((3, 3, 4))]
    assert torch.equal(state, torch.get_rng_state())
    for adapter in adapters:
        with adapter.active():
            assert torch.equal(logits(base.model), before)
    parts = [
        torch.cat([p.flatten() for n, p in base.model.named_parameters() if f"A.{a.name}." in n])
        for a in adapters
    ]
    assert torch.equal(parts[0], parts[1])
    assert not torch.equal(parts[0], parts[2])


def test_the_former_adapter_is_active_again_after_an_error(base):
    tool, planner = add(base), add(base, "planner", seed=1)
    with tool.loaded.adapter.active():
        expected = logits(base.model)
        with pytest.raises(ZeroDivisionError), planner.loaded.adapter.active():
            raise ZeroDivisionError
        assert torch.equal(logits(base.model), expected)


def test_threads_take_turns(base):
    """Environments in threads: engines of two policies are asked at the same time."""
    policies = [add(base, name, seed) for seed, name in enumerate(("a", "b"))]
    expected = [policy.engine.generate_now(requests(8)) for policy in policies]

    def play(policy):
        return [policy.engine.generate_now(requests(8)) for _ in range(3)]

    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(play, policies)) == [[one] * 3 for one in expected]


@pytest.mark.parametrize("is_trained_before", [False, True])
def test_the_reference_is_the_policy_at_the_start_of_training(base, is_trained_before):
    """Not the bare base: a warm start, or an adapter that is trained further, is where KL is 0."""
    policy = add(base, loss={"kl_coefficient": 0.1})
    if is_trained_before:
        list(policy.updater.imitate(DEMONSTRATIONS, IMITATION))
    assert policy.updater.update(sample(policy)).kl == pytest.approx(0, abs=1e-6)
    assert policy.updater.update(sample(policy, seed=1)).kl > 1e-4


def test_a_bfloat16_base_has_float32_adapters(directory):
    base = toys.base_of(directory, "bfloat16")
    policy = add(base, engine={"precision": "bfloat16"})
    before, computed = snapshot(base), set()
    for module in base.model.modules():
        if isinstance(module, peft.tuners.lora.LoraLayer):
            module.register_forward_hook(
                lambda _, inputs, output: computed.update({inputs[0].dtype, output.dtype})
            )
    stats = policy.updater.update(sample(policy))
    assert computed == {torch.bfloat16}, "nothing is copied into float32 on its way"
    assert stats.first_ratio_error < 0.5
    kinds = {("lora_" in name, p.dtype) for name, p in base.model.named_parameters()}
    assert kinds == {(True, torch.float32), (False, torch.bfloat16)}
    assert all(".policy-tool." in name for name in changed(base, before))


def test_a_state_is_the_adapter(base, tmp_path):
    policy = add(base, loss={"kl_coefficient": 0.1})
    policy.updater.update(sample(policy))
    policy.updater.save_state(tmp_path)
    stored = torch.load(tmp_path / "state.pt", weights_only=True)
    assert all("lora_" in name for name in stored["model"])
    assert set(stored["reference"]) == set(stored["model"])


def test_a_saved_adapter_is_loaded_by_peft_and_trained_further(base, directory, tmp_path):
    add(base, "planner", seed=5)
    policy = add(base, lora={"targets": ("q_proj", "down_proj")})
    policy.save_pretrained(tmp_path)
    with policy.loaded.adapter.active():
        expected = logits(base.model)
    assert not torch.allclose(expected, logits(base.model), atol=0.1)
    loaded = peft.AutoPeftModelForCausalLM.from_pretrained(tmp_path)
    torch.testing.assert_close(logits(loaded), expected, rtol=0, atol=1e-5)
    plain = AutoModelForCausalLM.from_pretrained(directory)
    torch.testing.assert_close(
        logits(peft.PeftModel.from_pretrained(plain, tmp_path)), expected, rtol=0, atol=1e-5
    )
    again = TransformersPolicy.from_pretrained(tmp_path, **settings(loss={"kl_coefficient": 0.1}))
    assert again.engine.generate_now(requests()) == policy.engine.generate_now(requests())
    with pytest.raises(InvalidArgument, match="it is an adapter"):
        load_model(tmp_path, torch.float32, "cpu")
    stats = again.updater.update(sample(again))
    assert (stats.first_ratio_error < 1e-4, stats.kl) == (True, pytest.approx(0, abs=1e-6))
    assert not (tmp_path / "base").exists()


def test_a_base_that_nobody_else_has_is_saved_with_the_adapter(directory, tmp_path):
    base = toys.base_of(directory, is_stored=False)
    policy = add(base)
    policy.save_pretrained(tmp_path / "first")
    loaded = peft.AutoPeftModelForCausalLM.from_pretrained(tmp_path / "first")
    with policy.loaded.adapter.active():
        torch.testing.assert_close(logits(loaded), logits(base.model), rtol=0, atol=1e-5)
    (tmp_path / "first").rename(tmp_path / "moved")
    again = TransformersPolicy.from_pretrained(tmp_path / "moved", **settings())
    assert again.engine.generate_now(requests()) == policy.engine.generate_now(requests())


def test_an_adapter_may_have_its_own_chat_template(base, tmp_path):
    policy = add(base)
    policy.save_pretrained(tmp_path)
    (tmp_path / "chat_template.jinja").write_text("{{ messages[0]['content'] }}!")
    own = TransformersPolicy.from_pretrained(tmp_path, engine=EngineConfig())
    messages = [{"role": "user", "content": "hi"}]
    assert own.loaded.tokenizer.decode(own.chat.encode(messages)) == "hi!"
    assert policy.chat.encode(messages) != own.chat.encode(messages)


@pytest.mark.parametrize(
    "targets", [("lm_head",), ("embed_tokens",), ("q_proj", "nothing"), ("mlp.q_proj",), ()]
)
def test_targets_that_engines_cannot_have_are_refused(base, targets):
    with pytest.raises(InvalidArgument, match=r"lora\.targets.*linear layers.*q_proj"):
        base.add("tool", LoraConfig(rank=4, targets=targets), 0)


def test_adapters_that_cannot_be_read_are_refused(base, tmp_path):
    policy = add(base)
    policy.save_pretrained(tmp_path)
    config = tmp_path / "adapter_config.json"
    text = config.read_text()
    for name, special in (
        ("use_dora", {"use_dora": True}),
        ("bias", {"bias": "all"}),
        ("init_lora_weights", {"init_lora_weights": "pissa"}),
        ("a pattern", {"target_modules": "q_.*"}),
        ("rank_pattern", {"rank_pattern": {"q_proj": 2}}),
    ):
        config.write_text(json.dumps(json.loads(text) | special))
        with pytest.raises(InvalidArgument, match=name):
            base.read("other", tmp_path)
    config.write_text('{"peft_type": "IA3", "task_type": "CAUSAL_LM"}')
    with pytest.raises(InvalidArgument, match="not LORA"):
        base.read("other", tmp_path)
    config.write_text(text.replace(f'"r": {4}', '"r": 2'))
    with pytest.raises(InvalidArgument, match="do not fit"):
        base.read("other", tmp_path)
    config.write_text(text)
    (tmp_path / "adapter_model.safetensors").write_bytes(b"damaged")
    with pytest.raises(InvalidArgument, match=r"adapter_model\.safetensors"):
        base.read("other", tmp_path)
    config.write_text("{")
    with pytest.raises(InvalidArgument, match="JSON"):
        base.read("other", tmp_path)
