"""Plans of runs: counts are exact, memory adds up, and what is shown is what will happen."""

import contextlib
import io
import json
import re
from collections import Counter

import huggingface_hub.constants
import peft
import pytest
import run_toys
import torch
from rich.console import Console
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from pettingllms.errors import InvalidArgument
from pettingllms_trainers.algorithms.grpo import Grpo
from pettingllms_trainers.backends.build import memory_advice
from pettingllms_trainers.backends.device import for_device
from pettingllms_trainers.backends.hf.adapters import AdapterBase
from pettingllms_trainers.backends.hf.attention import flat_forward, use_layouts
from pettingllms_trainers.backends.hf.layouts import PackedLayout
from pettingllms_trainers.backends.hf.learner import arithmetic
from pettingllms_trainers.backends.hf.shapes import (
    MicroBatchSize,
    activation_bytes,
    counted,
    shape_of,
)
from pettingllms_trainers.backends.hf.tiny import build_tiny
from pettingllms_trainers.cli import main
from pettingllms_trainers.config import Config, PolicyConfig
from pettingllms_trainers.config.sections import LoraConfig
from pettingllms_trainers.errors import ConfigError
from pettingllms_trainers.plan import make_plan
from pettingllms_trainers.plan.memory import plan_memory
from pettingllms_trainers.plan.view import plan_view, warnings_of
from pettingllms_trainers.ranks import Ranks
from pettingllms_trainers.rollout.environments import make_environments
from pettingllms_trainers.runs.prompts import RolePrompt, lengths_of, prompt_problems
from pettingllms_trainers.types import Lengths

GIB = 1 << 30
SIZES = {"hidden_size": 64, "num_layers": 2, "num_heads": 2, "max_length": 128}


def config_of(policy=None, **sections):
    return run_toys.config_of(policy or {"model": "Qwen/Qwen3-8B"}, **sections)


def plan_of(config, **devices):
    return make_plan(config, make_environments(config), **{"num_gpus": 1, "gpu_gib": 80} | devices)


@pytest.mark.parametrize(
    ("model", "number"),
    [
        ("Qwen/Qwen3-0.6B", 596_049_920),
        ("Qwen/Qwen3-8B", 8_190_735_360),
        ("Qwen/Qwen3-32B", 32_762_123_264),
    ],
)
def test_published_models_have_as_many_weights_as_their_files(model, number):
    shape = shape_of("p", PolicyConfig(model=model))
    assert shape.num_parameters == shape.num_trained == number
    assert shape.source in ("published sizes, no config.json here", "config.json in the cache")


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "tiny"
    return build_tiny(path, hidden_size=64, num_layers=2, num_heads=2, max_length=128)


def test_counts_are_those_of_the_real_model_and_adapter(directory):
    model = AutoModelForCausalLM.from_pretrained(directory)
    number = sum(p.numel() for p in model.parameters())
    for policy in (PolicyConfig(model=str(directory)), PolicyConfig(model="tiny", **SIZES)):
        assert shape_of("p", policy).num_parameters == number
    adapted = peft.get_peft_model(model, peft.LoraConfig(r=4, target_modules="all-linear"))
    shape = shape_of("p", PolicyConfig(model=str(directory), lora={"rank": 4}))
    assert shape.num_trained == sum(p.numel() for p in adapted.parameters() if p.requires_grad)
    assert shape.num_parameters == number
    few = PolicyConfig(model=str(directory), lora={"rank": 4, "targets": ["q_proj"]})
    assert 0 < shape_of("p", few).num_trained < shape.num_trained


@pytest.mark.parametrize(
    ("family", "sizes", "context"),
    [
        ("opt", {"ffn_dim": 96, "word_embed_proj_dim": 64}, 128),
        ("gpt2", {}, 128),
        ("bloom", {}, None),
        ("qwen3", {"intermediate_size": 96, "head_dim": 16, "num_key_value_heads": 4}, 128),
    ],
)
def test_families_that_call_their_sizes_by_other_names_are_planned(
    tmp_path, family, sizes, context
):
    named = {"vocab_size": 32, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    positions = {} if context is None else {"max_position_embeddings": context}
    config = AutoConfig.for_model(family, **named, **positions, **sizes)
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    shape = shape_of("p", PolicyConfig(model=str(tmp_path)))
    inner = 96 if sizes else 4 * 64
    gates = family == "qwen3"  # the others project up and down
    matrices = 2 * (4 * 64 * 64 + (2 + gates) * 64 * inner) + 32 * 64
    assert (shape.intermediate_size, shape.context_length) == (inner, context)
    assert shape.num_matrix_parameters == matrices
    (prompt, _) = lengths_of(
        config_of({"model": str(tmp_path)}), {"p": shape}, {"echo": RolePrompt(200, True)}
    )["p"]
    assert prompt == (max(128 - 512, 1) if context else 200 + 512)


@pytest.mark.parametrize("targets", [("lm_head",), ("q_proj", "embed_tokens"), ("down",)])
def test_a_dry_run_refuses_the_targets_of_adapters_that_a_start_refuses(directory, targets):
    policy = PolicyConfig(model=str(directory), lora={"rank": 4, "targets": targets})
    with pytest.raises(ConfigError, match=r"\[policies.p\]: .*linear layers of the model: down_pr"):
        shape_of("p", policy)
    base = AdapterBase.from_pretrained(str(directory), precision="float32", device="cpu")
    with pytest.raises(InvalidArgument, match="linear layers of the model: down_proj"):
        base.add("p", policy.lora, 0)


def test_an_unknown_model_is_a_clear_error(monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ConfigError, match=r"\[policies.p\] model = 'no/such'.*known: Qwen/Qwen3"):
        shape_of("p", PolicyConfig(model="no/such"))


def kept_bytes(family, kind, num_layers):
    """What layers keep for the backward pass, of 192 tokens, without weights."""
    with torch.random.fork_rng():
        model = _model(family, num_layers, kind)
    use_layouts(model)
    active = contextlib.nullcontext()
    if kind.endswith("adapter"):
        adapter = AdapterBase(model, None, None).add("policy", LoraConfig(rank=2), 0)
        adapter.train()
        active = adapter.active()
    own = {p.untyped_storage().data_ptr() for p in model.parameters()}
    weights = {tuple(p.shape) for p in model.parameters() if p.ndim == 2}
    weights |= {shape[::-1] for shape in weights}
    found, alive = {}, []

    def keep(tensor):
        storage = tensor.untyped_storage()
        is_copy_of_weight = tensor.dtype == torch.bfloat16 and tuple(tensor.shape) in weights
        if storage.data_ptr() not in own and not is_copy_of_weight:
            found[storage.data_ptr()] = storage.nbytes()
        alive.append(tensor)
        return tensor

    layout = PackedLayout([96], [48, 48], [0, 0], torch.device("cpu"))
    positions = torch.cat([torch.arange(96), torch.arange(96, 144), torch.arange(96, 144)])
    with (
        active,
        torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor),
        arithmetic(model, "float32" if kind.startswith("float32") else "bfloat16"),
    ):
        flat_forward(
            model, torch.zeros(192, dtype=torch.long), positions, layout, torch.tensor([9])
        )
    return sum(found.values())


def _model(family, num_layers, kind) -> PreTrainedModel:
    config = AutoConfig.for_model(
        family,
        vocab_size=32,
        hidden_size=64,
        intermediate_size=256,
        num_hidden_layers=num_layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
    )
    model = AutoModelForCausalLM.from_config(config).train()
    return model.bfloat16() if kind in ("bfloat16 weights", "bfloat16 adapter") else model


@pytest.mark.parametrize("family", ["qwen3", "llama"])
@pytest.mark.parametrize(
    "kind", ["float32", "float32 adapter", "bfloat16", "bfloat16 weights", "bfloat16 adapter"]
)
def test_what_a_layer_keeps_is_counted(family, kind):
    """Every tensor that is kept for the backward pass, with norms of queries and keys and without.

    Prompts are a half of the tokens, and completions have a copy of their keys.
    """
    measured = kept_bytes(family, kind, 3) - kept_bytes(family, kind, 2)
    shape = counted(_model(family, 2, "float32").config, "")

    def estimate(num_layers):
        size = MicroBatchSize(192, 0, 1, 2)
        layers = shape._replace(num_layers=num_layers, vocab_size=0)
        config = config_of(optimizer={"packed_attention": "padded"})
        return activation_bytes(config, layers, Lengths(96, 48), size, kind)

    assert estimate(3) - estimate(2) == pytest.approx(measured, rel=0.08)


def memory_of(config, num_ranks=1, gpu_gib=80, **numbers):
    shapes = {name: shape_of(name, policy) for name, policy in config.models.items()}
    lengths = dict.fromkeys(shapes, Lengths(4096, 4096))
    return plan_memory(
        config, shapes, lengths, num_ranks=num_ranks, gpu_bytes=gpu_gib * GIB, **numbers
    )


P = 8_190_735_360


@pytest.mark.parametrize(
    ("deepspeed", "precision", "weights", "gradients", "optimizer", "cpu"),
    [
        ({}, "float32", 4 * P, 4 * P, 8 * P, 0),
        ({}, "bfloat16", 4 * P, 4 * P, 8 * P, 0),
        ({"stage": 1}, "bfloat16", 2 * P, 6 * P, 12 * P // 8, 0),
        ({"stage": 2}, "bfloat16", 2 * P, 4 * P // 8, 12 * P // 8, 0),
        ({"stage": 3}, "bfloat16", 2 * P // 8, 0, 16 * P // 8, 0),
        ({"stage": 3}, "float32", 4 * P // 8, 0, 16 * P // 8, 0),
        ({"stage": 2, "offload": "optimizer"}, "bfloat16", 2 * P, 0, 0, 2 * P),
        ({"stage": 3, "offload": "all"}, "bfloat16", 0, 0, 0, 2 * P + P // 4),
    ],
)
def test_what_is_shared_out(deepspeed, precision, weights, gradients, optimizer, cpu):
    config = config_of(deepspeed=deepspeed, engine={"precision": precision})
    memory = memory_of(config, num_ranks=8)
    own = memory.policies["p"]
    assert (own.weights, own.gradients, own.optimizer) == (weights, gradients, optimizer)
    assert own.cpu == pytest.approx(cpu, abs=8)
    assert memory.cpu == 8 * (own.cpu + 4 * P)
    assert memory.updating.total > own.weights + own.gradients + own.optimizer + own.activations


def test_fsdp_divides_all_but_what_it_puts_together():
    """By hand: embedding, head and two layers in bfloat16, and their gradients in float32."""
    engine = {"kind": "vllm", "precision": "bfloat16"}
    optimizer = {"gradient_checkpointing": True}
    whole, fsdp, zero = (
        memory_of(config_of(engine=engine, optimizer=optimizer, **keys), num_ranks=8).policies["p"]
        for keys in ({}, {"fsdp": {"enabled": True}}, {"deepspeed": {"stage": 3}})
    )
    for name in ("weights", "gradients", "optimizer"):
        assert getattr(fsdp, name) == getattr(whole, name) // 8
    layers = 36 * (4096 * (2 * 4096 + 2 * 1024) + 3 * 4096 * 12288)
    together = 6 * (P - layers + 2 * layers // 36)
    assert fsdp.activations - together == zero.activations


def two_of(**policy):
    """Sections of a run with a policy for each role, of one model."""
    policies = {name: {"model": "Qwen/Qwen3-8B", **policy} for name in "ab"}
    return {"policies": policies, "roles": {"caller": "a", "echo": "b"}}


@pytest.mark.parametrize("precision", [{}, {"base_precision": "nf4"}])
def test_adapters_share_one_base_that_may_have_four_bits(precision):
    """By hand: embedding and head stay in bfloat16, all other matrices take 4.5 bits."""
    lora = {"rank": 8, **precision}
    engine = {"kind": "vllm", "precision": "bfloat16"}
    found = memory_of(config_of(engine=engine, **two_of(lora=lora)))
    shape = shape_of("a", PolicyConfig(model="Qwen/Qwen3-8B", lora=lora))
    matrices = 36 * (4096 * (2 * 4096 + 2 * 1024) + 3 * 4096 * 12288)
    base = matrices * 4.5 / 8 + 2 * (P - matrices) if precision else 2 * P
    adapter = 4 * shape.num_trained
    assert found.policies["a"].weights == round(base) + adapter
    assert found.policies["b"].weights == adapter, "the base is there once"


@pytest.mark.parametrize(
    ("roles", "optimizer", "gradients"),
    [
        ("ab", {}, (1, 1)),  # in the same passes
        ("aab", {"role_gradients": True}, (2, 1)),  # one after another, two roles of the first
    ],
)
def test_adapters_of_a_base_have_the_gradients_that_are_there_at_once(roles, optimizer, gradients):
    large = {"tokens_per_microbatch": 1 << 20}
    config = config_of(optimizer=large, **two_of(lora={"rank": 8}))
    changed = config.optimizer.model_copy(update=optimizer)
    config = config.model_copy(update={"optimizer": changed})
    found = memory_of(config, num_groups=dict.fromkeys("ab", 1), num_roles=Counter(roles))
    number = 4 * shape_of("a", config.models["a"]).num_trained
    own = [found.policies[name] for name in "ab"]
    assert [memory.gradients for memory in own] == [number * copies for copies in gradients]
    at_once = max(gradients) if optimizer else sum(gradients)
    kept = sum(memory.kept for memory in own)
    assert found.learning == {"a": kept + number * at_once + own[0].activations}
    assert found.updating.total == GIB + found.learning["a"]
    lora = {"model": "Qwen/Qwen3-8B", "lora": {"rank": 8}}
    alone = memory_of(config_of(lora, optimizer=large), num_groups={"p": 1 if optimizer else 2})
    assert own[0].activations == alone.policies["p"].activations


def test_a_base_is_on_the_gpu_where_one_of_its_adapters_learns():
    """A frozen policy that plays like the base may come first; its engine has a copy."""
    sections = two_of(lora={"rank": 8})
    sections["policies"]["a"] = {"model": "Qwen/Qwen3-8B", "frozen": True}
    engine = {"kind": "vllm", "precision": "bfloat16"}
    found = memory_of(config_of(engine=engine, **sections)).policies
    assert (found["a"].weights, found["a"].cpu) == (0, 0)
    assert found["b"].weights > 2 * P


def test_eight_bit_moments_are_planned():
    eight = memory_of(config_of(optimizer={"state_bits": 8})).policies["p"]
    assert eight.optimizer == round(2 * (1 + 4 / 256) * P)


def test_policies_that_play_in_one_of_several_environments_are_planned():
    team = {"team": "proposer-planner"}
    config = Config.model_validate(
        {
            "env": [{"id": "plan_path_v0", "kwargs": team}, {"id": "dining_v0"}],
            "policies": {name: {"model": "tiny", "max_length": 4096} for name in "abc"},
            "roles": {"proposer": "a", "planner": "b", "philosopher": "c"},
            "rollout": {"num_levels": 3},
        }
    )
    assert plan_of(config).step.num_optimizer_steps == {"a": 1, "b": 1, "c": 1}


def test_both_sides_of_a_gpu_are_planned_for_every_phase():
    """By hand: two policies with all weights, whose engines sleep in processes of their own."""
    vllm = {"kv_cache_bytes": 5 * GIB, "sleep": True}
    engine = {"kind": "vllm", "precision": "bfloat16", "vllm": vllm}
    config = config_of(engine=engine, deepspeed={"stage": 3}, **two_of())
    memory = memory_of(config, num_ranks=8)
    # CUDA, and of each policy shards of the weights, of float32 weights, moments and gradients.
    trainer = GIB + 2 * (2 * P // 8 + 16 * P // 8)
    engine = 2 * P + 5 * GIB + 2 * GIB + GIB // 2
    assert memory.generating == (trainer, {"a": engine, "b": engine})
    activations = memory.policies["a"].activations
    assert memory.updating == (trainer + activations, {"a": GIB, "b": GIB})
    embedding = 2 * 151_936 * 4096
    assert memory.handing_over == (trainer + embedding, {"a": engine, "b": engine - 5 * GIB})
    assert memory.files == 2 * P
    assert memory.peak == memory.updating.total == trainer + activations + 2 * GIB


def test_smaller_settings_need_less():
    def activations(**optimizer):
        return memory_of(config_of(optimizer=optimizer)).policies["p"].activations

    plain = activations(tokens_per_microbatch=16384)
    assert activations(tokens_per_microbatch=8192) < plain
    assert activations(tokens_per_microbatch=16384, gradient_checkpointing=True) < plain / 4
    # A completion is never cut: fewer tokens than the longest sequence do not help.
    assert activations(tokens_per_microbatch=64) == activations(tokens_per_microbatch=8191)
    reference = memory_of(config_of(loss={"kl_coefficient": 0.1})).policies["p"].reference
    assert reference == 4 * P


def test_a_prompt_needs_room_beside_the_answers_of_its_own_role():
    rollout = {"max_completion_tokens": 90, "per_role": {"echo": {"max_completion_tokens": 9}}}
    config = config_of({"model": "tiny", **SIZES}, rollout=rollout)
    prompts = {"caller": RolePrompt(38, True), "echo": RolePrompt(119, True)}
    assert not [*prompt_problems(config, {"p": 128}, prompts)]
    _, of_echo = prompt_problems(config, {"p": 127}, prompts)
    assert "prompts of echo begin at 119 tokens, and beside a completion of 9 there" in of_echo


def test_a_step_at_most():
    tiny = {"model": "tiny", **SIZES}
    rollout = {"num_levels": 5, "max_completion_tokens": 6}
    rollout["per_role"] = {"echo": {"max_completion_tokens": 9}}
    optimizer = {"completions_per_minibatch": 16, "num_epochs": 2}
    config = config_of(
        tiny, rollout=rollout, optimizer=optimizer, num_steps=10,
        evaluation={"num_episodes": 7, "every": 5},
    )  # fmt: skip
    plan = plan_of(config)
    step = plan.step
    assert (step.num_turns, step.agents) == (3, ("caller_0", "echo_0"))
    assert step.num_decisions == 5 * 3 * 2
    assert step.num_samples == 5 * 3 * 2 * 4
    assert step.num_completion_tokens == 5 * 3 * 2 * 4 * 9, "the longest of the policy's roles"
    assert step.num_optimizer_steps == {"p": 2 * 8}
    assert (plan.num_held_out, plan.num_evaluations) == (14, 3)
    sampled = config.evaluation.model_copy(update={"decoding": "sampled"})
    assert plan_of(config.model_copy(update={"evaluation": sampled})).num_held_out == 7
    assert plan.prompts["echo"].is_measured
    assert plan.lengths["p"].completion == 9
    parallel = plan_of(config.model_copy(update={"algorithm": Grpo()})).step
    assert (parallel.num_decisions, parallel.num_samples) == (120, 120)


@pytest.mark.parametrize(
    ("algorithm", "at_once", "continued"),
    [
        # 3 turns of 2 agents: after decision n there are 5 - n others.
        ({"name": "continuation", "num_candidates": 3, "num_continuations": 2}, 6, 6 * 15),
        ({"name": "tree_grpo", "num_candidates": 3, "num_branchings": 2}, 2, 2 * (5 + 4)),
        ({"name": "tree_grpo", "num_candidates": 3, "num_branchings": 9}, 2, 2 * 15),
        ({"name": "at_grpo", "num_candidates": 3}, 0, 0),
    ],
)
def test_continuations_are_samples_of_a_step(algorithm, at_once, continued):
    config = config_of(
        {"model": "tiny", **SIZES},
        rollout={"num_levels": 5},
        algorithm=algorithm,
        evaluation={"num_episodes": 1},
    )
    plan = plan_of(config)
    assert plan.step.num_continued == 5 * continued
    num_samples = 5 * (6 * 3 + continued)
    assert plan.step.num_samples == num_samples
    prompt, completion = plan.lengths["p"]
    assert plan.step.num_completion_tokens == num_samples * completion
    assert plan.step.num_prompt_tokens == 5 * (6 + continued) * prompt
    written = 5 * max(3 * completion + prompt, at_once * (prompt + completion))
    assert plan.memory.kv_cache == 4 * plan.shapes["p"].cache_size * written
    assert (f"{5 * continued} in continuations" in shown(config, plan)) == (continued > 0)


def shown(config, plan):
    console = Console(file=io.StringIO(), width=200)
    console.print(plan_view(config, plan))
    return console.file.getvalue()


def test_the_longest_stage_of_a_curriculum_counts():
    stages = [{"kwargs": {"max_turns": number}} for number in (2, 7)]
    plan = plan_of(config_of(env={"id": "toy_echo_v0", "curriculum": stages}))
    assert plan.step.num_turns == 7


def test_what_does_not_fit_is_told_with_advice():
    config = config_of(
        engine={"kind": "vllm", "precision": "bfloat16", "vllm": {"sleep": True}},
        optimizer={"gradient_checkpointing": True, "tokens_per_microbatch": 8192},
        rollout={"max_completion_tokens": 2048},
    )
    plan = plan_of(config, num_gpus=8)
    assert not plan.fits
    text = shown(config, plan)
    assert "warning" in text
    assert "deepspeed.stage = 3" in text.split("What helps:")[1]
    sharded = config.model_copy(
        update={"deepspeed": config.deepspeed.model_copy(update={"stage": 3})}
    )
    plan = plan_of(sharded, num_gpus=8)
    assert plan.fits
    assert list(warnings_of(sharded, plan)) == []
    assert "The estimate fits." in shown(sharded, plan)


ZERO, FSDP, LORA = "deepspeed.stage = 3", "fsdp.enabled = true", "policies.p.lora.rank = 32"
OFFLOAD, EIGHT = f'{ZERO} with deepspeed.offload = "all"', "optimizer.state_bits = 8"
NF4 = 'policies.a.lora.base_precision = "nf4" with policies.b.lora.base_precision = "nf4"'


@pytest.mark.parametrize(
    ("sections", "advice"),
    [
        ({}, [EIGHT, FSDP, ZERO, OFFLOAD, LORA]),
        ({"deepspeed": {"stage": 2}}, [ZERO, OFFLOAD]),
        ({"fsdp": {"enabled": True}}, []),
        ({"optimizer": {"role_gradients": True}}, [EIGHT, LORA]),
        ({"algorithm": {"name": "value"}}, [EIGHT, LORA]),
        ({"optimizer": {"state_bits": 8}}, [LORA]),
        (two_of(lora={"rank": 8}), [NF4]),
    ],
)
def test_only_what_the_rest_of_the_run_file_allows_is_advised(sections, advice):
    config, _ = for_device(config_of(**sections), Ranks(), on_gpu=True)
    assert list(memory_advice(config, 2)) == advice
    alone = [one for one in advice if one not in (FSDP, ZERO, OFFLOAD)]
    assert [one for one in memory_advice(config, 1) if one != OFFLOAD] == alone
    text = " ".join(warnings_of(config, plan_of(config, num_gpus=2, gpu_gib=1)))
    assert f"(now 4096){''.join(f', {one}' for one in advice)}, or more" in text


@pytest.mark.parametrize("most", [0, 1])
def test_engines_that_write_beside_updates_are_not_told_to_sleep(most):
    config = config_of(engine={"kind": "vllm"}, rollout={"max_staleness": most})
    sleep = "engine.vllm.sleep = true"
    assert (sleep in memory_advice(config, 1)) == (not most)


@pytest.mark.parametrize(
    ("ray", "tensor_parallel_size", "advice"),
    [
        ({"workers_per_policy": 3}, 1, "set ray.workers_per_policy = 1, or take more GPUs"),
        (
            {},
            1,
            "set ray.workers_per_policy = 1 with ray.gpus_per_worker = 0.5, or take more GPUs",
        ),
        ({"gpus_per_worker": 2}, 2, "take more GPUs"),  # as many as an engine needs
    ],
)
def test_ray_is_asked_for_what_it_may_be_asked_for(ray, tensor_parallel_size, advice):
    engine = {"kind": "vllm", "vllm": {"tensor_parallel_size": tensor_parallel_size}}
    several = len(ray) == 0
    config = config_of(ray={"enabled": True} | ray, engine=engine, **(two_of() if several else {}))
    devices = plan_of(config)
    told = " ".join(warnings_of(config, devices))
    assert f"and 1 can be used: {advice}" in told


def test_engines_on_several_gpus_hold_a_share_each():
    model, vllm = {"model": "Qwen/Qwen3-8B"}, {"kv_cache_bytes": 5 * GIB}
    alone = memory_of(config_of(model, engine={"kind": "vllm", "vllm": vllm}))
    spread = config_of(model, engine={"kind": "vllm", "vllm": vllm | {"tensor_parallel_size": 4}})
    saved = alone.generating.engines["p"] - memory_of(spread).generating.engines["p"]
    assert saved == 3 * P - GIB // 2, "three quarters of the weights; it has a process of its own"
    assert not any(
        "tensor_parallel" in text for text in warnings_of(spread, plan_of(spread, num_gpus=4))
    )
    warned = " ".join(warnings_of(spread, plan_of(spread, num_gpus=2)))
    assert "tensor_parallel_size is 4, and the run has 2 GPUs" in warned
    # one process learns; the other GPUs are the engine's
    four, eight = (plan_of(spread, num_gpus=number).memory for number in (4, 8))
    assert four.updating == eight.updating
    odd = config_of(model, engine={"kind": "vllm", "vllm": {"tensor_parallel_size": 3}})
    warned = " ".join(warnings_of(odd, plan_of(odd, num_gpus=4)))
    assert "does not divide the 32 attention heads of Qwen/Qwen3-8B" in warned


def test_small_caches_and_lonely_shards_are_told():
    config = config_of(
        {"model": "Qwen/Qwen3-0.6B"},
        engine={"kind": "vllm", "vllm": {"kv_cache_bytes": 1 << 20, "max_model_len": 8192}},
        rollout={"max_completion_tokens": 2048},
        deepspeed={"stage": 2},
    )
    told = " ".join(warnings_of(config, plan_of(config)))
    assert "holds no sequence of 8192 tokens" in told
    assert "raise engine.vllm.kv_cache_bytes, or" in told
    assert "deepspeed.stage shards nothing" in told
    assert 'set deepspeed.offload = "optimizer"' in told
    fsdp = config_of({"model": "Qwen/Qwen3-0.6B"}, fsdp={"enabled": True})
    told = " ".join(warnings_of(fsdp, plan_of(fsdp)))
    assert "fsdp.enabled shards nothing" in told
    assert "offload" not in told, "the two exclude each other"


@pytest.fixture
def dry_run(small_run_file, tmp_path, capsys, monkeypatch):
    def refuse(*arguments, **options):
        raise AssertionError("weights were loaded")

    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", refuse)
    monkeypatch.chdir(tmp_path)

    def call(*flags):
        code = main([str(small_run_file()), "--output-dir", "run", "--dry-run", *flags])
        captured = capsys.readouterr()
        assert list(tmp_path.iterdir()) == []
        return code, captured.out, captured.err

    return call


def test_a_dry_run_shows_the_plan_and_writes_nothing(dry_run):
    code, out, _ = dry_run()
    assert code == 0
    assert "planned for: the CPU" in out
    assert "The estimate fits." in out
    code, out, _ = dry_run("--gpus", "8", "--gpu-memory", "24", "--every-policy.hidden-size", "32")
    assert code == 0
    assert "planned for: 8 GPUs of 24 GiB" in out


def test_a_dry_run_ends_as_a_start_does(dry_run, small_run_file, capsys):
    flags = ["--rollout.max-completion-tokens", "60"]
    code, out, _ = dry_run(*flags)
    assert code == 2
    problem = re.search(r"error: (prompts of .*?) at ", out.replace("\n", " "))[1]
    assert main([str(small_run_file()), "--output-dir", "run", *flags]) == 2
    assert problem in capsys.readouterr().err


def test_a_dry_run_estimates_the_time_from_a_step(small_run_file, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main([str(small_run_file()), "--output-dir", "run", "--dry-run", "--measure"]) == 0
    out = capsys.readouterr().out.replace("\n", " ")
    found = re.search(r"a train step takes ([\d.]+) s, an evaluation ([\d.]+) s\. (\d+) train", out)
    assert int(found[3]) > 0
    assert re.search(r"take about \d+:\d\d:\d\d", out)
    assert list(tmp_path.iterdir()) == []
    assert main([str(small_run_file()), "--measure"]) == 2
    assert "--measure is part of --dry-run" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--gpus", "0"], "both must be positive"),
        (["--gpu-memory", "0"], "both must be positive"),
        (["--gpu-memory", "nan"], "both must be positive"),
        (
            ["--device", "cuda:0", "--gpus", "2", "--engine.precision", "bfloat16"],
            'Set device = "cuda" or "auto"',
        ),
    ],
)
def test_a_dry_run_refuses_what_it_cannot_plan_for(dry_run, flags, message):
    code, out, err = dry_run(*flags)
    assert (code, out) == (2, "")
    assert message in err


def test_a_directory_with_an_adapter_is_planned_as_that_adapter(tmp_path):
    base = build_tiny(tmp_path / "base", hidden_size=16, num_layers=1, num_heads=2, max_length=64)
    new = PolicyConfig(model=str(base), lora=LoraConfig(rank=3))
    adapter = AdapterBase.from_pretrained(str(base), precision="float32", device="cpu")
    adapter.add("one", new.lora, 0).save(tmp_path / "adapter")
    stored = PolicyConfig(model=str(tmp_path / "adapter"))
    assert stored.has_adapter
    planned = shape_of("p", stored)
    assert planned.num_trained == shape_of("p", new).num_trained < planned.num_parameters / 2
    settings = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    settings["target_modules"] = ["lm_head"]
    (tmp_path / "adapter" / "adapter_config.json").write_text(json.dumps(settings))
    with pytest.raises(ConfigError, match="linear layers of the model"):
        shape_of("p", stored.model_copy(update={"model": f"{tmp_path}/./adapter"}))
