"""States as data: JSON form, identity, snapshots."""

from __future__ import annotations

import copy
import json
from dataclasses import fields as dataclass_fields
from dataclasses import is_dataclass
from enum import Enum
from hashlib import blake2b
from typing import Any, NamedTuple, cast


class Snapshot(NamedTuple):
    """The whole dynamic state of an environment; see `TextEnv.snapshot`. Picklable."""

    owner: tuple[str, tuple[str, ...], int, str]
    values: tuple[Any, ...]


def to_jsonable(value: Any) -> Any:
    """Return a state value as JSON data; named tuples and dataclasses become objects.

    Raises:
        TypeError: If a part of the value is mutable or unknown, so that it cannot identify a state.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, tuple):
        names = getattr(cast(Any, value), "_fields", None)
        parts = [to_jsonable(part) for part in cast(tuple[Any, ...], value)]
        return parts if names is None else dict(zip(names, parts, strict=True))
    if isinstance(value, frozenset):
        return sorted((to_jsonable(part) for part in cast(frozenset[Any], value)), key=repr)
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_jsonable(getattr(value, f.name)) for f in dataclass_fields(value)}
    raise TypeError(
        f"a state holds a {type(value).__name__}; allowed: None, bool, int, float, str, bytes, "
        "enums, and tuples, frozensets and frozen dataclasses of these"
    )


_ATOMS = frozenset({type(None), bool, int, float, str, bytes})


def own_copy(facts: dict[str, Any]) -> dict[str, Any]:
    """Return a deep copy of a dictionary, quickly if it holds little but numbers and texts.

    `copy.deepcopy` of the infos of two agents takes longer than the rest of a fork and a step.
    """
    owned = facts.copy()
    for key, value in facts.items():
        kind = type(value)
        if kind in _ATOMS:
            continue
        if kind is dict:
            owned[key] = own_copy(cast(dict[str, Any], value))
        elif kind is list and all(type(item) in _ATOMS for item in cast(list[Any], value)):
            owned[key] = cast(list[Any], value).copy()
        else:
            owned[key] = copy.deepcopy(value)
    return owned


def digest(value: Any) -> str:
    """Return 32 hexadecimal digits that identify JSON data, the same in every process."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return blake2b(text.encode(), digest_size=16).hexdigest()
