"""Several run files as one: merged from left to right, each key's origin kept for messages.

Two keys are shorthands and are gone afterwards: the table ``[every_policy]`` has keys of all
policies, and ``every_role = "NAME"`` lets one policy play all roles of the files before it.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pettingllms_trainers.config.announced import DEFAULT, known_parameters
from pettingllms_trainers.config.env import env_places
from pettingllms_trainers.config.recipes import PREFIX, TABLE, recipe_of, recipe_path
from pettingllms_trainers.config.roles import flat_roles
from pettingllms_trainers.errors import ConfigError

EVERY_POLICY = "every_policy"
EVERY_ROLE = "every_role"


class Layer(NamedTuple):
    """One run file, or the flags over all of them."""

    source: str
    """What messages call it."""
    table: dict[str, Any]
    """Its content."""
    file: str = ""
    """What finds the run file again from anywhere; empty: it is none."""


def layer_of(table: Mapping[str, Any], source: str, file: str = "") -> Layer:
    """Return a table of keys as a layer, without [recipe].

    Raises:
        ConfigError: [recipe] is wrong.
    """
    if TABLE in table:
        recipe_of(table[TABLE], source)
    own = {
        key: flat_roles(value) if key == "roles" else value
        for key, value in table.items()
        if key != TABLE
    }
    return Layer(source, own, file)


def read_layer(name: str | Path) -> Layer:
    """Return the content of a run file: a TOML file, or ``recipe:NAME`` of the package.

    Raises:
        ConfigError: There is no such file, or it is not TOML.
    """
    source = str(name)
    is_recipe = source.startswith(PREFIX)
    path = recipe_path(source.removeprefix(PREFIX)) if is_recipe else Path(name)
    try:
        with path.open("rb") as file:
            found = source if is_recipe else str(path.absolute())
            return layer_of(tomllib.load(file), source, found)
    except FileNotFoundError:
        near = difflib.get_close_matches(path.name, [p.name for p in path.parent.glob("*.toml")])
        hint = f"; did you mean {path.parent / near[0]}?" if near else ""
        raise ConfigError(f"no run file at {path}{hint}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the run file {path} cannot be read: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"the run file {path} is not TOML: {error}") from error


def merge_layers(layers: Sequence[Layer]) -> dict[str, Any]:
    """Return one table: tables are merged key by key, of other values the last one counts.

    A policy has the keys of ``[every_policy]`` where it has none of its own, in whichever file they
    are; a policy that only ``[roles]`` names consists of them. A fixed policy takes none. A file
    that names another algorithm than those before it keeps the parameters that both have.

    Raises:
        ConfigError: `every_policy` is no table, or `every_role` no name.
    """
    table: dict[str, Any] = {}
    for layer in layers:
        policy = layer.table.get(EVERY_ROLE)
        if policy is not None:
            if not isinstance(policy, str):
                raise ConfigError(f"{layer.source}: {EVERY_ROLE} is {policy!r}; name a policy")
            table["roles"] = dict.fromkeys(_table(table, "roles"), policy)
        own = dict(layer.table)
        if "algorithm" in table and "algorithm" in own:
            table["algorithm"] = _of_algorithm(table["algorithm"], own["algorithm"])
        if isinstance(table.get("env"), list) and "env" in own:
            own["env"] = _with_envs(table["env"], own["env"], layer.source)
        table = _merged(table, own)
    table.pop(EVERY_ROLE, None)
    if EVERY_POLICY in table:
        _spread(table, layers)
    return table


def origin_of(layers: Sequence[Layer], location: Sequence[str]) -> tuple[str, list[str]]:
    """Return which files a key comes from, and its name there.

    Args:
        layers: As they were merged.
        location: Path of the key in the merged table.

    Returns:
        The last file that has the key, or all files when none has it.
    """
    names = [list(location)] if location else []
    if len(location) > 2 and location[0] == "policies":
        names.append([EVERY_POLICY, *location[2:]])
    for name in names:
        for layer in reversed(layers):
            if _has(layer.table, name):
                return layer.source, name
    return " + ".join(layer.source for layer in layers), list(location)


def _spread(table: dict[str, Any], layers: Sequence[Layer]) -> None:
    """Give the keys of `every_policy` to all policies."""
    common = table.pop(EVERY_POLICY)
    if not isinstance(common, dict):
        source, _ = origin_of(layers, [EVERY_POLICY])
        raise ConfigError(f"{source}: {EVERY_POLICY} is {common!r}; write a table [{EVERY_POLICY}]")
    used = [name for name in _table(table, "roles").values() if isinstance(name, str)]
    own = table.setdefault("policies", {})
    if isinstance(own, dict):
        table["policies"] = {
            name: _merged(common, values) if _has_weights(values) else values
            for name, values in ({name: {} for name in used} | own).items()
        }


def _has_weights(policy: Any) -> bool:
    return isinstance(policy, dict) and "fixed" not in policy


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    both = dict(below)
    for key, value in above.items():
        old = both.get(key)
        if isinstance(value, dict):
            value = _merged(old if isinstance(old, dict) else {}, value)
        both[key] = value
    return both


def _of_algorithm(below: Any, above: Any) -> Any:
    """Return what stays of an algorithm when a later file may name another one: what that has too.

    The rest were parameters of the former. What the later file says itself must be its own.
    """
    if not (isinstance(below, dict) and isinstance(above, dict)) or "name" not in above:
        return below
    if above["name"] == below.get("name", DEFAULT):
        return below
    own = known_parameters(above["name"])
    return {key: value for key, value in below.items() if key in own}


def _with_envs(below: Any, above: Any, source: str) -> Any:
    """Return the environments of two files: a table over a list changes those that it names."""
    if not (isinstance(below, list) and isinstance(above, dict)):
        return above
    if len(below) == 1:
        return [_merged(below[0], above)]
    places = env_places(below)
    changed = list(below)
    for key, value in above.items():
        if key not in places or not isinstance(value, dict):
            raise ConfigError(
                f"{source}: 'env.{key}' could be that of any environment; name one of them: "
                f"{', '.join(f'env.{name}.{key}' for name in places)}"
            )
        changed[places[key]] = _merged(below[places[key]], value)
    return changed


def _table(table: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = table.get(key)
    return value if isinstance(value, dict) else {}


def _has(table: Any, location: Sequence[str]) -> bool:
    for key in location:
        if isinstance(table, list):
            return True  # lists are not merged: a part comes from where the list does
        if not isinstance(table, dict) or key not in table:
            return False
        table = table[key]
    return True
