"""Edits of a text that take no thought: what somebody tries who cannot solve a task.

The conformance kit edits the examples of prompts with them, and the tests of a tester that no skill
went into are edited examples.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

Edit = Callable[[str], str]

# Whole numbers that stand alone, such as fit 64 bits.
_WHOLE = re.compile(r"(?<![\w.])-?\d{1,18}(?![\w.])")


def _reversed(line: str) -> str:
    words = line.split()
    return " ".join(reversed(words)) if len(words) > 1 else line[::-1]


def _last_line(change: Edit) -> Edit:
    def edit(text: str) -> str:
        head, newline, line = text.rpartition("\n")
        return head + newline + change(line)

    return edit


def _plus(place: int, added: int) -> Edit:
    def edit(text: str) -> str:
        numbers = list(_WHOLE.finditer(text))
        if not numbers:
            return text
        start, end = numbers[place].span()
        return f"{text[:start]}{int(text[start:end]) + added}{text[end:]}"

    return edit


EDITS: Mapping[str, Edit] = {
    "its last line reversed": _last_line(_reversed),
    "its last line sorted": _last_line(lambda line: " ".join(sorted(line.split()))),
    "its last line twice": _last_line(lambda line: f"{line}\n{line}"),
    "without its last line": lambda text: text.rpartition("\n")[0],
    "its last number plus one": _plus(-1, 1),
    "its last number minus one": _plus(-1, -1),
    "its first number plus one": _plus(0, 1),
    "its first number minus one": _plus(0, -1),
}
"""Name -> an edit of a text without spaces or line ends around it."""
