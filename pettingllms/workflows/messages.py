"""Anthropic's Messages API: its requests as chat completions, and answers made of its types.

Format: https://platform.claude.com/docs/en/api/messages
"""

# An extra that most installations lack.
# pyright: reportMissingImports=false
from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from anthropic.types import Message, MessageTokensCount, RawMessageStreamEvent
from anthropic.types.message_count_tokens_params import MessageCountTokensParams
from anthropic.types.message_create_params import MessageCreateParamsBase
from pydantic import Field, TypeAdapter

from pettingllms.workflows.bodies import LIMIT, SAMPLED, Bodies, text_of
from pettingllms.workflows.chat import CHAT, Body
from pettingllms.workflows.wire import ChatRequest, RequestError, WireAnswer

_EVENT: TypeAdapter[RawMessageStreamEvent] = TypeAdapter(RawMessageStreamEvent)
_BYTES_PER_TOKEN = 4
"""Of English text in most vocabularies."""
_COUNTED: dict[str, Any] = {
    "model": str,
    "messages": Annotated[list[Any], Field(min_length=1)],
    **dict.fromkeys(("system", "tools", "tool_choice", "output_config", "thinking"), Any),
    # It leaves the answer as it is.
    "cache_control": Any,
}
COUNTED = Bodies(MessageCountTokensParams, _COUNTED)
"""Bodies of requests to count tokens."""
MESSAGES = Bodies(
    MessageCreateParamsBase,
    {
        **_COUNTED,
        **{key: SAMPLED[key] for key in ("temperature", "top_k", "top_p")},
        "max_tokens": LIMIT,
        "stop_sequences": list[Annotated[str, Field(min_length=1)]],
        "stream": bool,
        # They leave the answer as it is.
        **dict.fromkeys(("metadata", "service_tier"), Any),
    },
)
"""Bodies of requests."""


def chat_body(body: Body) -> Body:
    """The body of a chat completion that asks the same.

    Args:
        body: The body, which `MESSAGES` or `COUNTED` has checked.

    Raises:
        RequestError: A block, a tool or a form is not one of chats.
    """
    if body["messages"][-1]["role"] == "assistant":
        told = "messages: an answer that is begun is not continued; end with a message of the user"
        raise RequestError(told, param="messages")
    told = body.get("system", "")
    messages = [{"role": "system", "content": text_of(told, "system")}] if told else []
    for message in body["messages"]:
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if message["role"] == "assistant":
            messages.append(_said(blocks))
        else:
            messages += _heard(message["role"], blocks)
    choice = body.get("tool_choice", {"type": "auto"})
    form = body.get("output_config", {}).get("format")
    if form:
        form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": form["schema"]}}
    return CHAT.check(
        {
            "model": body["model"],
            "messages": messages,
            "tools": [*map(_tool, body.get("tools", ()))],
            "tool_choice": _choice(choice),
            "parallel_tool_calls": not choice.get("disable_parallel_tool_use", False),
            "response_format": form,
            "max_completion_tokens": body.get("max_tokens"),
            "stop": body.get("stop_sequences"),
        }
    )


def _heard(role: str, blocks: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield what an agent is told: results of calls, each by itself, and texts between them."""
    texts: list[dict[str, Any]] = []
    for block in [*blocks, None]:
        if block is not None and block["type"] != "tool_result":
            texts.append(block)
            continue
        if texts:
            yield {"role": role, "content": text_of(texts, "messages")}
        texts = []
        if block is not None:
            told = "Error: " if block.get("is_error") else ""
            content = told + text_of(block.get("content", ""), "messages")
            yield {"role": "tool", "tool_call_id": block["tool_use_id"], "content": content}


def _said(blocks: list[dict[str, Any]]) -> dict[str, Any]:
    """What an agent has said and called; thoughts are left out, as reasoning models want it."""
    thoughts = ("tool_use", "thinking", "redacted_thinking")
    texts = [block for block in blocks if block["type"] not in thoughts]
    calls = [
        {
            "type": "function",
            "id": block["id"],
            "function": {"name": block["name"], "arguments": json.dumps(block["input"])},
        }
        for block in blocks
        if block["type"] == "tool_use"
    ]
    return {"role": "assistant", "content": text_of(texts, "messages"), "tool_calls": calls}


def _tool(tool: Body) -> Body:
    if tool.get("type", "custom") != "custom":
        told = f"tools: there is no {tool['type']!r} here; offer functions of your own"
        raise RequestError(told, param="tools")
    # The policy reads all that is said of a function, examples of its input too.
    unsaid = ("type", "cache_control", "eager_input_streaming")
    named = {"input_schema": "parameters"}
    function = {named.get(key, key): tool[key] for key in tool if key not in unsaid}
    return {"type": "function", "function": function}


def _choice(choice: Body) -> Any:
    if choice["type"] == "tool":
        return {"type": "function", "function": {"name": choice["name"]}}
    return "required" if choice["type"] == "any" else choice["type"]


def counted(request: ChatRequest) -> MessageTokensCount:
    """About how many tokens a prompt takes: tokenizers are known to the policies alone."""
    size = sum(len(content.encode("utf-8", "replace")) for _, content in request.messages)
    return MessageTokensCount(input_tokens=-(-size // _BYTES_PER_TOKEN))


def message(answer: WireAnswer, request: ChatRequest) -> Message:
    """An answer as a message."""
    return Message.model_validate(
        {**_head(answer), "content": _blocks(answer), **_end(answer, request)}
    )


def events(answer: WireAnswer, request: ChatRequest) -> Iterator[RawMessageStreamEvent]:
    """Yield the same as the events of a stream."""
    for event in _events(answer, request):
        yield _EVENT.validate_python(event)


def _events(answer: WireAnswer, request: ChatRequest) -> Iterator[dict[str, Any]]:
    yield {"type": "message_start", "message": {**_head(answer), "content": []}}
    for at, block in enumerate(_blocks(answer)):
        if block["type"] == "text":
            empty, delta = {"text": ""}, {"type": "text_delta", "text": block["text"]}
        else:
            written = json.dumps(block["input"])
            empty, delta = {"input": {}}, {"type": "input_json_delta", "partial_json": written}
        yield {"type": "content_block_start", "index": at, "content_block": {**block, **empty}}
        yield {"type": "content_block_delta", "index": at, "delta": delta}
        yield {"type": "content_block_stop", "index": at}
    yield {"type": "message_delta", "delta": _end(answer, request), "usage": _usage(answer)}
    yield {"type": "message_stop"}


def _head(answer: WireAnswer) -> dict[str, Any]:
    head = {"id": f"msg_{answer.number}", "type": "message", "role": "assistant"}
    return {**head, "model": answer.model, "usage": _usage(answer)}


def _blocks(answer: WireAnswer) -> list[dict[str, Any]]:
    content = answer.reply.content
    texts = [{"type": "text", "text": content}] if content else []
    calls = [
        {
            "type": "tool_use",
            "id": answer.call_id(at),
            "name": call.name,
            "input": json.loads(call.arguments),
        }
        for at, call in enumerate(answer.reply.calls)
    ]
    return [*texts, *calls]


def _end(answer: WireAnswer, request: ChatRequest) -> Mapping[str, str | None]:
    """Why an answer ended."""
    found = [stop for stop in request.constraints.stop if stop in answer.action]
    stop = min(found, key=answer.action.find, default=None)
    reasons = {"length": "max_tokens", "tool_calls": "tool_use"}
    reason = reasons.get(answer.finish_reason, "stop_sequence" if stop else "end_turn")
    return {"stop_reason": reason, "stop_sequence": stop}


def _usage(answer: WireAnswer) -> dict[str, int]:
    counts = answer.action.tokens
    return {
        "input_tokens": counts.prompt - counts.cached,
        "cache_read_input_tokens": counts.cached,
        "output_tokens": counts.completion,
    }
