"""The wire format of OpenAI's chat completions: requests read, answers written.

Format: https://platform.openai.com/docs/api-reference/chat (chat completions and their chunks).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

from pettingllms.workflows.tools import Reply, assistant_text, described, tool_text

IGNORED = (
    "frequency_penalty", "logit_bias", "max_completion_tokens", "max_tokens", "presence_penalty",
    "seed", "stop", "temperature", "top_p",
)  # fmt: skip
"""Keys of a request that decide how is sampled: the run decides that for every role."""
_PLAIN_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}


class RequestError(Exception):
    """A request that cannot be answered.

    Args:
        message: What is wrong, and what is allowed.
        status: HTTP status.
        param: The key that is wrong; None for the whole request.
    """

    def __init__(self, message: str, status: int = 400, param: str | None = None) -> None:
        super().__init__(message)
        self.status, self.param = status, param

    def body(self) -> dict[str, Any]:
        """Return the error as OpenAI's clients expect it."""
        kinds = {401: "authentication_error", 404: "not_found_error", 500: "server_error"}
        return {
            "error": {
                "message": str(self),
                "type": kinds.get(self.status, "invalid_request_error"),
                "param": self.param,
                "code": "model_not_found" if self.param == "model" else None,
            }
        }


class ChatMessage(NamedTuple):
    """One message of a chat, as the policies read it."""

    role: str
    """system, user or assistant."""
    content: str
    """Tool calls and their results are part of the text."""


class ChatRequest(NamedTuple):
    """What a workflow asks. Equal requests are equal values."""

    agent: str
    """Who is asked, ``<role>_<n>``."""
    messages: tuple[ChatMessage, ...]
    """The chat, with the tools in its system message."""
    tools: tuple[str, ...] = ()
    """Names of the tools that the agent may call."""

    def chat(self) -> list[dict[str, str]]:
        """Return the messages as mappings."""
        return [{"role": role, "content": content} for role, content in self.messages]


def read_request(body: Any, agents: Mapping[str, str]) -> ChatRequest:
    """Return what the body of a request asks.

    Args:
        body: Decoded JSON.
        agents: Names of models to agents.

    Raises:
        RequestError: It is ill-formed, names an unknown model, or wants what the endpoint lacks.
    """
    if not isinstance(body, Mapping):
        raise RequestError("the body is no JSON object")
    data = cast("Mapping[str, Any]", body)
    agent = agents.get(str(data.get("model")))
    if agent is None:
        raise RequestError(
            f"there is no model {data.get('model')!r}; the model names the role: "
            f"{', '.join(agents)}",
            404,
            "model",
        )
    _check_supported(data)
    messages = data.get("messages")
    if not isinstance(messages, Sequence) or isinstance(messages, str) or not messages:
        raise RequestError("messages must be a list of at least one message", param="messages")
    chat = [_message(item) for item in cast("Sequence[Any]", messages)]
    offered = _offered(data)
    if offered:
        chat = _with_tools(chat, described(offered))
    return ChatRequest(agent, tuple(chat), tuple(tool["name"] for tool in offered))


def _check_supported(data: Mapping[str, Any]) -> None:
    wanted = data.get("response_format")
    kind = cast("Mapping[str, Any]", wanted).get("type") if isinstance(wanted, Mapping) else wanted
    choice = data.get("tool_choice")
    rules = (
        ("n", data.get("n") in (None, 1), "1: the run samples the candidates and follows one"),
        ("response_format", kind in (None, "text"), "text: answers are not constrained"),
        ("logprobs", not data.get("logprobs"), "false"),
        ("tool_choice", choice in (None, "auto", "none"), "auto or none: calls are not forced"),
        ("functions", not data.get("functions"), "none: offer tools instead"),
        ("modalities", data.get("modalities") in (None, ["text"]), "text"),
    )
    for key, holds, allowed in rules:
        if not holds:
            raise RequestError(
                f"{key} = {data[key]!r} cannot be used; allowed: {allowed}", param=key
            )


def _message(item: Any) -> ChatMessage:
    if not isinstance(item, Mapping):
        raise RequestError("every message must be an object", param="messages")
    message = cast("Mapping[str, Any]", item)
    role, content = message.get("role"), _text(message.get("content"))
    if role == "tool":
        return ChatMessage("user", tool_text(content))
    if role not in _PLAIN_ROLES:
        allowed = ", ".join([*_PLAIN_ROLES, "tool"])
        raise RequestError(f"a message has the role {role!r}; allowed: {allowed}", param="messages")
    if role == "assistant":
        try:
            content = assistant_text(content, message.get("tool_calls") or ())
        except (KeyError, TypeError, ValueError) as error:
            raise RequestError(f"tool_calls are ill-formed: {error!r}", param="messages") from error
    return ChatMessage(_PLAIN_ROLES[str(role)], content)


def _text(content: Any) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    parts = cast("Sequence[Any]", content if isinstance(content, Sequence) else [content])
    texts: list[str] = []
    for part in parts:
        kind = cast("Mapping[str, Any]", part).get("type") if isinstance(part, Mapping) else None
        if kind != "text":
            raise RequestError(
                f"a message has a content part of type {kind!r}; allowed: text", param="messages"
            )
        texts.append(str(part["text"]))
    return "".join(texts)


def _offered(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the functions that the agent may call."""
    tools = data.get("tools") or []
    if data.get("tool_choice") == "none":
        return []
    try:
        found = [dict(tool["function"]) for tool in tools if tool["type"] == "function"]
        well_formed = len(found) == len(tools) and all(isinstance(f["name"], str) for f in found)
    except (KeyError, TypeError, ValueError) as error:
        raise RequestError(f"tools are ill-formed: {error!r}", param="tools") from error
    if not well_formed:
        raise RequestError("every tool must be of type function and have a name", param="tools")
    return found


def _with_tools(chat: Sequence[ChatMessage], text: str) -> list[ChatMessage]:
    if chat[0].role == "system":
        return [ChatMessage("system", f"{chat[0].content}\n\n{text}"), *chat[1:]]
    return [ChatMessage("system", text), *chat]


def completion_body(reply: Reply, model: str, number: int) -> dict[str, Any]:
    """Return a chat completion.

    Args:
        reply: The answer.
        model: As the request named it.
        number: Of the request within its run. Ids count instead of being drawn, so that a run that
            is repeated gets the same ones.
    """
    calls = _calls(reply, number)
    message = {"role": "assistant", "content": reply.content, "refusal": None}
    choice = {
        "index": 0,
        "message": {**message, "tool_calls": calls} if calls else message,
        "finish_reason": "tool_calls" if calls else "stop",
        "logprobs": None,
    }
    return {**_head(model, number, "chat.completion"), "choices": [choice]}


def stream_body(reply: Reply, model: str, number: int) -> bytes:
    """Return the same as server-sent events: role, content, calls, reason, end."""
    head = _head(model, number, "chat.completion.chunk")
    calls = _calls(reply, number)
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    if reply.content:
        deltas.append({"content": reply.content})
    deltas += [{"tool_calls": [{"index": at, **call}]} for at, call in enumerate(calls)]
    reasons = [*(None for _ in deltas), "tool_calls" if calls else "stop"]
    events = [
        {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}
        for delta, reason in zip([*deltas, {}], reasons, strict=True)
    ]
    lines = [*map(json.dumps, events), "[DONE]"]
    return "".join(f"data: {line}\n\n" for line in lines).encode()


def models_body(names: Sequence[str]) -> dict[str, Any]:
    """Return the list of models: the roles."""
    models = [{"id": name, "object": "model", "created": 0, "owned_by": "run"} for name in names]
    return {"object": "list", "data": models}


def _head(model: str, number: int, kind: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{number}", "object": kind, "created": 0, "model": model}


def _calls(reply: Reply, number: int) -> list[dict[str, Any]]:
    return [
        {
            "id": f"call_{number}_{at}",
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        for at, call in enumerate(reply.calls)
    ]
