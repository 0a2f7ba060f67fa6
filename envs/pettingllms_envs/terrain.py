"""Cells with rules of their own, drawn with the level: ice, one-way cells, keys and doors.

A level's text shows them as letters, and which letter means what is part of the level: a line per
letter, such as `q: ice`, `k: one-way R`, `b: key of m`, `m: door of b`. Within a game the meanings
have symbols that are the same in all levels:

- `~` *ice*: what moves onto it goes on in the same direction, cell by cell, until it is on a cell
  that is not ice, or the next cell cannot be entered;
- `^`, `v`, `<`, `>` *one-way*: can be entered by moves in this direction only;
- `a` to `d` a *key*, which can be entered by players; once one has been there, all cells of this
  key and of its door are free for the rest of the episode;
- `A` to `D` its *door*, which cannot be entered before.

Cells are numbered as `pettingllms_envs.grid` says; what is open is a bit mask of keys.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from string import ascii_lowercase

from pettingllms.errors import LevelFormatError
from pettingllms_envs.grid import MOVES, deltas_of, first_line, parse_rows

WALL, FREE, ICE = "#.~"
ONE_WAY = "^v<>"
"""The one-way cells of the moves U, D, L, R."""
KEYS, DOORS = "abcd", "ABCD"
SPECIAL = ICE + ONE_WAY + KEYS + DOORS

MAX_RULES = 3
"""Rules that can be drawn: ice, one-way cells, keys and doors."""

_ALLOWED = "q: ice, q: one-way R, q: key of m, q: door of k"
_LINE = re.compile(r"([a-z]): (?:(ice)|one-way ([UDLR])|key of ([a-z])|door of ([a-z]))")


# ---- rules as text


@lru_cache(maxsize=512)
def letters_of(rules: str, first_line: int = 1) -> Mapping[str, str]:
    """Symbol -> letter of the lines of rules; empty if there are none.

    Raises:
        LevelFormatError: If a line is not a rule, a letter or a meaning occurs twice, or a key has
            no door or a door no key; names the line, counted from `first_line`.
    """
    found: dict[str, str] = {}
    keys: dict[str, str] = {}
    doors: dict[str, str] = {}
    for number, line in enumerate(rules.split("\n") if rules else (), first_line):
        match = _LINE.fullmatch(line)
        if match is None:
            raise LevelFormatError(f"no rule: {line[:30]!r}", number, 0, _ALLOWED)
        letter, ice, way, door, key = match.groups()
        symbol = ICE if ice else ONE_WAY[MOVES.index(way)] if way else ""
        if symbol in found or letter in {*found.values(), *keys, *doors}:
            raise LevelFormatError(f"said twice: {line!r}", number, 0, "one rule per letter")
        if symbol:
            found[symbol] = letter
        else:
            (keys if door else doors)[letter] = door or key
    if {door: key for key, door in keys.items()} != doors or len(keys) > len(KEYS):
        allowed = f"at most {len(KEYS)} keys, each with its door: {_ALLOWED}"
        raise LevelFormatError("keys and doors are not pairs", first_line, 0, allowed)
    for symbol, opening, letter in zip(KEYS, DOORS, sorted(keys), strict=False):
        found[symbol], found[opening] = letter, keys[letter]
    return found


def split_rules(text: str) -> tuple[str, str]:
    """The board of a level's text and the lines of its rules, which begin at its first `:`.

    Raises:
        LevelFormatError: As `letters_of`, with the line in the text.
    """
    board, mark, _ = text.partition(":")
    if not mark:
        return text, ""
    board = board[: board.rfind("\n") + 1]
    rules = "\n".join(line.rstrip() for line in text[len(board) :].rstrip().split("\n"))
    letters_of(rules, board.count("\n") + 1)
    return board, rules


MAX_SIDE = 64
"""Maximum number of rows and of columns of a level that is read."""


def read_board(
    text: str, symbols: str, pad: str = "", same: Mapping[int, int] = {}
) -> tuple[list[str], str, int]:
    """The rows of a level's text, its rules, and the number of the line of the first row.

    Rows hold some symbols, others that are the `same` (a table of `str.translate`), and the letters
    of the rules; see `parse_rows`.

    Raises:
        LevelFormatError: As `parse_rows` and `letters_of`, or if a side is too long.
    """
    board, rules = split_rules(text)
    board = board.translate(same)
    rows = parse_rows(board, symbols=symbols + "".join(letters_of(rules).values()), pad=pad)
    line, size = first_line(board), (len(rows), len(rows[0]))
    if max(size) > MAX_SIDE:
        problem = f"a board of {size[0]}x{size[1]} cells"
        raise LevelFormatError(problem, line, 0, f"at most {MAX_SIDE} rows and columns")
    return rows, rules, line


@lru_cache(maxsize=512)
def symbols_of(rules: str) -> Mapping[int, str]:
    """The table of `str.translate` from letters to symbols."""
    return {ord(letter): symbol for symbol, letter in letters_of(rules).items()}


@lru_cache(maxsize=512)
def shown_symbols(rules: str, opened: int) -> Mapping[int, str]:
    """The table of `str.translate` from symbols to what agents read, when some keys are found."""
    letters = {ord(symbol): letter for symbol, letter in letters_of(rules).items()}
    for number, pair in enumerate(zip(KEYS, DOORS, strict=True)):
        if opened >> number & 1:
            letters |= dict.fromkeys(map(ord, pair), FREE)
    return letters


def opened_text(rules: str, opened: int) -> str:
    """A sentence on the doors that are open, with a space before it; empty if none is."""
    doors = [letters_of(rules)[door] for n, door in enumerate(DOORS) if opened >> n & 1]
    return f" Now free: the doors {', '.join(doors)}." if doors else ""


def under_text(rules: str, cells: str, opened: int, covered: Iterable[int], stride: int) -> str:
    """Lines, each after a line break, on letters of cells that something else is drawn over."""
    table = shown_symbols(rules, opened)
    found = ((cell, cells[cell].translate(table)) for cell in covered)
    return "".join(
        f"\nunder row {cell // stride}, column {cell % stride}: {letter}"
        for cell, letter in found
        if letter != FREE
    )


WORDS = """\
Letters are cells with rules. ice: a move onto it goes on in the same direction, cell by cell, \
until it ends on a cell that is not ice or the next cell cannot be entered. one-way: can be \
entered by that move only. key: once the player has entered it, it and all cells of its door are \
free cells. door: cannot be entered before."""


def rules_text(rules: str, more: str = "") -> str:
    """What prompts say below a board, with a line break before it; empty without rules.

    `more` is what the game adds to the rules of the terrain.
    """
    note = "The rules of this level, which a program reads below the board:"
    return f"\n{WORDS}{more} {note}\n{rules}" if rules else ""


# ---- rules at work


@cache
def _passable(move: str, opened: int, is_player: bool) -> frozenset[str]:
    """The symbols of cells that can be entered by a move."""
    free = [pair for n, pair in enumerate(zip(KEYS, DOORS, strict=True)) if opened >> n & 1]
    keys = KEYS if is_player else ""
    return frozenset([FREE, ICE, ONE_WAY[MOVES.index(move)], *keys, *"".join(map("".join, free))])


class Terrain:
    """The cells of one level, and what moves on them do.

    Args:
        cells: Rows of symbols, joined with line breaks.
        cols: Number of columns.
    """

    __slots__ = ("delta", "ground")

    def __init__(self, cells: str, cols: int) -> None:
        self.delta = deltas_of(cols + 1)
        # Guards beyond the last row, which negative numbers of cells read too.
        self.ground = cells + WALL * (cols + 2)

    def can_enter(self, cell: int, move: str, opened: int) -> bool:
        """Whether the player can enter a cell by a move."""
        return self.ground[cell] in _passable(move, opened, True)

    def glide(
        self, cell: int, move: str, opened: int, blocked: int = 0, is_player: bool = True
    ) -> int:
        """Where a player or a box that is moved comes to rest; `cell` itself if it cannot move.

        `opened` are the keys that have been found, `blocked` is a bit-board of cells that cannot be
        entered for other reasons. Boxes cannot enter keys.
        """
        change, ground, passable = self.delta[move], self.ground, _passable(move, opened, is_player)
        while True:
            ahead = cell + change
            if ground[ahead] not in passable or blocked >> ahead & 1:
                return cell
            cell = ahead
            if ground[cell] != ICE:
                return cell

    def opened_at(self, cell: int, opened: int) -> int:
        """The keys that have been found when the player is on a cell."""
        number = KEYS.find(self.ground[cell])
        return opened | 1 << number if number >= 0 else opened


# ---- rules drawn


def drawn(rng: random.Random, free: list[int], num_rules: int) -> tuple[dict[int, str], str]:
    """Draw cells with rules on the free cells of a board: cell -> its symbol, and the rules' lines.

    There are three rules: ice, one-way cells, keys and doors.
    """
    kinds = rng.sample(range(MAX_RULES), num_rules)
    symbols: list[str] = []
    if 0 in kinds:
        symbols += [ICE] * (len(free) // 4)
    if 1 in kinds:
        ways = rng.sample(ONE_WAY, rng.randint(2, 4))
        symbols += rng.choices(ways, k=len(free) // 6)
    num_keys = rng.randint(1, 2) if 2 in kinds else 0
    for key, door in zip(KEYS[:num_keys], DOORS, strict=False):
        symbols += [key] + [door] * max(1, len(free) // (8 * num_keys))
    at = dict(zip(rng.sample(free, len(symbols)), symbols, strict=True))
    letters = dict(
        zip(sorted(set(symbols)), rng.sample(ascii_lowercase, len(set(symbols))), strict=True)
    )
    return _in_order_of_letters(at, letters)


def _in_order_of_letters(at: dict[int, str], letters: dict[str, str]) -> tuple[dict[int, str], str]:
    """Cells and rules with the keys numbered by their letters, as `letters_of` does."""
    meanings = {ICE: "ice"} | {
        way: f"one-way {move}" for way, move in zip(ONE_WAY, MOVES, strict=True)
    }
    for key, door in zip(KEYS, DOORS, strict=True):
        if key in letters:
            meanings |= {key: f"key of {letters[door]}", door: f"door of {letters[key]}"}
    rules = "\n".join(sorted(f"{letter}: {meanings[symbol]}" for symbol, letter in letters.items()))
    names = {letter: symbol for symbol, letter in letters_of(rules).items()}
    return {cell: names[letters[symbol]] for cell, symbol in at.items()}, rules


# ---- symmetries


_TURNED = str.maketrans("^>v<", ">v<^")
_MIRRORED = str.maketrans("<>", "><")


def canonical_terrain(rows: list[str]) -> str:
    """The same text for all rotations and reflections of a board with rules, and no other.

    Letters do not count, nor does which key is called which; other symbols than those of this
    module are left as they are.
    """
    forms: list[str] = []
    for _ in range(4):
        rows = ["".join(column).translate(_TURNED) for column in zip(*rows[::-1], strict=True)]
        mirrored = [row[::-1].translate(_MIRRORED) for row in rows]
        forms += ["\n".join(rows), "\n".join(mirrored)]
    return min(map(_keys_renamed, forms))


def _keys_renamed(form: str) -> str:
    """Number the keys in the order in which they or their doors are first seen."""
    order = dict.fromkeys(symbol.lower() for symbol in form if symbol in KEYS + DOORS)
    table = dict(zip(order, KEYS, strict=False))
    table |= {old.upper(): new.upper() for old, new in table.items()}
    return form.translate(str.maketrans(table))
