"""Other answers of the same form as a given one, without knowing the game."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from itertools import combinations
from typing import Any, NamedTuple, cast

_DECODER = json.JSONDecoder()
_TAIL = re.compile(r"[\s'\")\]}`.;]*")
"""What may be between the list and the end of a text whose answer is a list."""

MAX_TEXT = 4000
"""Longer texts are taken as they are."""
MAX_ITEMS = 4
"""Different items of lists from which shuttles are made."""
SHUTTLE_LENGTH = 8
"""Minimum number of items of a shuttle."""


class ListAnswer(NamedTuple):
    """A text that ends in a JSON list, such as `#### ["U","R"]` or a program that prints one."""

    before: str
    items: tuple[Any, ...]
    after: str

    def with_items(self, items: Iterable[Any]) -> str:
        """Return the text with other items."""
        return self.before + json.dumps(list(items), separators=(",", ":")) + self.after


def list_answer(text: str) -> ListAnswer | None:
    """Return the last list of a text, if it has items and nothing but closing marks follows."""
    found, at = None, 0 if len(text) <= MAX_TEXT else -1
    while at >= 0 and (start := text.find("[", at)) >= 0:
        try:
            items, at = _DECODER.raw_decode(text, start)
        except (ValueError, RecursionError):
            at = start + 1
            continue
        found = ListAnswer(text[:start], tuple(cast(list[Any], items)), text[at:])
    if found is None or not found.items or not _TAIL.fullmatch(found.after):
        return None
    return found


def shorter(text: str) -> list[str]:
    """Return the text without the last item of its list, if it has several: almost done."""
    answer = list_answer(text)
    return [answer.with_items(answer.items[:-1])] if answer and len(answer.items) > 1 else []


def singles(texts: Iterable[str]) -> list[str]:
    """Return the texts with one item each, for up to `MAX_ITEMS` different items of their lists."""
    answers = _by_item(texts)
    return [answer.with_items([item]) for item, answer in answers]


def shuttles(texts: Iterable[str]) -> list[str]:
    """Return texts whose lists go there and back: two items in turn, for each pair of items."""
    answers = _by_item(texts)
    length = max([SHUTTLE_LENGTH, *(len(answer.items) for _, answer in answers)])
    return [
        answer.with_items([there, back] * (length // 2))
        for (there, answer), (back, _) in combinations(answers, 2)
    ]


def _by_item(texts: Iterable[str]) -> list[tuple[Any, ListAnswer]]:
    found: dict[str, tuple[Any, ListAnswer]] = {}
    for answer in filter(None, map(list_answer, texts)):
        for item in answer.items:
            found.setdefault(json.dumps(item), (item, answer))
    return list(found.values())[:MAX_ITEMS]
