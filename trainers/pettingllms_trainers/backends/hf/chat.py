"""How a policy reads and writes: its tokenizer and chat template, apart from any weights."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase

from pettingllms.errors import InvalidArgument
from pettingllms.plain_text import PlainText

_FILE = "pettingllms.json"
_KEY = "chat_template_kwargs"
_FIRST_MARKER = 0x100000
"""First character of the last plane for private use, of which no tokenizer knows any."""
_MAX_SKELETONS = 64

Messages = Sequence[Mapping[str, str]]


@dataclass(frozen=True)
class Chat:
    """Texts to token ids. What a message says never becomes a control token; see `PlainText`."""

    tokenizer: PreTrainedTokenizerBase
    """The tokenizer, with the chat template."""
    template_kwargs: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Arguments of the template."""
    _skeletons: dict[object, tuple[int, ...]] = field(
        default_factory=dict[object, tuple[int, ...]], init=False, repr=False, compare=False
    )

    def encode(self, messages: Messages) -> tuple[int, ...]:
        """The prompt token ids of a chat, the generation prompt included.

        Raises:
            InvalidArgument: The tokenizer has no chat template.
        """
        if self.tokenizer.chat_template is None:
            raise InvalidArgument(
                "tokenizer", "a tokenizer without chat template", "one with a chat template",
                "choose an instruction-tuned model, or set `tokenizer.chat_template` and save it",
            )  # fmt: skip
        token_ids = self._template(messages, tokenize=True)
        # Almost always the control tokens are those of the template alone, and this is all.
        own = self._own_markup(messages)
        if self._controls(token_ids, own) == self._controls(self._skeleton(messages), own):
            return tuple(token_ids)
        return tuple(self._encode_apart(messages))

    def encode_answer(self, text: str) -> tuple[int, ...]:
        """The token ids of an answer, the end token included.

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
        return (*self._plain.encode(text), end)

    def token_texts(self, token_ids: Sequence[int]) -> list[str]:
        """The text of each token, control tokens included."""
        if not token_ids:
            return []  # an empty batch is decoded to one empty text
        return self.tokenizer.batch_decode([[token] for token in token_ids])

    @cached_property
    def _plain(self) -> PlainText:
        return PlainText(self.tokenizer, str(self.tokenizer.chat_template))

    def _template(self, messages: Messages, *, tokenize: bool) -> Any:
        return self.tokenizer.apply_chat_template(
            [dict(message) for message in messages],
            add_generation_prompt=True,
            tokenize=tokenize,
            return_dict=False,
            **self.template_kwargs,
        )

    def _own_markup(self, messages: Messages) -> frozenset[int]:
        """Markup such as `<think>` that the model's own turns hold: there it may stay."""
        own = [message["content"] for message in messages if message["role"] == "assistant"]
        markup = self._plain.markup.items()
        return frozenset(n for n, text in markup if any(text in content for content in own))

    def _controls(self, token_ids: Sequence[int], own: frozenset[int]) -> tuple[int, ...]:
        return tuple(n for n in self._plain.controls(token_ids) if n not in own)

    def _skeleton(self, messages: Messages) -> tuple[int, ...]:
        """The control tokens that the template writes for such messages."""
        # Contents do not matter here, but whether there is any does: templates ask.
        bare = [{**m, "content": "x"} if m["content"].strip() else {**m} for m in messages]
        key = tuple(tuple(sorted(message.items())) for message in bare)
        if key not in self._skeletons:
            # Role names and numbers of messages vary little; this is a guard.
            if len(self._skeletons) >= _MAX_SKELETONS:
                self._skeletons.clear()
            self._skeletons[key] = self._plain.controls(self._template(bare, tokenize=True))
        return self._skeletons[key]

    def _encode_apart(self, messages: Messages) -> list[int]:
        """The token ids of a chat whose contents never meet the text of the template.

        The template gets a marker in place of each content; what is between the markers is encoded
        as the template's text, and the contents as plain text. Blank contents stay: templates ask
        whether there is a system message.
        """
        contents = [message["content"] for message in messages]
        marker = _FIRST_MARKER
        while any(chr(marker + k) in text for text in contents for k in range(len(contents))):
            marker += len(contents)
        marked = [
            {**m, "content": chr(marker + k)} if m["content"].strip() else m
            for k, m in enumerate(messages)
        ]
        pattern = f"([{chr(marker)}-{chr(marker + len(contents))}])"
        token_ids: list[int] = []
        # Split by a group: text of the template and markers take turns.
        for index, part in enumerate(re.split(pattern, self._template(marked, tokenize=False))):
            if index % 2:
                token_ids += self._plain.encode(contents[ord(part) - marker])
            elif part:
                token_ids += self.tokenizer.encode(part, add_special_tokens=False)
        return token_ids


def answer_texts(
    tokenizer: PreTrainedTokenizerBase,
    sequences: Sequence[Sequence[int]],
    stops: Sequence[Sequence[str]],
) -> list[str]:
    """The texts of sampled tokens without special ones, each cut at the first of its stop texts."""
    if not sequences:
        return []  # an empty batch is decoded to one empty text
    texts: list[str] = tokenizer.batch_decode(
        list(map(list, sequences)), skip_special_tokens=True, clean_up_tokenization_spaces=False
    )
    return [
        text[: min((text.find(stop) for stop in stop_texts if stop in text), default=None)]
        for text, stop_texts in zip(texts, stops, strict=True)
    ]


def unread_argument(tokenizer: PreTrainedTokenizerBase, given: Mapping[str, Any]) -> str | None:
    """An argument that the chat template never names, so that it changes nothing; None: no such."""
    templates = tokenizer.chat_template
    text = templates if isinstance(templates, str) else " ".join((templates or {}).values())
    named = set(re.findall(r"\w+", text))
    # Not to think is a default, and true of every template that knows of no thinking.
    names = [name for name in given if (name, given[name]) != ("enable_thinking", False)]
    return next((name for name in names if name not in named), None)


def write_template_kwargs(directory: Path, kwargs: Mapping[str, Any]) -> None:
    """Write arguments of the chat template beside a model, which is nothing without them."""
    if kwargs:
        text = json.dumps({_KEY: dict(kwargs)}, indent=2)
        (directory / _FILE).write_text(text + "\n", encoding="utf-8")


def read_template_kwargs(directory: str | Path) -> dict[str, Any]:
    """The arguments of the chat template that were written beside a model; none: {}.

    Raises:
        InvalidArgument: The file is damaged.
    """
    path = Path(directory) / _FILE
    if not path.is_file():
        return {}
    try:
        return dict(json.loads(path.read_text(encoding="utf-8"))[_KEY])
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidArgument(
            "model", str(path), f"a table {_KEY} in JSON ({type(error).__name__}: {error})",
            "export the policy again, or remove the file to use the template's defaults",
        ) from error  # fmt: skip
