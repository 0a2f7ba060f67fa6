"""Keys of run files that had another name, default or unit.

Old names are accepted, with a warning; where the unit is another one they are refused.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from pettingllms_trainers.errors import ConfigError

__all__ = ["RENAMED", "current_names", "first_default", "first_name"]

logger = logging.getLogger(__name__)

RENAMED: Mapping[str, str] = {
    "rollout.advance": "branch_choice",
    "rollout.advance_temperature": "branch_temperature",
    "evaluation.references": "scripted",
    "policies.NAME.player": "fixed",
}
"""Old key to the new last part of it; ``NAME`` is the name of any policy."""

_REPLACED: Mapping[str, str] = {
    "optimizer.groups_per_minibatch": "optimizer.completions_per_minibatch, which counts "
    "completions, not prompts: in a tree it is rollout.num_candidates times as high",
}
"""Old key to what to write instead."""

_FIRST_NAMES = {
    f"{old.rpartition('.')[0]}.{new}": old.rpartition(".")[2] for old, new in RENAMED.items()
}

_FIRST_DEFAULTS: Mapping[str, Any] = {
    "optimizer.learning_rate": 1e-6,
    "warm_start.learning_rate": 1e-3,
    "rollout.max_completion_tokens": 64,
    "policies.NAME.chat_template_kwargs": {},
}
"""Key to the default that it had first."""


def current_names(table: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Return the table of a run file with the present names of its keys.

    Args:
        table: As it was read.
        source: What messages call the file.

    Raises:
        ConfigError: A key is there under both names, or its unit has changed.
    """
    changes: list[str] = []
    renamed = _renamed(table, (), source, changes)
    if changes:
        logger.warning("%s uses old names of keys: %s", source, ", ".join(changes))
    return renamed


def _renamed(
    table: Mapping[str, Any], path: tuple[str, ...], source: str, changes: list[str]
) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in table.items():
        here = (*path, key)
        if (pattern := _pattern(here)) in _REPLACED:
            raise ConfigError(f"{source}: {'.'.join(here)} is now {_REPLACED[pattern]}")
        name = RENAMED.get(pattern, key)
        if name != key:
            old, new = ".".join(here), ".".join((*path, name))
            if name in table:
                raise ConfigError(f"{source}: {old} is the old name of {new}; remove {old}")
            changes.append(f"{old} is now {new}")
        result[name] = _renamed(value, here, source, changes) if isinstance(value, dict) else value
    return result


def first_name(key: str) -> str:
    """Return the name that a key had first: hashes of configurations survive a rename."""
    path = tuple(key.split("."))
    return ".".join((*path[:-1], _FIRST_NAMES.get(_pattern(path), path[-1])))


def first_default(key: str) -> Any:
    """Return the default that a key had first, where it has another one now; else None."""
    return _FIRST_DEFAULTS.get(_pattern(tuple(key.split("."))))


def _pattern(path: tuple[str, ...]) -> str:
    is_policy = path[0] == "policies" and len(path) > 2
    return ".".join(("policies", "NAME", *path[2:]) if is_policy else path)
