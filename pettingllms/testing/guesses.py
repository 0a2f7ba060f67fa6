"""Texts that cost no thought: parts of a prompt, its example, edits of it, what others wrote."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

_FENCE = re.compile(r"^```(\w*)\n(.*?)\n```$", re.MULTILINE | re.DOTALL)
_MARKED = re.compile(r"^####[ \t]*(.+)$", re.MULTILINE)
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_NAME = re.compile(r"[A-Z]\w*(?: [A-Z]\w*)*")

EXAMPLE, PASSED_ON = "the example", "what a team-mate wrote last"
NUM_LINES, NUM_PARTS = 4, 2
"""Lines of a prompt, and numbers and names from either end of it, that are given as answers."""


class Glimpse(NamedTuple):
    """What somebody who knows nothing of the game has at hand when asked for an answer."""

    agent: str
    prompt: str
    said: Mapping[str, str]
    """Agent -> what it wrote last."""


Guess = Callable[[Glimpse], str]
"""A cheap policy: what it answers at a glimpse."""


def guesses() -> dict[str, Guess]:
    """Return all cheap policies that look at nothing but prompts and texts, by name."""
    found: dict[str, Guess] = {}
    for text in ("", "0", "1", "yes", "#### []"):
        found[f"always {text!r}" if text else "silence"] = partial(_constant, text)
    for place in range(NUM_LINES):
        found[f"line {place + 1} from the end"] = partial(_line, place, after_colon=False)
        found[f"line {place + 1} from the end, after its colon"] = partial(
            _line, place, after_colon=True
        )
    for what, pattern in (("number", _NUMBER), ("name", _NAME)):
        for place in (*range(NUM_PARTS), *range(-NUM_PARTS, 0)):
            end = f"{place + 1}" if place >= 0 else f"{-place} from the end"
            found[f"{what} {end}"] = partial(_part, pattern, place)
    found[EXAMPLE] = lambda glimpse: example(glimpse.prompt)
    for name, edit in EDITS.items():
        for which, block in (("first", 0), ("last", -1)):
            found[f"{EXAMPLE}, {name} ({which} block)"] = partial(_edited, edit, block)
    found[PASSED_ON] = _passed_on
    found["the same as before"] = lambda glimpse: glimpse.said.get(glimpse.agent, "")
    return found


def wrapped(prompt: str, answer: str) -> str:
    """Return an answer in the form that a prompt seems to ask for."""
    if "####" in prompt:
        return f"#### {answer}"
    if "\\boxed" in prompt:
        return f"\\boxed{{{answer}}}"
    if "```python" in prompt:
        return f"```python\nprint({answer!r})\n```"
    return answer


def example(prompt: str) -> str:
    """Return the answer that a prompt shows as an example, or an empty text.

    It is the last line with `####`; else all code blocks, a block `input` filled with the paragraph
    under the last line that ends in "input", and so on.
    """
    if marked := _MARKED.findall(prompt):
        return f"#### {marked[-1]}"
    blocks = [
        f"```{label}\n{_paragraph_under(label, prompt) or content}\n```"
        for label, content in _FENCE.findall(prompt)
    ]
    return "\n".join(blocks)


def _paragraph_under(label: str, prompt: str) -> str:
    if not label:
        return ""
    found = re.findall(rf"^.*\b{label}:?\n((?:.+\n)+)", prompt, re.MULTILINE | re.IGNORECASE)
    return found[-1].rstrip("\n") if found else ""


def _constant(text: str, glimpse: Glimpse) -> str:
    return text if text.startswith("####") or not text else wrapped(glimpse.prompt, text)


def _line(place: int, glimpse: Glimpse, *, after_colon: bool) -> str:
    lines = [line for line in glimpse.prompt.splitlines() if line.strip()]
    line = lines[-1 - place] if place < len(lines) else ""
    return wrapped(glimpse.prompt, line.rpartition(":")[2].strip(" .?") if after_colon else line)


def _part(pattern: re.Pattern[str], place: int, glimpse: Glimpse) -> str:
    # What comes last in a prompt is the level; the rules before it are the same in all of them.
    level = glimpse.prompt[-len(glimpse.prompt) // 3 :]
    parts = pattern.findall(level)
    fits = -len(parts) <= place < len(parts)
    return wrapped(glimpse.prompt, parts[place] if fits else "")


def _passed_on(glimpse: Glimpse) -> str:
    others = [text for agent, text in glimpse.said.items() if agent != glimpse.agent]
    return others[-1] if others else ""


def _edited(edit: Callable[[str], str], block: int, glimpse: Glimpse) -> str:
    return edited(example(glimpse.prompt), edit, block)


def edited(text: str, edit: Callable[[str], str], block: int) -> str:
    """Return an answer with one of its blocks edited; an answer after `####` is one block."""
    if text.startswith("####"):
        return "#### " + edit(text.removeprefix("####").strip())
    blocks = list(_FENCE.finditer(text))
    if not blocks:
        return edit(text)
    start, end = blocks[block].span(2)
    return text[:start] + edit(text[start:end]) + text[end:]


def _last_line(text: str, change: Callable[[str], str]) -> str:
    head, newline, line = text.rpartition("\n")
    return head + newline + change(line)


def _reversed_line(line: str) -> str:
    words = line.split()
    return " ".join(reversed(words)) if len(words) > 1 else line[::-1]


def _number_plus_one(place: int, text: str) -> str:
    numbers = [found for found in _NUMBER.finditer(text) if "." not in found[0]]
    if not numbers:
        return text
    start, end = numbers[place].span()
    return f"{text[:start]}{int(text[start:end]) + 1}{text[end:]}"


EDITS: Mapping[str, Callable[[str], str]] = {
    "its last line reversed": lambda text: _last_line(text, _reversed_line),
    "its last number plus one": partial(_number_plus_one, -1),
    "its first number plus one": partial(_number_plus_one, 0),
    "its last line twice": lambda text: f"{text}\n{text.rpartition(chr(10))[2]}",
    "without its last line": lambda text: text.rpartition("\n")[0],
}
"""Name -> an edit that takes no thought."""
