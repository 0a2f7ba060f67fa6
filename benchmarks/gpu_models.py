"""Generation and update of random weights in the shapes of Qwen3, on a GPU or, tiny, on a CPU."""

from __future__ import annotations

import random
from typing import Any, NamedTuple

import torch
from gpu_kernels import Groups, seconds_of
from transformers import AutoModelForCausalLM, GenerationConfig, Qwen3Config

from pettingllms_trainers.backends.hf.adapters import AdapterBase
from pettingllms_trainers.backends.hf.model import LoadedModel
from pettingllms_trainers.backends.hf.policy import TransformersPolicy
from pettingllms_trainers.backends.hf.self_check import check_model
from pettingllms_trainers.backends.hf.shapes import counted, published_config
from pettingllms_trainers.backends.hf.tiny import CHARACTERS, build_tokenizer
from pettingllms_trainers.backends.hf.updater import TrainingSettings
from pettingllms_trainers.config import Config, EngineConfig, LossConfig, OptimizerConfig
from pettingllms_trainers.config.policies import LoraConfig
from pettingllms_trainers.plan.memory import USABLE, plan_memory
from pettingllms_trainers.types import (
    GenerateRequest,
    Lengths,
    SamplingSettings,
    TrainingCompletion,
    TrainingGroup,
)

LORA = LoraConfig(rank=32, alpha=64)


class GpuWorkload(NamedTuple):
    """What is generated and learned."""

    num_prompts: int
    num_candidates: int
    prompt_length: int
    completion_length: int
    tokens_per_microbatch: int
    precision: str
    kernel_groups: dict[str, Groups]

    @classmethod
    def of(cls, size: str) -> GpuWorkload:
        """The workload of a size of the campaign."""
        if size == "toy":
            return cls(2, 2, 12, 6, 64, "float32", {"toy": [(20, [5, 9]), (30, [7])]})
        kernels: dict[str, Groups] = {
            "long_prompts": [(1024, [256] * 8)] * 5,
            "long_completions": [(128, [1792] * 8)],
            "short_turns": [(64, [16] * 8)] * 80,
        }
        return cls(32, 8, 512, 256, 16384, "bfloat16", kernels)


def model_config(name: str) -> Qwen3Config:
    """The configuration of a model by its name."""
    if name != "toy":
        return published_config(name)
    return Qwen3Config(
        vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, head_dim=16, max_position_embeddings=256,
        tie_word_embeddings=True,
    )  # fmt: skip


def random_model(name: str, dtype: torch.dtype, device: torch.device) -> Any:
    """A model with random weights that never ends a completion by itself."""
    with device, torch.random.fork_rng():
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(model_config(name), dtype=dtype)
    model.generation_config = GenerationConfig()
    return model.to(device).eval()


def loaded_model(name: str, kind: str, load: GpuWorkload, device: torch.device) -> LoadedModel:
    """A model to be trained: all of it, or an adapter on it; or neither (``frozen``)."""
    tokenizer = build_tokenizer(CHARACTERS)
    tokenizer.eos_token = None
    is_half = load.precision == "bfloat16" and kind != "full"
    model = random_model(name, torch.bfloat16 if is_half else torch.float32, device)
    if kind != "lora":
        return LoadedModel(model, tokenizer)
    return LoadedModel.of_adapter(AdapterBase(model, tokenizer, None).add("policy", LORA, 0))


def optimizer_of(load: GpuWorkload, model: str) -> OptimizerConfig:
    """How a model learns; the largest recomputes its activations."""
    return OptimizerConfig(
        tokens_per_microbatch=load.tokens_per_microbatch,
        gradient_checkpointing=model.endswith("8B"),
    )


def policy_of(name: str, kind: str, load: GpuWorkload, device: torch.device) -> TransformersPolicy:
    """A policy in the shape of a model."""
    training = TrainingSettings(
        loss=LossConfig(old_logprobs="engine"),
        optimizer=optimizer_of(load, name),
        num_steps=1000,
        max_completion_tokens=load.completion_length,
        seed=0,
    )
    return TransformersPolicy(
        loaded_model(name, kind, load, device),
        engine=EngineConfig(precision=load.precision, tokens_per_batch=1 << 20),
        training=None if kind == "frozen" else training,
    )


def self_checks(device: torch.device, load: GpuWorkload) -> dict[str, Any]:
    """What the trainer's own check of a model finds, in both precisions."""
    found: dict[str, Any] = {}
    for precision in ("float32", "bfloat16"):
        dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
        model = random_model("toy", dtype, device)
        loaded = LoadedModel(model, build_tokenizer(CHARACTERS))
        found[precision] = check_model(loaded, precision, "auto") or "equal"
    if set(found.values()) != {"equal"}:
        raise ValueError(f"the GPU does not compute as it should: {found}")
    return found


def generation(device: torch.device, load: GpuWorkload, name: str) -> dict[str, Any]:
    """Completion tokens per second."""
    policy = policy_of(name, "frozen", load, device)
    requests = [
        GenerateRequest(
            prompt_ids=group.prompt_ids,
            num_candidates=load.num_candidates,
            sampling=SamplingSettings(max_completion_tokens=load.completion_length),
            seed=seed,
        )
        for seed, group in enumerate(random_groups(policy, load))
    ]
    written = policy.engine.generate_now(requests)
    num_tokens = sum(len(completion.token_ids) for group in written for completion in group)
    seconds = seconds_of(lambda: policy.engine.generate_now(requests), device, 2)
    num_parameters = policy.loaded.model.num_parameters()
    return {
        "num_parameters": num_parameters,
        "num_completion_tokens": num_tokens,
        "tokens_per_s": round(num_tokens / seconds, 1),
        "tflops": float(f"{2e-12 * num_parameters * num_tokens / seconds:.4g}"),
    } | _peak(device)


def random_groups(policy: TransformersPolicy, load: GpuWorkload) -> list[TrainingGroup]:
    """Groups of random tokens."""
    rng = random.Random(0)
    size = policy.loaded.limits(0).vocab_size

    def tokens(count: int) -> tuple[int, ...]:
        return tuple(rng.choices(range(4, size), k=count))

    length = load.completion_length
    return [
        TrainingGroup(
            role="role",
            prompt_ids=tokens(load.prompt_length),
            completions=tuple(
                TrainingCompletion(tokens(length), (-9.0,) * length, rng.gauss(0, 1))
                for _ in range(load.num_candidates)
            ),
        )
        for _ in range(load.num_prompts)
    ]


def update(device: torch.device, load: GpuWorkload, name: str, kind: str) -> dict[str, Any]:
    """Tokens per second of an update, and its memory beside the plan's."""
    planned = planned_bytes(load, name, kind)
    if device.type == "cuda":
        room = USABLE * torch.cuda.get_device_properties(device).total_memory
        if planned > room:
            return {"planned_bytes": planned, "fits": False}
        torch.cuda.reset_peak_memory_stats()
    policy = policy_of(name, kind, load, device)
    groups = random_groups(policy, load)
    assert policy.updater is not None
    work = policy.updater.update
    seconds = seconds_of(lambda: work(groups), device, 2)
    num_tokens = load.num_prompts * (
        load.prompt_length + load.num_candidates * load.completion_length
    )
    num_parameters = policy.loaded.model.num_parameters()
    # Forward and both products of the backward pass; frozen weights have no gradient.
    flops = (4 if kind == "lora" else 6) * num_parameters * num_tokens
    return {
        "num_parameters": num_parameters,
        "num_tokens": num_tokens,
        "tokens_per_s": round(num_tokens / seconds, 1),
        "tflops": float(f"{1e-12 * flops / seconds:.4g}"),
        "planned_bytes": planned,
        "fits": True,
    } | _peak(device)


def planned_bytes(load: GpuWorkload, name: str, kind: str) -> int:
    """The memory of an update as ``--dry-run`` estimates it."""
    policy: dict[str, Any] = {"model": name}
    if kind == "lora":
        policy["lora"] = LORA.model_dump()
    config = Config.model_validate(
        {
            "env": {"id": "plan_path_v0"},
            "policies": {"policy": policy},
            "roles": {"tool": "policy", "planner": "policy"},
            "engine": {"precision": load.precision},
            "optimizer": optimizer_of(load, name).model_dump(),
        }
    )
    rank = LORA.rank if kind == "lora" else 0
    shape = counted(model_config(name), rank, LORA.targets, "the campaign")
    lengths = Lengths(load.prompt_length, load.completion_length)
    plan = plan_memory(
        config, {"policy": shape}, {"policy": lengths}, num_ranks=1, gpu_bytes=80 << 30
    )
    return plan.updating.total


def _peak(device: torch.device) -> dict[str, int]:
    if device.type != "cuda":
        return {}
    return {"peak_bytes": torch.cuda.max_memory_allocated()}
