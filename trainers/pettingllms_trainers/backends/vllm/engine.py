"""The vLLM engine in this process, with a copy of the weights that is renewed by every update."""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
from collections.abc import Generator, Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from pettingllms.errors import InvalidArgument
from pettingllms_trainers.backends.hf.model import LoadedModel
from pettingllms_trainers.backends.vllm.format import (
    RawCompletion,
    completions_of,
    sampling_parameters,
    swaps_of,
)
from pettingllms_trainers.backends.vllm.handover import machine_files
from pettingllms_trainers.backends.vllm.running import EngineInput, RunningRequests
from pettingllms_trainers.backends.vllm.start import start_engine
from pettingllms_trainers.config import Config, EngineConfig
from pettingllms_trainers.errors import GenerationError
from pettingllms_trainers.policies.requests import check_request
from pettingllms_trainers.ranks import Ranks
from pettingllms_trainers.types import GenerateRequest, RequestLimits, TokenCompletion

__all__ = ["VLLMEngine", "build_engine"]


def build_engine(
    config: Config,
    loaded: LoadedModel,
    *,
    endpoints: Sequence[str],
    ranks: Ranks,
    has_own_process: bool,
    max_adapters: int,
    max_adapter_rank: int,
) -> VLLMEngine:
    del endpoints
    with tempfile.TemporaryDirectory(prefix="pettingllms-") as folder:
        # No weights: those come from the policy, so that there is one source of them.
        loaded.model.config.save_pretrained(folder)
        loaded.tokenizer.save_pretrained(folder)
        return VLLMEngine(
            folder,
            loaded.tokenizer,
            stop_ids=loaded.stop_ids,
            config=config.engine,
            max_adapters=max_adapters,
            max_adapter_rank=max_adapter_rank,
            has_own_process=has_own_process,
            is_continuous=config.is_continuous,
            ranks=ranks,
        )


class VLLMEngine:
    """One model in vLLM, as engine (`Generate`).

    Args:
        directory: Hugging Face directory with configuration and tokenizer; weights come from
            `load_weights`, before the first request.
        tokenizer: The tokenizer.
        stop_ids: Token ids that end a completion.
        config: Precision, memory, lengths.
        max_adapters: LoRA adapters that can be loaded; 0: none.
        max_adapter_rank: Highest rank of an adapter, up to 512.
        has_own_process: Whether it computes in a process of its own, to which weights go through
            files in memory. Of engines that sleep, vLLM allows one per process.
        is_continuous: Whether it takes requests while it computes, in calls that overlap.
        ranks: The processes that load weights together, each into an engine of its own; None for
            this one alone.

    Raises:
        ConfigError: vLLM is not installed, or cannot run this model with these settings.
    """

    def __init__(
        self,
        directory: str | Path,
        tokenizer: PreTrainedTokenizerBase,
        *,
        stop_ids: Iterable[int],
        config: EngineConfig,
        max_adapters: int = 0,
        max_adapter_rank: int = 16,
        has_own_process: bool = False,
        is_continuous: bool = False,
        ranks: Ranks | None = None,
    ) -> None:
        self._ranks = ranks or Ranks()
        self._tokenizer, self._stop_ids = tokenizer, frozenset(stop_ids)
        self._can_sleep, self._is_asleep, self._has_weights = config.vllm.sleep, False, False
        self._max_adapters, self._adapters = max_adapters, dict[str, Any]()
        self._lock, self._num_loads = threading.Lock(), 0
        self._llm = start_engine(
            str(directory),
            config,
            max_adapters=max_adapters,
            max_adapter_rank=max_adapter_rank,
            has_own_process=has_own_process,
        )
        self._is_elsewhere = has_own_process or config.vllm.tensor_parallel_size > 1
        self.is_concurrent = is_continuous
        self._running = RunningRequests(self._llm, in_thread=self._is_elsewhere)
        if self._is_elsewhere:
            self._llm.collective_rpc("end_with", args=(os.getpid(),))
        model = self._llm.model_config
        self.limits = RequestLimits(
            max_batch_tokens=0,
            context_length=int(model.max_model_len),
            vocab_size=int(model.get_vocab_size()),
        )

    @property
    def needs_weights(self) -> bool:
        """Whether nothing can be generated before the next `load_weights`."""
        return self._is_asleep or not self._has_weights

    def check(self, request: GenerateRequest) -> None:
        check_request(request, self.limits)

    async def generate(self, requests: Sequence[GenerateRequest]) -> list[list[TokenCompletion]]:
        """Computes in the calling thread: the batch is all there is to do.

        Raises:
            InvalidArgument: A request cannot be answered by this model.
            GenerationError: The engine failed, or has no weights at present.
        """
        return await self.generate_with(requests, [None] * len(requests))

    async def generate_with(
        self, requests: Sequence[GenerateRequest], adapters: Sequence[str | None]
    ) -> list[list[TokenCompletion]]:
        """Generate with LoRA adapters that were loaded, one for each request or None."""
        if not self.is_concurrent:
            return self.generate_now(requests, adapters)
        begun = self._num_loads
        with _explained("generate"):
            outputs = await self._running.outputs(self._inputs(requests, adapters))
        return self._completions(requests, outputs, begun)

    def generate_now(
        self, requests: Sequence[GenerateRequest], adapters: Sequence[str | None] | None = None
    ) -> list[list[TokenCompletion]]:
        """The completions of each request, in order; for callers without an event loop.

        Args:
            requests: Any number, of any lengths and settings.
            adapters: Name of each request's adapter, or None; None when no request has one.
        """
        inputs = self._inputs(requests, adapters or [None] * len(requests))
        if not inputs:
            return []
        prompts, parameters, loras = map(list, zip(*inputs, strict=True))
        with self._lock, _explained("generate"):  # policies with adapters share an engine
            outputs = self._llm.generate(prompts, parameters, lora_request=loras, use_tqdm=False)
        return self._completions(requests, outputs, self._num_loads)

    def _inputs(
        self, requests: Sequence[GenerateRequest], adapters: Sequence[str | None]
    ) -> list[EngineInput]:
        """Requests as vLLM takes them."""
        if self.needs_weights:
            raise GenerationError("vLLM has no weights while it sleeps; call `load_weights` first")
        for request in requests:
            check_request(request, self.limits)
        return [
            EngineInput(
                {"prompt_token_ids": list(request.prompt_ids)},
                self._parameters(request),
                None if name is None else self._adapters[name],
            )
            for request, name in zip(requests, adapters, strict=True)
        ]

    def _parameters(self, request: GenerateRequest) -> Any:
        vllm, found = import_module("vllm"), sampling_parameters(request, self._stop_ids)
        if form := found.get("structured_outputs"):
            form_parameters = import_module("vllm.sampling_params").StructuredOutputsParams
            found["structured_outputs"] = form_parameters(**form)
        return vllm.SamplingParams(**found, flat_logprobs=True)

    def _completions(
        self, requests: Sequence[GenerateRequest], outputs: Sequence[Any], begun: int
    ) -> list[list[TokenCompletion]]:
        names = list(map(str, range(begun, self._num_loads + 1)))
        return [
            completions_of(self._tokenizer, request, [_raw(one, names) for one in output.outputs])
            for request, output in zip(requests, outputs, strict=True)
        ]

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        """Replace the weights; wakes a sleeping engine.

        Args:
            weights: Names as in a Hugging Face checkpoint, without a head that is tied.

        Raises:
            GenerationError: The weights do not fit, or there is no memory for them.
        """
        self._has_weights = False  # until all of them are there
        with self._running.lock, _explained("load_weights"):
            if self._is_asleep:
                self._wake("weights")
            else:
                self._llm.sleep(level=0, mode="keep")  # no token between old and new
            self._hand_over(weights)
            self._num_loads += 1
            self._llm.llm_engine.set_weight_version(str(self._num_loads))
            if self._is_asleep:
                self._wake("kv_cache")
                for adapter in self._adapters.values():
                    self._read_adapter(adapter)
            self._reset_prefix_cache()
            if not self._is_asleep:
                self._llm.wake_up(tags=["scheduling"])
        self._is_asleep, self._has_weights = False, True

    def _wake(self, what: str) -> None:
        # Blocks that torch keeps for the next update are lost to whoever else is on this GPU.
        torch.cuda.empty_cache()
        self._llm.wake_up(tags=[what])

    def _hand_over(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        if not self._is_elsewhere:
            self._llm.collective_rpc("load_trained_weights", args=(weights,))
            return
        with machine_files(weights, self._llm.model_config.dtype, self._ranks) as folder:
            self._llm.collective_rpc("load_trained_weights", args=(str(folder),))

    def release(self) -> None:
        """Give GPU memory back until the next `load_weights`, if sleep is wanted."""
        if self._can_sleep and not self._is_asleep:
            self._llm.sleep(level=2)
            self._is_asleep = True

    def load_adapter(self, name: str, directory: str | Path) -> None:
        """Load a LoRA adapter, or replace it in place.

        Args:
            name: Any; requests name it.
            directory: As written by peft; must stay until the adapter is replaced.

        Raises:
            InvalidArgument: More adapters than `max_adapters`.
            GenerationError: The adapter does not fit the model.
        """
        known = self._adapters.get(name)
        if known is None and len(self._adapters) >= self._max_adapters:
            raise InvalidArgument(
                "name", name, f"one of {self._max_adapters} adapters",
                "make the engine with a higher `max_adapters`",
            )  # fmt: skip
        number = len(self._adapters) + 1 if known is None else known.lora_int_id
        adapter = import_module("vllm.lora.request").LoRARequest(name, number, str(directory))
        with _explained("load_adapter"):
            self._read_adapter(adapter)
            self._reset_prefix_cache()
        self._adapters[name] = adapter

    def _read_adapter(self, adapter: Any) -> None:
        # Only here: requests with load_inplace would read the files again for every batch.
        names = (adapter.lora_name, adapter.lora_int_id, adapter.lora_path)
        self._llm.llm_engine.add_lora(type(adapter)(*names, load_inplace=True))

    def _reset_prefix_cache(self) -> None:
        # What is being written goes on, after the new weights have read it.
        if not self._llm.reset_prefix_cache(reset_running_requests=True):
            raise RuntimeError("the prefix cache cannot be reset while requests are running")


@contextlib.contextmanager
def _explained(what: str) -> Generator[None]:
    """Turn what vLLM and torch raise into an error with advice."""
    try:
        yield
    except (RuntimeError, ValueError, AssertionError) as error:  # vLLM asserts shapes
        advice = (
            "the GPU is full: lower engine.vllm.gpu_memory_utilization or set engine.vllm.sleep"
            if isinstance(error, torch.OutOfMemoryError)
            else "the engine may be unusable now; resume the run from its newest checkpoint"
        )
        raise GenerationError(
            f"vLLM: {what} failed with {type(error).__name__}: {error}; {advice}"
        ) from error


def _raw(output: Any, names: Sequence[str]) -> RawCompletion:
    spans = [(span.version, span.start) for span in output.weight_versions or ()]
    swaps = swaps_of(spans, names)
    return RawCompletion(output.token_ids, output.logprobs.logprobs, output.finish_reason, swaps)
