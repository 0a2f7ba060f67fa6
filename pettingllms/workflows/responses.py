"""OpenAI's Responses API: its requests as chat completions, and answers made of its types.

Format: https://platform.openai.com/docs/api-reference/responses
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

from openai.types.responses import Response, ResponseStreamEvent
from pydantic import BeforeValidator, Discriminator, Field, Tag, TypeAdapter

from pettingllms.workflows.chat import (
    Body,
    Call,
    CalledFunction,
    ChatBody,
    Content,
    Limit,
    Sent,
    SentMessage,
)
from pettingllms.workflows.wire import RequestError, WireAnswer

_EVENT: TypeAdapter[ResponseStreamEvent] = TypeAdapter(ResponseStreamEvent)


class _Called(CalledFunction):
    type: Literal["function_call"]


class _Output(Sent):
    type: Literal["function_call_output"]
    output: Content


class _Thoughts(Sent):
    type: Literal["reasoning"]


def _kind(item: Any) -> Any:
    return item.get("type", "message") if isinstance(item, dict) else None


_Item = Annotated[
    Annotated[SentMessage, Tag("message")]
    | Annotated[_Called, Tag("function_call")]
    | Annotated[_Output, Tag("function_call_output")]
    | Annotated[_Thoughts, Tag("reasoning")],
    Discriminator(_kind),
]


def _items(given: Any) -> Any:
    return [{"role": "user", "content": given}] if isinstance(given, str) else given


class _TextOptions(Sent):
    format: dict[str, Any] = Field(default={"type": "text"})


class ResponsesBody(Body):
    """The body of a request; `chat_body` reads tools and forms as those of a chat completion."""

    input: Annotated[list[_Item], BeforeValidator(_items)] = Field(default=[])
    instructions: str | None = None
    previous_response_id: str | None = None
    tools: list[dict[str, Any]] = Field(default=[])
    tool_choice: str | dict[str, Any] = "auto"
    text: _TextOptions = _TextOptions()
    max_output_tokens: Limit | None = None
    reasoning: dict[str, Any] | None = None
    # They concern tools of a server, thoughts that are hidden, and noise in streams: none is here.
    max_tool_calls: int | None = None
    include: list[Literal["reasoning.encrypted_content"]] = Field(default=[])
    stream_options: dict[str, Any] = Field(default={})
    # What the run cannot do; the whole input may be sent instead.
    background: Literal[False] = False
    truncation: Literal["disabled"] = "disabled"


def chat_body(body: ResponsesBody, kept: Mapping[str, Sequence[SentMessage]]) -> ChatBody:
    """The body of a chat completion that asks the same.

    Args:
        body: The body.
        kept: Chats up to earlier responses of the run, by their ids.

    Raises:
        RequestError: There is no such response.
        ValidationError: A tool, a choice or a form is ill-formed, or there is no message.
    """
    earlier, form = body.previous_response_id, body.text.format
    if earlier and earlier not in kept:
        told = f"this run has given no response {earlier!r}"
        raise RequestError(told, 404, param="previous_response_id")
    # Of this response alone: the next one that builds on it does not inherit them.
    told = [SentMessage.of("system", body.instructions)] if body.instructions else []
    if form.get("type") == "json_schema":
        form = {"type": "json_schema", "json_schema": form}
    return ChatBody.model_validate(
        {
            "model": body.model,
            "messages": [*told, *(kept[earlier] if earlier else ()), *_messages(body.input)],
            "tools": [*map(_nested, body.tools)],
            "tool_choice": _nested(body.tool_choice),
            "response_format": form,
            "max_completion_tokens": body.max_output_tokens,
            "parallel_tool_calls": body.parallel_tool_calls,
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


def chat_after(body: ChatBody, answer: WireAnswer, *, has_told: bool) -> list[SentMessage]:
    """The chat up to an answer, without the instructions that began it."""
    said = SentMessage.of("assistant", answer.reply.content or "")
    said.tool_calls = [_call(one.name, json.loads(one.arguments)) for one in answer.reply.calls]
    return [*body.messages[has_told:], said]


def _call(name: str, arguments: Any) -> Call:
    function = CalledFunction.model_construct(name=name, arguments=arguments)
    return Call.model_construct(function=function)


def _messages(items: Sequence[Any]) -> list[SentMessage]:
    """The messages of an input; what an agent said and called in a row is one of them."""
    messages: list[SentMessage] = []
    for item in items:
        match item:
            case SentMessage():
                messages.append(item)
            case _Called():
                if not (messages and messages[-1].role == "assistant"):
                    messages.append(SentMessage.of("assistant", ""))
                messages[-1].tool_calls.append(_call(item.name, item.arguments))
            case _Output():
                messages.append(SentMessage(role="tool", content=item.output))
            case _:  # thoughts, which the next prompt does not show, as reasoning models want it
                pass
    return messages


def response(answer: WireAnswer, body: ResponsesBody) -> Response:
    """An answer as a response, which repeats parts of the body of the request."""
    return _response(answer, body, _output(answer), is_done=True)


def events(answer: WireAnswer, body: ResponsesBody) -> Iterator[ResponseStreamEvent]:
    """Yield the same as the events of a stream."""
    for number, event in enumerate(_events(answer, body)):
        yield _EVENT.validate_python({**event, "sequence_number": number})


def _events(answer: WireAnswer, body: ResponsesBody) -> Iterator[dict[str, Any]]:
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


def _response(
    answer: WireAnswer, body: ResponsesBody, items: Sequence[Any], *, is_done: bool
) -> Response:
    reason = {"reason": "max_output_tokens"} if answer.is_cut and is_done else None
    done = "incomplete" if answer.is_cut else "completed"
    same = {
        "instructions",
        "metadata",
        "parallel_tool_calls",
        "previous_response_id",
        "tool_choice",
    }
    unsaid = {"parameters": None, "strict": None}
    return Response.model_validate(
        {
            **body.model_dump(include=same),
            "tools": [{**unsaid, **tool} for tool in body.tools],
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
