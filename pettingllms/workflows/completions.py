"""Answers in the wire format of OpenAI's chat completions, made of the types of its client."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

from openai.types import CompletionUsage, Model
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.completion_usage import CompletionTokensDetails, PromptTokensDetails

from pettingllms.types import TokenCounts
from pettingllms.workflows.tools import Reply

FinishReason = Literal["stop", "length", "tool_calls"]


class WireAnswer(NamedTuple):
    """What a request is answered with, before it has a format."""

    reply: Reply
    """The text, taken apart."""
    is_cut: bool
    """Whether the text ended at the limit of tokens."""
    tokens: TokenCounts
    """What it took."""
    model: str
    """As the request named it."""
    number: int
    """Number of the request within its run. Ids count instead of being drawn, so that a run that is
    repeated gets the same ones."""

    @property
    def finish_reason(self) -> FinishReason:
        """Why it ended."""
        if self.is_cut:
            return "length"
        return "tool_calls" if self.reply.calls else "stop"


def completion(answer: WireAnswer) -> ChatCompletion:
    """An answer as a chat completion."""
    calls = _calls(answer)
    message = {"role": "assistant", "content": answer.reply.content, "refusal": None}
    choice = {
        "index": 0,
        "message": {**message, "tool_calls": calls} if calls else message,
        "finish_reason": answer.finish_reason,
        "logprobs": None,
    }
    body = {**_head(answer, "chat.completion"), "choices": [choice], "usage": _usage(answer)}
    return ChatCompletion.model_validate(body)


def chunks(answer: WireAnswer, *, with_usage: bool) -> Iterator[ChatCompletionChunk]:
    """Yield the same as the chunks of a stream: role, content, calls, reason, and usage.

    Args:
        answer: The answer.
        with_usage: Whether the last chunk, which has no choice, tells what it took.
    """
    reply = answer.reply
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    if reply.content:
        deltas.append({"content": reply.content})
    deltas += [{"tool_calls": [{"index": at, **call}]} for at, call in enumerate(_calls(answer))]
    reasons = [*(None for _ in deltas), answer.finish_reason]
    choices = [
        [{"index": 0, "delta": delta, "finish_reason": reason}]
        for delta, reason in zip([*deltas, {}], reasons, strict=True)
    ]
    head = _head(answer, "chat.completion.chunk")
    for choice in choices:
        yield ChatCompletionChunk.model_validate({**head, "choices": choice})
    if with_usage:
        last = {**head, "choices": [], "usage": _usage(answer)}
        yield ChatCompletionChunk.model_validate(last)


def models(names: Sequence[str]) -> list[Model]:
    """The roles as models."""
    return [Model(id=name, object="model", created=0, owned_by="run") for name in names]


def call_id(answer: WireAnswer, at: int) -> str:
    """The id of one of the calls of an answer, which its result will name."""
    return f"call_{answer.number}_{at}"


def _usage(answer: WireAnswer) -> CompletionUsage:
    counts = answer.tokens
    return CompletionUsage(
        prompt_tokens=counts.prompt,
        completion_tokens=counts.completion,
        total_tokens=counts.prompt + counts.completion,
        prompt_tokens_details=PromptTokensDetails(cached_tokens=counts.cached),
        completion_tokens_details=CompletionTokensDetails(reasoning_tokens=counts.reasoning),
    )


def _head(answer: WireAnswer, kind: str) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{answer.number}",
        "object": kind,
        "created": 0,
        "model": answer.model,
    }


def _calls(answer: WireAnswer) -> list[dict[str, Any]]:
    return [
        {
            "id": call_id(answer, at),
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        for at, call in enumerate(answer.reply.calls)
    ]
