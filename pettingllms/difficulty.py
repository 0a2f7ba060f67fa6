"""`Difficulty`: the levels of difficulty of an environment, in order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pettingllms.arguments import plain
from pettingllms.errors import InvalidArgument, suggestion

Attributes = Mapping[str, Any]
"""Argument of the environment -> its value."""


class Difficulty:
    """Levels of difficulty, numbered 0, 1, 2, ... from easy to hard; the first ones have names.

    A level is a set of attributes, arguments of the environment such as size, boxes, hops, turns.
    `pettingllms.make(id, level=2)` and `make(id, level="medium")` take them from here.

    Args:
        named: Name -> attributes, from level 0 on; or the name of the level that it names too.
        beyond: Number of a level without a name -> its attributes.
        last: Number of the hardest level: as far as levels can be certified. None: the last name.
    """

    def __init__(
        self,
        named: Mapping[str, Attributes | str] | None = None,
        beyond: Callable[[int], Attributes] | None = None,
        last: int | None = None,
    ) -> None:
        found: list[Attributes] = []
        self.names: dict[str, int] = {}
        """Name -> number of the level."""
        for name, attributes in (named or {}).items():
            if isinstance(attributes, str):
                self.names[name] = self.names[attributes]
            else:
                self.names[name] = len(found)
                found.append(attributes)
        if beyond is not None and last is not None:
            found += map(beyond, range(len(found), last + 1))
        self.attributes = tuple(found)
        """Level -> arguments of the environment that it stands for."""

    def __len__(self) -> int:
        """Return the number of levels, 0 if there are none."""
        return len(self.attributes)

    def names_of(self, number: int) -> str:
        """Return the number of a level, with its names: `1 (paper)`."""
        names = [name for name, named in self.names.items() if named == number]
        return f"{number} ({', '.join(names)})" if names else str(number)

    def number(self, env_id: str, level: object) -> int:
        """Return the number of a level, given by number or name.

        Raises:
            InvalidArgument: If there is no such level; says which there are.
        """
        level = plain(level)
        if isinstance(level, str) and level in self.names:
            return self.names[level]
        if isinstance(level, int) and not isinstance(level, bool) and 0 <= level < len(self):
            return level
        if not self.attributes:
            raise InvalidArgument(f"level of {env_id}", level, "none: it has no levels")
        allowed = f"0 to {len(self) - 1}, or {', '.join(self.names)}"
        raise InvalidArgument(f"level of {env_id}", level, allowed + suggestion(level, self.names))

    def of(self, arguments: Attributes, defaults: Attributes) -> int | None:
        """Return the level that an environment's arguments are, None if they are no level.

        Args:
            arguments: The arguments that are given.
            defaults: Those of all others.
        """
        axis = {name for attributes in self.attributes for name in attributes}

        def place(given: Attributes) -> dict[str, Any]:
            return {name: {**defaults, **given}.get(name) for name in axis}

        here = place(arguments)
        return next((k for k, level in enumerate(self.attributes) if place(level) == here), None)
