"""OpenAI's Responses API: its requests as chat completions, and answers made of its types.

Format: https://platform.openai.com/docs/api-reference/responses
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from pettingllms.workflows.completions import WireAnswer, call_id
from pettingllms.workflows.wire import RequestError

_EVENT: TypeAdapter[ResponseStreamEvent] = TypeAdapter(ResponseStreamEvent)
_SAME = ("model", "stream", "tools", "tool_choice", "temperature", "top_p")
"""Keys that mean the same in a chat completion, tools and their choice but for their nesting."""
_REFUSED = ("background", "conversation", "prompt")
_TEXTS = {"input_text": "text", "output_text": "text", "text": "text", "refusal": "refusal"}


def chat_request(data: Mapping[str, Any], kept: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """The body of a chat completion that asks the same.

    Args:
        data: Body of the request.
        kept: Chats up to earlier responses of the run, by their ids.

    Raises:
        RequestError: It wants what chat completions lack, or is ill-formed.
    """
    for key in _REFUSED:
        if data.get(key):
            raise RequestError(f"{key} cannot be used: send the whole input", param=key)
    try:
        chat = [*_earlier(data, kept), *_messages(data.get("input") or [])]
        body: dict[str, Any] = {key: data[key] for key in _SAME if data.get(key) is not None}
        body["tools"] = [_nested(tool) for tool in data.get("tools") or []]
        if isinstance(choice := data.get("tool_choice"), Mapping):
            body["tool_choice"] = _choice(cast("Mapping[str, Any]", choice))
        wanted = (data.get("text") or {}).get("format")
        if wanted and wanted["type"] == "json_schema":
            wanted = {"type": "json_schema", "json_schema": wanted}
    except (AttributeError, KeyError, TypeError) as error:
        raise RequestError(f"the request is ill-formed: {error!r}") from error
    # Of this response alone: the next one that builds on it does not inherit them.
    instructions = data.get("instructions")
    told = [{"role": "system", "content": instructions}] if instructions else []
    body["messages"], body["response_format"] = [*told, *chat], wanted
    body["max_completion_tokens"] = data.get("max_output_tokens")
    return body


def chat_after(body: Mapping[str, Any], answer: WireAnswer, *, has_told: bool) -> list[Any]:
    """The chat up to an answer, without the instructions that began it."""
    reply = answer.reply
    said: dict[str, Any] = {"role": "assistant", "content": reply.content}
    said["tool_calls"] = [
        {"function": {"name": call.name, "arguments": call.arguments}} for call in reply.calls
    ]
    return [*body["messages"][has_told:], said]


def _earlier(data: Mapping[str, Any], kept: Mapping[str, Sequence[Any]]) -> Sequence[Any]:
    name = data.get("previous_response_id")
    if name and name not in kept:
        raise RequestError(
            f"this run has given no response {name!r}", 404, param="previous_response_id"
        )
    return kept[name] if name else ()


def _messages(items: Any) -> list[dict[str, Any]]:
    """The messages of an input; what an agent said and called in a row is one of them."""
    if isinstance(items, str):
        return [{"role": "user", "content": items}]
    messages: list[dict[str, Any]] = []
    for item in items:
        match item.get("type") or "message":
            case "message":
                messages.append({**item, "content": _content(item["content"])})
            case "function_call":
                function = {"name": item["name"], "arguments": item["arguments"]}
                if not (messages and messages[-1]["role"] == "assistant"):
                    messages.append({"role": "assistant", "content": None})
                messages[-1].setdefault("tool_calls", []).append({"function": function})
            case "function_call_output":
                messages.append({"role": "tool", "content": _content(item["output"])})
            case "reasoning":
                pass
            case other:
                raise RequestError(
                    f"the input has an item of type {other!r}; allowed: message, function_call, "
                    "function_call_output, reasoning",
                    param="input",
                )
    return messages


def _content(content: Any) -> Any:
    if isinstance(content, str):
        return content
    # Parts of other types keep them, and are refused by that name.
    return [{**part, "type": _TEXTS.get(part["type"], part["type"])} for part in content]


def _nested(tool: Mapping[str, Any]) -> dict[str, Any]:
    if tool["type"] != "function":
        return {"type": tool["type"]}  # refused as every tool that is not a function
    return {"type": "function", "function": {k: v for k, v in tool.items() if k != "type"}}


def _choice(choice: Mapping[str, Any]) -> dict[str, Any]:
    if choice["type"] == "allowed_tools":
        tools = [_nested(tool) for tool in choice["tools"]]
        return {"type": "allowed_tools", "allowed_tools": {"mode": choice["mode"], "tools": tools}}
    return _nested(choice)


def response(answer: WireAnswer, data: Mapping[str, Any]) -> Response:
    """An answer as a response.

    Args:
        answer: The answer.
        data: Body of the request, parts of which are repeated.
    """
    return _response(answer, data, _items(answer), is_done=True)


def events(answer: WireAnswer, data: Mapping[str, Any]) -> Iterator[ResponseStreamEvent]:
    """Yield the same as the events of a stream."""
    for number, event in enumerate(_events(answer, data)):
        yield _EVENT.validate_python({**event, "sequence_number": number})


def _events(answer: WireAnswer, data: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    begun = _response(answer, data, [], is_done=False).to_dict()
    yield {"type": "response.created", "response": begun}
    yield {"type": "response.in_progress", "response": begun}
    for at, item in enumerate(_items(answer)):
        is_message = item["type"] == "message"
        empty = {"content": []} if is_message else {"arguments": ""}
        added = {**item, **empty, "status": "in_progress"}
        yield {"type": "response.output_item.added", "output_index": at, "item": added}
        place = {"output_index": at, "item_id": item["id"]}
        yield from _text_events(item, place) if is_message else _call_events(item, place)
        yield {"type": "response.output_item.done", "output_index": at, "item": item}
    kind = "response.incomplete" if answer.is_cut else "response.completed"
    yield {"type": kind, "response": response(answer, data).to_dict()}


def _text_events(item: Mapping[str, Any], place: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    (part,) = item["content"]
    place, text = {**place, "content_index": 0}, part["text"]
    yield {"type": "response.content_part.added", **place, "part": {**part, "text": ""}}
    yield {"type": "response.output_text.delta", **place, "delta": text, "logprobs": []}
    yield {"type": "response.output_text.done", **place, "text": text, "logprobs": []}
    yield {"type": "response.content_part.done", **place, "part": part}


def _call_events(item: Mapping[str, Any], place: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    kind, written = "response.function_call_arguments", item["arguments"]
    yield {"type": f"{kind}.delta", **place, "delta": written}
    yield {"type": f"{kind}.done", **place, "name": item["name"], "arguments": written}


def _items(answer: WireAnswer) -> list[dict[str, Any]]:
    """What was said and called as items of the output."""
    status = "incomplete" if answer.is_cut else "completed"
    content, number = answer.reply.content, answer.number
    items: list[dict[str, Any]] = []
    if content is not None:
        part = {"type": "output_text", "text": content, "annotations": [], "logprobs": []}
        head = {"type": "message", "id": f"msg_{number}", "role": "assistant"}
        items.append({**head, "status": status, "content": [part]})
    for at, call in enumerate(answer.reply.calls):
        head = {"type": "function_call", "id": f"fc_{number}_{at}", "status": status}
        items.append({**head, "call_id": call_id(answer, at), **call._asdict()})
    return items


def _response(
    answer: WireAnswer, data: Mapping[str, Any], items: Sequence[Any], *, is_done: bool
) -> Response:
    reason = {"reason": "max_output_tokens"} if answer.is_cut and is_done else None
    done = "incomplete" if answer.is_cut else "completed"
    body = {
        "id": f"resp_{answer.number}",
        "object": "response",
        "created_at": 0,
        "model": answer.model,
        "status": done if is_done else "in_progress",
        "output": items,
        "error": None,
        "incomplete_details": reason,
        "instructions": data.get("instructions"),
        "metadata": data.get("metadata") or {},
        "parallel_tool_calls": data.get("parallel_tool_calls", True),
        "previous_response_id": data.get("previous_response_id"),
        "tool_choice": data.get("tool_choice") or "auto",
        "tools": data.get("tools") or [],
        "usage": _usage(answer) if is_done else None,
    }
    return Response.model_validate(body)


def _usage(answer: WireAnswer) -> dict[str, Any]:
    counts = answer.tokens
    return {
        "input_tokens": counts.prompt,
        "input_tokens_details": {"cached_tokens": counts.cached, "cache_write_tokens": 0},
        "output_tokens": counts.completion,
        "output_tokens_details": {"reasoning_tokens": counts.reasoning},
        "total_tokens": counts.prompt + counts.completion,
    }
