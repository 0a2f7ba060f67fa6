"""States as data: JSON form, identity, snapshots."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from dataclasses import fields as dataclass_fields
from dataclasses import is_dataclass
from enum import Enum
from hashlib import blake2b
from typing import Any, Generic, NamedTuple, TypeVar, cast

ValueT = TypeVar("ValueT")


class Snapshot(NamedTuple):
    """The whole dynamic state of an environment; see `TextEnv.snapshot`. Picklable."""

    owner: tuple[str, tuple[str, ...], int, str]
    values: tuple[Any, ...]


def to_jsonable(value: Any) -> Any:
    """Return a state value as JSON data; named tuples and dataclasses become objects.

    A named tuple may list, in a class attribute `ADDED`, fields that it gained later: they are left
    out at their defaults, so that states which do without them keep their hash.

    Raises:
        TypeError: If a part of the value is mutable or unknown, so that it cannot identify a state.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Enum):
        # By name, not by value: values of enums may be anything, names are stable texts.
        return value.name
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, tuple):
        names = getattr(cast(Any, value), "_fields", None)
        parts = [to_jsonable(part) for part in cast(tuple[Any, ...], value)]
        if names is None:
            return parts
        found = dict(zip(names, parts, strict=True))
        for name in getattr(value, "ADDED", ()):
            if getattr(value, name) == cast(Any, value)._field_defaults[name]:
                del found[name]
        return found
    if isinstance(value, frozenset):
        # Sets have no order across processes; `repr` orders mixed types too.
        return sorted((to_jsonable(part) for part in cast(frozenset[Any], value)), key=repr)
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_jsonable(getattr(value, f.name)) for f in dataclass_fields(value)}
    raise TypeError(
        f"a state holds a {type(value).__name__}; allowed: None, bool, int, float, str, bytes, "
        "enums, and tuples, frozensets and frozen dataclasses of these"
    )


class CopyOnRead(Generic[ValueT]):
    """A mutable object of another library inside an immutable state: only copies come out.

    Args:
        value: The object; nobody else may keep a reference to it.
    """

    __slots__ = ("_value",)

    def __init__(self, value: ValueT) -> None:
        self._value = value

    def opened(self) -> ValueT:
        """Return a copy of the object."""
        return copy.deepcopy(self._value)


def mutable_parts(value: object, path: str) -> Iterator[str]:
    """Yield where a value holds something that can be changed, as `path[2].name: list`.

    Branches share states and the facts in infos, so neither may hold such a thing: the change of
    one branch would show in all others.
    """
    if value is None or isinstance(value, bool | int | float | str | bytes | Enum | CopyOnRead):
        return
    if isinstance(value, tuple | frozenset):
        items = cast("tuple[object, ...]", value)
        parts = {f"{path}[{index}]": part for index, part in enumerate(items)}
    elif is_dataclass(value) and cast(Any, value).__dataclass_params__.frozen:
        parts = {f"{path}.{f.name}": getattr(value, f.name) for f in dataclass_fields(value)}
    else:
        yield f"{path}: {type(value).__name__}"
        return
    # what a cached property keeps is part of the value too, as far as others can reach it
    parts |= {f"{path}.{name}": part for name, part in getattr(value, "__dict__", {}).items()}
    for place, part in parts.items():
        yield from mutable_parts(part, place)


def digest(value: Any) -> str:
    """Return 32 hexadecimal digits that identify JSON data, the same in every process."""
    # One canonical text: sorted keys and no spaces, so that equal data has equal bytes.
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return blake2b(text.encode(), digest_size=16).hexdigest()


def flat_table(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the values of nested tables by their dotted keys."""
    flat: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, dict) and value:
            flat |= flat_table(cast(dict[str, Any], value), f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat
