"""The grid as a picture, for `render_mode="rgb_array"`; needs Pillow (extra `render`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pettingllms_envs.drawing import blank_picture
from pettingllms_envs.sudoku.drawn_solver import neighbours

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from pettingllms_envs.sudoku.generator import Puzzle
    from pettingllms_envs.sudoku.rules import Grid

CELL_PIXELS = 32
_LINE, _INK = (190, 190, 186), (40, 44, 52)
_RIGHT, _WRONG = (40, 104, 196), (196, 60, 48)


def draw_image(puzzle: Puzzle, grid: Grid) -> npt.NDArray[np.uint8]:
    """Return a picture of the grid: clues dark, fills blue, fills that block the solution red.

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
    pen.rectangle((0, 0, side - 1, side - 1), outline=_INK, width=3)
    for cell in range(size * size):
        x, y = cell % size * pixels + 1, cell // size * pixels + 1
        for other in neighbours(size, cell):
            if other > cell:
                corner = (x + pixels, y) if other == cell + 1 else (x, y + pixels)
                is_border = puzzle.boxes[other] != puzzle.boxes[cell]
                line = (corner, (x + pixels, y + pixels))
                pen.line(line, fill=_INK if is_border else _LINE, width=3 if is_border else 1)
    for cell in range(size * size):
        value = grid.cells[cell]
        if value:
            given, right = puzzle.clues[cell], puzzle.solution[cell]
            colour = _INK if given else _RIGHT if value == right else _WRONG
            centre = (cell % size * pixels + pixels / 2 + 1, cell // size * pixels + pixels / 2 + 1)
            pen.text(centre, str(value), fill=colour, font=font, anchor="mm")
    return np.asarray(image)
