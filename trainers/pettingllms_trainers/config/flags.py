"""Flags of the command line as one more run file: ``--section.key VALUE`` sets a key."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from types import NoneType
from typing import Any, Literal, get_args, get_origin

import click

from pettingllms_trainers.config.algorithm import Algorithm
from pettingllms_trainers.config.announced import section_of
from pettingllms_trainers.config.merge import EVERY_POLICY, EVERY_ROLE
from pettingllms_trainers.config.root import Config
from pettingllms_trainers.config.section import Section
from pettingllms_trainers.errors import ConfigError


def flag_table(flags: Sequence[str], known: Mapping[str, Any]) -> dict[str, Any]:
    """Return what flags set, as the table of a run file; whether it is allowed is checked later.

    Args:
        flags: Such as ``["--optimizer.learning-rate", "3e-4", "--logging.no-tensorboard"]``. A list
            takes several values; a switch takes none, or ``true`` or ``false``.
        known: Merged table of the run files: names in it may have dashes.

    Raises:
        ConfigError: A flag lacks its value or has too many, or an argument belongs to no flag.
    """
    table: dict[str, Any] = {}
    waiting = list(flags)
    while waiting:
        flag = waiting.pop(0)
        if not flag.startswith("--"):
            raise ConfigError(f"the argument {flag!r} belongs to no flag; flags begin with --")
        name, equals, value = flag.removeprefix("--").partition("=")
        values = [value] if equals else []
        while not equals and waiting and not waiting[0].startswith("--"):
            values.append(waiting.pop(0))
        *path, key = _path(name, known)
        kind = annotation_of([*path, key])
        positive = key.removeprefix("no_")
        if kind is None and not values and annotation_of([*path, positive]) is bool:
            key, kind, values = positive, bool, ["false"]
        target = table
        for part in path:
            target = target.setdefault(part, {})
            if not isinstance(target, dict):
                raise ConfigError(f"the flag {flag} needs a table [{'.'.join(path)}]")
        target[key] = _value(flag, values, kind)
    return table


def annotation_of(path: Sequence[str]) -> Any:
    """Return the type of a key, `Any` in an open table; None for what is no key."""
    if list(path) == [EVERY_ROLE]:
        return str
    parts = iter(["policies", "NAME", *path[1:]] if path[:1] == [EVERY_POLICY] else path)
    kind: Any = Config
    for part in parts:
        if kind is Any:
            return Any
        if get_origin(kind) is dict:
            kind = get_args(kind)[1]
            continue
        if get_origin(kind) is tuple and part.isdecimal():
            kind = get_args(kind)[0]
            continue
        if kind == Config.model_fields["env"].annotation:
            (kind, _) = get_args(kind)
            if part not in kind.model_fields:
                continue  # the name of an environment
        if kind is Algorithm:
            # Which one it is, is known when all files and flags are.
            kind = Algorithm if part == "name" else section_of(part)
        if isinstance(kind, type) and issubclass(kind, Section) and part in kind.model_fields:
            kind = kind.model_fields[part].annotation
        else:
            return None
    return kind


def _path(name: str, known: Any) -> list[str]:
    """Return the parts of a flag's name, dashes replaced where a run file has no such name."""
    path: list[str] = []
    for part in name.split("."):
        table = known if isinstance(known, Mapping) else {}
        path.append(part if part in table else part.replace("-", "_"))
        known = table.get(path[-1])
    return path


def _value(flag: str, values: Sequence[str], kind: Any) -> Any:
    if len(values) == 1 and values[0] in _words(kind):
        return values[0]
    if _is_list(kind):
        is_text = _items(kind) is str and not "".join(values).startswith("[")
        found = [value if is_text else _toml(value) for value in values]
        return found[0] if len(found) == 1 and isinstance(found[0], list | dict) else found
    if not values and kind in (bool, None):
        return True  # of an unknown key: whoever checks the table says so
    if not values:
        raise ConfigError(f"the flag {flag} needs a value")
    if len(values) > 1 and kind not in (None, Any):
        raise ConfigError(f"the flag {flag} takes one value; it has {' '.join(values)}")
    if kind is str:
        return values[0]
    found = [_toml(value) for value in values]
    return found if len(found) > 1 else found[0]


def _kinds(kind: Any) -> list[Any]:
    """Return the alternatives of a type, without None."""
    is_union = get_origin(kind) not in (None, tuple, dict, Literal)
    return [part for part in (get_args(kind) if is_union else [kind]) if part is not NoneType]


def _words(kind: Any) -> list[Any]:
    """Return the texts that a type allows."""
    return [word for part in _kinds(kind) if get_origin(part) is Literal for word in get_args(part)]


def _is_list(kind: Any) -> bool:
    return any(get_origin(part) is tuple for part in _kinds(kind))


def _items(kind: Any) -> Any:
    (found, *_) = [get_args(part) for part in _kinds(kind) if get_origin(part) is tuple]
    return getattr(found[0], "__origin__", found[0])


def _toml(text: str) -> Any:
    """Return a value as TOML has it; other text is a text."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def help_text(config: Config, names: str) -> str:
    """Return the explanation of every key, with its value after reading some run files."""
    formatter = click.HelpFormatter(width=100)
    formatter.write_usage("pettingllms-train", f"{names} [--SECTION.KEY VALUE ...]")
    formatter.write_paragraph()
    formatter.write_text("Keys of a run file, and their values after reading these.")
    for title, doc, rows in _sections(config, ""):
        with formatter.section(f"[{title}] {doc}" if title else doc):
            formatter.write_dl(rows, col_max=44)
    return formatter.getvalue()


def _sections(section: Section, path: str) -> Iterator[tuple[str, str, list[tuple[str, str]]]]:
    rows: list[tuple[str, str]] = []
    inner: list[tuple[str, Section]] = []
    for name, field in type(section).model_fields.items():
        value = getattr(section, name)
        if isinstance(value, Section):
            inner.append((f"{path}{name}", value))
        elif isinstance(value, dict) and any(isinstance(v, Section) for v in value.values()):
            inner += [(f"{path}{name}.{key}", v) for key, v in value.items()]
        elif isinstance(section, Config) and name == "env":
            labels = section.env_names
            inner += [
                (f"env.{label}".rstrip("."), env)
                for label, env in zip(labels, section.env, strict=True)
            ]
        else:
            text = " ".join((field.description or "").split())
            rows.append((f"--{path}{name}".replace("_", "-"), f"{text} [{_shown(value)}]"))
    doc = " ".join((section.__doc__ or "").split()).rstrip(".")
    yield path.rstrip("."), doc, rows
    for place, value in inner:
        yield from _sections(value, f"{place}.")


def _shown(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)
