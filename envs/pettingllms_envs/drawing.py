"""Boards as text, drawn once without what moves, which is then put in its place; blank pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from pettingllms.errors import MissingDependency

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from PIL.Image import Image
    from PIL.ImageDraw import ImageDraw

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
    first: int
    """Index of the symbol of row 0, column 0."""
    row: int
    """From a symbol to the one below it."""
    col: int
    """From a symbol to the one on its right."""

    def with_symbol(self, row: int, col: int, symbol: str) -> str:
        """Return the text with another symbol in one cell."""
        text, first, down, right = self
        at = first + row * down + col * right
        return text[:at] + symbol + text[at + 1 :]


def compact(rows: Sequence[str]) -> Drawing:
    """Return rows of symbols without anything between or around them."""
    return Drawing("\n".join(rows), 0, len(rows[0]) + 1, 1)


def labelled(rows: Sequence[str]) -> Drawing:
    """Return a grid as prompts show it: with row and column numbers, symbols divided by spaces.

    In the usual vocabularies (byte-level BPE) a space and the symbol behind it are one token, so
    that every cell is a token of its own and columns are aligned; without spaces, symbols merge.
    """
    label, cols = len(str(len(rows) - 1)), len(rows[0])
    frame = _frame(len(rows), cols)
    # One join over the whole board instead of one per row: every reset draws a new board.
    text = frame % tuple(" ".join("\n".join(rows)).split(" \n "))
    return Drawing(text, frame.index("\n") + 1 + label + 1, label + 2 * cols + 1, 2)


@cache
def _frame(num_rows: int, cols: int) -> str:
    """Return the numbers around a board, with `%s` for each row."""
    label = len(str(num_rows - 1))
    head = " ".join([" " * label, *map(str, range(cols))])
    return "\n".join([head, *(f"{row:>{label}} %s" for row in range(num_rows))])


CELL_PIXELS = 24
"""Side of a cell in `board_picture`."""


class Shape(NamedTuple):
    """A mark on a cell of a picture; lengths in pixels."""

    kind: str
    """`"rectangle"` or `"ellipse"`."""
    margin: int
    fill: Colour | None
    outline: Colour | None = None
    width: int = 1
    """Of the outline."""


def board_picture(
    rows: Sequence[str], shapes: Mapping[str, Sequence[Shape]]
) -> npt.NDArray[np.uint8]:
    """Return a picture of a board.

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
    """Return a picture of `PAPER`, in pixels, and the pen that draws on it.

    Raises:
        MissingDependency: If Pillow is not installed.
    """
    try:
        from PIL import Image, ImageDraw
    except ImportError as error:
        raise MissingDependency('render_mode="rgb_array"', "pillow", "render") from error
    image = Image.new("RGB", (width, height), PAPER)
    return image, ImageDraw.Draw(image)
