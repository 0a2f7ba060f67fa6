"""Grids of square cells: moves, bit-boards, distances, symmetries, level texts, answers, drawings.

A grid of `rows` x `cols` cells is numbered row by row with `stride = cols + 1`: cell (row, col) has
the number `row * stride + col`. The extra column at the end of each row is never free, so that a
step to the left of column 0 or to the right of the last column ends on it, and no step ever wraps
into another row. A *bit-board* is an int whose bit `cell` says something about that cell; the same
numbers index the text of the grid when its rows are joined with line breaks.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from pettingllms.errors import LevelFormatError, MissingDependency

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from PIL.Image import Image
    from PIL.ImageDraw import ImageDraw


MOVES = "UDLR"
"""The moves: up (row - 1), down (row + 1), left (column - 1), right (column + 1)."""

UNREACHABLE = -1
"""The distance of a cell that cannot be reached."""


@cache
def deltas_of(stride: int) -> Mapping[str, int]:
    """Move -> change of the cell number."""
    return {"U": -stride, "D": stride, "L": -1, "R": 1}


# ---- bit-boards


def bits_of(rows: Sequence[str], symbols: str) -> int:
    """The bit-board of the cells of equally long `rows` that hold one of `symbols`."""
    text = "\n".join(rows)
    # Reversed, since the last digit of a number is bit 0. The line break becomes the guard column's
    # 0.
    digits = {ord(symbol): "1" if symbol in symbols else "0" for symbol in set(text)}
    return int(text[::-1].translate(digits), 2)


def cells_of(bits: int) -> list[int]:
    """The numbers of the set bits, in increasing order."""
    cells: list[int] = []
    while bits:
        # `x & -x` isolates the lowest set bit.
        lowest = bits & -bits
        cells.append(lowest.bit_length() - 1)
        bits ^= lowest
    return cells


def layers(free: int, source: int, stride: int) -> Iterator[int]:
    """Yield the bit-boards of the cells at distance 0, 1, 2, ... from the cells `source`.

    `free` is the bit-board of the cells that can be entered, `stride` is `cols + 1`.
    """
    # `rest` has the cells not yet reached, so a cell is in one layer only.
    rest = free & ~source
    while source:
        yield source
        source = (source << stride | source >> stride | source << 1 | source >> 1) & rest
        rest ^= source


def flood(free: int, source: int, stride: int) -> int:
    """The bit-board of all cells that can be reached from `source` (which is included)."""
    reached = source
    for layer in layers(free, source, stride):
        reached |= layer
    return reached


def shortest_walk(free: int, source: int, target: int, stride: int) -> str | None:
    """The moves of a shortest walk between two cells, or None if there is none.

    Among several shortest walks it is the first in the order U, D, L, R of moves. `free` is the
    bit-board of the cells that can be entered, `stride` is `cols + 1`.
    """
    # Searched from the target, so that following shrinking distances from the source gives the
    # moves in order.
    ways: list[int] = []
    for layer in layers(free, 1 << target, stride):
        if layer >> source & 1:
            break
        ways.append(layer)
    else:
        return None
    moves, delta = "", deltas_of(stride)
    for layer in reversed(ways):
        for move, change in delta.items():
            if (after := source + change) >= 0 and layer >> after & 1:
                moves += move
                source = after
                break
    return moves


@lru_cache(maxsize=64)
def board_mask(rows: int, cols: int) -> int:
    """The bit-board of all cells of the board."""
    # The guard column is bit `cols` of each row, which stays 0.
    row = (1 << cols) - 1
    return sum(row << start for start in range(0, rows * (cols + 1), cols + 1))


def random_bits(rng: random.Random, probability: float, num_bits: int) -> int:
    """Return `num_bits` independent bits that are 1 with `probability` (to within 2**-17).

    The binary digits of the probability decide, from the last to the first, whether random bits are
    joined with "or" (digit 1) or "and" (digit 0): at most 16 draws for a whole board.
    """
    scaled = round(probability * 65536)
    if scaled >= 65536:
        return (1 << num_bits) - 1
    bits = 0
    # Horner's scheme in base 2: with p the probability so far, OR gives (1 + p) / 2, AND gives p /
    # 2. Trailing zeros would only AND with zero.
    for digit in f"{scaled:016b}".rstrip("0")[::-1]:
        draw = rng.getrandbits(num_bits)
        bits = bits | draw if digit == "1" else bits & draw
    return bits


def random_cell(rng: random.Random, bits: int) -> int:
    """A uniformly random set bit of a bit-board that is not empty."""
    length = bits.bit_length()
    # Rejection takes constant time on the usual dense boards; sparse ones fall back to a list.
    for _ in range(8):
        cell = int(rng.random() * length)
        if bits >> cell & 1:
            return cell
    return rng.choice(cells_of(bits))


# ---- symmetries


def canonical(rows: Sequence[str]) -> str:
    """The same text for all rotations and reflections of a grid, and for no other grid.

    Args:
        rows: Equally long rows. A grid that is higher than wide is laid on its side, so that the
            form of a rectangle is that of its eight images too.
    """
    # Transposing first leaves four images of a rectangle to compare, and eight of a square.
    if len(rows) > len(rows[0]):
        rows = ["".join(column) for column in zip(*rows, strict=True)]
    forms = ["".join(rows), "".join(rows[::-1])]
    if len(rows) == len(rows[0]):
        flat, side = forms[0], len(rows)
        # Slicing with a step transposes without touching single cells in Python.
        columns = [flat[start::side] for start in range(side)]
        forms += ["".join(columns), "".join(columns[::-1])]
    # A text read backwards is the grid turned by 180 degrees.
    smallest = min(forms + [form[::-1] for form in forms])
    return f"{len(rows)}x{len(rows[0])}:{smallest}"


# ---- texts


def parse_rows(text: str, *, symbols: str, pad: str = "") -> list[str]:
    """Read the rows of one grid, strictly.

    Args:
        text: The rows, one per line; blank lines before and after them are dropped.
        symbols: The characters that may occur.
        pad: Fill shorter rows with this character on the right; if empty, all rows must be equally
            long.

    Returns:
        The rows, all of one length; at least one, none of length 0.

    Raises:
        LevelFormatError: For an unknown symbol, a blank line between rows, unequal rows or no rows;
            it names the line and the column in `text`, counted from 1.
    """
    lines = [line.rstrip("\r") for line in text.split("\n")]
    if not text.strip():
        raise LevelFormatError("the text has no rows", allowed=f"rows of the symbols {symbols!r}")
    while not lines[-1].strip():
        lines.pop()
    first = first_line(text)
    rows = lines[first - 1 :]
    for number, row in enumerate(rows, first):
        if not row.strip():
            raise LevelFormatError("a blank line between rows", number, allowed="one block of rows")
        for column, symbol in enumerate(row, 1):
            if symbol not in symbols:
                problem = f"unknown symbol {symbol!r}"
                raise LevelFormatError(problem, number, column, f"the symbols {symbols!r}")
    width = max(map(len, rows)) if pad else len(rows[0])
    for number, row in enumerate(rows, first):
        if not pad and len(row) != width:
            problem = f"this row has {len(row)} cells, the first row has {width}"
            column = min(len(row), width) + 1
            raise LevelFormatError(problem, number, column, "rows of equal length")
    return [row.ljust(width, pad) if pad else row for row in rows]


def first_line(text: str) -> int:
    """The 1-based number of the line that `parse_rows` reads as its first row."""
    return next(n for n, line in enumerate(text.split("\n"), 1) if line.strip())


def find_symbols(rows: Iterable[str], symbols: str) -> list[tuple[int, int]]:
    """The 0-based (row, column) of every cell that holds one of `symbols`, row by row."""
    return [
        (row, col)
        for row, line in enumerate(rows)
        for col, symbol in enumerate(line)
        if symbol in symbols
    ]


Colour: TypeAlias = tuple[int, int, int]

PAPER: Colour = (250, 250, 247)
"""Background of pictures."""
LINE: Colour = (216, 216, 210)
"""Lines between cells."""
STONE: Colour = (66, 72, 82)
"""Walls."""
GREEN: Colour = (58, 156, 92)
"""Goals."""
BLUE: Colour = (40, 104, 196)
"""Players."""
SAND: Colour = (243, 226, 178)
"""Cells with rules of their own."""


class Drawing(NamedTuple):
    """A board as text, and where in the text the symbol of each cell is."""

    text: str
    """The board, possibly with numbers of rows and columns around it."""
    first: int
    """Index in the text of the symbol of row 0, column 0."""
    row: int
    """Characters from a symbol to the one below it."""
    col: int
    """Characters from a symbol to the one on its right."""

    def with_symbol(self, row: int, col: int, symbol: str) -> str:
        """The text with another symbol in one cell."""
        text, first, down, right = self
        at = first + row * down + col * right
        return text[:at] + symbol + text[at + 1 :]


def compact(rows: Sequence[str]) -> Drawing:
    """Rows of symbols without anything between or around them."""
    return Drawing("\n".join(rows), 0, len(rows[0]) + 1, 1)


def labelled(rows: Sequence[str]) -> Drawing:
    """A grid as prompts show it: with row and column numbers, symbols divided by spaces.

    In the usual vocabularies (byte-level BPE) a space and the symbol behind it are one token, so
    that every cell is a token of its own and columns are aligned; without spaces, symbols merge.
    So numbers of columns beyond 9 are written downwards.
    """
    cols = len(rows[0])
    frame = _frame(len(rows), cols)
    # One join over the whole board instead of one per row: every reset draws a new board.
    text = frame % tuple(" ".join("\n".join(rows)).split(" \n "))
    # A line of the frame holds %s instead of the cells.
    label = len(frame) - frame.rindex("\n") - len("\n%s")
    return Drawing(text, frame.index("%s"), label + 2 * cols, 2)


@cache
def _frame(num_rows: int, cols: int) -> str:
    """The numbers around a board, with `%s` for each row."""
    label = len(str(num_rows - 1))
    digits = zip(*(f"{col:>{len(str(cols - 1))}}" for col in range(cols)), strict=True)
    heads = (" ".join([" " * label, *line]) for line in digits)
    return "\n".join([*heads, *(f"{row:>{label}} %s" for row in range(num_rows))])


CELL_PIXELS = 24
"""Side of a cell in `board_picture`."""


class Shape(NamedTuple):
    """A mark on a cell of a picture; lengths in pixels."""

    kind: str
    """`"rectangle"` or `"ellipse"`."""
    margin: int
    """From the edges of the cell."""
    fill: Colour | None
    """Colour of the inside; None: transparent."""
    outline: Colour | None = None
    """Colour of the outline; None: without one."""
    width: int = 1
    """Width of the outline."""


def board_picture(
    rows: Sequence[str], shapes: Mapping[str, Sequence[Shape]]
) -> npt.NDArray[np.uint8]:
    """A picture of a board.

    Args:
        rows: Equally long rows of symbols.
        shapes: Symbol -> what is drawn on its cell, from back to front; of other symbols the
            letter itself.

    Returns:
        uint8 of shape [rows * 24 + 1, cols * 24 + 1, 3].

    Raises:
        MissingDependency: If Pillow is not installed.
    """
    import numpy as np

    size = CELL_PIXELS
    image, pen = blank_picture(len(rows[0]) * size + 1, len(rows) * size + 1)
    for row, line in enumerate(rows):
        for col, symbol in enumerate(line):
            if symbol not in shapes:
                corner = (col * size, row * size)
                pen.rectangle((*corner, corner[0] + size, corner[1] + size), SAND, LINE)
                pen.text((corner[0] + size // 3, corner[1] + size // 4), symbol, STONE)
            for kind, margin, fill, outline, width in shapes.get(symbol, ()):
                left, top, side = col * size + margin, row * size + margin, size - 2 * margin
                box = (left, top, left + side, top + side)
                draw = pen.ellipse if kind == "ellipse" else pen.rectangle
                draw(box, fill=fill, outline=outline, width=width)
    return np.asarray(image)


def blank_picture(width: int, height: int) -> tuple[Image, ImageDraw]:
    """A picture of `PAPER`, in pixels, and the pen that draws on it.

    Raises:
        MissingDependency: If Pillow is not installed.
    """
    try:
        from PIL import Image, ImageDraw
    except ImportError as error:
        raise MissingDependency('render_mode="rgb_array"', "pillow", "render") from error
    image = Image.new("RGB", (width, height), PAPER)
    return image, ImageDraw.Draw(image)
