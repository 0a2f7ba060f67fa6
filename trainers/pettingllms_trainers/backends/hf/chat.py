"""How a policy reads and writes: its tokenizer and chat template, apart from any weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from transformers import PreTrainedTokenizerBase

from pettingllms.errors import InvalidArgument

__all__ = ["Chat"]


@dataclass(frozen=True, slots=True)
class Chat:
    """Texts to token ids."""

    tokenizer: PreTrainedTokenizerBase
    """The tokenizer, with the chat template."""
    template_kwargs: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Arguments of the template."""

    def encode(self, messages: Sequence[Mapping[str, str]]) -> tuple[int, ...]:
        """Return the prompt token ids of a chat, the generation prompt included.

        Raises:
            InvalidArgument: The tokenizer has no chat template.
        """
        if self.tokenizer.chat_template is None:
            raise InvalidArgument(
                "tokenizer", "a tokenizer without chat template", "one with a chat template",
                "choose an instruction-tuned model, or set `tokenizer.chat_template` and save it",
            )  # fmt: skip
        ids: Any = self.tokenizer.apply_chat_template(
            [dict(message) for message in messages],
            add_generation_prompt=True,
            tokenize=True,
            return_dict=False,
            **self.template_kwargs,
        )
        return tuple(ids)

    def encode_answer(self, text: str) -> tuple[int, ...]:
        """Return the token ids of an answer, the end token included.

        Raises:
            InvalidArgument: The tokenizer has no end-of-sequence token.
        """
        end = self.tokenizer.eos_token_id
        if not isinstance(end, int):
            raise InvalidArgument(
                "tokenizer", "a tokenizer without end-of-sequence token", "one that has it",
                "demonstrated answers must end: set warm_start.num_steps = 0, or choose another "
                "model",
            )  # fmt: skip
        return (*self.tokenizer.encode(text, add_special_tokens=False), end)
