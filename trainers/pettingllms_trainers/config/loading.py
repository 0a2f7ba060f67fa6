"""Run files: read, overridden by flags, checked with errors that name the key, and saved."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args, get_origin

import tomli_w
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from pettingllms_trainers.config import Config
from pettingllms_trainers.config.flags import annotation_of, flag_table, help_text
from pettingllms_trainers.config.merge import (
    EVERY_POLICY,
    EVERY_ROLE,
    Layer,
    layer_of,
    merge_layers,
    origin_of,
    read_layer,
)
from pettingllms_trainers.config.recipes import PREFIX
from pettingllms_trainers.config.vetting import vet
from pettingllms_trainers.errors import ConfigError

_COMMAND_LINE = "the command line"


RunFiles = str | Path | Sequence[str | Path]
"""One run file or several: paths of TOML files, or ``recipe:NAME``; later ones count."""


def load_config(
    files: RunFiles,
    flags: Sequence[str] = (),
    *,
    trust: bool = False,
    known: Collection[str] = (),
    is_read: bool = False,
) -> Config:
    """Return the configuration of one or more run files with flags over them.

    Args:
        files: The last file that has a key counts.
        flags: Command-line flags such as `["--optimizer.learning-rate", "3e-4"]`. `--help`
            prints the help with the values of the files and exits.
        trust: Whether the files may name code and servers; see `pettingllms.trust`.
        known: Names of code and servers that they may name in any case.
        is_read: Whether the configuration is only read, and nothing that it names is used.

    Raises:
        UntrustedName: A file names code or a server, and is not trusted.
        ConfigError: A file is missing or not TOML, or a key or value in it or of a flag is wrong.
        SystemExit: After `--help`.
    """
    layers = _layers(files, trust=trust, known=known, is_read=is_read)
    if {"-h", "--help"} & set(flags):
        names = " ".join(layer.source for layer in layers)
        sys.stdout.write(help_text(validate(layers), names))
        raise SystemExit(0)
    if flags:
        table = flag_table(flags, merge_layers(layers))
        layers.append(layer_of(table, _COMMAND_LINE))
    return validate(layers)


def config_of(
    source: Config | Mapping[str, Any] | RunFiles,
    changes: Mapping[str, Any],
    *,
    trust: bool = False,
) -> Config:
    """Return the configuration of run files, or of what one would contain, with changes over it.

    Raises:
        UntrustedName: A file names code or a server, and is not trusted.
        ConfigError: As for `load_config`.
    """
    if isinstance(source, Config):
        source = source.model_dump(mode="json", exclude_none=True)
    if isinstance(source, Mapping):
        layers = [layer_of(source, "the configuration")]
    else:
        layers = _layers(source, trust=trust)
    if changes:
        layers.append(layer_of(changes, "the arguments"))
    return validate(layers)


def validate(layers: Sequence[Layer]) -> Config:
    """Return the configuration that some run files describe together.

    Raises:
        ConfigError: A key is unknown, a value is wrong, or two values contradict each other.
    """
    table = merge_layers(layers)
    if any(layer.file for layer in layers):
        table["sources"] = [name for layer in layers for name in _sources_of(layer)]
    try:
        return Config.model_validate(table)
    except ValidationError as error:
        problems: dict[str, list[str]] = {}
        for detail in error.errors():
            place = [str(part) for part in detail["loc"]]
            if place[:1] == ["env"] and isinstance(table.get("env"), dict) and len(place) > 1:
                del place[1]  # the only environment is no list in the file
            source, location = origin_of(layers, place)
            found = problems.setdefault(source, [])
            problem = _problem(detail, location)
            if problem not in found:
                found.append(problem)
        messages = [f"{source}: {'; '.join(found)}" for source, found in problems.items()]
        raise ConfigError("; ".join(messages)) from None


def dump_config(config: Config) -> str:
    """Return the resolved configuration as the text of a run file; it loads back equal."""
    return tomli_w.dumps(config.model_dump(mode="json", exclude_none=True))


def _sources_of(layer: Layer) -> Sequence[str]:
    """Return what a layer was read from; the configuration of a run knows that itself."""
    known = layer.table.get("sources")
    return known if isinstance(known, list | tuple) else [layer.file] if layer.file else []


def _layers(
    files: RunFiles, *, trust: bool, known: Collection[str] = (), is_read: bool = False
) -> list[Layer]:
    names = [files] if isinstance(files, str | Path) else files
    layers = [read_layer(name) for name in names]
    # Before they are merged: that looks up algorithms.
    for layer in layers:
        if not layer.file.startswith(PREFIX):  # recipes are of this package
            vet(layer.table, layer.source, trust=trust, known=known, is_read=is_read)
    return layers


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
    kind = annotation_of(location)
    if get_origin(kind) is tuple:
        (kind, *_) = get_args(kind)
    return list(kind.model_fields)
