"""OpenAI's Responses API: its requests as chat completions, and answers made of its types.

Format: https://platform.openai.com/docs/api-reference/responses
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from openai.types.responses import Response, ResponseStreamEvent
from openai.types.responses.response_create_params import ResponseCreateParamsBase
from pydantic import TypeAdapter

from pettingllms.workflows.bodies import LIMIT, SHARED, Bodies, text_of
from pettingllms.workflows.chat import CHAT, Body
from pettingllms.workflows.wire import RequestError, WireAnswer

_EVENT: TypeAdapter[ResponseStreamEvent] = TypeAdapter(ResponseStreamEvent)
RESPONSES = Bodies(
    ResponseCreateParamsBase,
    {
        **SHARED,
        **dict.fromkeys(("input", "instructions", "previous_response_id", "text"), Any),
        **dict.fromkeys(("tools", "tool_choice"), Any),
        "max_output_tokens": LIMIT,
        # They concern thoughts, tools of a server, and noise in streams: none is here.
        **dict.fromkeys(("reasoning", "max_tool_calls", "stream_options"), Any),
        "include": list[Literal["reasoning.encrypted_content"]],
        # What the run cannot do; the whole input may be sent instead.
        "background": Literal[False],
        "truncation": Literal["disabled"],
    },
)
"""Bodies of requests."""


def chat_body(body: Body, kept: Mapping[str, Sequence[Body]]) -> Body:
    """The body of a chat completion that asks the same.

    Args:
        body: The body, which `RESPONSES` has checked.
        kept: Chats up to earlier responses of the run, by their ids.

    Raises:
        RequestError: There is no such response; a tool, a choice or a form is not one of chats.
    """
    earlier, form = body.get("previous_response_id"), body.get("text", {}).get("format")
    if earlier and earlier not in kept:
        told = f"this run has given no response {earlier!r}"
        raise RequestError(told, 404, param="previous_response_id")
    # Of this response alone: the next one that builds on it does not inherit them.
    text = body.get("instructions")
    told = [{"role": "system", "content": text}] if text else []
    if form and form["type"] == "json_schema":
        form = {"type": "json_schema", "json_schema": form}
    return CHAT.check(
        {
            "model": body["model"],
            "messages": [*told, *(kept[earlier] if earlier else ()), *_messages(body)],
            "tools": [*map(_nested, body.get("tools", ()))],
            "tool_choice": _nested(body.get("tool_choice")),
            "response_format": form,
            "max_completion_tokens": body.get("max_output_tokens"),
            "parallel_tool_calls": body.get("parallel_tool_calls"),
        }
    )


def _nested(tool: Any) -> Any:
    """A tool, or the choice of one, as chat completions have it."""
    match tool:
        case {"type": "function", **function}:
            return {"type": "function", "function": function}
        case {"type": "allowed_tools", "tools": list(tools), **more}:
            allowed = {**more, "tools": [*map(_nested, tools)]}
            return {"type": "allowed_tools", "allowed_tools": allowed}
        case _:
            return tool


def chat_after(body: Body, answer: WireAnswer, *, has_told: bool) -> list[Body]:
    """The chat up to an answer, without the instructions that began it."""
    calls = [_call(answer.call_id(at), *one) for at, one in enumerate(answer.reply.calls)]
    said = {"role": "assistant", "content": answer.reply.content or "", "tool_calls": calls}
    return [*body["messages"][has_told:], said]


def _call(number: str, name: str, arguments: str) -> Body:
    function = {"name": name, "arguments": arguments}
    return {"type": "function", "id": number, "function": function}


def _messages(body: Body) -> list[dict[str, Any]]:
    """The messages of an input; what an agent said and called in a row is one of them."""
    given = body.get("input", [])
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
    messages: list[dict[str, Any]] = []
    for item in given:
        match item.get("type", "message"):
            case "message":
                messages.append({"role": item["role"], "content": _parts(item["content"])})
            case "function_call":
                if not (messages and messages[-1]["role"] == "assistant"):
                    messages.append({"role": "assistant", "content": ""})
                call = _call(item["call_id"], item["name"], item["arguments"])
                messages[-1].setdefault("tool_calls", []).append(call)
            case "function_call_output":
                place = {"role": "tool", "tool_call_id": item["call_id"]}
                messages.append({**place, "content": _parts(item["output"])})
            case "reasoning":  # which the next prompt does not show, as reasoning models want it
                pass
            case other:
                raise RequestError(f"input: items of type {other!r} are not read", param="input")
    return messages


def _parts(content: Any) -> str:
    return text_of(content, "input")


def response(answer: WireAnswer, body: Body) -> Response:
    """An answer as a response, which repeats parts of the body of the request."""
    return _response(answer, body, _output(answer), is_done=True)


def events(answer: WireAnswer, body: Body) -> Iterator[ResponseStreamEvent]:
    """Yield the same as the events of a stream."""
    for number, event in enumerate(_events(answer, body)):
        yield _EVENT.validate_python({**event, "sequence_number": number})


def _events(answer: WireAnswer, body: Body) -> Iterator[dict[str, Any]]:
    # All events that clients of the package openai wait for, in its order.
    begun = _response(answer, body, [], is_done=False).to_dict()
    yield {"type": "response.created", "response": begun}
    yield {"type": "response.in_progress", "response": begun}
    for at, item in enumerate(_output(answer)):
        is_message = item["type"] == "message"
        empty = {"content": []} if is_message else {"arguments": ""}
        added = {**item, **empty, "status": "in_progress"}
        yield {"type": "response.output_item.added", "output_index": at, "item": added}
        place = {"output_index": at, "item_id": item["id"]}
        yield from _text_events(item, place) if is_message else _call_events(item, place)
        yield {"type": "response.output_item.done", "output_index": at, "item": item}
    kind = "response.incomplete" if answer.is_cut else "response.completed"
    yield {"type": kind, "response": response(answer, body).to_dict()}


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


def _output(answer: WireAnswer) -> list[dict[str, Any]]:
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
        items.append({**head, "call_id": answer.call_id(at), **call._asdict()})
    return items


def _response(answer: WireAnswer, body: Body, items: Sequence[Any], *, is_done: bool) -> Response:
    reason = {"reason": "max_output_tokens"} if answer.is_cut and is_done else None
    done = "incomplete" if answer.is_cut else "completed"
    same: dict[str, Any] = {
        **dict.fromkeys(("instructions", "previous_response_id")),
        **{"metadata": {}, "parallel_tool_calls": True, "tool_choice": "auto"},
    }
    unsaid = {"parameters": None, "strict": None}
    return Response.model_validate(
        {
            **{key: body.get(key, otherwise) for key, otherwise in same.items()},
            "tools": [{**unsaid, **tool} for tool in body.get("tools", ())],
            "id": f"resp_{answer.number}",
            "object": "response",
            "created_at": 0,
            "model": answer.model,
            "status": done if is_done else "in_progress",
            "output": items,
            "error": None,
            "incomplete_details": reason,
            "usage": _usage(answer) if is_done else None,
        }
    )


def _usage(answer: WireAnswer) -> dict[str, Any]:
    counts = answer.action.tokens
    return {
        "input_tokens": counts.prompt,
        "input_tokens_details": {"cached_tokens": counts.cached, "cache_write_tokens": 0},
        "output_tokens": counts.completion,
        "output_tokens_details": {"reasoning_tokens": counts.reasoning},
        "total_tokens": counts.prompt + counts.completion,
    }
