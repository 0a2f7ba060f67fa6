"""Boards of symbols, rectangles that are painted on them, and what a message can carry."""

from __future__ import annotations

import math
from typing import NamedTuple

EMPTY = 0
"""The symbol of a cell without one; the others are numbered from 1."""
ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789 .,;:-"
"""What messages are made of; everything else is left out."""

Board = tuple[tuple[int, ...], ...]
"""Row -> column -> symbol."""


class Fill(NamedTuple):
    """A rectangle of one symbol; rows and columns from 0, both ends included."""

    symbol: int
    """Number of the symbol, from 1; 0 empties the cells."""
    top: int
    """First row."""
    left: int
    """First column."""
    bottom: int
    """Last row."""
    right: int
    """Last column."""


class Level(NamedTuple):
    """What is to be built, and how each agent names it."""

    target: Board
    fills: tuple[Fill, ...]
    """Rectangles that make the target when they are painted in this order."""
    palette: tuple[tuple[str, str], ...]
    """Symbol - 1 -> (colour, shape), in words that both agents know."""
    witness_letters: str
    """The letters of the symbols 1, 2, ... on boards that the witness reads."""
    builder_letters: str
    """The letters of the symbols on boards that the builder reads; none is the witness's."""
    turns_needed: int
    """Turns in which the oracle solves the level: its certificate."""


class Said(NamedTuple):
    """What an agent has said to the other."""

    is_builder: bool
    """Whether the builder has asked it, and not the witness told it."""
    text: str
    """The message, as it was sent: cut to the limit."""


class RelayState(NamedTuple):
    """The state of an episode."""

    level: Level
    """What is to be built; the same in all states of an episode."""
    board: Board
    """What the builder has built."""
    messages: tuple[Said, ...] = ()
    """What was said so far, the latest last."""


def blank(size: int) -> Board:
    """An empty board."""
    return ((EMPTY,) * size,) * size


def painted(board: Board, *fills: Fill) -> Board:
    """A board after rectangles were painted, one over the other."""
    rows = [list(row) for row in board]
    for symbol, top, left, bottom, right in fills:
        for row in rows[top : bottom + 1]:
            row[left : right + 1] = [symbol] * (right + 1 - left)
    return tuple(map(tuple, rows))


def num_wrong(board: Board, target: Board) -> int:
    """How many cells of a board are not those of the target."""
    pairs = zip(board, target, strict=True)
    return sum(here != there for rows in pairs for here, there in zip(*rows, strict=True))


def canonical_form(target: Board) -> bytes:
    """What identifies a target up to rotation, reflection and the names of symbols."""
    # Names in the order of first sight: the same for all names that symbols could have.
    return min(_named(image) for image in _images(target))


def _images(board: Board) -> list[Board]:
    images: list[Board] = []
    for _ in range(4):
        board = tuple(zip(*board[::-1], strict=True))
        images += [board, board[::-1]]
    return images


def _named(board: Board) -> bytes:
    names = {EMPTY: EMPTY}
    return bytes(names.setdefault(cell, len(names)) for row in board for cell in row)


def message_bits(max_chars: int, max_turns: int) -> float:
    """The most that the messages of an episode can tell, in bits.

    There are fewer texts of up to `max_chars` characters than texts of exactly so many over an
    alphabet with one more character, which stands for the end.
    """
    return max_turns * max_chars * math.log2(len(ALPHABET) + 1)


def board_bits(size: int, symbols: int) -> float:
    """What it takes to tell any board from all others, in bits."""
    return size * size * math.log2(symbols + 1)
