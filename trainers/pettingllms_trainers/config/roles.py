"""Roles in a run of several environments: `ROLE` means it in all of them, `ENV.ROLE` in one."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, TypeVar

_ValueT = TypeVar("_ValueT")


def qualified(env: str, role: str) -> str:
    """Return what a run calls a role of an environment; the role itself in a run of one."""
    return f"{env}.{role}" if env else role


def entry_of(table: Mapping[str, _ValueT], role: str) -> _ValueT | None:
    """Return what a table of roles has for a role: its own entry, else that of all environments.

    Args:
        table: By `ROLE` or `ENV.ROLE`.
        role: See `qualified`.
    """
    own = table.get(role)
    return own if own is not None else table.get(role.partition(".")[2])


def is_named(names: Collection[str], role: str) -> bool:
    """Return whether a role is one of some names, as `ROLE` or `ENV.ROLE`."""
    return role in names or role.partition(".")[2] in names


def flat_roles(table: Any) -> Any:
    """Return a table of roles by dotted names: in TOML `plan_path.planner = "p"` is a table."""
    if not isinstance(table, Mapping):
        return table
    flat: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, Mapping):
            flat |= {f"{key}.{role}": name for role, name in value.items()}
        else:
            flat[key] = value
    return flat
