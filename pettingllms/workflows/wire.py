"""What a workflow asks and is answered, whatever format it speaks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

from pettingllms.parsing import encodable
from pettingllms.types import UNBOUND, Action, Constraints
from pettingllms.workflows.tools import FREE, Form, Reply


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


def unknown_model(name: str, known: Iterable[str]) -> RequestError:
    """What is said to whoever asks a model that is not there."""
    told = f"there is no model {name!r}; the model names the role: {', '.join(known)}"
    return RequestError(told, 404, "model")


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


class Sender(NamedTuple):
    """What a request tells of who asks; the role is found by these."""

    model: str
    system: str = ""
    """The system prompt."""
    agent: str = ""
    """Name of the agent in the words of its framework; empty if unknown."""


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
    """What the answer must look like."""
    place: str = ""
    """Where in its run the request was sent, as `isolation` counts; empty if unknown."""

    def is_like(self, other: ChatRequest) -> bool:
        """Whether another one asks the same, wherever it was sent."""
        return self._replace(place="") == other._replace(place="")

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


class WireAnswer(NamedTuple):
    """What a request is answered with, before it has a format."""

    reply: Reply
    """The text, taken apart."""
    is_cut: bool
    """Whether the text ended at the limit of tokens."""
    action: Action
    """The text as the agent wrote it, and what it took."""
    model: str
    """The model that the request named."""
    number: int
    """Number of the request within its run. Ids count instead of being drawn, so that a run that is
    repeated gets the same ones."""

    @property
    def finish_reason(self) -> Literal["stop", "length", "tool_calls"]:
        """Why it ended."""
        if self.is_cut:
            return "length"
        return "tool_calls" if self.reply.calls else "stop"

    def call_id(self, at: int) -> str:
        """The id of one of its calls, which the result will name."""
        return f"call_{self.number}_{at}"


def wire_answer(model: str, request: ChatRequest, answered: Answered) -> WireAnswer:
    """What a request is answered with, taken apart as it wants."""
    action, text = answered.action, request.text_of(answered.action)
    # What has the wanted form is complete: a server that enforces it would have ended there.
    is_open = request.form.is_free and len(text) == len(action)
    is_cut = action.finish_reason == "length" and is_open
    # Lone surrogates, which no client could send on, become U+FFFD.
    reply = request.form.reply(encodable(text), request.tools)
    return WireAnswer(reply, is_cut, action, model, answered.number)
