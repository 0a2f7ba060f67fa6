"""Every key of a run file, from the pydantic models of the trainer."""

from __future__ import annotations

from types import NoneType, UnionType
from typing import Annotated, Any, Literal, get_args, get_origin

from markdown_text import code, table
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from pettingllms_trainers.config import Algorithm, Config
from pettingllms_trainers.config.algorithm import algorithm_class, algorithm_names
from pettingllms_trainers.config.sections import Section

_SIGNS = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}


def config_reference() -> str:
    """A table per section of the run file."""
    return "\n".join(_section(Config, ""))


def _section(model: type[Section], path: str) -> list[str]:
    heading = f"[{path}]" if path else "Top level"  # of a list [[...]], as in the file
    rows = [_row(name, field) for name, field in model.model_fields.items() if not _inner(field)]
    summary = " ".join((model.__doc__ or "").split())
    parts = [f"## `{heading}`\n" if path else f"## {heading}\n", f"{summary}\n"]
    parts += [table(["key", "values", "default", "meaning"], rows)] if rows else []
    for name, field in model.model_fields.items():
        inner = _inner(field)
        # One section for each, since its keys depend on its name.
        if inner is Algorithm:
            parts += _algorithms(name)
        elif inner is not None:
            place = f"{path.strip('[]')}.{name}" if path else name
            if get_origin(field.annotation) is dict:
                place += ".NAME"
            elif get_origin(field.annotation) is tuple:
                place = f"[{place}]"
            parts += _section(inner, place)
    return parts


def _algorithms(path: str) -> list[str]:
    """A section per algorithm: the keys of the table depend on its name."""
    parts: list[str] = []
    for name in algorithm_names():
        of_name = _section(algorithm_class(name), path)
        parts += [f'## `[{path}]` with `name = "{name}"`\n', *of_name[1:]]
    return parts


def _inner(field: FieldInfo) -> type[Section] | None:
    """The section that a key holds, itself or as the values of a table."""
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
    """A type in words of TOML."""
    inner = [part for part in get_args(annotation) if part not in (NoneType, ...)]
    origin = get_origin(annotation)
    if origin is Literal:
        return " | ".join(map(_toml, inner))
    # `int | None` is an int that may be left out, as the default says.
    if origin in (Annotated, UnionType):
        return _type(inner[0])
    if origin is tuple:
        return f"list[{', '.join(map(_type, inner))}]"
    if origin is dict:
        return f"table of {_type(inner[1])}"
    return "any" if annotation is Any else annotation.__name__


def _default(field: FieldInfo) -> str:
    if field.default is PydanticUndefined:
        return "required"
    return "not set" if field.default is None else code(_toml(field.default))


def _toml(value: Any) -> str:
    """A value as it is written in a run file."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, dict):
        parts = ", ".join(f"{key} = {_toml(part)}" for key, part in value.items())
        return f"{{ {parts} }}" if parts else "{}"
    return str(value)
