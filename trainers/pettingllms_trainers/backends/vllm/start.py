"""Starting vLLM in this process: its arguments, its environment, and what goes wrong."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any, get_args

from pydantic import ValidationError
from transformers import AutoConfig

from pettingllms_trainers.config.engine import EngineConfig
from pettingllms_trainers.errors import ConfigError
from pettingllms_trainers.generators import kept_generators

__all__ = ["start_engine"]

_EXTENSION = "pettingllms_trainers.backends.vllm.worker.TrainedWeights"
_CPU_KV_CACHE_BYTES = 256 << 20
_CPU_BLOCK_SIZE = 32
_CPU_MIN_BATCHED_TOKENS = 4096


def start_engine(
    directory: str,
    config: EngineConfig,
    *,
    max_adapters: int,
    max_adapter_rank: int,
    has_own_process: bool = False,
) -> Any:
    """A ``vllm.LLM``.

    Args:
        directory: Hugging Face directory with configuration and tokenizer.
        config: Precision, memory, lengths.
        max_adapters: LoRA adapters that can be loaded; 0: none.
        max_adapter_rank: Highest rank of an adapter, up to 512.
        has_own_process: Whether the engine computes in a process of its own.

    Raises:
        ConfigError: vLLM is not installed, or cannot run this model with these settings.
    """
    _prepare(has_own_process=has_own_process)
    arguments = _arguments(config)
    if max_adapters:
        arguments |= _lora_arguments(max_adapters, max_adapter_rank)
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
        raise ConfigError(
            f"the vLLM engine cannot be started: {_reason(error)}. Look at [engine.vllm]: less "
            "gpu_memory_utilization when other engines or the update need the GPU, more when the "
            "weights do not fit; a lower max_model_len when the KV cache does not"
        ) from error


def _arguments(config: EngineConfig) -> dict[str, Any]:
    """The arguments of ``vllm.LLM`` that the configuration stands for."""
    vllm = config.vllm
    arguments: dict[str, Any] = {
        "dtype": config.precision,
        "max_num_seqs": vllm.max_num_seqs,
        "gpu_memory_utilization": vllm.gpu_memory_utilization,
        "enforce_eager": vllm.enforce_eager,
        "enable_sleep_mode": vllm.sleep,
        "logprobs_mode": "processed_logprobs",
        "generation_config": "vllm",
        "worker_extension_cls": _EXTENSION,
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


def _lora_arguments(max_adapters: int, max_rank: int) -> dict[str, Any]:
    # The kernels for CPUs give rows without adapter the last slot, which stays empty.
    slots = max_adapters + 1
    ranks = get_args(import_module("vllm.config.lora").MaxLoRARanks)
    return {
        "enable_lora": True,
        "max_loras": slots,
        "max_cpu_loras": slots,
        "max_lora_rank": min(rank for rank in ranks if rank >= max_rank),
    }


def _prepare(*, has_own_process: bool) -> None:
    """Settle what vLLM reads from the environment when it is imported.

    Raises:
        ConfigError: vLLM is not installed.
    """
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = str(int(has_own_process))
    os.environ["VLLM_WORKER_MULTIPROCESSING_METHOD"] = "spawn"  # threads and CUDA are here already
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    try:
        import_module("vllm")
    except ImportError as error:
        raise ConfigError(
            f'engine.kind = "vllm" needs the package vllm, which cannot be imported ({error}). '
            'Install it with: pip install "pettingllms-trainers[vllm]"'
        ) from error


def _is_cpu() -> bool:
    return import_module("vllm.platforms").current_platform.is_cpu()


def _reason(error: Exception) -> str:
    if isinstance(error, ValidationError):
        return "; ".join(detail["msg"] for detail in error.errors())
    return str(error)
