"""vLLM started by this process, with a copy of the weights that is renewed by every update."""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
import threading
from collections.abc import Generator, Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from torch import Tensor
from transformers import AutoConfig, PreTrainedTokenizerBase

from pettingllms.errors import InvalidArgument
from pettingllms.loops import DaemonThreads
from pettingllms_trainers.backends.device import kept_generators
from pettingllms_trainers.backends.protocols import EngineSpec
from pettingllms_trainers.backends.vllm.engine import (
    LORA_RANKS,
    WORKER_EXTENSION,
    RawCompletion,
    VLLMEngine,
    VLLMInput,
    swaps_of,
)
from pettingllms_trainers.backends.vllm.handover import machine_files
from pettingllms_trainers.config import EngineConfig
from pettingllms_trainers.errors import ConfigError, GenerationError, MissingPackage
from pettingllms_trainers.ranks import Ranks
from pettingllms_trainers.types import RequestLimits

_CPU_KV_CACHE_BYTES = 256 << 20
_CPU_BLOCK_SIZE = 32
_CPU_MIN_BATCHED_TOKENS = 4096


def build_engine(spec: EngineSpec) -> InProcessVLLM:
    """An engine of this process."""
    config, loaded = spec.config, spec.loaded
    with tempfile.TemporaryDirectory(prefix="pettingllms-") as folder:
        # No weights: those come from the policy, so that there is one source of them.
        loaded.model.config.save_pretrained(folder)
        loaded.tokenizer.save_pretrained(folder)
        return InProcessVLLM(
            folder,
            loaded.tokenizer,
            stop_ids=loaded.stop_ids,
            config=config.engine,
            max_adapters=spec.max_adapters,
            max_adapter_rank=spec.max_adapter_rank,
            has_own_process=spec.has_own_process,
            is_continuous=config.is_continuous,
            ranks=spec.ranks,
        )


class InProcessVLLM(VLLMEngine):
    """A ``vllm.LLM`` of this process, which computes in it or in processes that it starts.

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

    Attributes:
        llm: The ``vllm.LLM``.

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
        self.llm = _started(str(directory), config, max_adapters, max_adapter_rank, has_own_process)
        model = self.llm.model_config
        limits = RequestLimits(
            max_batch_tokens=0,
            context_length=int(model.max_model_len),
            vocab_size=int(model.get_vocab_size()),
        )
        super().__init__(tokenizer, stop_ids, limits, is_concurrent=is_continuous)
        self._ranks = ranks or Ranks()
        self._can_sleep, self._is_asleep, self._has_weights = config.vllm.sleep, False, False
        self._max_adapters, self._adapters = max_adapters, dict[str, Any]()
        self._lock = threading.Lock()
        self._is_elsewhere = has_own_process or config.vllm.tensor_parallel_size > 1
        self._running = _RunningRequests(self.llm, in_thread=self._is_elsewhere)
        if self._is_elsewhere:
            self.llm.collective_rpc("end_with", args=(os.getpid(),))

    @property
    def needs_weights(self) -> bool:
        return self._is_asleep or not self._has_weights

    async def _complete(self, inputs: Sequence[VLLMInput]) -> list[list[RawCompletion]]:
        if self.needs_weights:
            raise GenerationError("vLLM has no weights while it sleeps; call `load_weights` first")
        if not inputs:
            return []
        prompts = [{"prompt_token_ids": list(each.prompt_ids)} for each in inputs]
        parameters = [_sampling_params(each.parameters) for each in inputs]
        adapters = [self._adapters[each.adapter] if each.adapter else None for each in inputs]
        first = self._num_loads
        with _explained("generate"):
            if self.is_concurrent:
                outputs = await self._running.outputs(prompts, parameters, adapters)
            else:
                with self._lock:  # policies with adapters share an engine
                    outputs = self.llm.generate(
                        prompts, parameters, lora_request=adapters, use_tqdm=False
                    )
        names = list(map(str, range(first, self._num_loads + 1)))
        return [[_raw(one, names) for one in output.outputs] for output in outputs]

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        self._has_weights = False  # until all of them are there
        with self._running.lock, _explained("load_weights"):
            if self._is_asleep:
                self._wake("weights")
            else:
                self.llm.sleep(level=0, mode="keep")  # no token between old and new
            self._hand_over(weights)
            self._num_loads += 1
            self.llm.llm_engine.set_weight_version(str(self._num_loads))
            if self._is_asleep:
                self._wake("kv_cache")
                for adapter in self._adapters.values():
                    self._read_adapter(adapter)
            self._reset_prefix_cache()
            if not self._is_asleep:
                self.llm.wake_up(tags=["scheduling"])
        self._is_asleep, self._has_weights = False, True

    def _wake(self, what: str) -> None:
        # Blocks that torch keeps for the next update are lost to whoever else is on this GPU.
        torch.cuda.empty_cache()
        self.llm.wake_up(tags=[what])

    def _hand_over(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        if not self._is_elsewhere:
            self.llm.collective_rpc("load_trained_weights", args=(weights,))
            return
        with machine_files(weights, self.llm.model_config.dtype, self._ranks) as folder:
            self.llm.collective_rpc("load_trained_weights", args=(str(folder),))

    def release(self) -> None:
        if self._can_sleep and not self._is_asleep:
            self.llm.sleep(level=2)
            self._is_asleep = True

    def load_adapter(self, name: str, directory: Path) -> None:
        known = self._adapters.get(name)
        if known is None and len(self._adapters) >= self._max_adapters:
            raise InvalidArgument(
                "name", name, f"one of {self._max_adapters} adapters",
                "make the engine with a higher `max_adapters`",
            )  # fmt: skip
        # vLLM knows adapters by number: one that is replaced keeps its own.
        number = len(self._adapters) + 1 if known is None else known.lora_int_id
        adapter = import_module("vllm.lora.request").LoRARequest(name, number, str(directory))
        with _explained("load_adapter"):
            self._read_adapter(adapter)
            self._reset_prefix_cache()
        self._adapters[name] = adapter

    def _read_adapter(self, adapter: Any) -> None:
        # Only here: requests with load_inplace would read the files again for every batch.
        names = (adapter.lora_name, adapter.lora_int_id, adapter.lora_path)
        self.llm.llm_engine.add_lora(type(adapter)(*names, load_inplace=True))

    def _reset_prefix_cache(self) -> None:
        # What is being written goes on, after the new weights have read it.
        if not self.llm.reset_prefix_cache(reset_running_requests=True):
            raise RuntimeError("the prefix cache cannot be reset while requests are running")


class _RunningRequests:
    """Lets an engine step as long as it has requests, and gives out what is finished.

    Between two steps all coroutines that can run do so, and what they ask for joins the next step.
    An engine in this process steps in the calling thread: what is computed together then depends on
    nothing but the requests. Used by one event loop at a time.

    Args:
        llm: A ``vllm.LLM``.
        in_thread: Whether a step waits for other processes, and coroutines continue meanwhile.
    """

    def __init__(self, llm: Any, *, in_thread: bool) -> None:
        self._llm, self._threads = llm, DaemonThreads(1) if in_thread else None
        self.lock = threading.Lock()
        """Held in a step, which may outlive the event loop's last turn in a train step."""
        self._new: list[tuple[tuple[Any, Any, Any], asyncio.Future[Any]]] = []
        self._running: dict[str, asyncio.Future[Any]] = {}
        self._steps: asyncio.Task[None] | None = None

    async def outputs(
        self, prompts: Sequence[Any], parameters: Sequence[Any], adapters: Sequence[Any]
    ) -> list[Any]:
        """VLLM's output of each request, when all are finished.

        Raises:
            Exception: What vLLM raises; all requests that are running get it.
        """
        loop = asyncio.get_running_loop()
        futures = [loop.create_future() for _ in prompts]
        self._new += zip(zip(prompts, parameters, adapters, strict=True), futures, strict=True)
        if self._steps is None:
            self._steps = loop.create_task(self._step_all())
        return list(await asyncio.gather(*futures))

    async def _step_all(self) -> None:
        try:
            while self._new or self._running:
                self._enqueue()
                # What nobody waits for any more would hold slots and KV cache to its end.
                gone = [name for name, future in self._running.items() if future.cancelled()]
                if gone:
                    self._llm.llm_engine.abort_request(gone)
                for name in gone:
                    del self._running[name]
                # An engine elsewhere that has no requests would never answer.
                for output in await self._step() if self._running else ():
                    if output.finished:
                        future = self._running.pop(output.request_id)
                        if not future.done():  # else whoever asked was cancelled
                            future.set_result(output)
                await asyncio.sleep(0)
        except Exception as error:  # noqa: BLE001  whoever waits gets it
            for future in [*self._running.values(), *(future for _, future in self._new)]:
                if not future.done():
                    future.set_exception(error)
        finally:
            self._new, self._running, self._steps = [], {}, None

    def _enqueue(self) -> None:
        """Hand over what has come; never beside a step, which vLLM does not allow."""
        new, self._new = self._new, []
        for (prompt, parameters, adapter), future in new:
            if future.cancelled():
                continue
            (name,) = self._llm.enqueue(
                [prompt], [parameters], lora_request=[adapter], use_tqdm=False
            )
            # vLLM adds "-" and random characters to the number by which outputs are known.
            self._running[name.partition("-")[0]] = future

    async def _step(self) -> list[Any]:
        if self._threads is None:
            return self._locked_step()
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._locked_step)

    def _locked_step(self) -> list[Any]:
        with self.lock:
            return self._llm.llm_engine.step()


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


def _sampling_params(parameters: dict[str, Any]) -> Any:
    arguments = dict(parameters)
    if form := arguments.get("structured_outputs"):
        form_parameters = import_module("vllm.sampling_params").StructuredOutputsParams
        arguments["structured_outputs"] = form_parameters(**form)
    return import_module("vllm").SamplingParams(**arguments, flat_logprobs=True)


def _raw(output: Any, names: Sequence[str]) -> RawCompletion:
    spans = [(span.version, span.start) for span in output.weight_versions or ()]
    swaps = swaps_of(spans, names)
    return RawCompletion(output.token_ids, output.logprobs.logprobs, output.finish_reason, swaps)


def _started(
    directory: str,
    config: EngineConfig,
    max_adapters: int,
    max_adapter_rank: int,
    has_own_process: bool,
) -> Any:
    _prepare(has_own_process=has_own_process)
    arguments = arguments_of(config)
    if max_adapters:
        # The kernels for CPUs give rows without adapter the last slot, which stays empty.
        slots = max_adapters + 1
        arguments |= {
            "enable_lora": True,
            "max_loras": slots,
            "max_cpu_loras": slots,
            "max_lora_rank": min(rank for rank in LORA_RANKS if rank >= max_adapter_rank),
        }
    if _is_cpu():
        # Seeded requests and chunked prefill do not go together in vLLM's runner for CPUs.
        settings: Any = AutoConfig.from_pretrained(directory).get_text_config()
        longest = arguments.get("max_model_len") or settings.max_position_embeddings
        arguments["enable_chunked_prefill"] = False
        arguments["max_num_batched_tokens"] = max(longest, _CPU_MIN_BATCHED_TOKENS)
    try:
        with kept_generators():
            return import_module("vllm").LLM(model=directory, **arguments)
    except (ValueError, RuntimeError) as error:
        reason = str(error)
        if isinstance(error, ValidationError):
            reason = "; ".join(detail["msg"] for detail in error.errors())
        raise ConfigError(
            f"the vLLM engine cannot be started: {reason}. Look at [engine.vllm]: less "
            "gpu_memory_utilization when other engines or the update need the GPU, more when the "
            "weights do not fit; a lower max_model_len when the KV cache does not"
        ) from error


def _prepare(*, has_own_process: bool) -> None:
    """Settle what vLLM reads from the environment when it is imported."""
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = str(int(has_own_process))
    os.environ["VLLM_WORKER_MULTIPROCESSING_METHOD"] = "spawn"  # threads and CUDA are here already
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    try:
        import_module("vllm")
    except ImportError as error:
        raise MissingPackage('engine.kind = "vllm"', "vllm", "vllm", error) from error


def arguments_of(config: EngineConfig) -> dict[str, Any]:
    """The arguments of ``vllm.LLM`` that the configuration stands for, without those of LoRA."""
    vllm = config.vllm
    arguments: dict[str, Any] = {
        "dtype": config.precision,
        "max_num_seqs": vllm.max_num_seqs,
        "gpu_memory_utilization": vllm.share,
        "enforce_eager": vllm.enforce_eager,
        "enable_sleep_mode": vllm.sleep,
        "logprobs_mode": "processed_logprobs",
        "generation_config": "vllm",
        "worker_extension_cls": WORKER_EXTENSION,
        "load_format": "dummy",  # the policy has the weights
        "seed": 0,
    }
    if vllm.tensor_parallel_size > 1:
        # Processes of this machine; inside a worker of Ray vLLM would ask Ray for others.
        arguments["tensor_parallel_size"] = vllm.tensor_parallel_size
        arguments["distributed_executor_backend"] = "mp"
    if vllm.max_model_len:
        arguments["max_model_len"] = vllm.max_model_len
    if vllm.kv_cache_bytes:
        arguments["kv_cache_memory_bytes"] = vllm.kv_cache_bytes
    if _is_cpu():
        if vllm.sleep:
            raise ConfigError("engine.vllm.sleep = true needs a GPU; vLLM runs on a CPU here")
        arguments |= {
            "enforce_eager": True,
            "kv_cache_memory_bytes": vllm.kv_cache_bytes or _CPU_KV_CACHE_BYTES,
            "block_size": _CPU_BLOCK_SIZE,
        }
    return arguments


def _is_cpu() -> bool:
    return import_module("vllm.platforms").current_platform.is_cpu()
