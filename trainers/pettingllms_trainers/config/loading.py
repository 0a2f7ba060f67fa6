"""Run files: read, overridden by flags, checked with errors that name the key, and saved."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args, get_origin

import tomli_w
import tyro
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails
from tyro.constructors import (
    ConstructorRegistry,
    StructConstructorSpec,
    StructFieldSpec,
    StructTypeInfo,
)

from pettingllms_trainers.config import Config
from pettingllms_trainers.config.merge import (
    EVERY_POLICY,
    EVERY_ROLE,
    Layer,
    merge_layers,
    origin_of,
    read_layer,
)
from pettingllms_trainers.config.section import Section
from pettingllms_trainers.errors import ConfigError
from pettingllms_trainers.generators import kept_generators

__all__ = ["dump_config", "load_config", "validate"]

_OPEN_TABLES = (
    "env.kwargs",
    "evaluation.kwargs",
    "warm_start.demonstrators",
    "rollout.per_role",
    "roles",
    EVERY_POLICY,
)
"""Tables whose keys a flag may add."""


def load_config(paths: Path | Sequence[Path], flags: Sequence[str] = ()) -> Config:
    """Return the configuration of one or more run files with flags over them.

    Args:
        paths: TOML files; of keys that stand in several, those of later files count.
        flags: Command-line flags such as `["--optimizer.learning-rate", "3e-4"]`. `--help`
            prints the help with the values of the files and exits.

    Raises:
        ConfigError: A file is missing or not TOML, or a key or value in it or of a flag is wrong.
        SystemExit: A flag is unknown or of another type (code 2; the message is on standard
            error), or `--help`.
    """
    layers = [read_layer(path) for path in ([paths] if isinstance(paths, Path) else paths)]
    names = " ".join(layer.source for layer in layers)
    added, rest = _take_open_flags(flags)
    if added:
        layers.append(Layer("the command line", added))
    return _parse_flags(validate(layers), rest, names)


def validate(layers: Sequence[Layer]) -> Config:
    """Return the configuration that some run files describe together.

    Raises:
        ConfigError: A key is unknown, a value is wrong, or two values contradict each other.
    """
    try:
        return Config.model_validate(merge_layers(layers))
    except ValidationError as error:
        problems: dict[str, list[str]] = {}
        for detail in error.errors():
            source, location = origin_of(layers, [str(part) for part in detail["loc"]])
            found = problems.setdefault(source, [])
            problem = _problem(detail, location)
            if problem not in found:
                found.append(problem)
        told = [f"{source}: {'; '.join(found)}" for source, found in problems.items()]
        raise ConfigError("; ".join(told)) from None


def _parse_flags(config: Config, flags: Sequence[str], names: str) -> Config:
    if not flags:
        return config
    with kept_generators(), _UNCHECKED:  # tyro draws from the global generator
        given = tyro.cli(
            Config,
            default=config,
            args=list(flags),
            prog=f"pettingllms-train {names}",
            description=f"{Config.__doc__} Defaults are the values after reading {names}.",
        )
    return validate([Layer("the command line", given.model_dump())])


_UNCHECKED = ConstructorRegistry()
"""Has tyro build sections as they are given: what breaks a rule is told as it is for files."""


@_UNCHECKED.struct_rule
def _build_unchecked(info: StructTypeInfo) -> StructConstructorSpec | None:
    section: Any = info.type
    if not (isinstance(section, type) and issubclass(section, Section)):
        return None

    def build(**values: Any) -> Section:
        return section.model_construct(**values)

    build.__doc__ = section.__doc__  # tyro shows it
    known: dict[str, Any] = section.model_fields
    fields = [
        StructFieldSpec(name, field.annotation, getattr(info.default, name), field.description)
        for name, field in known.items()
    ]
    return StructConstructorSpec(build, tuple(fields))


def dump_config(config: Config) -> str:
    """Return the resolved configuration as the text of a run file; it loads back equal."""
    return tomli_w.dumps(config.model_dump(mode="json", exclude_none=True))


def _take_open_flags(flags: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """Return what flags add to open tables, and the other flags."""
    table: dict[str, Any] = {}
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
    return table, rest


def _toml_value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _problem(detail: ErrorDetails, location: Sequence[str]) -> str:
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
    if not location:
        return [*Config.model_fields, EVERY_POLICY, EVERY_ROLE]
    model: type[BaseModel] = Config
    parts = iter(["policies", "NAME", *location[1:]] if location[0] == EVERY_POLICY else location)
    for part in parts:
        annotation: Any = model.model_fields[part].annotation
        if get_origin(annotation) is dict:
            next(parts)
            annotation = get_args(annotation)[1]
        model = annotation
    return list(model.model_fields)
