"""Typed access to the fields of a row; whatever is wrong becomes a `RowError` with its reason."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

Row = Mapping[str, Any]


class RowError(ValueError):
    """A row that cannot be used; its message is the reason given in reports."""


def text_field(row: Row, name: str) -> str:
    """Return a non-blank text.

    Raises:
        RowError: The field is missing, not a text, or blank.
    """
    value = row.get(name)
    if not isinstance(value, str):
        raise RowError(f"{name} is {'missing' if value is None else 'not a text'}")
    if not value.strip():
        raise RowError(f"{name} is empty")
    return value


def optional_text(row: Row, name: str) -> str | None:
    """Return a text, or None where the field is missing or blank.

    Raises:
        RowError: The field holds something else.
    """
    return None if row.get(name) in (None, "") else text_field(row, name)


def list_field(row: Row, name: str) -> list[Any]:
    """Return a list (a tuple or array counts).

    Raises:
        RowError: The field is missing or not a list.
    """
    value = row.get(name)
    if hasattr(value, "tolist"):
        value = cast("Any", value).tolist()
    if not isinstance(value, list | tuple):
        raise RowError(f"{name} is {'missing' if value is None else 'not a list'}")
    return list(cast("list[Any]", value))


def texts_field(row: Row, name: str) -> list[str]:
    """Return a list of texts.

    Raises:
        RowError: The field is missing, not a list, or holds something else than texts.
    """
    values = list_field(row, name)
    if not all(isinstance(value, str) for value in values):
        raise RowError(f"{name} holds something else than texts")
    return values


def mapping_field(row: Row, name: str) -> Row:
    """Return a mapping of field names to values.

    Raises:
        RowError: The field is missing or not a mapping.
    """
    value = row.get(name)
    if not isinstance(value, Mapping):
        raise RowError(f"{name} is {'missing' if value is None else 'not an object'}")
    return cast("Row", value)


def json_field(row: Row, name: str) -> Any:
    """Return the value of a JSON text.

    Raises:
        RowError: The field is missing, blank, or not JSON.
    """
    return json_value(text_field(row, name), name)


def json_value(text: str, name: str) -> Any:
    """Return the value of a JSON text; `name` is what the reason calls it.

    Raises:
        RowError: It is not JSON.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RowError(f"{name} is not JSON") from error


def row_id(row: Row, number: int, *names: str) -> str:
    """Return the first of the named fields that is there, as text, or the row's number."""
    for name in names:
        value = row.get(name)
        if isinstance(value, str | int) and str(value).strip():
            return str(value)
    return str(number)
