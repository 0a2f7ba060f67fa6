"""Readers of model text. None of them raises, all run in time linear in the text.

The last well-formed answer counts, text may follow it, and nothing is ever evaluated.
"""

from __future__ import annotations

import re

_FENCE = re.compile(r"^[ \t]*```[ \t]*([\w+-]*)[^\n]*$", re.MULTILINE)
_BRACE = re.compile(r"\\boxed\s{0,9}\{|\\[{}\\]|[{}]")
_FLAT_LIST = re.compile(r"\[([^\[\]]*)\]")


def last_flat_list(text: str) -> list[str] | None:
    """Return the items of the last `[...]` without inner brackets, or None.

    Items are separated by commas, or by spaces where there is no comma; quotes and spaces around
    items are dropped: `["U", 'R', d]` gives `["U", "R", "d"]`, `[]` gives `[]`.
    """
    inner = None
    for match in _FLAT_LIST.finditer(text):
        inner = match.group(1)
    if inner is None:
        return None
    pieces = inner.split(",") if "," in inner else inner.split()
    items = [piece.strip().strip("\"'`").strip() for piece in pieces]
    return [item for item in items if item] if not any(items) else items


def last_code_block(text: str, language: str = "python") -> str | None:
    """Return the content of the last closed ``` fence, or None.

    Args:
        text: What a model wrote.
        language: Fences labelled with this language or a prefix of it (`py`), or not labelled at
            all, are looked at; others are passed over.
    """
    found = None
    opened: re.Match[str] | None = None
    for fence in _FENCE.finditer(text):
        if opened is None:
            opened = fence
            continue
        label = opened.group(1).lower()
        if not label or language.startswith(label) or label.startswith(language):
            found = text[opened.end() + 1 : fence.start()]
        opened = None
    return found


def last_boxed(text: str) -> str | None:
    r"""Return the content of the last `\boxed{...}` with balanced braces, or None."""
    best = (-1, -1)
    opened: list[tuple[bool, int]] = []
    for brace in _BRACE.finditer(text):
        token = brace.group()
        if token.endswith("{") and token != "\\{":
            opened.append((len(token) > 1, brace.end()))
        elif token == "}" and opened:
            is_boxed, start = opened.pop()
            if is_boxed and start > best[0]:
                best = (start, brace.start())
    return text[best[0] : best[1]].strip() if best[0] >= 0 else None


def one_line(text: str, limit: int) -> str:
    """Return a text fit for one line of a prompt: no control characters, at most `limit` long."""
    clean = " ".join("".join(c if c.isprintable() else " " for c in text[: 4 * limit]).split())
    return clean if len(clean) <= limit else clean[: limit - 3] + "..."
