"""A policy's weights on their way out: to engines that have a copy, and into directories."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from torch import Tensor

from pettingllms_trainers.backends.hf.chat import Chat, write_template_kwargs
from pettingllms_trainers.backends.hf.model import LoadedModel
from pettingllms_trainers.backends.hf.weights import Weights
from pettingllms_trainers.ranks import Ranks

__all__ = ["Exporter"]


class Exporter:
    """Reads a policy's present weights.

    Args:
        loaded: The model.
        weights: Its weights, as the processes hold them.
        chat: Its tokenizer and the arguments of its chat template.
        ranks: The processes that hold them.
    """

    def __init__(self, loaded: LoadedModel, weights: Weights, chat: Chat, ranks: Ranks) -> None:
        self._loaded, self._weights, self._chat, self._ranks = loaded, weights, chat, ranks

    def named_weights(self) -> Iterator[tuple[str, Tensor]]:
        """Yield full weights, named as in a Hugging Face directory; tied ones once. Collective.

        Those of a policy with an adapter are the base's, which never change.
        """
        adapter = self._loaded.adapter
        return self._weights.named() if adapter is None else adapter.base.named_weights()

    def save_pretrained(self, directory: Path, *, final: Path | None = None) -> None:
        """Write weights and tokenizer as a Hugging Face directory, an adapter as peft's.

        Collective. An adapter directory names its base model; one of random weights is written into
        it.

        Args:
            directory: Where to write.
            final: Where the directory will be moved to; None when it stays.
        """
        adapter = self._loaded.adapter
        if adapter is None:
            self._weights.save_pretrained(directory)
        elif self._ranks.is_main:
            adapter.save(directory, final=final)
        if self._ranks.is_main:
            self._save_chat(directory)

    def save_merged(self, directory: Path) -> None:
        """Write an ordinary Hugging Face directory, an adapter added to the weights of its base."""
        adapter = self._loaded.adapter
        if adapter is None:
            self.save_pretrained(directory)
            return
        adapter.save_merged(directory)
        self._save_chat(directory)

    def _save_chat(self, directory: Path) -> None:
        self._chat.tokenizer.save_pretrained(directory)
        write_template_kwargs(directory, self._chat.template_kwargs)
