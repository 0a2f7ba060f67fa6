"""OpenAI's chat completions: requests as models, and answers made of the types of its client.

Format: https://platform.openai.com/docs/api-reference/chat
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, cast

from openai.types import CompletionUsage, Model
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.completion_usage import CompletionTokensDetails, PromptTokensDetails
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    WrapValidator,
    model_validator,
)
from pydantic_core import from_json

from pettingllms.types import Constraints
from pettingllms.workflows.tools import (
    Form,
    assistant_text,
    check_schema,
    described,
    tool_text,
)
from pettingllms.workflows.wire import ChatMessage, ChatRequest, RequestError, WireAnswer

IGNORED = (
    "frequency_penalty", "logit_bias", "min_p", "presence_penalty", "reasoning", "reasoning_effort",
    "repetition_penalty", "seed", "temperature", "top_k", "top_p", "verbosity",
)  # fmt: skip
"""Keys of a request that decide how is sampled: the run decides that for every role."""


class Sent(BaseModel):
    """An object of a request. What is null is left out, which means the same and clients mix."""

    # Strict: `max_tokens` that is true, or a number that is a text, is a mistake of the client.
    # Parts may have more than is read: clients send back what they got, from whatever server.
    model_config = ConfigDict(strict=True, extra="allow")

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        return {key: value for key, value in data.items() if value is not None}


class _Text(Sent):
    type: Literal["text", "input_text", "output_text"]
    text: str


class _Refusal(Sent):
    type: Literal["refusal"]
    text: str = Field(alias="refusal")


def _parts(content: Any) -> Any:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


Content = Annotated[
    list[Annotated[_Text | _Refusal, Field(discriminator="type")]], BeforeValidator(_parts)
]
"""A text, whole or in parts."""


def joined(content: Sequence[_Text | _Refusal]) -> str:
    """The parts of a text as one."""
    return "".join(part.text for part in content)


def _arguments(text: Any) -> Any:
    if not isinstance(text, str):
        raise ValueError("not a text of JSON")
    return from_json(text or "{}", allow_inf_nan=False)


class CalledFunction(Sent):
    """What an agent has called."""

    name: str
    arguments: Annotated[Any, BeforeValidator(_arguments)]


class Call(Sent):
    """A call of an agent."""

    function: CalledFunction


class SentMessage(Sent):
    """A message of the chat."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Content = []
    name: str = ""
    refusal: str = ""
    tool_calls: list[Call] = []

    @classmethod
    def of(cls, role: str, text: str) -> SentMessage:
        """A message that is a text."""
        return cls.model_validate({"role": role, "content": text})


class Function(Sent):
    """A function that is offered, or chosen by its name."""

    name: str
    description: str = ""
    parameters: dict[str, Any] = {}
    strict: bool = False


class Tool(Sent):
    """A tool that is offered, or chosen."""

    type: Literal["function"]
    # The prompt shows it with its keys as they were sent, and in their order.
    function: Annotated[Function, WrapValidator(lambda given, check: (check(given), given)[1])]

    @property
    def sent(self) -> dict[str, Any]:
        """The function as it was sent."""
        return cast("dict[str, Any]", self.function)


class Mode(Sent):
    """Whether the answer must call, may call, or must not."""

    type: Literal["none", "auto", "required"]


class _AllowedTools(Sent):
    mode: Literal["auto", "required"]
    tools: list[Tool]


class Allowed(Sent):
    """The functions that may, or must, be called, of those that are offered."""

    type: Literal["allowed_tools"]
    allowed_tools: _AllowedTools


Choice = Annotated[
    Mode | Tool | Allowed,
    Field(discriminator="type"),
    BeforeValidator(lambda mode: {"type": mode} if isinstance(mode, str) else mode),
]


class _Schema(Sent):
    wanted: dict[str, Any] = Field(alias="schema")


class Format(Sent):
    """What the answer must look like."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: _Schema | None = None


class _StreamOptions(Sent):
    include_usage: bool = False


Limit = Annotated[int, Field(ge=1)]


_Penalty = Annotated[float, Field(ge=-2, le=2)]
_Share = Annotated[float, Field(ge=0, le=1)]


class Body(Sent):
    """What bodies of both formats have. A key that is not here is refused by its name."""

    model_config = ConfigDict(strict=True, extra="forbid")

    model: str
    stream: bool = False
    parallel_tool_calls: bool = True
    # IGNORED, but not whatever they say.
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: _Share | None = None
    min_p: _Share | None = None
    top_k: int | None = None
    seed: int | None = None
    frequency_penalty: _Penalty | None = None
    presence_penalty: _Penalty | None = None
    repetition_penalty: Annotated[float, Field(gt=0)] | None = None
    logit_bias: dict[str, float] | None = None
    # They leave the answer as it is.
    metadata: dict[str, str] = {}
    prompt_cache_key: str = ""
    prompt_cache_options: dict[str, Any] = {}
    prompt_cache_retention: str = ""
    safety_identifier: str = ""
    service_tier: str = ""
    store: bool = False
    user: str = ""


class ChatBody(Body):
    """The body of a request; what it cannot hold cannot be answered."""

    messages: Annotated[list[SentMessage], Field(min_length=1)]
    tools: list[Tool] = []
    tool_choice: Choice = Mode(type="auto")
    response_format: Format = Format(type="text")
    stop: Annotated[
        list[Annotated[str, Field(min_length=1)]],
        BeforeValidator(lambda stop: [stop] if isinstance(stop, str) else stop),
    ] = []
    max_tokens: Limit | None = None
    max_completion_tokens: Limit | None = None
    stream_options: _StreamOptions = _StreamOptions()
    reasoning_effort: str | None = None
    verbosity: str | None = None
    # One: the run samples the candidates and follows one.
    n: Literal[1] = 1
    logprobs: Literal[False] = False
    functions: Annotated[list[Any], Field(max_length=0)] = []
    modalities: list[Literal["text"]] = []


def refusal(error: ValidationError) -> RequestError:
    """What is wrong with a body, in the words of the models."""
    # One is enough to mend: the others often follow from it.
    first = error.errors(include_url=False, include_context=False)[0]
    keys = [key for key in first["loc"] if isinstance(key, str)]
    place = ".".join(map(str, first["loc"])) or "the body"
    text = f"{place}: {first['msg']}; it has {reprlib.repr(first['input'])}"
    return RequestError(text, param=keys[0] if keys else None)


def system_of(body: ChatBody) -> str:
    """The system prompt of a request."""
    told = [one for one in body.messages if one.role in ("system", "developer")]
    return "\n\n".join(joined(message.content) for message in told)


def chat_request(
    body: ChatBody, agent: str, agents: Mapping[str, str], place: str = ""
) -> ChatRequest:
    """What the body of a request asks.

    Args:
        body: The body.
        agent: Who is asked.
        agents: Names of models to agents.
        place: Where in its run it was sent.

    Raises:
        RequestError: It wants a form that cannot be.
    """
    chat = [_message(message, agent, agents) for message in body.messages]
    mode, names = _chosen(body)
    offered = [] if mode == "none" else [tool.sent for tool in body.tools]
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
    limits = [limit for limit in (body.max_completion_tokens, body.max_tokens) if limit]
    constraints = Constraints(tuple(body.stop), min(limits, default=None))
    tools = tuple(one["name"] for one in offered)
    return ChatRequest(agent, tuple(chat), tools, constraints, form, place)


def _message(message: SentMessage, agent: str, agents: Mapping[str, str]) -> ChatMessage:
    role, content = message.role, joined(message.content)
    if role == "tool":
        # As Hermes and Qwen write it; most templates know no role for the results of tools.
        return ChatMessage("user", tool_text(content))
    if role == "assistant":
        calls = [(call.function.name, call.function.arguments) for call in message.tool_calls]
        content = assistant_text(content or message.refusal, calls)
    # Chat templates know no names, and without them the turns of all speakers look alike. What the
    # agent said itself has none: it would begin its next answer with one.
    is_own = role == "assistant" and agents.get(message.name, message.name) == agent
    speaks = f"{message.name}: " if message.name and not is_own else ""
    return ChatMessage("system" if role == "developer" else role, speaks + content)


def _chosen(body: ChatBody) -> tuple[str, list[str]]:
    """Whether a call is none, auto or required, and of which functions; none named: all."""
    match body.tool_choice:
        case Mode(type=mode):
            return mode, []
        case Tool() as tool:
            return "required", [tool.sent["name"]]
        case Allowed(allowed_tools=allowed):
            return allowed.mode, [tool.sent["name"] for tool in allowed.tools]


def _form(
    body: ChatBody,
    chosen: Sequence[Mapping[str, Any]],
    offered: Sequence[Mapping[str, Any]],
    *,
    is_forced: bool,
) -> Form:
    """What the answer must look like; one of `chosen` must be called if that is forced."""
    key, wanted = "tools", body.response_format
    one_call = bool(offered) and not body.parallel_tool_calls
    try:
        if is_forced:
            # A schema of the answer beside it is moot: a forced call leaves no room for a text.
            return Form(calls=_schemas(chosen), one_call=one_call)
        strict = _schemas([one for one in offered if one.get("strict")])
        key, schema = "response_format", ""
        if wanted.type == "json_schema":
            schema = check_schema(wanted.json_schema and wanted.json_schema.wanted)
        elif wanted.type == "json_object":
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
