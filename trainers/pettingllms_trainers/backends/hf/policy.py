"""A policy from its parts, and its weights on their way out: to engines and into directories."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pettingllms_trainers.backends.hf.chat import Chat, write_chat
from pettingllms_trainers.backends.hf.engine import TransformersEngine
from pettingllms_trainers.backends.hf.grammars import Grammars
from pettingllms_trainers.backends.hf.learner import Learner, arithmetic
from pettingllms_trainers.backends.hf.model import (
    LoadedModel,
    is_head_last,
    keep_freed_memory,
    use_float32_head,
    use_onednn,
)
from pettingllms_trainers.backends.hf.self_check import check_model
from pettingllms_trainers.backends.hf.updater import TrainingSettings, Updater
from pettingllms_trainers.backends.hf.weights import ModelWeights
from pettingllms_trainers.config import EngineConfig
from pettingllms_trainers.ranks import Ranks

NewLearner = Callable[..., Learner]
"""Model, optimizer settings, precision and ranks to what trains it; see `Learner.plain`."""


class TransformersPolicy:
    """Puts the parts of a policy together; each does one job and knows the model alone.

    Its weights leave it by `named_weights`, `save_pretrained` and `save_merged`.

    Args:
        loaded: The model, in float32 if its own weights are trained.
        engine: Attention, batch size, precision.
        training: How it learns; None for a frozen policy.
        chat_template_kwargs: Arguments of the chat template, over those of the model's directory.
        tool_parser: See `PolicyConfig.tool_parser`.
        ranks: The processes that train it together; None for this one alone.
        new_learner: Makes what trains the model.

    Attributes:
        loaded: The model.
        chat: Messages and answers to token ids.
        engine: Generates with the model itself.
        grammars: Enforces forms of answers; None: they are free.
        updater: Trains it; None for a frozen policy.
        is_sharded: Whether no process holds full weights, so that `engine` cannot generate.

    Raises:
        InvalidArgument: The model does not give a sequence the same in a batch and alone.
        ConfigError: Forms are to be enforced, and xgrammar is not installed.
    """

    def __init__(
        self,
        loaded: LoadedModel,
        *,
        engine: EngineConfig,
        training: TrainingSettings | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        tool_parser: str = "",
        ranks: Ranks | None = None,
        new_learner: NewLearner = Learner.plain,
    ) -> None:
        self.loaded, self._ranks = loaded, ranks or Ranks()
        loaded.model.eval()
        # A setting of the process, which a GPU does not need.
        if loaded.model.device.type == "cpu":
            keep_freed_memory()
        if engine.precision == "bfloat16":
            use_float32_head(loaded.model)
        self.chat = Chat.of(loaded.tokenizer, loaded.stored, chat_template_kwargs, tool_parser)
        wants_sharing = not engine.has_copy and engine.attention == "shared_prefix"
        wants_packing = training is not None and training.optimizer.packing
        learner, is_right = None, True
        if training is not None:
            arguments = (loaded.model, training.optimizer, engine.precision, self._ranks)
            if loaded.adapter is None:
                learner = new_learner(*arguments)
            else:  # adapters are not sharded
                learner = Learner.plain(*arguments, loaded.adapter)
        if engine.precision == "float32":  # by the device that has the weights now
            use_onednn(loaded.model)
        if not engine.has_copy or training is not None:
            packed = training.optimizer.packed_attention if training and wants_packing else "padded"
            # Weights that are sharded can be computed with behind their optimizer only.
            sharded = learner.optimizer.forward if learner and learner.weights.is_sharded else None
            is_right = check_model(loaded, engine.precision, packed, sharded) is None
        self.grammars = _grammars(loaded) if engine.guided_decoding else None
        self.engine = TransformersEngine(
            loaded,
            engine,
            shares_prompts=wants_sharing and is_right,
            grammars=self.grammars,
        )
        self.updater: Updater | None = None
        self._weights = learner.weights if learner else ModelWeights(loaded.model, self._ranks)
        self.is_sharded = self._weights.is_sharded
        if learner and training:
            learner.is_packed = wants_packing and is_right
            learner.grammars = self.grammars
            # No process could compare the logits of a head that is sharded.
            if not self.is_sharded:
                with arithmetic(loaded.model, engine.precision):
                    learner.is_chunked = is_head_last(loaded.model)
            self.updater = Updater(loaded, learner, training, self.save_pretrained, self._ranks)

    @classmethod
    def from_pretrained(
        cls,
        path: str | Path,
        *,
        engine: EngineConfig,
        training: TrainingSettings | None = None,
        device: str | torch.device = "cpu",
        **settings: Any,
    ) -> TransformersPolicy:
        """Load a policy from a Hugging Face directory or hub name, or a directory with an adapter.

        Raises:
            OSError: It cannot be loaded.
            InvalidArgument: It is an adapter that cannot be used.
        """
        loaded = LoadedModel.from_pretrained(
            path, precision=engine.precision, is_trained=training is not None, device=device
        )
        return cls(loaded, engine=engine, training=training, **settings)

    def named_weights(self) -> Iterator[tuple[str, Tensor]]:
        """Yield full weights, named as in a Hugging Face directory; tied ones once. Collective.

        Those of a policy with an adapter are the base's, which never change.
        """
        adapter = self.loaded.adapter
        return self._weights.named() if adapter is None else adapter.base.named_weights()

    def save_pretrained(self, directory: Path, *, final: Path | None = None) -> None:
        """Write weights and tokenizer as a Hugging Face directory, an adapter as peft's.

        Collective. An adapter directory names its base model; one of random weights is written into
        it.
        """
        adapter = self.loaded.adapter
        if adapter is None:
            self._weights.save_pretrained(directory)
        elif self._ranks.is_main:
            adapter.save(directory, final=final)
        if self._ranks.is_main:
            self._save_chat(directory)

    def save_merged(self, directory: Path) -> None:
        """Write an ordinary Hugging Face directory, an adapter added to the weights of its base."""
        adapter = self.loaded.adapter
        if adapter is None:
            self.save_pretrained(directory)
            return
        adapter.save_merged(directory)
        self._save_chat(directory)

    def _save_chat(self, directory: Path) -> None:
        self.chat.tokenizer.save_pretrained(directory)
        write_chat(directory, self.chat)


def _grammars(loaded: LoadedModel) -> Grammars:
    return Grammars(loaded.tokenizer, loaded.limits(0).vocab_size, loaded.stop_ids)
