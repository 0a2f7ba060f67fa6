"""Run files: read, overridden by flags, checked with errors that name the key, and saved."""

from __future__ import annotations

import difflib
import random
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tomli_w
import tyro
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from pettingllms_trainers.config import Config
from pettingllms_trainers.errors import ConfigError

__all__ = ["dump_config", "load_config", "parse_flags", "read_table", "validate"]

_OPEN_TABLES = (
    "env.kwargs",
    "evaluation.kwargs",
    "warm_start.demonstrators",
    "rollout.per_role",
    "roles",
)
"""Tables whose keys a flag may add."""


def load_config(path: Path, flags: Sequence[str] = ()) -> Config:
    """Return the configuration of a run file with flags over it.

    Args:
        path: TOML file.
        flags: Command-line flags such as `["--optimizer.learning-rate", "3e-4"]`. `--help`
            prints the help with the values of the file and exits.

    Raises:
        ConfigError: The file is missing or not TOML, or a key or value in it is wrong.
        SystemExit: A flag is wrong (code 2; the message is on standard error), or `--help`.
    """
    table = read_table(path)
    rest = _take_open_flags(table, flags)
    return parse_flags(validate(table, source=str(path)), rest, path=path)


def read_table(path: Path) -> dict[str, Any]:
    """Return the content of a TOML file.

    Raises:
        ConfigError: There is no such file, or it is not TOML.
    """
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except FileNotFoundError:
        near = difflib.get_close_matches(path.name, [p.name for p in path.parent.glob("*.toml")])
        hint = f"; did you mean {path.parent / near[0]}?" if near else ""
        raise ConfigError(f"no run file at {path}{hint}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the run file {path} cannot be read: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"the run file {path} is not TOML: {error}") from error


def validate(table: Mapping[str, Any], *, source: str) -> Config:
    """Return the configuration that a table describes.

    Args:
        table: Content of a run file.
        source: Where it came from, for messages.

    Raises:
        ConfigError: A key is unknown, a value is wrong, or two values contradict each other.
    """
    try:
        return Config.model_validate(table)
    except ValidationError as error:
        problems = [_problem(detail) for detail in error.errors()]
        raise ConfigError(f"{source}: {'; '.join(problems)}") from None


def parse_flags(config: Config, flags: Sequence[str], *, path: Path) -> Config:
    """Return the configuration with the values of flags.

    Raises:
        SystemExit: A flag is unknown (the message suggests one) or its value is wrong; or `--help`.
    """
    if not flags:
        return config
    state = random.getstate()  # tyro draws from the global generator
    try:
        return tyro.cli(
            Config,
            default=config,
            args=list(flags),
            prog=f"pettingllms-train {path}",
            description=f"{Config.__doc__} Defaults are the values after reading {path}.",
        )
    finally:
        random.setstate(state)


def dump_config(config: Config) -> str:
    """Return the resolved configuration as the text of a run file; it loads back equal."""
    return tomli_w.dumps(config.model_dump(mode="json", exclude_none=True))


def _take_open_flags(table: dict[str, Any], flags: Sequence[str]) -> list[str]:
    """Move flags of open tables into the table; return the other flags."""
    rest: list[str] = []
    waiting = list(flags)
    while waiting:
        flag = waiting.pop(0)
        name, equals, value = flag.removeprefix("--").partition("=")
        prefix, _, key = name.replace("-", "_").rpartition(".")
        if not flag.startswith("--") or not prefix.startswith(_OPEN_TABLES):
            rest.append(flag)
            continue
        if not equals:
            if not waiting:
                raise ConfigError(f"the flag {flag} needs a value")
            value = waiting.pop(0)
        target = table
        for part in prefix.split("."):
            target = target.setdefault(part, {})
            if not isinstance(target, dict):
                raise ConfigError(f"the flag {flag} needs a table [{prefix}]; it is {target!r}")
        target[key] = _toml_value(value)
    return rest


def _toml_value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _problem(detail: ErrorDetails) -> str:
    location = [str(part) for part in detail["loc"]]
    key = ".".join(location)
    if detail["type"] == "extra_forbidden":
        known = _known_keys(location[:-1])
        near = difflib.get_close_matches(location[-1], known, n=1)
        meant = ".".join([*location[:-1], *near])
        hint = f"did you mean {meant!r}?" if near else f"known here: {', '.join(known)}"
        return f"unknown key {key!r}; {hint}"
    if detail["type"] == "missing":
        return f"the key {key!r} is missing"
    if detail["type"] == "value_error":
        return detail["msg"].removeprefix("Value error, ")
    return f"{key!r} is {detail['input']!r}: {detail['msg'][0].lower()}{detail['msg'][1:]}"


def _known_keys(location: Sequence[str]) -> list[str]:
    """Return the keys of the section at a location; keys of a table of sections count as one."""
    model: Any = Config
    for part in location:
        if not isinstance(model, type) or not issubclass(model, BaseModel):
            continue
        annotation: Any = model.model_fields[part].annotation
        values = getattr(annotation, "__args__", ())
        model = values[1] if len(values) == 2 else annotation
        if len(values) == 2:
            return list(model.model_fields)
    return list(model.model_fields)
