"""A plain copy of a model whose own weights are shared out among ranks: it generates for them."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from pettingllms_trainers.backends.hf.policy import TransformersPolicy
from pettingllms_trainers.types import GenerateRequest, RequestLimits, TokenCompletion

__all__ = ["CopiedModel"]


class CopiedModel:
    """An engine with all weights of a policy that are nowhere whole; see `TakesWeights`.

    Args:
        policy: Whose weights are to be loaded, before the first request.
    """

    is_concurrent = False

    def __init__(self, policy: TransformersPolicy) -> None:
        config = copy.deepcopy(policy.model.config)
        config._attn_implementation = "sdpa"
        with torch.random.fork_rng(devices=[]):
            model: Any = AutoModelForCausalLM.from_config(config, dtype=policy.model.dtype)
        model.generation_config = policy.model.generation_config
        self._model = model.to(policy.model.device).requires_grad_(False)
        self._engine = TransformersPolicy(self._model, policy.tokenizer, engine=policy.engine)
        self.needs_weights = True

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        """See `TakesWeights.load_weights`."""
        own = dict(self._model.named_parameters())
        for name, weight in weights:
            own[name].copy_(weight)
        self.needs_weights = False

    def release(self) -> None:
        """Do nothing: the copy stays."""

    @property
    def limits(self) -> RequestLimits:
        """See `Generate.limits`."""
        return self._engine.limits

    def check(self, request: GenerateRequest) -> None:
        """See `Generate.check`."""
        self._engine.check(request)

    async def generate(self, requests: Sequence[GenerateRequest]) -> list[list[TokenCompletion]]:
        """See `Generate.generate`."""
        return await self._engine.generate(requests)
