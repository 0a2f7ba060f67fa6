"""The grid as a picture, for `render_mode="rgb_array"`; needs Pillow (extra `render`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pettingllms_envs.grid import SAND, blank_picture
from pettingllms_envs.sudoku.drawn import neighbours

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from pettingllms_envs.sudoku.generator import Puzzle
    from pettingllms_envs.sudoku.rules import Grid

CELL_PIXELS = 32
_LINE, _INK = (190, 190, 186), (40, 44, 52)
_RIGHT, _WRONG = (40, 104, 196), (196, 60, 48)
_CAGE, _INSET, _DASH = (126, 84, 160), 3, 3


def draw_image(puzzle: Puzzle, grid: Grid) -> npt.NDArray[np.uint8]:
    """A picture of the grid: clues dark, fills blue, fills that block the solution red.

    Drawn rules: borders of boxes are thick, cages are dashed and have their sum in a corner, and
    diagonals are sand.

    Returns:
        uint8 of shape [n * 32 + 3, n * 32 + 3, 3].

    Raises:
        MissingDependency: If Pillow is not installed.
    """
    import numpy as np

    pixels = CELL_PIXELS
    size = puzzle.size
    side = size * pixels + 3
    image, pen = blank_picture(side, side)
    from PIL import ImageFont  # there is Pillow, or the picture would have failed

    font = ImageFont.load_default(size=18)
    rules = puzzle.rules
    if rules and rules.diagonals:
        for place in range(size):
            for col in (place, size - 1 - place):
                x, y = col * pixels + 1, place * pixels + 1
                pen.rectangle((x, y, x + pixels, y + pixels), fill=SAND)
    pen.rectangle((0, 0, side - 1, side - 1), outline=_INK, width=3)
    for cell in range(size * size):
        x, y = cell % size * pixels + 1, cell // size * pixels + 1
        for other in neighbours(size, cell):
            if other > cell:
                corner = (x + pixels, y) if other == cell + 1 else (x, y + pixels)
                is_border = puzzle.boxes[other] != puzzle.boxes[cell]
                line = (corner, (x + pixels, y + pixels))
                pen.line(line, fill=_INK if is_border else _LINE, width=3 if is_border else 1)
    small = ImageFont.load_default(size=9)
    for cage in rules.cages if rules else ():
        first = min(cage[1])
        corner = (first % size * pixels + 6, first // size * pixels + 4)
        pen.text(corner, str(cage[0]), fill=_CAGE, font=small)
    for cell in range(size * size):
        value = grid.cells[cell]
        if value:
            given, right = puzzle.clues[cell], puzzle.solution[cell]
            colour = _INK if given else _RIGHT if value == right else _WRONG
            centre = (cell % size * pixels + pixels / 2 + 1, cell // size * pixels + pixels / 2 + 1)
            pen.text(centre, str(value), fill=colour, font=font, anchor="mm")
    picture = np.array(image)
    for _, cells in rules.cages if rules else ():
        picture[_dashes(size, cells)] = _CAGE
    return picture


def _dashes(size: int, cells: Sequence[int]) -> npt.NDArray[np.bool_]:
    """The pixels of a dashed line along the border of some cells, a little inside it."""
    import numpy as np

    side = size * CELL_PIXELS + 3
    inside, across = np.zeros((side, side), bool), np.add.outer(np.arange(side), np.arange(side))
    for cell in cells:
        y, x = (place * CELL_PIXELS + 1 for place in divmod(cell, size))
        below = 0 if cell + size in cells else _INSET
        right = 0 if cell + 1 in cells and (cell + 1) % size else _INSET
        above = 0 if cell - size in cells else _INSET
        left = 0 if cell - 1 in cells and cell % size else _INSET
        inside[y + above : y + CELL_PIXELS + 1 - below, x + left : x + CELL_PIXELS + 1 - right] = (
            True
        )
    deep = inside.copy()
    for axis in (0, 1):
        for step in (-1, 1):
            deep &= np.roll(inside, step, axis)
    return inside & ~deep & (across // _DASH % 2 == 0)
