"""vLLM as engine: what is the same wherever it runs; `in_process` and `server` lead there."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

from transformers import PreTrainedTokenizerBase

from pettingllms_trainers.backends.hf.chat import answer_texts
from pettingllms_trainers.policies.pool import check_request
from pettingllms_trainers.types import GenerateRequest, RequestLimits, TokenCompletion

WORKER_EXTENSION = "pettingllms_trainers.backends.vllm.worker.TrainedWeights"
"""What vLLM's workers are extended by, in this process or in that of a server."""

LORA_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""What vLLM can be started with."""


class VLLMInput(NamedTuple):
    """One request, as vLLM takes it."""

    prompt_ids: tuple[int, ...]
    """Token ids of the prompt."""
    parameters: dict[str, Any]
    """Arguments of ``vllm.SamplingParams``."""
    adapter: str | None
    """Name of a LoRA adapter that was loaded; None: the model itself."""


class RawCompletion(NamedTuple):
    """One completion, as vLLM gives it."""

    token_ids: Sequence[int]
    """[T] sampled token ids."""
    logprobs: Sequence[float]
    """[T] log-probability of each."""
    finish_reason: str | None
    """``stop``, ``length``, or another reason for which vLLM gave the request up."""
    swaps: tuple[int, ...] = ()
    """See `TokenCompletion.swaps`."""


class VLLMEngine(ABC):
    """A model in vLLM; subclasses are engines with a copy of the weights (`EngineWithWeights`).

    Args:
        tokenizer: The tokenizer.
        stop_ids: Token ids that end a completion.
        limits: What the model can answer.
        is_concurrent: See `Generate.is_concurrent`.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        stop_ids: Iterable[int],
        limits: RequestLimits,
        *,
        is_concurrent: bool,
    ) -> None:
        self._tokenizer, self._stop_ids = tokenizer, frozenset(stop_ids)
        self.limits, self.is_concurrent = limits, is_concurrent
        self._num_loads = 0

    def check(self, request: GenerateRequest) -> None:
        check_request(request, self.limits)

    async def generate(self, requests: Sequence[GenerateRequest]) -> list[list[TokenCompletion]]:
        """The completions of each request.

        Raises:
            InvalidArgument: A request cannot be answered by this model.
            GenerationError: vLLM failed, or has no weights at present.
        """
        for request in requests:
            check_request(request, self.limits)
        inputs = [
            VLLMInput(
                request.prompt_ids, _parameters(request, self._stop_ids), request.adapter or None
            )
            for request in requests
        ]
        answers = await self._complete(inputs)
        return [
            _completions(self._tokenizer, request, raw)
            for request, raw in zip(requests, answers, strict=True)
        ]

    @abstractmethod
    async def _complete(self, inputs: Sequence[VLLMInput]) -> list[list[RawCompletion]]:
        """The completions that vLLM gives for each request; none where it has given one up."""


def swaps_of(spans: Sequence[tuple[str, int]], names: Sequence[str]) -> tuple[int, ...]:
    """The tokens at which newer weights took over; see `TokenCompletion.swaps`.

    Args:
        spans: Name of weights and the first token that they have written, in order.
        names: Of the weights when the request was made, and of all that were loaded since.

    Raises:
        ValueError: Other weights have written.
    """
    swaps: list[int] = []
    for name, start in spans:
        # Weights that were replaced before they wrote a token took over at the same one.
        swaps += [start] * (names.index(name) - len(swaps))
    return tuple(swaps)


def _parameters(request: GenerateRequest, stop_ids: Collection[int]) -> dict[str, Any]:
    sampling = request.sampling
    parameters: dict[str, Any] = {
        # Greedy candidates are all the same, and one is enough.
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
        parameters["structured_outputs"] = {"structural_tag": request.grammar}
    return parameters


def _completions(
    tokenizer: PreTrainedTokenizerBase, request: GenerateRequest, raw: Sequence[RawCompletion]
) -> list[TokenCompletion]:
    if not request.sampling.temperature:
        raw = [*raw[:1]] * request.num_candidates
    # vLLM gives up a request by a reason of its own, such as abort.
    finished = [one for one in raw if one.finish_reason in ("stop", "length")]
    sequences = [one.token_ids for one in finished]
    texts = answer_texts(tokenizer, sequences, [request.sampling.stop] * len(finished))
    return [
        TokenCompletion(
            token_ids=tuple(one.token_ids),
            logprobs=tuple(one.logprobs),
            text=text,
            finish_reason="stop" if one.finish_reason == "stop" else "length",
            swaps=one.swaps,
        )
        for one, text in zip(finished, texts, strict=True)
    ]
