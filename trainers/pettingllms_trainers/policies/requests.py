"""What every engine refuses, before it costs anything. No torch."""

from __future__ import annotations

from pettingllms.errors import InvalidArgument
from pettingllms_trainers.types import GenerateRequest, RequestLimits, SamplingSettings

__all__ = ["check_request", "check_sampling"]


def check_sampling(sampling: SamplingSettings) -> None:
    """Raise `InvalidArgument` if a value is out of its range."""
    rules = (
        ("temperature", sampling.temperature, sampling.temperature >= 0, "0 (greedy) or more"),
        ("top_p", sampling.top_p, 0 < sampling.top_p <= 1, "above 0 and at most 1"),
        ("top_k", sampling.top_k, sampling.top_k >= 0, "0 (off) or more"),
        (
            "max_completion_tokens",
            sampling.max_completion_tokens,
            sampling.max_completion_tokens >= 1,
            "1 or more",
        ),
        ("stop", sampling.stop, all(sampling.stop), "texts that are not empty"),
    )
    for name, got, holds, allowed in rules:
        if not holds:
            raise InvalidArgument(name, got, allowed, f"change `{name}` of the sampling settings")


def check_request(request: GenerateRequest, limits: RequestLimits) -> None:
    """Raise `InvalidArgument` if the request cannot be answered by this model."""
    check_sampling(request.sampling)
    if request.num_candidates < 1:
        raise InvalidArgument(
            "num_candidates", request.num_candidates, "1 or more", "ask for at least one completion"
        )
    prompt = request.prompt_ids
    if not prompt or min(prompt) < 0 or max(prompt) >= limits.vocab_size:
        raise InvalidArgument(
            "prompt_ids",
            "no token" if not prompt else f"ids from {min(prompt)} to {max(prompt)}",
            f"one or more ids from 0 to {limits.vocab_size - 1}",
            "encode the prompt with the tokenizer of this policy",
        )
    needed = len(prompt) + request.sampling.max_completion_tokens
    if limits.context_length is not None and needed > limits.context_length:
        raise InvalidArgument(
            "prompt_ids",
            f"{len(prompt)} prompt and up to {needed - len(prompt)} completion tokens",
            f"at most {limits.context_length} tokens together (the context of the model)",
            "shorten the observation, lower `max_completion_tokens` or take a larger context",
        )
