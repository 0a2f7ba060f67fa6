"""Tools as text, so that every chat model can be offered them and nothing hides from the trainer.

The format is that of Hermes and Qwen: the system message lists the functions in ``<tools>``, the
model calls one in ``<tool_call>``, and results come back in ``<tool_response>``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple, cast

_CALL = re.compile(r"<tool_call>\s*(.*?)\s*</tool_call>", re.DOTALL)
CALL_BEGIN = '<tool_call>\n{{"name": {name}, "arguments": '
"""What stands before the arguments of a call; `name` in JSON."""
CALL_END = "}\n</tool_call>"
"""What stands after them."""
_HEAD = """\
# Tools

You may call one or more functions. Their signatures:
<tools>"""
_TAIL = """\
</tools>

For each call, answer with a JSON object that names the function and its arguments:
<tool_call>
{"name": <function name>, "arguments": <JSON object of arguments>}
</tool_call>"""


class ToolCall(NamedTuple):
    """A function that an agent calls."""

    name: str
    arguments: str
    """A JSON object."""


class Reply(NamedTuple):
    """A text of an agent, taken apart."""

    content: str | None
    """What is said besides the calls; None for nothing."""
    calls: tuple[ToolCall, ...] = ()


def described(functions: Sequence[Mapping[str, Any]]) -> str:
    """Return what a system message says about functions."""
    lines = [json.dumps({"type": "function", "function": dict(one)}) for one in functions]
    return "\n".join([_HEAD, *lines, _TAIL])


def tool_text(content: str) -> str:
    """Return the result of a call as the text of a user message."""
    return f"<tool_response>\n{content}\n</tool_response>"


def assistant_text(content: str, calls: Sequence[Mapping[str, Any]]) -> str:
    """Return what an agent said and called as one text.

    Raises:
        KeyError: A call lacks its function.
        ValueError: The arguments are no JSON.
    """
    texts = [content] if content else []
    for call in calls:
        function = call["function"]
        texts.append(_call_text(function["name"], json.loads(function["arguments"] or "{}")))
    return "\n".join(texts)


def call_text(name: str, /, **arguments: Any) -> str:
    """Return what an agent writes to call a function: for scripted policies of a workflow.

    Args:
        name: The function.
        arguments: What it is called with; JSON data.
    """
    return _call_text(name, arguments)


def _call_text(name: str, arguments: Any) -> str:
    return f"{CALL_BEGIN.format(name=json.dumps(name))}{json.dumps(arguments)}{CALL_END}"


def read_reply(text: str, tools: Collection[str]) -> Reply:
    """Return what a text says and calls.

    A text with a call that is ill-formed, or of a function that was not offered, is all content:
    what a model writes is never an error.

    Args:
        text: What the agent wrote.
        tools: Names of the functions that it was offered.
    """
    if not tools:
        return Reply(text)
    calls = [_call(match, tools) for match in _CALL.findall(text)]
    if not calls or None in calls:
        return Reply(text)
    content = _CALL.sub("", text).strip()
    return Reply(content or None, tuple(call for call in calls if call is not None))


def _call(text: str, tools: Collection[str]) -> ToolCall | None:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(data, Mapping):
        return None
    call = cast("Mapping[str, Any]", data)
    name, arguments = call.get("name"), call.get("arguments", {})
    if name not in tools or not isinstance(arguments, Mapping):
        return None
    return ToolCall(str(name), json.dumps(arguments))
