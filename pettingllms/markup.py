r"""Answers in markup: programs in fenced code blocks, and answers in `\boxed{...}`.

A program is in a block labelled ```` ```python ```` (or `py`, `python3`). Labelled
blocks win over blocks without a label; of several labelled ones the last one counts, and a block
without a label counts only if it is the only one. A fence closes a block if it is alone on its
line, is indented no deeper than the opening (or up to three spaces) and is as long. The opening may
follow words on its line. A `python` block that is never closed was truncated: then there is no
program, nor is there one if the fences do not pair off.

The last `\boxed{...}` with balanced braces is a boxed answer; if it is not closed, there is none.
What thinking holds is no answer; see `pettingllms.parsing`.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from pettingllms.parsing import after_thinking
from pettingllms.transition import ParseError

_FENCE = re.compile(r"(?<!`)(`{3,}+)[ \t]*([^`\n]*)$", re.MULTILINE)
_MARKERS = re.compile(r"(?>(?:[ \t]|[*+-](?=[ \t])|\d{1,3}[.)](?=[ \t]))*)")
_CLOSING = re.compile(r"\s*(?:<\|\w{1,20}\|>)?\s*")
_INFO = re.compile(r"((?:\w[\w+#.-]*)?)[ \t]*(?:\{[^}]*\}|(?>(?:[\w-]+=\S+[ \t]*)*))(.*)")
_BRACE = re.compile(r"\\boxed\s{0,9}\{|\\[{}\\]|[{}]")
_ON_ONE_LINE = re.compile(r"```[ \t]*+py[\w.]*+[ \t]++[^`\n]*+```")
_PYTHON = re.compile(r"py(?:thon)?[\d.]*")


class Block(NamedTuple):
    """A fenced code block."""

    label: str
    """The language, in lower case; empty if there is none."""
    extra: str
    """What else follows the opening fence on its line; attributes excluded."""
    content: str
    is_closed: bool


class _Opening(NamedTuple):
    num_ticks: int
    indent: int
    label: str
    extra: str
    end: int


def code_blocks(text: str) -> list[Block]:
    """Return the blocks of a text, in order.

    A block that another labelled fence interrupts is not closed. Line ends become line feeds, and
    the indentation of the opening fence is taken off every line.
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    blocks: list[Block] = []
    opening: _Opening | None = None
    for fence in _FENCE.finditer(text):
        before = text[text.rfind("\n", 0, fence.start()) + 1 : fence.start()]
        is_closing = (
            opening is not None
            and _CLOSING.fullmatch(fence[2])
            and not before.strip()
            and len(fence[1]) >= opening.num_ticks
            and len(before) <= max(3, opening.indent)
        )
        if opening is not None and is_closing:
            end = text.rfind("\n", 0, fence.start()) + 1
            blocks.append(_block(text, opening, end, is_closed=True))
            opening = None
            continue
        found = _opening(fence, before)
        if found is None or (opening is not None and not _interrupts(found, opening)):
            continue
        if opening is not None:
            blocks.append(_block(text, opening, fence.start(), is_closed=False))
        opening = found
    if opening is not None:
        blocks.append(_block(text, opening, len(text), is_closed=False))
    return blocks


def _opening(fence: re.Match[str], before: str) -> _Opening | None:
    info = _INFO.fullmatch(fence[2].strip())
    label, extra = (info[1].lower(), info[2].strip()) if info else ("", fence[2].strip())
    markers = _MARKERS.fullmatch(before)
    if markers is None and ("```" in before or (extra and not _PYTHON.fullmatch(label))):
        return None  # code within a line
    indent = len(before) if markers else len(before) - len(before.lstrip(" \t"))
    return _Opening(len(fence[1]), indent, label, extra, fence.end() + 1)


def _interrupts(found: _Opening, opening: _Opening) -> bool:
    is_as_far_out = found.indent <= max(3, opening.indent)
    return bool(found.label) and is_as_far_out and found.num_ticks >= opening.num_ticks


def _block(text: str, opening: _Opening, end: int, *, is_closed: bool) -> Block:
    content = text[opening.end : end]
    if opening.indent:
        content = re.sub(rf"^[ \t]{{1,{opening.indent}}}", "", content, flags=re.MULTILINE)
    return Block(opening.label, opening.extra, content, is_closed)


def read_program(text: str, max_chars: int) -> str | ParseError:
    """Read the Python program of an answer.

    Args:
        text: What a model wrote.
        max_chars: Longer programs are refused.
    """
    answer = after_thinking(text)
    if isinstance(answer, ParseError):
        return answer
    blocks = code_blocks(answer)
    labelled = [block for block in blocks if _PYTHON.fullmatch(block.label)]
    if any(not block.is_closed for block in labelled):
        return ParseError("a ```python block that is not closed")
    behind = blocks[blocks.index(labelled[-1]) :] if labelled else blocks
    if any(not block.label and not block.is_closed for block in behind):
        return ParseError("a ``` that neither closes a block nor opens one")
    if _ON_ONE_LINE.search(answer):
        return ParseError("a ```python block on one line")
    unlabelled = [block for block in blocks if not block.label]
    if not labelled and len(unlabelled) > 1:
        return ParseError("several code blocks, none of them labelled ```python")
    if not labelled and not unlabelled:
        return ParseError("no closed ```python block with a program")
    chosen = labelled[-1] if labelled else unlabelled[0]
    if chosen.extra:
        return ParseError("text behind ```python on the same line")
    if not chosen.content.strip():
        return ParseError("a ```python block without a program")
    if len(chosen.content) > max_chars:
        return ParseError(f"a program of more than {max_chars} characters")
    return chosen.content


def read_boxed(text: str) -> str | ParseError:
    r"""Read the last `\boxed{...}` behind the thinking."""
    rest = after_thinking(text)
    if isinstance(rest, ParseError):
        return rest
    return last_boxed(rest) or ParseError(
        "no \\boxed{...} with an answer, or one that is not closed"
    )


def last_boxed(text: str) -> str | None:
    r"""Return the content of the last `\boxed{...}` with balanced braces.

    None if there is none, or if the last one is not closed.
    """
    last = (-1, -1)
    opened: list[tuple[bool, int]] = []
    for brace in _BRACE.finditer(text):
        token = brace.group()
        if token.endswith("{") and token != "\\{":
            is_boxed = len(token) > 1
            opened.append((is_boxed, brace.end()))
            if is_boxed:
                last = (brace.end(), -1)
        elif token == "}" and opened:
            is_boxed, start = opened.pop()
            if is_boxed and start == last[0]:
                last = (start, brace.start())
    return text[last[0] : last[1]].strip() if last[1] >= 0 else None
