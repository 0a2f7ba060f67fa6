"""OpenAI's chat completions: what a request asks, and answers made of the types of its client.

Format: https://platform.openai.com/docs/api-reference/chat
"""

from __future__ import annotations

import itertools
import reprlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

from openai.types import CompletionUsage, Model
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.chat.completion_create_params import CompletionCreateParamsBase
from openai.types.completion_usage import CompletionTokensDetails, PromptTokensDetails
from pydantic import Field

from pettingllms.types import Constraints
from pettingllms.workflows.bodies import LIMIT, SHARED, Bodies, read_arguments, text_of
from pettingllms.workflows.tools import Form, assistant_text, check_schema, described, tool_text
from pettingllms.workflows.wire import ChatMessage, ChatRequest, RequestError, WireAnswer

Body = Mapping[str, Any]
"""What of a request was checked by the types of its client."""

CHAT = Bodies(
    CompletionCreateParamsBase,
    {
        **SHARED,
        **dict.fromkeys(("reasoning_effort", "verbosity"), Any),
        "messages": Annotated[list[Any], Field(min_length=1)],
        **dict.fromkeys(("tools", "tool_choice", "response_format", "stream_options"), Any),
        "stop": Annotated[str, Field(min_length=1)] | list[Annotated[str, Field(min_length=1)]],
        "max_tokens": LIMIT,
        "max_completion_tokens": LIMIT,
        # One: the run samples the candidates and follows one.
        "n": Literal[1],
        "logprobs": Literal[False],
        "functions": Annotated[list[Any], Field(max_length=0)],
        "modalities": list[Literal["text"]],
    },
)
"""Bodies of requests."""


def system_of(body: Body) -> str:
    """The system prompt of a request."""
    told = [one for one in body["messages"] if one["role"] in ("system", "developer")]
    return "\n\n".join(text_of(message.get("content", ""), "messages") for message in told)


def chat_request(body: Body, agent: str, agents: Mapping[str, str], place: str = "") -> ChatRequest:
    """What the body of a request asks.

    Args:
        body: The body, which `CHAT` has checked.
        agent: Who is asked.
        agents: Names of models to agents.
        place: Where in its run it was sent.

    Raises:
        RequestError: It wants a form that cannot be.
    """
    chat = [_message(message, agent, agents) for message in _in_order(body["messages"])]
    mode, names = _chosen(body.get("tool_choice", "auto"))
    offered = [_function(tool, "tools") for tool in body.get("tools", ())]
    if mode == "none":
        offered = []
    if unknown := sorted({*names} - {one["name"] for one in offered}):
        raise RequestError(
            f"tool_choice names {', '.join(unknown)}, which is not offered", param="tool_choice"
        )
    chosen = [one for one in offered if not names or one["name"] in names]
    if mode == "required" and not offered:
        raise RequestError("tool_choice wants a call and no tool is offered", param="tool_choice")
    if mode == "auto":
        offered = chosen
    form = _form(body, chosen, offered, is_forced=mode == "required")
    told = [described(offered) if offered else "", form.instruction(may_call=bool(offered))]
    chat = _with_told(chat, "\n\n".join(filter(None, told)))
    limits = [body[key] for key in ("max_completion_tokens", "max_tokens") if key in body]
    stop = body.get("stop", ())
    stops = (stop,) if isinstance(stop, str) else tuple(stop)
    constraints = Constraints(stops, min(limits, default=None))
    tools = tuple(one["name"] for one in offered)
    return ChatRequest(agent, tuple(chat), tools, constraints, form, place)


def _in_order(messages: Sequence[Body]) -> Iterator[Body]:
    """Messages with the results of calls in the order of these: their texts do not name them."""
    calls = [call["id"] for one in messages for call in one.get("tool_calls", ())]
    order = {number: at for at, number in enumerate(calls)}
    for role, group in itertools.groupby(messages, key=lambda one: one["role"]):
        if role == "tool":
            yield from sorted(group, key=lambda one: order.get(one["tool_call_id"], -1))
        else:
            yield from group


def _message(message: Body, agent: str, agents: Mapping[str, str]) -> ChatMessage:
    role, name = message["role"], message.get("name", "")
    content = text_of(message.get("content", ""), "messages")
    if role == "tool":
        # As Hermes and Qwen write it; most templates know no role for the results of tools.
        return ChatMessage("user", tool_text(content))
    if role == "function" or "function_call" in message:
        told = "messages: functions are called as tools here; use tools and tool_calls"
        raise RequestError(told, param="messages")
    if role == "assistant":
        called = [_function(call, "messages") for call in message.get("tool_calls", ())]
        calls = [(one["name"], read_arguments(one["arguments"])) for one in called]
        content = assistant_text(content or message.get("refusal", ""), calls)
    # Chat templates know no names, and without them the turns of all speakers look alike. What the
    # agent said itself has none: it would begin its next answer with one.
    is_own = role == "assistant" and agents.get(name, name) == agent
    speaks = f"{name}: " if name and not is_own else ""
    return ChatMessage("system" if role == "developer" else role, speaks + content)


def _function(tool: Body, key: str) -> Body:
    """The function of a tool that is offered, chosen or called."""
    match tool:
        case {"type": "function", "function": {"name": str()} as function}:
            return function
        case _:
            told = f"{key}: a tool is of type 'function'; it is {reprlib.repr(tool)}"
            raise RequestError(told, param=key)


def _chosen(choice: Any) -> tuple[str, list[str]]:
    """Whether a call is none, auto or required, and of which functions; none named: all."""
    match choice:
        case str():
            return choice, []
        case {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}:
            return mode, [_function(tool, "tool_choice")["name"] for tool in tools]
        case _:
            return "required", [_function(choice, "tool_choice")["name"]]


def _form(
    body: Body,
    chosen: Sequence[Mapping[str, Any]],
    offered: Sequence[Mapping[str, Any]],
    *,
    is_forced: bool,
) -> Form:
    """What the answer must look like; one of `chosen` must be called if that is forced."""
    key, wanted = "tools", body.get("response_format", {"type": "text"})
    one_call = bool(offered) and not body.get("parallel_tool_calls", True)
    try:
        if is_forced:
            # A schema of the answer beside it is moot: a forced call leaves no room for a text.
            return Form(calls=_schemas(chosen), one_call=one_call)
        strict = _schemas([one for one in offered if one.get("strict")])
        key, schema = "response_format", ""
        if wanted["type"] == "json_schema":
            given = wanted["json_schema"]
            schema = check_schema(given.get("schema"), given.get("description", ""))
        elif wanted["type"] == "json_object":
            schema = '{"type": "object"}'
        return Form(schema, strict=strict, one_call=one_call)
    except ValueError as error:
        raise RequestError(f"{key} cannot be used: {error}", param=key) from error


def _schemas(functions: Sequence[Mapping[str, Any]]) -> tuple[tuple[str, str], ...]:
    """Names of functions with the schemas of their arguments."""
    return tuple(
        (one["name"], check_schema(one.get("parameters") or {"type": "object"}))
        for one in functions
    )


def _with_told(chat: Sequence[ChatMessage], text: str) -> list[ChatMessage]:
    if not text:
        return [*chat]
    # Many chat templates refuse a second system message.
    if chat[0].role == "system":
        return [ChatMessage("system", f"{chat[0].content}\n\n{text}"), *chat[1:]]
    return [ChatMessage("system", text), *chat]


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
    head = _head(answer, "chat.completion.chunk")
    # Clients add up what they get, so that each call and the whole text may come in one piece.
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [{"content": text} for text in [answer.reply.content] if text]
    deltas += [{"tool_calls": [{"index": at, **call}]} for at, call in enumerate(_calls(answer))]
    choices: list[dict[str, Any]] = [
        {"index": 0, "delta": delta, "finish_reason": None} for delta in deltas
    ]
    choices.append({"index": 0, "delta": {}, "finish_reason": answer.finish_reason})
    for choice in choices:
        yield ChatCompletionChunk.model_validate({**head, "choices": [choice]})
    if with_usage:
        last = {**head, "choices": [], "usage": _usage(answer)}
        yield ChatCompletionChunk.model_validate(last)


def models(names: Sequence[str]) -> list[Model]:
    """The roles as models."""
    return [Model(id=name, object="model", created=0, owned_by="run") for name in names]


def _usage(answer: WireAnswer) -> CompletionUsage:
    counts = answer.action.tokens
    return CompletionUsage(
        prompt_tokens=counts.prompt,
        completion_tokens=counts.completion,
        total_tokens=counts.prompt + counts.completion,
        prompt_tokens_details=PromptTokensDetails(cached_tokens=counts.cached),
        completion_tokens_details=CompletionTokensDetails(reasoning_tokens=counts.reasoning),
    )


def _head(answer: WireAnswer, kind: str) -> dict[str, Any]:
    # No clock and no chance: a workflow may put what it got into its next request.
    number, model = answer.number, answer.model
    return {"id": f"chatcmpl-{number}", "object": kind, "created": 0, "model": model}


def _calls(answer: WireAnswer) -> list[dict[str, Any]]:
    return [
        {"id": answer.call_id(at), "type": "function", "function": call._asdict()}
        for at, call in enumerate(answer.reply.calls)
    ]
