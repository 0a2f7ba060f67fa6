"""`Difficulty`: the axis of difficulty of an environment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pettingllms.arguments import plain
from pettingllms.errors import InvalidArgument, suggestion

Attributes = Mapping[str, Any]
"""Argument of the environment -> its value."""


class Difficulty:
    """Difficulties, numbered 0, 1, 2, ... from easy to hard; the first ones have names.

    A difficulty is a set of attributes: arguments of the environment such as size, boxes, hops,
    turns. `pettingllms.make(id, difficulty=2)` and `make(id, difficulty="medium")` take them from
    here.

    Args:
        named: Name -> attributes, from difficulty 0 on; or the name of one that it names too.
        beyond: Number of a difficulty without a name -> its attributes.
        last: Number of the hardest one: as far as levels can be certified. None: the last name.
        toys: Name of a difficulty whose test split has fewer than 100 levels, up to symmetry, ->
            how many it has: no evaluation has more.
    """

    def __init__(
        self,
        named: Mapping[str, Attributes | str] | None = None,
        beyond: Callable[[int], Attributes] | None = None,
        last: int | None = None,
        toys: Mapping[str, int] | None = None,
    ) -> None:
        found: list[Attributes] = []
        self.names: dict[str, int] = {}
        """Name -> number."""
        for name, attributes in (named or {}).items():
            if isinstance(attributes, str):
                self.names[name] = self.names[attributes]
            else:
                self.names[name] = len(found)
                found.append(attributes)
        if beyond is not None and last is not None:
            found += map(beyond, range(len(found), last + 1))
        self.toys = {self.names[name]: levels for name, levels in (toys or {}).items()}
        """Number of a toy -> how many test levels it has."""
        self.attributes = tuple(found)
        """Number -> arguments of the environment that it stands for."""

    def __len__(self) -> int:
        """How many there are; 0 if the environment has no such axis."""
        return len(self.attributes)

    def names_of(self, number: int) -> str:
        """A number with its names: `1 (paper)`; a toy says so: `0 (easy: a toy, 6 test levels)`."""
        names = ", ".join(name for name, named in self.names.items() if named == number)
        if number in self.toys:
            names += f": a toy, {self.toys[number]} test levels"
        return f"{number} ({names})" if names else str(number)

    def number(self, env_id: str, difficulty: object) -> int:
        """The number of a difficulty that is given by number or name.

        Raises:
            InvalidArgument: If there is none of that number or name; says which there are.
        """
        difficulty = plain(difficulty)
        if isinstance(difficulty, str) and difficulty in self.names:
            return self.names[difficulty]
        known = range(len(self))
        if isinstance(difficulty, int) and not isinstance(difficulty, bool) and difficulty in known:
            return difficulty
        what = f"difficulty of {env_id}"
        if not self.attributes:
            raise InvalidArgument(what, difficulty, "none: it has no difficulties")
        allowed = f"0 to {len(self) - 1}, or {', '.join(self.names)}"
        raise InvalidArgument(what, difficulty, allowed + suggestion(difficulty, self.names))

    def of(self, arguments: Attributes, defaults: Attributes) -> int | None:
        """The number of the difficulty that an environment's arguments are; None if they are none.

        Args:
            arguments: The arguments that are given.
            defaults: Those of all others.
        """
        axis = {name for attributes in self.attributes for name in attributes}

        def place(given: Attributes) -> dict[str, Any]:
            return {name: {**defaults, **given}.get(name) for name in axis}

        here = place(arguments)
        return next((k for k, one in enumerate(self.attributes) if place(one) == here), None)
