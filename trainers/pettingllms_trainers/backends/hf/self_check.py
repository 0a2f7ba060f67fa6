"""Whether a model computes the same in all the ways that training uses, found out at the start.

Shared prompts and packing replace a model's attention. That is right for a family only if all that
its tokens see of each other goes through this attention, which no property of a configuration
promises: some mix neighbouring tokens elsewhere, change the scores, or keep a state. So every model
is asked, with its own weights: a few tokens, a second or so, before anything is spent.

Legend: P prompt length, T completion length, V vocabulary.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from transformers import PreTrainedModel

from pettingllms.errors import InvalidArgument, PettingLLMsError
from pettingllms_trainers.backends.hf.attention import use_layouts
from pettingllms_trainers.backends.hf.engine import (
    Decoder,
    ExpandedDecoder,
    SharedPrefixDecoder,
    generate,
)
from pettingllms_trainers.backends.hf.flex import PackedAttention, uses_flex
from pettingllms_trainers.backends.hf.learner import arithmetic, target_logits
from pettingllms_trainers.backends.hf.model import LoadedModel
from pettingllms_trainers.errors import reason_of
from pettingllms_trainers.learning.batch import micro_batches, weighted_groups
from pettingllms_trainers.types import (
    GenerateRequest,
    SamplingSettings,
    TrainingCompletion,
    TrainingGroup,
)

logger = logging.getLogger(__name__)

LIMITS = {"float32": 1e-3, "bfloat16": 7e-2}
"""Mean distance of log-probabilities, in nats, that rounding explains."""

_WRONG = {"float32": 2e-3, "bfloat16": 0.1}
"""A family whose tokens see too much or too little is off by 0.1 and more."""

_SPREAD = 3.0
"""Packed rows round in other places than ordinary batches do: they may be this much further off."""

_PROMPTS, _COMPLETIONS = (9, 4), (6, 3)
"""Lengths in tokens: two prompts, each with two completions of either length."""

_ANY = (PettingLLMsError, RuntimeError, ValueError, TypeError, AttributeError, LookupError)
"""How a model fails that meets an attention, a batch or a cache that its authors never tried."""

_checked: WeakKeyDictionary[PreTrainedModel, dict[bool, str | None]] = WeakKeyDictionary()
"""Model, and whether its packed completions attend by FlexAttention, to what was found."""


def check_model(
    loaded: LoadedModel,
    precision: str,
    packed: PackedAttention = "padded",
    sharded: Any = None,
) -> str | None:
    """Compare packed, padded and generated log-probabilities with forward passes of one sequence.

    Models with the same weights in memory are checked once. The attention of the model is replaced
    if that is right, and as it was if not.

    Args:
        loaded: The model, in evaluation mode.
        precision: Arithmetic of the run.
        packed: How packed completions attend; see `OptimizerConfig.packed_attention`.
        sharded: What computes with the model where its weights are sharded, on all ranks at once;
            such a model does not generate. None: the model itself.

    Returns:
        Why prompts cannot be shared nor packed; None when they can.

    Raises:
        InvalidArgument: The model computes something else in plain batches too, so that it cannot
            be trained.
    """
    model = loaded.model
    found = _checked.setdefault(model, {})
    is_flex = model.device.type == "cuda" and uses_flex(model, packed)
    # Policies of one base share its model, and the answer.
    if is_flex not in found:
        found[is_flex] = _check(loaded, precision, is_flex, sharded)
        if found[is_flex] is not None:
            logger.warning(
                "%s: prompts are neither shared nor packed, which takes longer and gives the same "
                "result: %s",
                type(model).__name__,
                found[is_flex],
            )
    return found[is_flex]


def _check(loaded: LoadedModel, precision: str, is_flex: bool, sharded: Any) -> str | None:
    model, context = loaded.model, loaded.limits(0).context_length
    if context is not None and context < _PROMPTS[0] + _COMPLETIONS[0]:
        return f"its context of {context} tokens is too short for a check"
    own_attention = model.config._attn_implementation or "eager"
    forward = model if sharded is None else sharded
    with torch.no_grad(), arithmetic(model, precision):
        groups = _groups(loaded)
        alone, rounding = _checked_alone(loaded, groups, LIMITS[precision], sharded)
        # Ordinary batches show how much this model's own rounding is.
        # A model that rounds much in ordinary batches may do so in packed ones.
        limit = min(max(LIMITS[precision], _SPREAD * rounding), _WRONG[precision])
        try:
            use_layouts(model)
            found = {
                "packed": _batched(forward, groups, alone, is_packed=True, is_flex=is_flex),
                "padded": _batched(forward, groups, alone, is_packed=False),
            }
            if sharded is None:
                found["generated"] = _generated(loaded, SharedPrefixDecoder(model))
            wrong = {way: gap for way, gap in found.items() if not gap <= limit}
            if not wrong:
                return None
            way, gap = next(iter(wrong.items()))
            reason = (
                f"{way} log-probabilities are {gap:.2g} nats from those of one sequence alone; "
                f"rounding explains {limit:.2g}"
            )
        except _ANY as error:
            reason = reason_of(error)
    # An ordinary model again, for the plain way.
    model.set_attn_implementation(own_attention)
    return reason


def _checked_alone(
    loaded: LoadedModel, groups: Sequence[TrainingGroup], limit: float, sharded: Any
) -> tuple[Tensor, float]:
    """The log-probabilities ``[M]`` of each row alone, and how far ordinary batches are off.

    Raises:
        InvalidArgument: Ordinary batches give others; everything else falls back to those.
    """
    model = loaded.model
    forward = model if sharded is None else sharded
    try:
        alone = _alone(forward, groups)
        found = {"padded": _batched(forward, groups, alone, is_packed=False)}
        if sharded is None:
            found["generated"] = _generated(loaded, ExpandedDecoder(model))
    # Our own messages need no class name.
    except PettingLLMsError as error:
        problem = str(error)
    except _ANY as error:
        problem = f"{type(error).__name__}: {reason_of(error)}"
    else:
        wrong = [
            f"{way} ones are {gap:.2g} nats off" for way, gap in found.items() if not gap <= limit
        ]
        problem = ", ".join(wrong)
        if not wrong:
            return alone, max(found.values())
    raise InvalidArgument(
        "model", type(model).__name__,
        "a causal language model that gives a sequence the same log-probabilities in a batch and "
        f"alone ({problem}; rounding explains {limit:g})",
        "choose a model of another family",
    )  # fmt: skip


def _groups(loaded: LoadedModel) -> list[TrainingGroup]:
    """Two groups of random tokens, with their sampling log-probabilities left at 0."""
    generator = torch.Generator().manual_seed(0)

    def tokens(count: int) -> tuple[int, ...]:
        size = loaded.limits(0).vocab_size
        return tuple(torch.randint(size, (count,), generator=generator).tolist())

    return [
        TrainingGroup(
            role="",
            prompt_ids=tokens(length),
            completions=tuple(
                TrainingCompletion(tokens(own), (0.0,) * own, 0.0) for own in _COMPLETIONS
            ),
        )
        for length in _PROMPTS
    ]


def _alone(model: Any, groups: Sequence[TrainingGroup]) -> Tensor:
    """The log-probabilities of all completions ``[M]``, each row by itself, unpadded."""
    rows = [(g.prompt_ids, c.token_ids) for g in groups for c in g.completions]
    return torch.cat([_of_row(model, prompt, completion) for prompt, completion in rows])


def _of_row(model: Any, prompt: Sequence[int], completion: Sequence[int]) -> Tensor:
    token_ids = torch.tensor([[*prompt, *completion]], device=model.device)
    output = model(input_ids=token_ids, use_cache=False)
    logits = output.logits[0, len(prompt) - 1 : -1].float()  # [T, V]
    targets = token_ids[0, len(prompt) :, None]
    return logits.log_softmax(-1).gather(1, targets).squeeze(1)


def _batched(
    model: Any,
    groups: Sequence[TrainingGroup],
    alone: Tensor,
    *,
    is_packed: bool,
    is_flex: bool = False,
) -> float:
    """The mean distance of log-probabilities as the update computes them."""
    weighted = weighted_groups(groups, "token_mean", 1)
    (batch,) = micro_batches(weighted, max_tokens=10**6, is_packed=is_packed)
    batch = batch.to(model.device)
    logits = target_logits(model, batch, is_flex=is_flex).float()
    logprobs = logits.log_softmax(-1).gather(1, batch.targets[0].token_ids[:, None]).squeeze(1)
    return float((logprobs - alone).abs().mean())


def _generated(loaded: LoadedModel, decoder: Decoder) -> float:
    """The mean distance of a decoder's log-probabilities from those of a forward pass."""
    requests = [
        GenerateRequest(
            prompt_ids=group.prompt_ids,
            num_candidates=2,
            sampling=SamplingSettings(max_completion_tokens=_COMPLETIONS[0]),
            seed=seed,
        )
        for seed, group in enumerate(_groups(loaded))
    ]
    written = generate(
        decoder, requests, tokenizer=loaded.tokenizer, stop_ids=(), limits=loaded.limits(10**6)
    )
    completions = [
        (r.prompt_ids, c) for r, group in zip(requests, written, strict=True) for c in group
    ]
    expected = [_of_row(loaded.model, prompt, c.token_ids) for prompt, c in completions]
    own = torch.tensor(list(itertools.chain(*(c.logprobs for _, c in completions))))
    return float((torch.cat(expected).cpu() - own).abs().mean())
