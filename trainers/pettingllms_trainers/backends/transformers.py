"""The default backend: one `transformers` model in this process samples and learns.

The engine and the update share the weights, so nothing has to be moved after an update, and the
log-probabilities of the engine are those of the trainer up to rounding.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from pettingllms.errors import InvalidArgument
from pettingllms_trainers.backends.attention import use_layouts
from pettingllms_trainers.backends.chat import Chat
from pettingllms_trainers.backends.decoders import ExpandedDecoder, SharedPrefixDecoder
from pettingllms_trainers.backends.decoding import Limits, check_request, generate
from pettingllms_trainers.backends.learner import arithmetic
from pettingllms_trainers.backends.state_file import read_state, write_state
from pettingllms_trainers.backends.updating import TrainingSettings, Updater
from pettingllms_trainers.config import EngineConfig
from pettingllms_trainers.policy import Encode, EncodeAnswer
from pettingllms_trainers.types import (
    Completion,
    Demonstration,
    GenerateRequest,
    Imitation,
    ImitationStep,
    TrainingGroup,
    UpdateStats,
)

__all__ = ["TransformersPolicy"]

_STATE_FILE = "state.pt"


class TransformersPolicy:
    """One policy: a causal LM with its tokenizer, as engine (`Generate`) and learner (`Update`).

    Args:
        model: Any decoder-only causal LM; on its device, in float32. Changed in place by `update`.
        tokenizer: Its tokenizer.
        engine: Attention, batch size, precision.
        training: How it learns; None for a frozen policy.
        chat_template_kwargs: Arguments of the chat template.

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
    ) -> None:
        self.model, self.tokenizer = model.eval(), tokenizer
        self.engine, self.training = engine, training
        chat = Chat(tokenizer, dict(chat_template_kwargs or {}))
        self.encode: Encode = chat.encode
        self.encode_answer: EncodeAnswer = chat.encode_answer
        is_shared = engine.kind == "transformers" and engine.attention == "shared_prefix"
        if is_shared or (training and training.optimizer.packing):
            use_layouts(model)
        self._updater = Updater(model, training, engine.precision) if training else None
        text_config = model.config.get_text_config()
        self.limits = Limits(
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
        """Load a policy from a Hugging Face directory or hub name; weights in float32.

        Args:
            path: Directory or hub name.
            engine: Attention, batch size, precision.
            training: How it learns; None for a frozen policy.
            device: Torch device.
            chat_template_kwargs: Arguments of the chat template.
        """
        dtype = torch.float32
        if training is None and engine.precision == "bfloat16":
            dtype = torch.bfloat16
        model: Any = AutoModelForCausalLM.from_pretrained(path, dtype=dtype)
        return cls(
            model.to(device),
            AutoTokenizer.from_pretrained(path),
            engine=engine,
            training=training,
            chat_template_kwargs=chat_template_kwargs,
        )

    @property
    def is_trainable(self) -> bool:
        """Whether `update` may be called."""
        return self._updater is not None

    is_concurrent = False

    def check(self, request: GenerateRequest) -> None:
        """See `Generate.check`."""
        check_request(request, self.limits)

    async def generate(self, requests: Sequence[GenerateRequest]) -> list[list[Completion]]:
        """See `Generate.generate`. Computes in the calling thread: the batch is all there is to do.

        Raises:
            InvalidArgument: A request cannot be answered by this model.
            GenerationError: The logits are not finite.
        """
        return self.generate_now(requests)

    def generate_now(self, requests: Sequence[GenerateRequest]) -> list[list[Completion]]:
        """Return the completions of each request, in order; for callers without an event loop."""
        is_shared = self.engine.attention == "shared_prefix"
        decoder = SharedPrefixDecoder(self.model) if is_shared else ExpandedDecoder(self.model)
        with arithmetic(self.model, self.engine.precision):
            return generate(
                decoder, self.tokenizer, requests, self.stop_ids, self.limits, self.model.device
            )

    def update(self, groups: Sequence[TrainingGroup]) -> UpdateStats:
        """See `Updater.update`."""
        return self._trained().update(groups)

    def score(self, groups: Sequence[TrainingGroup]) -> list[tuple[tuple[float, ...], ...]]:
        """Return log-probabilities of sampled tokens under the present weights, as trained on."""
        return self._trained().score(groups)

    def imitate(
        self, demonstrations: Sequence[Demonstration], imitation: Imitation
    ) -> Iterator[ImitationStep]:
        """See `Update.imitate`."""
        return self._trained().imitate(demonstrations, imitation)

    def save_state(self, directory: Path) -> None:
        """See `Update.save_state`."""
        write_state(directory / _STATE_FILE, self._trained().state_dict())

    def load_state(self, directory: Path) -> None:
        """See `Update.load_state`."""
        self._trained().load_state_dict(read_state(directory / _STATE_FILE))

    def load_weights(self, directory: Path) -> None:
        """Take the weights that `save_state` wrote, without what only training needs.

        Raises:
            CheckpointError: The files are damaged or of another model; nothing was changed.
        """
        self._trained().load_weights(read_state(directory / _STATE_FILE))

    def named_weights(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the present weights, named as in a Hugging Face directory; tied ones once."""
        for name, parameter in self.model.named_parameters():
            yield name, parameter.detach()

    def save_pretrained(self, directory: str | Path) -> None:
        """Write weights and tokenizer as an ordinary Hugging Face directory."""
        self.model.save_pretrained(directory)
        self.tokenizer.save_pretrained(directory)

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
