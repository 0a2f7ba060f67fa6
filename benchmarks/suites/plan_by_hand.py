"""Memory that the dry run plans for the recipes of GPUs beside arithmetic by hand.

    python benchmarks/suites/plan_by_hand.py

By hand means: from the published sizes of the models and the run file, with none of the plan's
code. Both sides take 1 GiB for CUDA in the trainer, 2 GiB for what vLLM has besides weights and
cache, and half a GiB for CUDA in an engine's process.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from measuring import frame, parser_of, write

from pettingllms_trainers.config.loading import load_config
from pettingllms_trainers.plan import make_plan
from pettingllms_trainers.rollout.environments import make_environments

GIB = 1 << 30
CARD = 80 * GIB
VOCABULARY, HEAD, KEY_VALUE_HEADS = 151_936, 128, 8


class Case(NamedTuple):
    """A recipe, as somebody with a pencil reads it; every policy of it is alike."""

    name: str
    num_gpus: int
    hidden: int
    intermediate: int
    layers: int
    heads: int
    has_own_head: bool
    """Whether the output layer has weights of its own."""
    ranks: int
    """Over which weights, gradients and moments are sharded; 1: no DeepSpeed."""
    prompt: int
    completion: int
    candidates: int
    tokens: int
    """Of a micro-batch."""
    trained: int
    """Policies that learn on a GPU."""
    cache: float
    """Of an engine, in bytes; at most 1: all but weights and 2 GiB in this share of the GPU."""


CASES = (
    Case("gpus/1", 1, 1024, 3072, 28, 16, False, 1, 3840, 256, 4, 8192, 2, 0.3),
    Case("gpus/8", 8, 2560, 9728, 36, 32, False, 8, 4096, 1024, 8, 8192, 2, 16 * GIB),
    Case("gpus/64", 64, 4096, 12288, 36, 32, True, 32, 8192, 4096, 8, 16384, 1, 0.8),
)


def by_hand(case: Case) -> Iterator[tuple[str, float, str]]:
    """Yield quantities on a GPU, of one policy where there are several: name, bytes and how."""
    query, key_value = HEAD * case.heads, HEAD * KEY_VALUE_HEADS
    embedding = VOCABULARY * case.hidden
    attention = case.hidden * (2 * query + 2 * key_value) + 2 * HEAD
    layer = attention + 3 * case.hidden * case.intermediate + 2 * case.hidden
    weights = embedding * (1 + case.has_own_head) + case.layers * layer + case.hidden
    yield "parameters", weights, "embeddings + layers x (attention + 3 matrices + norms)"
    is_sharded = case.ranks > 1
    share = weights / case.ranks
    of_each = 2 if is_sharded else 4
    over = f" / {case.ranks}" if is_sharded else ""
    yield "weights", of_each * share, f"{of_each} B x parameters{over}"
    moments = (12 if is_sharded else 8) * share
    how = "two moments" + ", weights in float32" * is_sharded
    how = f"(gradient 4 B + {how}: {12 if is_sharded else 8} B) x parameters{over}"
    yield "gradients and optimizer state", 4 * share + moments, how

    # A hidden number between two layers: float32 beside float32 weights, else bfloat16.
    residual = case.layers * case.tokens * case.hidden * of_each
    yield "activations between layers", residual, f"{of_each} B x tokens x hidden x layers"
    # Of a token: inputs of two norms and what they give, five products' inputs, gate and up before
    # and after, queries and what comes of them, keys and values, norms of queries and keys.
    norms = 4 * 4 + 5 * 2 if not is_sharded else 2 * 2 + 2 * 4 + 2 * 2
    token = norms * case.hidden + 4 * 2 * case.intermediate + (3 * 2 + 6) * query
    token += (6 + 2 * 2) * key_value
    group = case.prompt + case.candidates * (case.completion - 1)
    completions = case.tokens * case.candidates // group
    targets = completions * case.completion
    # Sharded weights of the output layer are gathered once for all logits, and are in float32 then.
    logits = targets * VOCABULARY if is_sharded else min(targets * VOCABULARY, 1 << 26)
    head = 16 * logits + (4 * embedding if is_sharded else 0)
    yield "logits", head, f"16 B x {logits / 1e6:,.0f} M" + " + head in float32" * is_sharded
    # bfloat16 copies of float32 matrices, but that of the output layer.
    matrices = case.layers * (attention - 2 * HEAD + 3 * case.hidden * case.intermediate)
    copies = 0 if is_sharded else 2 * matrices
    batch = residual + max(head, case.tokens * token) + copies
    yield (
        "micro-batch",
        batch,
        "between layers + larger of logits and a layer"
        + (" + bfloat16 copies of matrices" * (not is_sharded)),
    )

    entry = 2 * 2 * key_value * case.layers
    yield "KV cache of a token", entry, "keys and values x 2 B x 8 heads x 128 x layers"
    full = case.cache * CARD if case.cache <= 1 else case.cache + 2 * weights + 2 * GIB
    cache = full - 2 * weights - 2 * GIB
    fits = f"{cache / entry / 1000:,.0f} thousand tokens"
    yield "KV cache of an engine", cache, f"the engine's memory - 2 B x parameters - 2 GiB: {fits}"
    kept = of_each * share + moments + (4 * share if is_sharded else 0)
    writing = GIB + case.trained * (kept + full + GIB / 2)
    yield "while completions are written", writing, "all trainers' and engines' memory"
    gradients = 0 if is_sharded else 4 * share
    learning = GIB + case.trained * (kept + GIB) + gradients + batch
    yield "while a policy learns", learning, "the same with engines asleep, and a micro-batch"


def planned(case: Case) -> dict[str, float]:
    """Return the same quantities as the dry run has them."""
    config = load_config(f"recipe:{case.name}")
    plan = make_plan(config, make_environments(config), num_gpus=case.num_gpus, gpu_gib=80)
    memory, name = plan.memory, next(iter(plan.shapes))
    own, shape = memory.policies[name], plan.shapes[name]
    return {
        "parameters": shape.num_parameters,
        "weights": own.weights,
        "gradients and optimizer state": own.gradients + own.optimizer,
        "micro-batch": own.activations,
        "KV cache of a token": config.engine.number_bytes * shape.cache_size,
        "KV cache of an engine": memory.kv_cache / len(memory.generating.engines),
        "while completions are written": memory.generating.total,
        "while a policy learns": memory.updating.total,
    }


def rows(case: Case) -> list[dict[str, Any]]:
    """Return the quantities of a recipe; the plan has some of them in a sum only."""
    found = planned(case)
    return [
        {"quantity": name, "by_hand": round(number), "how": how, "planned": found.get(name)}
        for name, number, how in by_hand(case)
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    """Compare all recipes, and write the result."""
    options = parser_of("plan_by_hand", __doc__).parse_args(arguments)
    result = frame("plan_by_hand", [])
    result["hardware"] = "arithmetic alone"
    result["recipes"] = {case.name: rows(case) for case in CASES}
    write(result, options.output)
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
