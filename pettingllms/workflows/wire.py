"""Requests in the wire format of OpenAI's chat completions.

Format: https://platform.openai.com/docs/api-reference/chat
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

from pettingllms.types import UNBOUND, Action, Constraints
from pettingllms.workflows.tools import (
    FREE,
    Form,
    assistant_text,
    check_schema,
    described,
    tool_text,
)

IGNORED = (
    "frequency_penalty", "logit_bias", "presence_penalty", "seed", "temperature", "top_p",
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
        """The error as OpenAI's clients expect it."""
        kinds = {401: "authentication_error", 404: "not_found_error", 500: "server_error"}
        return {
            "error": {
                "message": str(self),
                "type": kinds.get(self.status, "invalid_request_error"),
                "param": self.param,
                "code": "model_not_found" if self.param == "model" else None,
            }
        }


class Answered(NamedTuple):
    """What a request is answered with."""

    action: Action
    """What the agent wrote."""
    number: int
    """Number of the request within its run, from 0."""


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
    constraints: Constraints = UNBOUND
    """What ends the answer."""
    form: Form = FREE
    """What it must look like."""

    def text_of(self, action: Action) -> str:
        """What of an answer counts: what comes before a text that ends it."""
        cuts = [action.find(stop) for stop in self.constraints.stop if stop in action]
        return action[: min(cuts)] if cuts else str(action)

    def bounds(self) -> Constraints:
        """What the answer is bound to, its form included."""
        return self.constraints._replace(grammar=self.form.grammar(self.tools))

    def chat(self) -> list[dict[str, str]]:
        """The messages as mappings."""
        return [{"role": role, "content": content} for role, content in self.messages]


def read_request(data: Mapping[str, Any], agents: Mapping[str, str]) -> ChatRequest:
    """What the body of a request asks.

    Args:
        data: Decoded JSON.
        agents: Names of models to agents.

    Raises:
        RequestError: It is ill-formed, names an unknown model, or wants what the endpoint lacks.
    """
    agent = agents[model_of(data.get("model"), agents)]
    _check_supported(data)
    messages = data.get("messages")
    if not isinstance(messages, Sequence) or isinstance(messages, str) or not messages:
        raise RequestError("messages must be a list of at least one message", param="messages")
    chat = [_message(item, agent, agents) for item in cast("Sequence[Any]", messages)]
    offered = _offered(data)
    form = _form(data, offered)
    told = [described(offered) if offered else "", form.instruction(may_call=bool(offered))]
    chat = _with_told(chat, "\n\n".join(filter(None, told)))
    names = tuple(tool["name"] for tool in offered)
    return ChatRequest(agent, tuple(chat), names, _constraints(data), form)


def model_of(name: Any, agents: Mapping[str, str]) -> str:
    """The name of a model.

    Raises:
        RequestError: There is none of this name.
    """
    if not isinstance(name, str) or name not in agents:
        raise RequestError(
            f"there is no model {name!r}; the model names the role: {', '.join(agents)}",
            404,
            "model",
        )
    return name


def _check_supported(data: Mapping[str, Any]) -> None:
    rules = (
        ("n", data.get("n") in (None, 1), "1: the run samples the candidates and follows one"),
        ("logprobs", not data.get("logprobs"), "false"),
        ("functions", not data.get("functions"), "none: offer tools instead"),
        ("modalities", data.get("modalities") in (None, ["text"]), "text"),
    )
    for key, holds, allowed in rules:
        if not holds:
            raise RequestError(
                f"{key} = {data[key]!r} cannot be used; allowed: {allowed}", param=key
            )


def _constraints(data: Mapping[str, Any]) -> Constraints:
    """What ends the answer."""
    stop = data.get("stop") or ()
    stop = (stop,) if isinstance(stop, str) else tuple(stop)
    if not all(isinstance(text, str) and text for text in stop):
        raise RequestError("stop must be a text or a list of texts", param="stop")
    limits = [data.get(key) for key in ("max_completion_tokens", "max_tokens")]
    known = [limit for limit in limits if limit is not None]
    if not all(isinstance(limit, int) and limit > 0 for limit in known):
        raise RequestError("max_tokens must be a whole number above 0", param="max_tokens")
    return Constraints(stop, min(known, default=None))


def _message(item: Any, agent: str, agents: Mapping[str, str]) -> ChatMessage:
    if not isinstance(item, Mapping):
        raise RequestError("every message must be an object", param="messages")
    message = cast("Mapping[str, Any]", item)
    role, content = message.get("role"), _text(message.get("content"))
    if role == "tool":
        return ChatMessage("user", tool_text(content))
    if role not in _PLAIN_ROLES:
        allowed = ", ".join([*_PLAIN_ROLES, "tool"])
        raise RequestError(f"a message has the role {role!r}; allowed: {allowed}", param="messages")
    name = message.get("name")
    if role == "assistant":
        content = content or _text(message.get("refusal"))
        try:
            content = assistant_text(content, message.get("tool_calls") or ())
        except (KeyError, TypeError, ValueError) as error:
            raise RequestError(f"tool_calls are ill-formed: {error!r}", param="messages") from error
    # Chat templates know no names, and without them the turns of all speakers look alike. What the
    # agent said itself has none: it would begin its next answer with one.
    is_own = role == "assistant" and agents.get(str(name), name) == agent
    speaks = f"{name}: " if name and not is_own else ""
    return ChatMessage(_PLAIN_ROLES[str(role)], speaks + content)


def _text(content: Any) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    parts = cast("Sequence[Any]", content if isinstance(content, Sequence) else [content])
    texts: list[str] = []
    for part in parts:
        kind = cast("Mapping[str, Any]", part).get("type") if isinstance(part, Mapping) else None
        if kind not in ("text", "refusal") or not isinstance(part.get(kind), str):
            raise RequestError(
                f"a message has a content part of type {kind!r}; allowed: text and refusal, each "
                "with a text",
                param="messages",
            )
        texts.append(part[kind])
    return "".join(texts)


def _offered(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The functions that the agent may call."""
    tools = data.get("tools") or []
    if _choice(data)[0] == "none":
        return []
    try:
        found = [dict(tool["function"]) for tool in tools if tool["type"] == "function"]
        well_formed = len(found) == len(tools) and all(isinstance(f["name"], str) for f in found)
    except (KeyError, TypeError, ValueError) as error:
        raise RequestError(f"tools are ill-formed: {error!r}", param="tools") from error
    if not well_formed:
        raise RequestError("every tool must be of type function and have a name", param="tools")
    mode, names = _choice(data)
    return [one for one in found if one["name"] in names] if mode == "auto" and names else found


def _choice(data: Mapping[str, Any]) -> tuple[str, list[str]]:
    """Whether a call is none, auto or required, and of which functions; none named: all."""
    wanted = data.get("tool_choice") or "auto"
    if wanted in ("none", "auto", "required"):
        return str(wanted), []
    try:
        if wanted["type"] == "function":
            return "required", [wanted["function"]["name"]]
        allowed = wanted["allowed_tools"]
        mode, names = allowed["mode"], [tool["function"]["name"] for tool in allowed["tools"]]
        if wanted["type"] != "allowed_tools" or mode not in ("auto", "required"):
            raise ValueError(wanted)
    except (KeyError, TypeError, ValueError) as error:
        raise RequestError(
            f"tool_choice = {wanted!r} cannot be used; allowed: none, auto, required, a function, "
            "allowed_tools",
            param="tool_choice",
        ) from error
    return mode, names


def _form(data: Mapping[str, Any], offered: Sequence[Mapping[str, Any]]) -> Form:
    """What the answer must look like."""
    mode, names = _choice(data)
    if unknown := sorted({*names} - {tool["name"] for tool in offered}):
        raise RequestError(
            f"tool_choice names {', '.join(unknown)}, which is not offered", param="tool_choice"
        )
    if mode == "required" and not offered:
        raise RequestError("tool_choice wants a call and no tool is offered", param="tool_choice")
    wanted: Any = data.get("response_format") or {"type": "text"}
    key = "tools"
    try:
        if mode == "required":
            chosen = [tool for tool in offered if not names or tool["name"] in names]
            return Form(calls=tuple((t["name"], check_schema(_parameters(t))) for t in chosen))
        key = "response_format"
        match wanted["type"]:
            case "text":
                return FREE
            case "json_object":
                return Form('{"type": "object"}')
            case "json_schema":
                return Form(check_schema(wanted["json_schema"]["schema"]))
            case other:
                raise ValueError(f"unknown type {other!r}; allowed: text, json_object, json_schema")
    except (KeyError, TypeError, ValueError) as error:
        raise RequestError(f"{key} cannot be used: {error!r}", param=key) from error


def _parameters(tool: Mapping[str, Any]) -> Any:
    return tool.get("parameters") or {"type": "object"}


def _with_told(chat: Sequence[ChatMessage], text: str) -> list[ChatMessage]:
    if not text:
        return [*chat]
    if chat[0].role == "system":
        return [ChatMessage("system", f"{chat[0].content}\n\n{text}"), *chat[1:]]
    return [ChatMessage("system", text), *chat]
