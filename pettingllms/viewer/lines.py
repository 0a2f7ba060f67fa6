"""JSONL files of runs that crashed, are still running, or were damaged: every line counts."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

Value = TypeVar("Value")


class LineFile:
    """Reads a JSONL file to its end; lines that cannot be read are counted, never passed over.

    Args:
        path: The file; one that is missing has no lines.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._unreadable: list[tuple[int, str]] = []
        self._is_cut_off = False

    def read(self, convert: Callable[[Any], Value]) -> Iterator[Value]:
        """Yield the converted lines in order.

        Args:
            convert: Converts the JSON value of a line; a KeyError, TypeError,
                AttributeError or ValueError of it says that the line is not what it should be.
        """
        self._unreadable, self._is_cut_off = [], False
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            for number, line in enumerate(file, 1):
                try:
                    yield convert(parse_json(line))
                except (KeyError, TypeError, AttributeError, ValueError) as error:
                    if line.endswith(b"\n"):
                        self._unreadable.append((number, f"{type(error).__name__}: {error}"))
                    else:
                        self._is_cut_off = True

    def notices(self) -> list[str]:
        """Return what the last reading could not show, as readable sentences."""
        found: list[str] = []
        if self._is_cut_off:
            found.append(
                f"{self.path.name}: 1 line is truncated at the end of the file (the run was "
                "interrupted, or is still running); it is not shown."
            )
        if self._unreadable:
            number, reason = self._unreadable[0]
            count = len(self._unreadable)
            lines = "1 line" if count == 1 else f"{count} lines"
            found.append(
                f"{self.path.name}: {lines} could not be read and cannot be shown; the first is "
                f"line {number} ({reason})."
            )
        return found


def parse_json(text: str | bytes) -> Any:
    """Return a JSON value in which every number is finite.

    A number that is not finite, which JSON in browsers cannot express, becomes its text.

    Raises:
        ValueError: If the text is not JSON.
    """
    return json.loads(text, parse_constant=str, parse_float=_finite)


def _finite(text: str) -> float | str:
    value = float(text)
    return value if math.isfinite(value) else text
