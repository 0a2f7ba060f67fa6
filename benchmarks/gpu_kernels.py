"""Single kernels on a GPU: matrix products, and attention of packed completions."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pettingllms_trainers.backends.hf.flex import FlexLayout
from pettingllms_trainers.backends.hf.layouts import PackedLayout
from pettingllms_trainers.backends.hf.model import use_float32_head
from pettingllms_trainers.backends.hf.self_check import LIMITS

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


def matmul_tflops(device: torch.device, size: int) -> dict[str, Any]:
    """The rate of a large matrix product in bfloat16: what MFU is measured by."""
    generator = torch.Generator(device).manual_seed(0)
    parts = [
        torch.randn(size, size, generator=generator, device=device, dtype=torch.bfloat16)
        for _ in range(2)
    ]
    seconds = seconds_of(lambda: torch.matmul(*parts), device, 20)
    return {"size": size, "tflops": float(f"{2e-12 * size**3 / seconds:.4g}")}


def head_products(
    device: torch.device, num_targets: int, hidden_size: int, vocab_size: int
) -> dict[str, Any]:
    """Compare ways to compute an output layer in bfloat16, forward and backward, with float32.

    `trainer` is what the trainer does. The limit of the self-check decides which may be used.
    """
    generator = torch.Generator(device).manual_seed(0)
    hidden, weight = (
        torch.randn(size, hidden_size, generator=generator, device=device).bfloat16()
        for size in (num_targets, vocab_size)
    )
    head = nn.Linear(hidden_size, vocab_size, bias=False, device=device, dtype=torch.bfloat16)
    head.weight = nn.Parameter(weight / hidden_size**0.5, requires_grad=False)
    targets = torch.arange(num_targets, device=device) % vocab_size
    ways = {"float32": "highest", "tf32": "high", "trainer": "highest", "bfloat16": "highest"}
    found: dict[str, Any] = {"limit": LIMITS["bfloat16"]}
    expected: list[Tensor] = []
    for way, precision in ways.items():
        if way == "trainer":
            use_float32_head(_Head(head))  # type: ignore[arg-type]
        work = partial(_head_step, head, hidden, targets, way)
        torch.set_float32_matmul_precision(precision)
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
        outputs, seconds = work(), seconds_of(work, device)
        torch.set_float32_matmul_precision("highest")
        expected = expected or outputs
        gaps = [(a - b).abs() for a, b in zip(outputs, expected, strict=True)]
        found[way] = {
            "seconds": seconds,
            "mean_logprob_gap": float(gaps[0].mean()),
            "largest_logprob_gap": float(gaps[0].max()),
            "gradient_gap": float(gaps[1].norm() / expected[1].norm()),
        }
        if device.type == "cuda":
            found[way]["peak_bytes"] = torch.cuda.max_memory_allocated()
    if found["trainer"]["mean_logprob_gap"] > LIMITS["bfloat16"]:
        raise ValueError(f"the output layer is not what it should be: {found}")
    return found


class _Head:
    def __init__(self, head: nn.Linear) -> None:
        self._head = head

    def get_output_embeddings(self) -> nn.Linear:
        return self._head


def _head_step(head: nn.Linear, hidden: Tensor, targets: Tensor, way: str) -> list[Tensor]:
    """The log-probabilities of the targets and the gradient of the hidden states."""
    hidden = hidden.detach().requires_grad_()
    if way == "trainer":
        logits = head(hidden)
    elif way == "bfloat16":
        logits = F.linear(hidden, head.weight).float()
    else:
        logits = F.linear(hidden.float(), head.weight.float())
    logprobs = -F.cross_entropy(logits, targets, reduction="none")
    logprobs.sum().backward()
    assert hidden.grad is not None
    return [logprobs.detach(), hidden.grad.float()]


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
    """Output and, if wanted, gradients."""
    for part in parts:
        part.grad = None
    output = layout.attend(0, *parts, None)
    if not output.requires_grad:
        return [output]
    output.float().square().mean().backward()
    return [output.detach().float(), *(p.grad.float() for p in parts if p.grad is not None)]
