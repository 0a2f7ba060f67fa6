"""Attention of packed completions on a GPU, and how work there is timed."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from pettingllms_trainers.backends.hf.flex import FlexLayout
from pettingllms_trainers.backends.hf.layouts import PackedLayout

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
        parts = _parts(found["num_tokens"], device, has_gpu)
        outputs[name] = _attended(layout, parts)
        if has_gpu:
            torch.cuda.reset_peak_memory_stats()
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
