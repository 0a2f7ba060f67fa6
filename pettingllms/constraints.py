"""What an answer is bound to besides the prompt, as whoever asks for it wants."""

from __future__ import annotations

from typing import NamedTuple


class Constraints(NamedTuple):
    """Bounds of an answer, which policies keep to as far as they can."""

    stop: tuple[str, ...] = ()
    """Texts that end it, besides those of the policy's own settings; it ends before them."""
    max_tokens: int | None = None
    """Longest answer in tokens, where the policy's own settings do not end it sooner."""
    grammar: str = ""
    """Form that it must have, as a structural tag of xgrammar in JSON, for engines that can enforce
    one; empty: any."""


UNBOUND = Constraints()
"""Any text will do."""
