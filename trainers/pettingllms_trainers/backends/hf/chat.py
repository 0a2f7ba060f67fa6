"""How a policy reads and writes: its tokenizer and chat template, apart from any weights."""

from __future__ import annotations

import functools
import json
import logging
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase

from pettingllms.errors import FOREIGN, MALFORMED, InvalidArgument
from pettingllms.files import load_json
from pettingllms.plain_text import PlainText
from pettingllms.workflows.tools import assistant_text, read_json, read_reply, taken_apart
from pettingllms_trainers.backends.device import kept_generators
from pettingllms_trainers.errors import ConfigError, MissingPackage
from pettingllms_trainers.types import GenerateRequest, TokenCompletion

_FILE = "pettingllms.json"
_KWARGS, _PARSER = "chat_template_kwargs", "tool_parser"
_FIRST_MARKER = 0x100000
"""First character of the last plane for private use, of which no tokenizer knows any."""
_MAX_SKELETONS = 64

Messages = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Chat:
    """Encodes chats and answers. Contents never become control tokens; see `PlainText`."""

    tokenizer: PreTrainedTokenizerBase
    """The tokenizer, with the chat template."""
    template_kwargs: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Arguments of the template."""
    tool_parser: str = ""
    """See `PolicyConfig.tool_parser`."""
    _skeletons: dict[str, tuple[int, ...]] = field(
        default_factory=dict[str, tuple[int, ...]], init=False, repr=False, compare=False
    )

    @classmethod
    def of(
        cls,
        tokenizer: PreTrainedTokenizerBase,
        stored: Mapping[str, Any],
        kwargs: Mapping[str, Any] | None = None,
        tool_parser: str = "",
    ) -> Chat:
        """A chat with what was stored with a model (`read_chat`), unless other is given."""
        kwargs = {**stored.get(_KWARGS, {}), **(kwargs or {})}
        return cls(tokenizer, kwargs, tool_parser or stored.get(_PARSER, ""))

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
        messages, tools = self.in_own_words(messages)
        token_ids = self.template(messages, tools)
        # Almost always the control tokens are those of the template alone, and this is all.
        own = self._own_markup(messages)
        if self._controls(token_ids, own) == self._controls(self._skeleton(messages, tools), own):
            return tuple(token_ids)
        return tuple(self._encode_apart(messages, tools))

    def encode_answer(self, text: str) -> tuple[int, ...]:
        """The token ids of an answer, the end token included.

        Raises:
            InvalidArgument: The tokenizer has no end-of-sequence token, or there is a call in the
                answer, which the model writes in words of its own.
        """
        if self.tool_parser and "<tool_call>" in text:
            raise InvalidArgument(
                "text", text[:200], f"an answer without calls, for a policy with a {_PARSER}",
                "set warm_start.num_steps = 0",
            )  # fmt: skip
        end = self.tokenizer.eos_token_id
        if not isinstance(end, int):
            raise InvalidArgument(
                "tokenizer", "a tokenizer without end-of-sequence token", "one that has it",
                "demonstrated answers must end: set warm_start.num_steps = 0, or choose another "
                "model",
            )  # fmt: skip
        return (*self._plain.encode(text), end)

    def text(self, request: GenerateRequest, completion: TokenCompletion) -> str:
        """The text of a completion, with calls as `pettingllms.workflows.tools` writes them.

        Calls whose arguments are not JSON objects are content, as there.

        Raises:
            InvalidArgument: A grammar wanted a call, in words that are not the model's.
        """
        if not self.tool_parser or not request.tools:
            return completion.text
        if "<tool_call>" in request.grammar:
            raise InvalidArgument(
                "grammar", request.grammar[:200], f"none with calls, for a policy with a {_PARSER}",
                "set engine.guided_decoding = false: then answers are free, and one that does not "
                "fit ends the episode",
            )  # fmt: skip
        tools = json.loads(request.tools)
        said, calls = _read(self.tokenizer, self.tool_parser, request, completion, tools)
        text = assistant_text(said, calls)
        names = {*(tool["function"]["name"] for tool in tools), *(name for name, _ in calls)}
        if len(read_reply(text, names).calls) != len(calls):
            # What is a call in the format of others is none in this one.
            text = assistant_text(said.replace("<tool_call>", "&lt;tool_call>"), calls)
        return text

    def token_texts(self, token_ids: Sequence[int]) -> list[str]:
        """The text of each token, control tokens included."""
        if not token_ids:
            return []  # an empty batch is decoded to one empty text
        return self.tokenizer.batch_decode([[token] for token in token_ids])

    @cached_property
    def _plain(self) -> PlainText:
        return PlainText(self.tokenizer, str(self.tokenizer.chat_template))

    def in_own_words(self, messages: Messages) -> tuple[Messages, list[Any]]:
        """Messages and tools as the chat template gets them."""
        return taken_apart(messages, self._cut) if self.tool_parser else (messages, [])

    def _cut(self, data: str) -> str:
        """The JSON of tools and calls, into which templates look, without control tokens."""
        texts = [str(self.tokenizer.convert_ids_to_tokens(n)) for n in self._plain.special]
        texts = sorted([*texts, *self._plain.markup.values()], key=len, reverse=True)
        # A space of no width between all characters; what is one character alone is left out.
        pattern = "|".join(map(re.escape, texts)) or "(?!)"
        return re.sub(pattern, lambda t: "\u200b".join(t[0]) if len(t[0]) > 1 else "", data)

    def template(self, messages: Messages, tools: list[Any], **settings: Any) -> Any:
        """What the chat template makes of them, by default with a generation prompt, as tokens."""
        try:
            return self.tokenizer.apply_chat_template(
                [dict(message) for message in messages],
                tools=tools or None,
                return_dict=False,
                tokenizer_kwargs={"verbose": False},  # of a prompt that is too long we tell
                **{"add_generation_prompt": True, **self.template_kwargs, **settings},
            )
        except FOREIGN as error:  # templates are programs of those who made the model
            raise ConfigError(
                f"the chat template of {self.tokenizer.name_or_path} cannot write a prompt: "
                f"{type(error).__name__}: {error}. If it takes no system message, fold that into "
                'the user\'s: set system = "" in [env.kwargs.prompts.ROLE] and begin user with it. '
                "Else choose another model, or set `tokenizer.chat_template` and save it"
            ) from error

    def _own_markup(self, messages: Messages) -> frozenset[int]:
        """Markup such as `<think>` that the model's own turns hold: there it may stay."""
        own = [message["content"] for message in messages if message["role"] == "assistant"]
        markup = self._plain.markup.items()
        return frozenset(n for n, text in markup if any(text in content for content in own))

    def _controls(self, token_ids: Sequence[int], own: frozenset[int]) -> tuple[int, ...]:
        return tuple(n for n in self._plain.controls(token_ids) if n not in own)

    def _skeleton(self, messages: Messages, tools: list[Any]) -> tuple[int, ...]:
        """The control tokens that the template writes for such messages."""
        # Contents do not matter here, but whether there is any does: templates ask.
        bare = [{**m, "content": "x"} if m["content"].strip() else {**m} for m in messages]
        key = repr((bare, tools))
        if key not in self._skeletons:
            # Role names and numbers of messages vary little; this is a guard.
            if len(self._skeletons) >= _MAX_SKELETONS:
                self._skeletons.clear()
            self._skeletons[key] = self._plain.controls(self.template(bare, tools))
        return self._skeletons[key]

    def _encode_apart(self, messages: Messages, tools: list[Any]) -> list[int]:
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
        text = self.template(marked, tools, tokenize=False)
        for index, part in enumerate(re.split(pattern, text)):
            if index % 2:
                token_ids += self._plain.encode(contents[ord(part) - marker])
            elif part:
                token_ids += self.tokenizer.encode(part, add_special_tokens=False)
        return token_ids


def answer_texts(
    tokenizer: PreTrainedTokenizerBase,
    sequences: Sequence[Sequence[int]],
    stops: Sequence[Sequence[str]],
    *,
    skip_special_tokens: bool = True,
) -> list[str]:
    """The texts of sampled tokens, each cut at the first of its stop texts."""
    if not sequences:
        return []  # an empty batch is decoded to one empty text
    texts: list[str] = tokenizer.batch_decode(
        list(map(list, sequences)),
        skip_special_tokens=skip_special_tokens,
        clean_up_tokenization_spaces=False,
    )
    return [
        text[: min((text.find(stop) for stop in stop_texts if stop in text), default=None)]
        for text, stop_texts in zip(texts, stops, strict=True)
    ]


def _read(
    tokenizer: PreTrainedTokenizerBase,
    name: str,
    request: GenerateRequest,
    completion: TokenCompletion,
    tools: list[Any],
) -> tuple[str, list[tuple[str, Any]]]:
    """What a completion says, and the names and arguments that it calls, as vLLM's servers do."""
    new_parser, tokenizer, new_request = vllm_parser(name, tokenizer)
    asked = new_request(model="", messages=[], tools=tools)
    parser = new_parser(tokenizer, asked.tools)
    asked = parser.adjust_request(asked)
    parser.set_prompt_token_ids(request.prompt_ids)
    # Without the token that ends it.
    ids = completion.token_ids
    sequence = ids[:-1] if ids[-1] in tokenizer.all_special_ids else ids
    stops, skips = request.sampling.stop, asked.skip_special_tokens
    (text,) = answer_texts(tokenizer, [sequence], [stops], skip_special_tokens=skips)
    # A call in a thought is a thought.
    prompt = str(tokenizer.decode(list(request.prompt_ids))).rstrip()
    is_open = prompt.endswith("<think>") or text.lstrip().startswith("<think>")
    thought, end, rest = text.partition("</think>") if is_open else ("", "", text)
    try:
        with kept_generators():  # from which Mistral's draws the ids of calls
            _, content, found = parser.parse(
                rest, asked, enable_auto_tools=True, model_output_token_ids=ids
            )
        calls = [(call.name, read_json(call.arguments)) for call in found or ()]
    except MALFORMED:  # what a model writes is never an error
        return text, []
    if not all(isinstance(arguments, Mapping) for _, arguments in calls):
        return text, []
    return thought + end + (content or ""), calls


@functools.cache
def vllm_parser(name: str, tokenizer: PreTrainedTokenizerBase) -> tuple[Any, Any, Any]:
    """A class of vLLM's parsers, the tokenizer as they want it, and the class of their requests.

    Raises:
        ConfigError: vLLM is not installed, or has no such parser for this tokenizer.
    """
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    try:
        known = import_module("vllm.tool_parsers").ToolParserManager.list_registered()
    except ImportError as error:
        raise MissingPackage(f"{_PARSER} = {name!r}", "vllm", "vllm", error) from error
    if name not in known:
        raise ConfigError(f"{_PARSER} = {name!r} is none of vLLM's parsers: {', '.join(known)}")
    for logger in ("vllm.tool_parsers", "vllm.parser"):
        # They report every ill-formed call, with its traceback.
        logging.getLogger(logger).setLevel(logging.CRITICAL)
    quick = import_module("vllm.tokenizers.hf").get_cached_tokenizer(tokenizer)
    try:
        parser = import_module("vllm.parser.parser_manager").ParserManager.get_parser(
            name, enable_auto_tools=True, is_harmony=name == "openai", tokenizer=quick
        )
    except TypeError as error:
        raise ConfigError(f"{_PARSER} = {name!r} does not fit the model: {error}") from error
    chat = import_module("vllm.entrypoints.openai.chat_completion.protocol")
    return parser, quick, chat.ChatCompletionRequest


def unread_argument(tokenizer: PreTrainedTokenizerBase, given: Mapping[str, Any]) -> str | None:
    """An argument that the chat template never names, so that it changes nothing; None: no such."""
    templates = tokenizer.chat_template
    text = templates if isinstance(templates, str) else " ".join((templates or {}).values())
    named = set(re.findall(r"\w+", text))
    # Not to think is a default, and true of every template that knows of no thinking.
    names = [name for name in given if (name, given[name]) != ("enable_thinking", False)]
    return next((name for name in names if name not in named), None)


def write_chat(directory: Path, chat: Chat) -> None:
    """Write beside a model how it reads and writes: without that it is nothing."""
    settings = {_KWARGS: dict(chat.template_kwargs), _PARSER: chat.tool_parser}
    if any(settings.values()):
        (directory / _FILE).write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")


def read_chat(directory: str | Path) -> dict[str, Any]:
    """What was written beside a model; nothing: {}.

    Raises:
        InvalidArgument: The file is damaged.
    """
    path = Path(directory) / _FILE
    if not path.is_file():
        return {}
    try:
        settings = load_json(path)
        return {_KWARGS: dict(settings[_KWARGS]), _PARSER: str(settings[_PARSER])}
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidArgument(
            "model", str(path), f"a table {_KWARGS} in JSON ({type(error).__name__}: {error})",
            "export the policy again, or remove the file to use the template's defaults",
        ) from error  # fmt: skip
