"""Every key of a run file, from the pydantic models of the trainer."""

from __future__ import annotations

import re
from typing import Any, get_args

from markdown_text import code, table
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from pettingllms_trainers.config import Config
from pettingllms_trainers.section import Section

_SIGNS = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}


def config_reference() -> str:
    """Return a table per section of the run file."""
    return "\n".join(_section(Config, ""))


def _section(model: type[Section], path: str) -> list[str]:
    heading = f"[{path}]" if path else "Top level"
    rows = [_row(name, field) for name, field in model.model_fields.items() if not _inner(field)]
    summary = " ".join((model.__doc__ or "").split())
    parts = [f"## `{heading}`\n" if path else f"## {heading}\n", f"{summary}\n"]
    parts += [table(["key", "values", "default", "meaning"], rows)] if rows else []
    for name, field in model.model_fields.items():
        inner = _inner(field)
        if inner is not None:
            place = name if inner is field.annotation else f"{name}.NAME"
            parts += _section(inner, f"{path}.{place}" if path else place)
    return parts


def _inner(field: FieldInfo) -> type[Section] | None:
    """Return the section that a key holds, itself or as the values of a table."""
    for kind in (field.annotation, *get_args(field.annotation)):
        if isinstance(kind, type) and issubclass(kind, Section):
            return kind
    return None


def _row(name: str, field: FieldInfo) -> list[str]:
    limits = [f"{_SIGNS[n]} {v}" for m in field.metadata for n, v in _bounds(m).items()]
    values = ", ".join([code(_type(field.annotation)), *map(code, limits)])
    return [code(name), values, _default(field), " ".join((field.description or "").split())]


def _bounds(limit: Any) -> dict[str, Any]:
    return {name: getattr(limit, name) for name in _SIGNS if hasattr(limit, name)}


def _type(annotation: Any) -> str:
    choices = get_args(annotation)
    if choices and all(isinstance(choice, str) for choice in choices):
        return " | ".join(f'"{choice}"' for choice in choices)
    if isinstance(annotation, type) and not choices:
        return annotation.__name__
    text = re.sub(r"typing\.|annotated_types\.", "", str(annotation))
    text = re.sub(r"Annotated\[(\w+), [^\]]*\]", r"\1", text.removesuffix(" | None"))
    return re.sub(r"tuple\[(\w+), \.\.\.\]", r"list[\1]", text)


def _default(field: FieldInfo) -> str:
    if field.default is PydanticUndefined:
        return "required"
    value = field.default
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return code(str(value).lower())
    if isinstance(value, tuple):
        return code(list(value))
    return code(f'"{value}"' if isinstance(value, str) else value)
