"""What witness and builder read and write."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from pettingllms.parsing import one_line, read_phrase
from pettingllms.types import ParseError
from pettingllms_envs.relay.rules import ALPHABET, EMPTY, Board, Fill, Level, Said

COLOURS = ("red", "blue", "pink", "gold", "grey", "teal", "lime", "cyan", "plum", "jade")
SHAPES = ("star", "ring", "moon", "leaf", "bell", "boat", "tree", "fish", "key", "cup")
CLEAR = "empty"
"""The word for the symbol of empty cells."""
MAX_FILLS = 20
"""Rectangles of one answer."""
_COLUMNS = "abcdefghijklmnopqrst"
_CORNER = rf"([{_COLUMNS}])([0-9]{{1,2}})"
_CORNERS = rf"{_CORNER}(?:\s*(?:-|to|:|\s)?\s*{_CORNER})?"
_FILL = re.compile(rf"(?:(?:fill|paint)\s+)?({CLEAR}|[a-z0-9])\s*:?\s*{_CORNERS}")
_BETWEEN = re.compile(r"\s*(?:[;,.]|and)?\s*")
_DESCRIBED = re.compile(rf"([a-z]+(?: [a-z]+)?|[0-9])\s*{_CORNERS}(?![a-z0-9])")


class Build(NamedTuple):
    """What the builder does: rectangles, and a question that may be empty."""

    fills: tuple[Fill, ...]
    question: str


def spoken(text: str, max_chars: int) -> str:
    """Return what is sent of a text: small letters of `ALPHABET`, up to the limit."""
    return _allowed(text)[:max_chars].strip()


def _allowed(text: str) -> str:
    kept = "".join(one for one in text.lower() if one in ALPHABET or one.isspace())
    return " ".join(kept.split())


def read_message(text: str, is_marked: bool) -> str | ParseError:
    """Read a message of the witness: all that follows `####` on its line."""

    def fits(said: str) -> str | ParseError:
        return _allowed(said) or ParseError("an empty message")

    return read_phrase(text, fits, needs_mark=is_marked)


def read_build(text: str, level: Level, is_marked: bool) -> Build | ParseError:
    """Read what the builder does: `Q b3 d5; T a1`, `empty a1 c2`, and after `?` a question.

    Args:
        text: What the builder wrote.
        level: The level, whose letters the builder uses; unmarked texts may name a symbol by its
            number, too.
        is_marked: Whether the answer must follow `####`.
    """

    def fits(said: str) -> Build | ParseError:
        before, mark, question = said.partition("?")
        fills = _fills_in(before.strip().lower(), level, is_marked)
        if isinstance(fills, ParseError):
            return fills
        if not fills and not _allowed(question):
            return ParseError("neither a rectangle nor a question" if mark else "an empty answer")
        return Build(fills, _allowed(question))

    return read_phrase(text, fits, needs_mark=is_marked)


def _fills_in(said: str, level: Level, is_marked: bool) -> tuple[Fill, ...] | ParseError:
    symbols = {CLEAR: EMPTY}
    symbols |= {letter.lower(): n for n, letter in enumerate(level.builder_letters, 1)}
    if not is_marked:
        symbols |= {str(number): number for number in range(len(level.palette) + 1)}
    fills: list[Fill] = []
    at = 0
    while at < len(said):
        found = _FILL.match(said, at)
        if found is None or len(fills) == MAX_FILLS:
            shown = one_line(said[at:], 40)
            return ParseError(f"{shown} is no rectangle such as Q b3 d5, or more than {MAX_FILLS}")
        fill = _fill(symbols.get(found[1]), found.groups()[1:], len(level.target))
        if fill is None:
            return ParseError(f"{one_line(found[0], 40)} is not on the board, or no letter of it")
        fills.append(fill)
        between = _BETWEEN.match(said, found.end())
        at = between.end() if between else found.end()
    return tuple(fills)


def _fill(symbol: int | None, corners: tuple[str | None, ...], size: int) -> Fill | None:
    left, top, right, bottom = corners
    if symbol is None or left is None or top is None:
        return None
    columns = sorted((_COLUMNS.index(left), _COLUMNS.index(right or left)))
    rows = sorted((int(top) - 1, int(bottom or top) - 1))
    if rows[0] < 0 or max(rows[1], columns[1]) >= size:
        return None
    return Fill(symbol, rows[0], columns[0], rows[1], columns[1])


# The protocol of the scripted policies --------------------------------------------------------


def symbol_words(level: Level, symbol: int) -> str:
    """Return the shortest words that tell a symbol from the others: its colour, shape, or both."""
    if symbol == EMPTY:
        return CLEAR
    colour, shape = level.palette[symbol - 1]
    colours, shapes = zip(*level.palette, strict=True)
    words = [word for word, all_ in ((colour, colours), (shape, shapes)) if all_.count(word) == 1]
    return min(words, key=len) if words else f"{colour} {shape}"


def corners_text(fill: Fill) -> str:
    """Return the corners of a rectangle: `b3 d5`, or `b3` if it is one cell."""
    first = f"{_COLUMNS[fill.left]}{fill.top + 1}"
    last = f"{_COLUMNS[fill.right]}{fill.bottom + 1}"
    return first if first == last else f"{first} {last}"


def described(level: Level, fill: Fill) -> str:
    """Return a rectangle in words that both agents know: `red b3 d5`."""
    return f"{symbol_words(level, fill.symbol)} {corners_text(fill)}"


def fills_text(level: Level, fills: tuple[Fill, ...]) -> str:
    """Return rectangles in the builder's letters, as `read_build` reads them."""
    letters = (CLEAR, *level.builder_letters)
    return "; ".join(f"{letters[fill.symbol]} {corners_text(fill)}" for fill in fills)


def terse(fills: tuple[Fill, ...]) -> str:
    """Return rectangles by the numbers of their symbols: `1b3d5,2a1`."""
    return ",".join(f"{fill.symbol}{corners_text(fill).replace(' ', '')}" for fill in fills)


def understood(level: Level, message: str) -> tuple[Fill, ...]:
    """Return the rectangles that a message describes as `described` or `terse` do."""
    words = {symbol_words(level, symbol): symbol for symbol in range(len(level.palette) + 1)}
    words |= {" ".join(pair): number for number, pair in enumerate(level.palette, 1)}
    words |= {str(number): number for number in range(len(level.palette) + 1)}
    found = (
        _fill(words.get(one[1]), one.groups()[1:], len(level.target))
        for one in _DESCRIBED.finditer(message)
    )
    return tuple(fill for fill in found if fill is not None)[:MAX_FILLS]


# What agents read -----------------------------------------------------------------------------


@lru_cache(maxsize=256)
def board_text(board: Board, letters: str) -> str:
    """Return a board: a line of columns, then a line per row; `.` is an empty cell."""
    width = len(str(len(board)))
    lines = [" " * width + "  " + " ".join(_COLUMNS[: len(board)])]
    for number, row in enumerate(board, 1):
        lines.append(f"{number:>{width}}  " + " ".join(f".{letters}"[cell] for cell in row))
    return "\n".join(lines)


def board_compact(board: Board) -> str:
    """Return the numbers of the symbols, row by row: `0011`."""
    return "".join(str(cell) for row in board for cell in row)


def missing_compact(board: Board, target: Board) -> str:
    """Return the numbers of the target's symbols where a board is wrong, `-` elsewhere: `--11`."""
    pairs = zip(board_compact(board), board_compact(target), strict=True)
    return "".join("-" if here == there else there for here, there in pairs)


def legend_text(level: Level, letters: str) -> str:
    """Return what the letters stand for, in the order of the alphabet: `K red star, T blue cup`."""
    pairs = sorted(zip(letters, level.palette, strict=True))
    return ", ".join(f"{letter} {' '.join(words)}" for letter, words in pairs)


def messages_text(messages: tuple[Said, ...]) -> str:
    """Return a line for everything that was said."""
    names = ("witness", "builder")
    said = (f"{names[message.is_builder]}: {message.text}" for message in messages)
    return "\n".join(said) or "nothing"
