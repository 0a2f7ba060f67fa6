"""Requests and completions in vLLM's words, the same in this process and over HTTP."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from transformers import PreTrainedTokenizerBase

from pettingllms_trainers.types import GenerateRequest, TokenCompletion

__all__ = ["RawCompletion", "completions_of", "sampling_parameters"]


class RawCompletion(NamedTuple):
    """What vLLM gives of a completion."""

    token_ids: Sequence[int]
    logprobs: Sequence[float]
    finish_reason: str | None
    swaps: tuple[int, ...] = ()
    """See `TokenCompletion`."""


def swaps_of(spans: Sequence[tuple[str, int]], names: Sequence[str]) -> tuple[int, ...]:
    """The tokens at which newer weights took over; see `TokenCompletion.swaps`.

    Args:
        spans: Name of weights and the first token that they have written, in order.
        names: Of the weights when the request was made, and of all that were loaded since.

    Raises:
        ValueError: Other weights have written.
    """
    found: list[int] = []
    for name, start in spans:
        found += [start] * (names.index(name) - len(found))
    return tuple(found)


def sampling_parameters(request: GenerateRequest, stop_ids: Collection[int]) -> dict[str, Any]:
    """The arguments of ``vllm.SamplingParams`` that a request stands for.

    Args:
        request: The request.
        stop_ids: Token ids that end a completion; vLLM's own are not used.
    """
    sampling = request.sampling
    found: dict[str, Any] = {
        "n": request.num_candidates if sampling.temperature else 1,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "max_tokens": sampling.max_completion_tokens,
        "stop": list(sampling.stop),
        "stop_token_ids": sorted(stop_ids),
        "ignore_eos": True,
        "seed": request.seed & (2**62 - 1),
        "logprobs": 0,
        "detokenize": bool(sampling.stop),
    }
    if request.grammar:
        found["structured_outputs"] = {"structural_tag": request.grammar}
    return found


def completions_of(
    tokenizer: PreTrainedTokenizerBase, request: GenerateRequest, raw: Sequence[RawCompletion]
) -> list[TokenCompletion]:
    """The completions of a request; those that vLLM gave up are left out.

    Greedy candidates are all the same, and vLLM writes one of them.
    """
    if not request.sampling.temperature:
        raw = [*raw[:1]] * request.num_candidates
    finished = [one for one in raw if one.finish_reason in ("stop", "length")]
    texts = tokenizer.batch_decode(
        [list(one.token_ids) for one in finished],
        skip_special_tokens=True,
        clean_up_tokenization_spaces=False,
    )
    completions: list[TokenCompletion] = []
    for one, text in zip(finished, texts, strict=True):
        cuts = [text.find(stop) for stop in request.sampling.stop if stop in text]
        completions.append(
            TokenCompletion(
                token_ids=tuple(one.token_ids),
                logprobs=tuple(one.logprobs),
                text=text[: min(cuts)] if cuts else text,
                finish_reason="stop" if one.finish_reason == "stop" else "length",
                swaps=one.swaps,
            )
        )
    return completions
