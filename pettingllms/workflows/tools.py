"""Tools as text, so that every chat model can be offered them and nothing hides from the trainer.

The format is that of Hermes and Qwen: the system message lists the functions in ``<tools>``, the
model calls one in ``<tool_call>``, and results come back in ``<tool_response>``. `taken_apart` is
the way back, for models with a format of their own. A `Form` is what a request wants its answer to
have: JSON of a schema, or a call of a function.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, cast

from pettingllms.errors import MissingDependency
from pettingllms.parsing import after_thinking

_CALL = re.compile(r"<tool_call>\s*(.*?)\s*(?:</tool_call>|\Z)", re.DOTALL)
_RESULT = re.compile(r"<tool_response>\n(.*)\n</tool_response>", re.DOTALL)
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
    """Arguments by name, as the text of a JSON object."""


class Reply(NamedTuple):
    """A text of an agent, taken apart."""

    content: str | None
    """What is said besides the calls; None for nothing."""
    calls: tuple[ToolCall, ...] = ()


def described(functions: Sequence[Mapping[str, Any]]) -> str:
    """What a system message says about functions."""
    lines = [_written({"type": "function", "function": dict(one)}) for one in functions]
    return "\n".join([_HEAD, *lines, _TAIL])


def offered(messages: Sequence[Mapping[str, str]]) -> str:
    """The tools that a chat offers, as the text of a JSON array; empty for none."""
    return _split(messages[0])[1] if messages else ""


def _split(message: Mapping[str, str]) -> tuple[str, str]:
    """A message without the tools that it describes, and these."""
    # The last: `described` comes after what else a system message says.
    before, head, rest = message["content"].rpartition(_HEAD)
    lines, tail, after = rest.partition(_TAIL)
    if message["role"] != "system" or not head or not tail:
        return message["content"], ""
    tools = lines.strip().replace("\n", ",")
    return "\n\n".join(filter(None, (before.strip("\n"), after.strip("\n")))), f"[{tools}]"


def taken_apart(
    messages: Sequence[Mapping[str, str]], checked: Callable[[str], str] = str
) -> tuple[list[dict[str, Any]], list[Any]]:
    """A chat as chat templates want it: with ``tool_calls``, and the tools beside it.

    Args:
        messages: A system message with tools, and what follows; others stay as they are.
        checked: Called with the JSON of tools and of arguments, before it is read.
    """
    told, tools = _split(messages[0])
    if not tools:
        return [{**message} for message in messages], []
    names = {one["function"]["name"] for one in json.loads(tools)}
    # No empty message: some templates then leave out what they say by default.
    is_alone = len(messages) == 1
    chat: list[dict[str, Any]] = [{"role": "system", "content": told}] if told or is_alone else []
    unanswered: list[dict[str, Any]] = []
    for number, message in enumerate(messages[1:]):
        result = _RESULT.fullmatch(message["content"])
        if message["role"] == "assistant":
            reply = read_reply(message["content"], names)
            chat.append({"role": "assistant", "content": reply.content or ""})
            unanswered = [
                {
                    "id": f"{number:07}{at:02}",  # Mistral's templates want nine letters or digits
                    "type": "function",
                    "function": {"name": name, "arguments": json.loads(checked(arguments))},
                }
                for at, (name, arguments) in enumerate(reply.calls)
            ]
            if unanswered:
                chat[-1]["tool_calls"] = [*unanswered]
        elif result and unanswered:
            call = unanswered.pop(0)
            called = {"tool_call_id": call["id"], "name": call["function"]["name"]}
            chat.append({"role": "tool", **called, "content": result[1]})
        else:
            chat.append({**message})
    return chat, json.loads(checked(tools))


def tool_text(content: str) -> str:
    """The result of a call as the text of a user message."""
    return f"<tool_response>\n{content}\n</tool_response>"


def assistant_text(content: str, calls: Sequence[tuple[str, Any]]) -> str:
    """What an agent said and called as one text; calls are names and arguments."""
    texts = [content] if content else []
    return "\n".join([*texts, *(_call_text(name, arguments) for name, arguments in calls)])


def call_text(name: str, /, **arguments: Any) -> str:
    """What an agent writes to call a function: for scripted policies of a workflow.

    Args:
        name: The function.
        arguments: What it is called with; JSON data.
    """
    return _call_text(name, arguments)


def _call_text(name: str, arguments: Any) -> str:
    # An end tag in a string would end the call: JSON has a second way to write it.
    data = _written(arguments).replace("</tool_call>", r"<\/tool_call>")
    return f"{CALL_BEGIN.format(name=_written(name))}{data}{CALL_END}"


def _written(data: Any) -> str:
    # In the letters of its language, as chat templates write it; infinite numbers raise.
    return json.dumps(data, ensure_ascii=False, allow_nan=False)


def read_reply(text: str, tools: Collection[str]) -> Reply:
    """What a text says and calls.

    A call in a thought is a thought: only what follows the thinking calls anything. A text with a
    call that is ill-formed, or of a function that was not offered, is all content: what a model
    writes is never an error.

    Args:
        text: What the agent wrote.
        tools: Names of the functions that it was offered.
    """
    if not tools:
        return Reply(text)
    at = _end_of_thinking(text)
    calls = [_call(match, tools) for match in _CALL.findall(text[at:])]
    # All or nothing: half of what an agent wanted done may be worse than none of it.
    if not calls or None in calls:
        return Reply(text)
    content = (text[:at] + _CALL.sub("", text[at:])).strip()
    return Reply(content or None, tuple(call for call in calls if call is not None))


def _end_of_thinking(text: str) -> int:
    """Where the thinking of an answer ends: 0 if it has none, all of it if it never ends."""
    # The tag in an argument of a call is text.
    masked = _CALL.sub(lambda call: "_" * len(call[0]) if _parsed(call[1]) else call[0], text)
    rest = after_thinking(masked)
    return len(text) - len(rest) if isinstance(rest, str) else len(text)


def read_json(text: str | bytes | bytearray) -> Any:
    """The data of a JSON text.

    Raises:
        ValueError: It is not JSON, or a number in it is not one, or is infinite: NaN, 1e999.
    """
    from pydantic_core import from_json  # not above: who offers no tools needs no such package

    data = from_json(text, allow_inf_nan=False)
    _written(data)  # raises for 1e999, which is read as infinite
    return data


def _parsed(text: str) -> Any:
    """The data of a JSON text; None for any other."""
    try:
        return read_json(text)
    except ValueError:
        return None


def _call(text: str, tools: Collection[str]) -> ToolCall | None:
    data = _parsed(text)
    if not isinstance(data, Mapping):
        return None
    call = cast("Mapping[str, Any]", data)
    name, arguments = call.get("name"), call.get("arguments", {})
    if name not in tools or not isinstance(arguments, Mapping):
        return None
    # Written anew, so that the prompt that repeats the call does not depend on how it was spaced.
    return ToolCall(str(name), _written(arguments))


_MAX_REASON = 200
_MAX_WHITESPACE = 8
"""Characters in a row; without a limit small models fill their answers with them."""
_ANY_OBJECT = '{"type": "object"}'


class Form(NamedTuple):
    """What an answer must look like; the default allows everything."""

    schema: str = ""
    """JSON schema of an answer that calls nothing, as a JSON text; empty: it need not be JSON."""
    calls: tuple[tuple[str, str], ...] = ()
    """Functions of which one must be called, each with the JSON schema of its arguments."""
    strict: tuple[tuple[str, str], ...] = ()
    """Functions that may be called with what fits their schemas only."""
    one_call: bool = False
    """Whether of several calls the first alone counts."""

    @property
    def is_free(self) -> bool:
        """Whether any text has this form."""
        return not (self.schema or self.calls)

    def instruction(self, *, may_call: bool) -> str:
        """What the system message says about it, after the tools."""
        if self.schema:
            either = "Call functions, or answer" if may_call else "Answer"
            return (
                f"# Answer\n\n{either} with JSON and nothing else. It must fit this schema:\n"
                f"<schema>\n{self.schema}\n</schema>"
            )
        if self.calls:
            return f"You must call {' or '.join(name for name, _ in self.calls)}."
        return ""

    def grammar(self, tools: tuple[str, ...]) -> str:
        """The same as a structural tag of xgrammar, a JSON text; empty for any text.

        Format: https://xgrammar.mlc.ai/docs/structural_tag/

        Args:
            tools: Names of the functions that were offered.
        """
        # Beside a schema a call is free to have any arguments, as in `misfit`.
        calls = self.calls or tuple((name, _ANY_OBJECT) for name in tools if self.schema)
        ways: list[Any] = [_json(self.schema)] if self.schema else []
        if calls:
            tags = [_call_tag(name, schema) for name, schema in calls]
            several = {"type": "tags_with_separator", "separator": "\n", "at_least_one": True}
            ways.append({**several, "tags": tags})
        if not ways:
            return ""
        way = ways[0] if len(ways) == 1 else {"type": "or", "elements": ways}
        return json.dumps({"type": "structural_tag", "format": way})

    def misfit(self, text: str, tools: tuple[str, ...]) -> str | None:
        """Why a text does not have this form; None when it does.

        Args:
            text: The whole answer.
            tools: Names of the functions that were offered.
        """
        calls = self._read(text, tools).calls
        # Where tools are offered beside a schema, a call is as good as an answer of the form.
        if self.schema and not calls:
            return _misfit("the answer", _said(text), self.schema)
        wanted = dict(self.calls)
        if wanted and not calls:
            return f"the answer calls none of {', '.join(wanted)}"
        for call in calls:
            if wanted and call.name not in wanted:
                return f"the answer calls {call.name} instead of {', '.join(wanted)}"
            schema = {**wanted, **dict(self.strict)}.get(call.name)
            if schema and (reason := _misfit(f"the call of {call.name}", call.arguments, schema)):
                return reason
        return None

    def _read(self, text: str, tools: tuple[str, ...]) -> Reply:
        reply = read_reply(text, tools)
        return reply._replace(calls=reply.calls[:1]) if self.one_call else reply

    def reply(self, text: str, tools: tuple[str, ...]) -> Reply:
        """What a text that has this form says and calls."""
        reply = self._read(text, tools)
        return Reply(_said(text)) if self.schema and not reply.calls else reply


FREE = Form()
"""Any text."""


def _json(schema: str) -> dict[str, Any]:
    return {
        "type": "json_schema",
        "json_schema": json.loads(schema),
        "max_whitespace_cnt": _MAX_WHITESPACE,
    }


def _call_tag(name: str, schema: str) -> dict[str, Any]:
    begin, end = CALL_BEGIN.format(name=_written(name)), CALL_END
    return {"type": "tag", "begin": begin, "content": _json(schema), "end": end}


def _said(text: str) -> str:
    return text[_end_of_thinking(text) :].strip()


def check_schema(schema: Any, about: str = "") -> str:
    """A JSON schema as a JSON text, with a description where it has none and one is given.

    Raises:
        ValueError: It is none.
        MissingDependency: The package jsonschema is not installed.
    """
    jsonschema, referencing = _libraries()
    if not isinstance(schema, Mapping) or not isinstance(schema.get("$schema", ""), str):
        raise ValueError(f"{schema!r} is not a JSON schema")
    try:
        kind = jsonschema.validators.validator_for(schema, jsonschema.Draft202012Validator)
        kind.check_schema(schema)
        resource = referencing.jsonschema.DRAFT202012.create_resource(schema)
        _check_parts(schema, referencing.Registry().with_resource("", resource).resolver())
        return _written({**({"description": about} if about else {}), **schema})
    except jsonschema.SchemaError as error:
        raise ValueError(f"ill-formed JSON schema: {error.message}") from error
    except RecursionError as error:
        raise ValueError("ill-formed JSON schema: nested too deeply") from error


def _check_parts(part: Any, resolver: Any) -> None:
    # What validation would only stumble on when an answer leads there.
    if isinstance(part, list):
        for one in cast("list[Any]", part):
            _check_parts(one, resolver)
    if not isinstance(part, Mapping):
        return
    for key, value in cast("Mapping[str, Any]", part).items():
        try:
            if key in ("$ref", "$dynamicRef") and isinstance(value, str):
                resolver.lookup(value)
        except _libraries()[1].exceptions.Unresolvable as error:
            raise ValueError(f"ill-formed JSON schema: {key} = {value!r}: {error}") from error
        _check_parts(value, resolver)


def _misfit(what: str, text: str, schema: str) -> str | None:
    jsonschema, referencing = _libraries()
    known: Any = json.loads(schema)
    kind = jsonschema.validators.validator_for(known, jsonschema.Draft202012Validator)
    try:
        # A registry of its own: without one, a schema could load others from the network.
        data = read_json(text)
        errors = kind(known, registry=referencing.Registry()).iter_errors(data)
        error = jsonschema.exceptions.best_match(errors)
    except ValueError as error:
        is_deep = "recursion" in str(error)
        return f"{what} is nested too deeply" if is_deep else f"{what} is not JSON"
    except RecursionError:
        return f"{what} is nested too deeply"
    except OverflowError:  # of a division by a `multipleOf`
        return f"{what} has a number that is too large"
    if error is None:
        return None
    return f"{what} does not fit: {error.json_path}: {error.message}"[:_MAX_REASON]


def _libraries() -> tuple[Any, Any]:
    # Not imported above: who is asked for no form needs neither.
    try:
        import jsonschema  # pyright: ignore[reportMissingModuleSource]
        import referencing.jsonschema  # pyright: ignore[reportUnusedImport]
    except ImportError as error:
        raise MissingDependency("answers of a wanted form", "jsonschema", "cli") from error
    return jsonschema, referencing
