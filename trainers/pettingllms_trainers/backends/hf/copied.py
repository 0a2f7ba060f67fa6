"""A plain copy of a model whose own weights are sharded over ranks: it generates for them."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from pettingllms_trainers.backends.hf.engine import TransformersEngine
from pettingllms_trainers.backends.hf.head import use_float32_head
from pettingllms_trainers.backends.hf.model import LoadedModel
from pettingllms_trainers.backends.hf.self_check import check_model
from pettingllms_trainers.config import EngineConfig

__all__ = ["CopiedModel"]


class CopiedModel(TransformersEngine):
    """An engine with full weights of its own; see `TakesWeights`.

    Args:
        loaded: Whose weights are to be loaded, before the first request.
        config: Attention, batch size, precision.
    """

    def __init__(self, loaded: LoadedModel, config: EngineConfig) -> None:
        model_config = copy.deepcopy(loaded.model.config)
        model_config._attn_implementation = "sdpa"
        with torch.random.fork_rng(devices=[]):
            model: Any = AutoModelForCausalLM.from_config(model_config, dtype=loaded.model.dtype)
        model.generation_config = loaded.model.generation_config
        self._model = model.to(loaded.model.device).eval().requires_grad_(False)
        if config.precision == "bfloat16":
            use_float32_head(self._model)
        copied = LoadedModel(self._model, loaded.tokenizer)
        wants_sharing = config.attention == "shared_prefix"
        shares_prompts = wants_sharing and check_model(copied, config.precision) is None
        super().__init__(copied, config, shares_prompts=shares_prompts)
        self.needs_weights = True

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        """See `TakesWeights.load_weights`."""
        own = dict(self._model.named_parameters())
        for name, weight in weights:
            own[name].copy_(weight)
        self.needs_weights = False

    def release(self) -> None:
        """Do nothing: the copy stays."""
