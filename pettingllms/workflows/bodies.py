"""Bodies of requests: checked by the types of the client that sends them, and by what is read."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, create_model
from pydantic_core import ErrorDetails, SchemaValidator

from pettingllms.workflows.tools import read_json
from pettingllms.workflows.wire import RequestError

_Penalty = Annotated[float, Field(ge=-2, le=2)]
_Share = Annotated[float, Field(ge=0, le=1)]
LIMIT = Annotated[int, Field(ge=1)]
"""A number of tokens."""
SAMPLED: dict[str, Any] = {
    "frequency_penalty": _Penalty,
    "logit_bias": Any,
    "min_p": _Share,
    "presence_penalty": _Penalty,
    "repetition_penalty": Annotated[float, Field(gt=0)],
    "seed": int,
    "temperature": Annotated[float, Field(ge=0, le=2)],
    "top_k": int,
    "top_p": _Share,
}
"""Keys about sampling. The run decides for every role how is sampled, so that a body may have these
keys, with values in their ranges, to no effect."""
_EFFORTS = ("reasoning_effort", "verbosity", "text.verbosity", "output_config.effort")
IGNORED = (*SAMPLED, "reasoning", "thinking", *_EFFORTS)
SHARED: dict[str, Any] = {
    **SAMPLED,
    "model": str,
    "stream": bool,
    "parallel_tool_calls": bool,
    # They leave the answer as it is.
    **dict.fromkeys(("metadata", "prompt_cache_key", "prompt_cache_options", "user"), Any),
    **dict.fromkeys(("prompt_cache_retention", "safety_identifier", "service_tier"), Any),
    "store": bool,
}
"""Keys of all formats of OpenAI."""
_DATA = ("parameters", "schema", "input_schema", "input")
"""Keys of objects in which null means null."""


class Bodies:
    """The bodies that can be answered.

    Args:
        params: The type that the client has for bodies.
        keys: Key that is read, or changes nothing -> the values that are accepted: a narrower type
            than the client's, or `Any` for the client's. Any other key is refused by its name.
    """

    def __init__(self, params: Any, keys: Mapping[str, Any]) -> None:
        # Strict: `max_tokens` that is true, or a number that is a text, is a mistake of the client.
        config = ConfigDict(strict=True, extra="forbid", protected_namespaces=())
        # By alias: `model` and `schema` may be keys, and a field of that name would hide others.
        fields: Any = {
            f"key_{key}": (kind, Field(default=... if key == "model" else None, alias=key))
            for key, kind in keys.items()
        }
        self._keys = create_model("Body", __config__=config, **fields)
        self._params = SchemaValidator(_eager(TypeAdapter(params).core_schema))

    def check(self, data: Any) -> dict[str, Any]:
        """A body without what is null in it, which means the same and clients mix.

        Parts of it may have more than is read: clients send back what they got from any server.

        Raises:
            RequestError: It cannot be answered; the first key that is wrong is named.
        """
        body = _without_nulls(data)
        try:
            self._keys.model_validate(body)
            self._params.validate_python(body, strict=True)
        except ValidationError as error:
            raise _refusal(error, body) from error
        return body


def _eager(schema: Any) -> Any:
    """A schema of the client's types by which iterables are lists, and null is what is missing."""
    if isinstance(schema, list | tuple):
        return [_eager(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: _eager(value) for key, value in schema.items()}
    if found.get("type") == "generator":
        found["type"] = "list"
    if found.get("type") == "typed-dict-field" and found["schema"].get("type") == "nullable":
        found["required"] = False
    return found


def _without_nulls(data: Any) -> Any:
    if isinstance(data, list):
        return [_without_nulls(one) for one in data]
    if not isinstance(data, dict):
        return data
    return {
        key: value if key in _DATA and isinstance(value, dict) else _without_nulls(value)
        for key, value in data.items()
        if value is not None
    }


def _refusal(error: ValidationError, body: Any) -> RequestError:
    """What is wrong with a body, in the words of its types."""
    found = [(*_placed(one, body), one) for one in error.errors(include_url=False)]
    # Of a union the parts are meant whose `type` or `role` is the one that was sent.
    is_other = {kinds for _, kinds, one in found if one["type"] == "literal_error"}
    meant = [
        (path, one)
        for path, kinds, one in found
        if not any(kinds[:n] in is_other for n in range(1, len(kinds) + 1))
    ]
    if meant:
        path, first = max(meant, key=lambda pair: len(pair[0]))
        text = first["msg"]
    else:
        path, _, first = min(
            found, key=lambda one: (one[2]["type"] != "literal_error", len(one[0]))
        )
        same = [one.get("ctx", {}).get("expected") for place, _, one in found if place == path]
        allowed = dict.fromkeys(filter(None, same))
        text = f"Input should be {' or '.join(allowed)}" if allowed else first["msg"]
    # One is enough to mend: the others often follow from it.
    place = ".".join(map(str, path)) or "the body"
    keys = [key for key in path if isinstance(key, str)]
    told = f"{place}: {text}; it has {reprlib.repr(first['input'])}"
    return RequestError(told, param=keys[0] if keys else None)


def _placed(error: ErrorDetails, body: Any) -> tuple[tuple[int | str, ...], tuple[str, ...]]:
    """Where in a body an error is, and of which members of unions."""
    path: list[int | str] = []
    kinds: list[str] = []
    last = len(error["loc"]) - 1
    for at, part in enumerate(error["loc"]):
        is_missing = at == last and error["type"] == "missing"
        if isinstance(part, int) or is_missing or (isinstance(body, dict) and part in body):
            path.append(part)
            body = None if is_missing else body[part]
        else:
            kinds.append(part)
    return tuple(path), tuple(kinds)


def text_of(content: str | Sequence[Mapping[str, Any]], key: str) -> str:
    """A text, whole or in parts.

    Raises:
        RequestError: A part is not a string; the key names it.
    """
    if isinstance(content, str):
        return content
    for part in content:
        if part["type"] not in ("text", "input_text", "output_text", "refusal"):
            told = f"{key}: parts of type {part['type']!r} are not read; use texts"
            raise RequestError(told, param=key)
    return "".join(part["refusal" if part["type"] == "refusal" else "text"] for part in content)


def read_arguments(text: str) -> Any:
    """The arguments of a call that an agent made.

    Raises:
        RequestError: They are not JSON.
    """
    try:
        return read_json(text or "{}")
    except ValueError as error:
        told = f"the arguments of a call are not JSON: {error}; they are {reprlib.repr(text)}"
        raise RequestError(told, param="messages") from error
