"""The default backend: one `transformers` model in this process samples and learns.

The engine and the update share the weights, so nothing has to be moved after an update, and the
log-probabilities of the engine are those of the trainer up to rounding.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from pettingllms.errors import InvalidArgument
from pettingllms_trainers.backends.hf.adapters import Adapter, AdapterBase, load_model
from pettingllms_trainers.backends.hf.attention import use_layouts
from pettingllms_trainers.backends.hf.chat import Chat
from pettingllms_trainers.backends.hf.decoders import ExpandedDecoder, SharedPrefixDecoder
from pettingllms_trainers.backends.hf.decoding import generate
from pettingllms_trainers.backends.hf.learner import arithmetic
from pettingllms_trainers.backends.hf.updating import TrainingSettings, Updater
from pettingllms_trainers.config import EngineConfig
from pettingllms_trainers.config.policies import base_of_adapter
from pettingllms_trainers.policies.protocols import Encode, EncodeAnswer
from pettingllms_trainers.policies.requests import check_request
from pettingllms_trainers.types import (
    Demonstration,
    GenerateRequest,
    Imitation,
    ImitationStep,
    RequestLimits,
    TokenCompletion,
    TrainingGroup,
    UpdateStats,
)

__all__ = ["TransformersPolicy"]


class TransformersPolicy:
    """One policy: a causal LM with its tokenizer, as engine (`Generate`) and learner (`Update`).

    Args:
        model: Any decoder-only causal LM, on its device; in float32 if its own weights are trained.
            Changed in place by `update`.
        tokenizer: Its tokenizer.
        engine: Attention, batch size, precision.
        training: How it learns; None for a frozen policy.
        chat_template_kwargs: Arguments of the chat template.
        adapter: What the policy has of a base that it shares with others, the model being that of
            the base; None when all weights are its own.

    Raises:
        InvalidArgument: Shared-prefix attention or packing cannot be used with this model.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        *,
        engine: EngineConfig,
        training: TrainingSettings | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        adapter: Adapter | None = None,
    ) -> None:
        self.adapter = adapter
        self.model, self.tokenizer = model.eval(), tokenizer
        self.engine, self.training = engine, training
        chat = Chat(tokenizer, dict(chat_template_kwargs or {}))
        self.encode: Encode = chat.encode
        self.encode_answer: EncodeAnswer = chat.encode_answer
        is_shared = engine.kind == "transformers" and engine.attention == "shared_prefix"
        if is_shared or (training and training.optimizer.packing):
            use_layouts(model)
        with self._active():
            self._updater = Updater(model, training, engine.precision) if training else None
        text_config = model.config.get_text_config()
        self.limits = RequestLimits(
            max_batch_tokens=engine.tokens_per_batch,
            context_length=getattr(text_config, "max_position_embeddings", None),
            vocab_size=text_config.vocab_size,
        )
        self.stop_ids = _stop_ids(model, tokenizer)

    @classmethod
    def from_pretrained(
        cls,
        path: str | Path,
        *,
        engine: EngineConfig,
        training: TrainingSettings | None = None,
        device: str | torch.device = "cpu",
        chat_template_kwargs: Mapping[str, Any] | None = None,
    ) -> TransformersPolicy:
        """Load a policy from a Hugging Face directory or hub name, or a directory with an adapter.

        Args:
            path: Directory or hub name.
            engine: Attention, batch size, precision; weights that are trained are in float32.
            training: How it learns; None for a frozen policy.
            device: Torch device.
            chat_template_kwargs: Arguments of the chat template.

        Raises:
            OSError: It cannot be loaded.
            InvalidArgument: It is an adapter that cannot be used.
        """
        settings: dict[str, Any] = {
            "engine": engine, "training": training, "chat_template_kwargs": chat_template_kwargs
        }  # fmt: skip
        source = base_of_adapter(path)
        if source is not None:
            base = AdapterBase.from_pretrained(source, precision=engine.precision, device=device)
            return cls.on_base(base.read(Path(path).name, Path(path)), **settings)
        # DeepSpeed keeps weights in float32 beside these, and moves what it shares out.
        stage = training.deepspeed.stage if training else 0
        is_bfloat16 = engine.precision == "bfloat16" and (training is None or stage > 0)
        device = "cpu" if stage == 3 else device
        model = load_model(path, torch.bfloat16 if is_bfloat16 else torch.float32, device)
        return cls(model, AutoTokenizer.from_pretrained(path), **settings)

    @classmethod
    def on_base(cls, adapter: Adapter, **settings: Any) -> TransformersPolicy:
        """Return the policy of an adapter; settings are those of the class."""
        return cls(adapter.base.model, adapter.tokenizer, adapter=adapter, **settings)

    @property
    def is_sharded(self) -> bool:
        """Whether the weights are nowhere whole, so that this object cannot generate."""
        return self.training is not None and self.training.deepspeed.stage == 3

    @property
    def is_trainable(self) -> bool:
        """Whether `update` may be called."""
        return self._updater is not None

    is_concurrent = False

    def check(self, request: GenerateRequest) -> None:
        """See `Generate.check`."""
        check_request(request, self.limits)

    async def generate(self, requests: Sequence[GenerateRequest]) -> list[list[TokenCompletion]]:
        """See `Generate.generate`. Computes in the calling thread: the batch is all there is to do.

        Raises:
            InvalidArgument: A request cannot be answered by this model.
            GenerationError: The logits are not finite.
        """
        return self.generate_now(requests)

    def generate_now(self, requests: Sequence[GenerateRequest]) -> list[list[TokenCompletion]]:
        """Return the completions of each request, in order; for callers without an event loop."""
        is_shared = self.engine.attention == "shared_prefix"
        decoder = SharedPrefixDecoder(self.model) if is_shared else ExpandedDecoder(self.model)
        with self._active(), arithmetic(self.model, self.engine.precision):
            return generate(
                decoder, self.tokenizer, requests, self.stop_ids, self.limits, self.model.device
            )

    def update(self, groups: Sequence[TrainingGroup]) -> UpdateStats:
        """See `Updater.update`."""
        with self._active():
            return self._trained().update(groups)

    def score(self, groups: Sequence[TrainingGroup]) -> list[tuple[tuple[float, ...], ...]]:
        """Return log-probabilities of sampled tokens under the present weights, as trained on."""
        with self._active():
            return self._trained().score(groups)

    def imitate(
        self, demonstrations: Sequence[Demonstration], imitation: Imitation
    ) -> Iterator[ImitationStep]:
        """See `Update.imitate`."""
        with self._active():
            steps = self._trained().imitate(demonstrations, imitation)
        while True:
            with self._active():  # not between two steps, when others may go on
                step = next(steps, None)
            if step is None:
                return
            yield step

    def save_state(self, directory: Path) -> None:
        """See `Update.save_state`."""
        self._trained().save(directory)

    def load_state(self, directory: Path) -> None:
        """See `Update.load_state`."""
        self._trained().load(directory)

    def load_weights(self, directory: Path) -> None:
        """Take the weights that `save_state` wrote, without what only training needs.

        Raises:
            CheckpointError: The files are damaged or of another model; nothing was changed.
        """
        self._trained().load_weights(directory)

    def named_weights(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the model's own weights, named as in a Hugging Face directory; tied ones once.

        Those of a policy with an adapter are the base's, and stay.
        """
        if self.adapter is not None:
            yield from self.adapter.base.named_weights()
            return
        if self._updater is not None:
            yield from self._updater.named_weights()
            return
        for name, parameter in self.model.named_parameters():
            yield name, parameter.detach()

    def save_pretrained(self, directory: str | Path, *, final: Path | None = None) -> None:
        """Write weights and tokenizer as an ordinary Hugging Face directory; an adapter as peft's.

        An adapter directory names its base model; one of random weights is written into it.

        Args:
            directory: Where to write.
            final: Where the directory will be moved to; None when it stays.
        """
        if self._updater is not None and self.adapter is None:
            self._updater.save_pretrained(Path(directory))
        elif self._is_writer:
            self._save_frozen(Path(directory), final)
        if self._is_writer:
            self.tokenizer.save_pretrained(directory)

    def _save_frozen(self, directory: Path, final: Path | None) -> None:
        if self.adapter is None:
            self.model.save_pretrained(directory)
        else:
            self.adapter.save(directory, final=final)

    @property
    def _is_writer(self) -> bool:
        return self.training is None or self.training.ranks.is_main

    def save_merged(self, directory: str | Path) -> None:
        """Write an ordinary Hugging Face directory, an adapter added to the weights of its base."""
        if self.adapter is None:
            self.model.save_pretrained(directory)
        else:
            self.adapter.save_merged(Path(directory))
        self.tokenizer.save_pretrained(directory)

    def _active(self) -> contextlib.AbstractContextManager[None]:
        """Return the context in which the model computes as this policy."""
        return contextlib.nullcontext() if self.adapter is None else self.adapter.active()

    def _trained(self) -> Updater:
        if self._updater is None:
            raise InvalidArgument(
                "policy", "a frozen policy", "a policy with training settings",
                "set frozen = false, or leave its update out",
            )  # fmt: skip
        return self._updater


def _stop_ids(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """Return the token ids that end a completion: of the generation settings and the tokenizer."""
    settings = getattr(model, "generation_config", None)
    found: list[Any] = []
    for ids in (getattr(settings, "eos_token_id", None), tokenizer.eos_token_id):
        found += ids if isinstance(ids, list) else [ids]
    return frozenset(int(token) for token in found if token is not None)
