"""One measurement of the GPU campaign, in this process: its result goes to a file.

`gpu_campaign.py` starts one for each, so that an error that CUDA does not recover from, or memory
that is not given back, ends with it. Weights are random, in the shapes of Qwen3, or tiny on a CPU.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    GenerationConfig,
    PreTrainedConfig,
    Qwen3Config,
)

from pettingllms_trainers.backends.hf.adapters import AdapterBase
from pettingllms_trainers.backends.hf.flex import FlexLayout
from pettingllms_trainers.backends.hf.layouts import PackedLayout
from pettingllms_trainers.backends.hf.model import LoadedModel
from pettingllms_trainers.backends.hf.policy import TransformersPolicy
from pettingllms_trainers.backends.hf.self_check import check_model
from pettingllms_trainers.backends.hf.shapes import counted, published_config
from pettingllms_trainers.backends.hf.tiny import CHARACTERS, build_tokenizer
from pettingllms_trainers.backends.hf.updater import TrainingSettings, Updater
from pettingllms_trainers.config import Config, EngineConfig, LossConfig, OptimizerConfig
from pettingllms_trainers.config.sections import LoraConfig
from pettingllms_trainers.plan.memory import USABLE, plan_memory
from pettingllms_trainers.types import (
    GenerateRequest,
    Lengths,
    SamplingSettings,
    TrainingCompletion,
    TrainingGroup,
)

NUM_HEADS, NUM_KEY_HEADS, HEAD_SIZE = 16, 8, 128
"""Of Qwen3-1.7B."""

Groups = Sequence[tuple[int, Sequence[int]]]
"""Tokens of each prompt, and of its completions."""


def seconds_of(work: Callable[[], Any], device: torch.device, num_rounds: int = 5) -> float:
    """The median time of a call, after one that is not counted."""
    times: list[float] = []
    for _ in range(num_rounds + 1):
        wait(device)
        begin = time.perf_counter()
        work()
        wait(device)
        times.append(time.perf_counter() - begin)
    return statistics.median(times[1:])


def wait(device: torch.device) -> None:
    """Wait for all that the GPU was given to do."""
    if device.type == "cuda":
        torch.cuda.synchronize()


def packed_attention(device: torch.device, workloads: dict[str, Groups]) -> dict[str, Any]:
    """Compare FlexAttention with padded rows: result, gradient, time and memory."""
    return {name: _compared(device, groups) for name, groups in workloads.items()}


def _compared(device: torch.device, groups: Groups) -> dict[str, Any]:
    prompts = [prompt for prompt, _ in groups]
    completions = [length for _, own in groups for length in own]
    owners = [index for index, (_, own) in enumerate(groups) for _ in own]
    has_gpu = device.type == "cuda"  # PyTorch has no gradient of FlexAttention on a CPU
    found: dict[str, Any] = {"num_tokens": sum(prompts) + sum(completions)}
    outputs: dict[str, list[Tensor]] = {}
    for name, kind in (("flex", FlexLayout), ("padded", PackedLayout)):
        layout = kind(prompts, completions, owners, device)
        # The same numbers for both: the generator has one seed.
        parts = _parts(found["num_tokens"], device, has_gpu)
        outputs[name] = _attended(layout, parts)
        if has_gpu:
            torch.cuda.reset_peak_memory_stats()
        # What lies there already belongs to neither side.
        before = torch.cuda.memory_allocated() if has_gpu else 0
        found[f"{name}_s"] = seconds_of(lambda a=layout, b=parts: _attended(a, b), device)
        if has_gpu:
            found[f"{name}_peak_bytes"] = torch.cuda.max_memory_allocated() - before
    # Relative to the largest number: bfloat16 has 8 bits of it.
    pairs = list(zip(outputs["flex"], outputs["padded"], strict=True))
    found["largest_gaps"] = [float((a - b).abs().max() / b.abs().max()) for a, b in pairs]
    if max(found["largest_gaps"]) > 0.05:
        raise ValueError(f"FlexAttention computes something else: {found}")
    return found


def _parts(num_tokens: int, device: torch.device, has_gpu: bool) -> list[Tensor]:
    generator = torch.Generator(device).manual_seed(0)
    return [
        (torch.randn(num_tokens, heads, HEAD_SIZE, generator=generator, device=device) * scale)
        .to(torch.bfloat16 if has_gpu else torch.float32)
        .requires_grad_(has_gpu)
        for heads, scale in (
            (NUM_HEADS, HEAD_SIZE**-0.5),
            (NUM_KEY_HEADS, 1.0),
            (NUM_KEY_HEADS, 1.0),
        )
    ]


def _attended(layout: Any, parts: list[Tensor]) -> list[Tensor]:
    for part in parts:
        part.grad = None
    output = layout.attend(0, *parts, None)
    if not output.requires_grad:
        return [output]
    output.float().square().mean().backward()
    return [output.detach().float(), *(p.grad.float() for p in parts if p.grad is not None)]


LORA = LoraConfig(rank=32, alpha=64)


class GpuWorkload(NamedTuple):
    """What is generated and learned; lengths in tokens."""

    num_prompts: int
    num_candidates: int
    prompt_length: int
    completion_length: int
    tokens_per_microbatch: int
    precision: str
    """Arithmetic: ``float32`` or ``bfloat16``."""
    kernel_groups: dict[str, Groups]
    """Name to the groups on which kernels of attention are compared."""

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


def model_config(name: str) -> PreTrainedConfig:
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
    # Every completion has its full length: random weights would end at random.
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


def policy_of(
    loaded: LoadedModel, name: str, load: GpuWorkload, *, is_trained: bool = True
) -> TransformersPolicy:
    """A policy with a model of that name."""
    training = TrainingSettings(
        loss=LossConfig(old_logprobs="engine"),
        optimizer=optimizer_of(load, name),
        num_steps=1000,
        max_completion_tokens=load.completion_length,
        seed=0,
    )
    return TransformersPolicy(
        loaded,
        engine=EngineConfig(precision=load.precision, tokens_per_batch=1 << 20),
        training=training if is_trained else None,
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
    loaded = loaded_model(name, "frozen", load, device)
    policy = policy_of(loaded, name, load, is_trained=False)
    requests = [
        GenerateRequest(
            prompt_ids=group.prompt_ids,
            num_candidates=load.num_candidates,
            sampling=SamplingSettings(max_completion_tokens=load.completion_length),
            seed=seed,
        )
        for seed, group in enumerate(random_groups(policy, load))
    ]
    # Once before the clock: kernels are compiled and caches filled.
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
        # Not tried, or the driver would kill what else is there.
        if planned > room:
            return {"planned_bytes": planned, "fits": False}
        torch.cuda.reset_peak_memory_stats()
    policy = policy_of(loaded_model(name, kind, load, device), name, load)
    groups = random_groups(policy, load)
    assert policy.updater is not None
    # From groups to new weights, as a train step calls it.
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


def roles(
    device: torch.device,
    load: GpuWorkload,
    name: str,
    num_rounds: int = 3,
) -> dict[str, Any]:
    """An update of adapters of four roles on one base, mixed in passes and one after another."""
    dtype = torch.bfloat16 if load.precision == "bfloat16" else torch.float32
    base = AdapterBase(random_model(name, dtype, device), build_tokenizer(CHARACTERS), None)
    updates: list[tuple[Updater, Sequence[TrainingGroup]]] = []
    for role in range(4):
        loaded = LoadedModel.of_adapter(base.add(f"role_{role}", LORA, role))
        policy = policy_of(loaded, name, load)
        assert policy.updater is not None
        updates.append((policy.updater, random_groups(policy, load)))
    ways = {"mixed": [updates], "one_by_one": [[one] for one in updates]}
    times: dict[str, list[float]] = {way: [] for way in ways}
    # Once before the clock: kernels are chosen, and the memory of the largest pass is taken.
    Updater.update_together(updates)
    for index in range(num_rounds):
        # In turn, so that both meet the same machine; who begins changes.
        for way in sorted(ways, reverse=bool(index % 2)):
            wait(device)
            begin = time.perf_counter()
            for part in ways[way]:
                Updater.update_together(part)
            wait(device)
            times[way].append(time.perf_counter() - begin)
    pairs = zip(times["one_by_one"], times["mixed"], strict=True)
    return {f"{way}_s": found for way, found in times.items()} | {
        "speedup": [slow / fast for slow, fast in pairs]
    }


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
    shape = counted(model_config(name), "the campaign", config.policies["policy"].lora)
    lengths = Lengths(load.prompt_length, load.completion_length)
    plan = plan_memory(
        config, {"policy": shape}, {"policy": lengths}, num_ranks=1, gpu_bytes=80 << 30
    )
    return plan.updating.total


def _peak(device: torch.device) -> dict[str, int]:
    if device.type != "cuda":
        return {}
    return {"peak_bytes": torch.cuda.max_memory_allocated()}


CONFIGS = Path(__file__).resolve().parent / "configs"
TO_SAVE_S = 60.0
"""Kept of its time for a run that must save its checkpoint."""

Work = Callable[[], dict[str, Any]]


def work_of(name: str, size: str, output: Path, seconds: float) -> Work:
    """A measurement by its name, such as ``update Qwen/Qwen3-0.6B lora``."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    load = GpuWorkload.of(size)
    kind, *rest = name.split()
    works: dict[str, Work] = {
        "machine": machine,
        "self_checks": partial(self_checks, device, load),
        "packed_attention": partial(packed_attention, device, load.kernel_groups),
        "generate": partial(generation, device, load, *rest),
        "update": partial(update, device, load, *rest),
        "roles": partial(roles, device, load, *rest),
        "plan_path": partial(learning, size, output / f"plan_path_{size}", seconds),
    }
    return works[kind]


def machine() -> dict[str, Any]:
    """What is measured on."""
    found: dict[str, Any] = {"gpu": None}
    if torch.cuda.is_available():
        num_bytes = torch.cuda.get_device_properties(0).total_memory
        found = {"gpu": torch.cuda.get_device_name(), "gpu_gib": round(num_bytes / 2**30, 1)}
    packages = ("torch", "transformers", "pettingllms", "pettingllms-trainers")
    return (
        found | {"python": platform.python_version()} | {name: version(name) for name in packages}
    )


def learning(size: str, directory: Path, seconds: float) -> dict[str, Any]:
    """Train a team on Plan-Path from random weights, for some time or to the end."""
    begin = time.monotonic()
    if (directory / "eval.json").exists():
        return {"is_complete": True, "part_s": 0.0, "evaluations": _evaluations(directory)}
    config = CONFIGS / f"gpu_plan_path_{size}.toml"
    command = [sys.executable, "-m", "pettingllms_trainers.cli", str(config)]
    command += ["--output-dir", str(directory)]
    # A part before this one was ended by its time.
    if directory.exists():
        command.append("--resume")
    log = directory.with_suffix(".log")
    with log.open("a", encoding="utf-8") as file:
        run = subprocess.Popen(command, stdout=file, stderr=file)
        try:
            code = run.wait(max(seconds - TO_SAVE_S, 1.0))
        except subprocess.TimeoutExpired:
            run.send_signal(signal.SIGTERM)  # it saves, and a later part continues it
            code = run.wait()
    is_complete = (directory / "eval.json").exists()
    if not is_complete and not (directory / "checkpoints").is_dir():
        text = log.read_text(encoding="utf-8")
        raise RuntimeError(f"the run ended with code {code}: {text[-800:]}")
    return {
        "is_complete": is_complete,
        "part_s": round(time.monotonic() - begin, 1),
        "evaluations": _evaluations(directory),
    }


def _evaluations(directory: Path) -> list[dict[str, Any]]:
    path = directory / "evaluations.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    names = ("success", "success_low", "success_high", "num_episodes")
    return [
        {"step": line["step"]}
        | {
            variant: {name: figures[name] for name in names}
            for variant, figures in line["variants"].items()
        }
        for line in map(json.loads, lines)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name")
    parser.add_argument("--size", required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--result", type=Path, required=True)
    options = parser.parse_args()
    found = work_of(options.name, options.size, options.output, options.seconds)()
    options.result.write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
