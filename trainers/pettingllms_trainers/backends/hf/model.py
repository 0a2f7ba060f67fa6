"""A model in memory with its tokenizer: what an engine, an updater and an exporter share."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from pettingllms_trainers.backends.hf.adapters import Adapter, AdapterBase, load_model
from pettingllms_trainers.backends.hf.chat import read_template_kwargs
from pettingllms_trainers.config.policies import base_of_adapter
from pettingllms_trainers.types import RequestLimits

__all__ = ["LoadedModel"]


@dataclass(frozen=True, eq=False, slots=True)
class LoadedModel:
    """A causal language model, or one adapter of a base that several policies share."""

    model: PreTrainedModel
    """Decoder-only, on its device; that of the base where there is an adapter."""
    tokenizer: PreTrainedTokenizerBase
    """Its tokenizer."""
    adapter: Adapter | None = None
    """None when all weights are the model's own."""
    template_kwargs: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Arguments of the chat template that were stored with it."""

    @classmethod
    def from_pretrained(
        cls,
        path: str | Path,
        *,
        precision: str,
        is_trained: bool,
        device: str | torch.device | None = "cpu",
    ) -> LoadedModel:
        """Load a Hugging Face directory or hub name, or a directory with an adapter.

        Args:
            path: Directory or hub name.
            precision: ``float32`` or ``bfloat16``, also of weights that are not trained.
            is_trained: Whether a model's own weights are, so that they stay in float32; an
                adapter's always do.
            device: Torch device; None: where it is loaded.

        Raises:
            OSError: It cannot be loaded.
            InvalidArgument: It is an adapter that cannot be used.
        """
        source = base_of_adapter(path)
        if source is not None:
            base = AdapterBase.from_pretrained(source, precision=precision, device=device or "cpu")
            return cls.of_adapter(base.read(Path(path).name, Path(path)), path)
        dtype = torch.bfloat16 if precision == "bfloat16" and not is_trained else torch.float32
        model, tokenizer = load_model(path, dtype, device), AutoTokenizer.from_pretrained(path)
        return cls(model, tokenizer, template_kwargs=read_template_kwargs(path))

    @classmethod
    def of_adapter(cls, adapter: Adapter, path: str | Path | None = None) -> LoadedModel:
        """Return an adapter with the model of its base.

        Args:
            adapter: The adapter.
            path: What it, or the base for a new one, was read from; None: from nowhere.
        """
        kwargs = {} if path is None else read_template_kwargs(path)
        return cls(adapter.base.model, adapter.tokenizer, adapter, kwargs)

    def active(self) -> contextlib.AbstractContextManager[None]:
        """Return the context in which the model computes with this adapter, if there is one."""
        return contextlib.nullcontext() if self.adapter is None else self.adapter.active()

    def limits(self, max_batch_tokens: int) -> RequestLimits:
        """Return what a request is compared with."""
        config = self.model.config.get_text_config()
        return RequestLimits(
            max_batch_tokens=max_batch_tokens,
            context_length=getattr(config, "max_position_embeddings", None),
            vocab_size=config.vocab_size,
        )

    @property
    def stop_ids(self) -> frozenset[int]:
        """Token ids that end a completion: of the generation settings and the tokenizer."""
        settings = getattr(self.model, "generation_config", None)
        found: list[Any] = []
        for ids in (getattr(settings, "eos_token_id", None), self.tokenizer.eos_token_id):
            found += ids if isinstance(ids, list) else [ids]
        return frozenset(int(token) for token in found if token is not None)
