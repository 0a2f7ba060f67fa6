"""What makes a run the same run: which keys decide its results, and the hash of them."""

from __future__ import annotations

import hashlib
import json

from pettingllms.state import flat_table
from pettingllms_trainers.config.data import ConfigData
from pettingllms_trainers.config.defaults import learning_rates, warm_start_rates

_PROLONGING = ("num_steps", "evaluation.every", "checkpoint.")
_RESULTLESS = (
    *_PROLONGING,
    "stuck_after",
    "stop_when_stuck",
    "sources",
    "output_dir",
    "logging.",
    "ray.",
    "optimizer.tokens_per_microbatch",
    "optimizer.gradient_checkpointing",
    "optimizer.role_gradients",
    "optimizer.packed_attention",
    "engine.tokens_per_batch",
    "engine.vllm.gpu_memory_utilization",
    "engine.vllm.kv_cache_bytes",
    "engine.vllm.max_num_seqs",
    "engine.vllm.enforce_eager",
    "engine.vllm.sleep",
    "engine.vllm.tensor_parallel_size",
)
_BUDGET = (".max_dollars", ".max_seconds", ".dollars_per_million")


def decides_results(key: str) -> bool:
    """Return whether a run with another value of a key is another run, by more than rounding.

    Where a run writes, what it shows, on which machines it computes and how it fits into their
    memory may differ when it is resumed. So may its number of train steps and how often it is
    evaluated and saved: what is done stays as it is.

    Args:
        key: Such as ``optimizer.learning_rate``.
    """
    is_budget = key.startswith("rewards.") and key.endswith(_BUDGET)
    return not is_budget and not key.startswith(_RESULTLESS)


def config_hash(config: ConfigData) -> str:
    """Return 16 hexadecimal digits of all that decides a run's results.

    Keys with their default values are left out, so that a version with more keys than the one that
    wrote a checkpoint can resume from it.
    """
    given = flat_table(config.model_dump(mode="json", exclude_defaults=True))
    if not config.optimizer.learning_rate:
        given["optimizer.learning_rate"] = learning_rates(config)
    if config.warm_start.num_steps and not config.warm_start.learning_rate:
        given["warm_start.learning_rate"] = warm_start_rates(config)
    data = {key: value for key, value in given.items() if decides_results(key)}
    text = json.dumps(data, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:16]
