"""Text to token ids of which none is a control token, whatever the text says.

A tokenizer turns `<|im_end|>` into the token that ends a turn wherever it occurs, so that a program
that prints it, or a model that writes it letter by letter, could forge the turn of a team-mate.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

_RARE = "\U0010fffd"
"""A character for private use, which no vocabulary has."""


class PlainText:
    """Encodes what models, tools and data wrote.

    Control tokens are those that a tokenizer of `transformers` calls special, but for the unknown
    one where characters can be unknown, and the added tokens that a chat template writes. Other
    tokenizers have none: they must encode all text as text.

    Args:
        tokenizer: Has `encode`; see `pettingllms.adapters.tokenised.Tokenizer`.
        template: Source of the chat template.
    """

    def __init__(self, tokenizer: Any, template: str = "") -> None:
        self._encode: Any = tokenizer.encode
        self._options: dict[str, bool] = {}
        self.special: frozenset[int] = frozenset()
        """Ids of control tokens that must be no part of any text."""
        self.markup: dict[int, str] = {}
        """Ids and texts of the other control tokens, such as `<think>`, which a template writes and
        a model may write too."""
        self._controls = frozenset[int]()
        added: dict[int, Any] | None = getattr(tokenizer, "added_tokens_decoder", None)
        if added is None:
            return
        # Each added token is looked for in the text, unless the tokenizer is configured otherwise.
        self._options = {"add_special_tokens": False, "split_special_tokens": True}
        special = {number for number, token in added.items() if token.special}
        # Byte-level tokenizers know every character; their unknown token ends documents.
        unknown = {tokenizer.unk_token_id}.intersection(self._encode(_RARE, **self._options))
        self.special = frozenset(special.union(tokenizer.all_special_ids)) - unknown
        texts = {number: str(token.content) for number, token in added.items()}
        self.markup = {
            number: text
            for number, text in texts.items()
            if number not in self.special and text.strip() and text in template
        }
        self._controls = self.special.union(self.markup)

    def controls(self, token_ids: Iterable[int]) -> tuple[int, ...]:
        """The control tokens among token ids, in order."""
        return tuple(filter(self._controls.__contains__, token_ids))

    def encode(self, text: str) -> list[int]:
        """Token ids of a text, without any control token.

        Where a tokenizer insists on reading one, the text is cut inside it until it does not; a
        single character that is a control token by itself is left out.
        """
        token_ids: list[int] = self._encode(text, **self._options)
        if not self.controls(token_ids):
            return token_ids
        if len(text) < 2:
            return []
        middle = len(text) // 2
        return self.encode(text[:middle]) + self.encode(text[middle:])
