"""Where a name comes from: somebody typed it now, or a file carries it.

The names of environments, policies, algorithms and reward functions can be places of code
(`game.py:Class`) or addresses of servers. A name that a user typed is a `str` and does what he
asked for. A file may be a stranger's: a name that was read from one is a `FoundName` from there on,
which no function that imports or sends accepts in place of a `str`. It becomes one in `vouched`
alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pettingllms.errors import UntrustedName


@dataclass(frozen=True, slots=True)
class FoundName:
    """A name that a file carries. Equal names are equal, whichever files have them.

    Raises:
        TypeError: The file has something else than a string there.
    """

    text: str
    file: str = field(compare=False)
    """Where it was read, for messages."""
    is_trusted: bool = field(default=False, compare=False)
    """Whether the user has said that this file may name anything."""

    def __post_init__(self) -> None:
        """Refuse what is not a string: files hold anything."""
        if not isinstance(self.text, str):
            raise TypeError(f"a name is {self.text!r}; it must be a string")

    def __str__(self) -> str:
        return self.text

    def vouched(self, what: str, *, is_harmless: bool, would: str) -> str:
        """The name as one that may be acted upon.

        Args:
            what: What it is a name of: `"environment"`.
            is_harmless: Whether it leads to what installed packages announce, on this machine.
            would: What acting upon any other name would do, to end a sentence with `"would"`.

        Raises:
            UntrustedName: It is neither harmless nor trusted.
        """
        if not (is_harmless or self.is_trusted):
            raise UntrustedName(self.file, what, self.text, would)
        return self.text


Name = str | FoundName
"""A name that was typed, or one that was found in a file."""
