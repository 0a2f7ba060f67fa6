"""The board as a picture, for `render_mode="rgb_array"`; needs Pillow (extra `render`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pettingllms.errors import MissingDependency
from pettingllms_envs.plan_path.rules import WALL, Level

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

CELL_PIXELS = 24
_PAPER, _LINE, _WALL = (250, 250, 247), (216, 216, 210), (66, 72, 82)
_GOAL, _PLAYER = (58, 156, 92), (40, 104, 196)


def draw_image(level: Level, position: int) -> npt.NDArray[np.uint8]:
    """Return a picture of the board: dark walls, a green goal, the player as a blue disc.

    Args:
        level: The level.
        position: The player's cell.

    Returns:
        uint8 of shape [rows * 24 + 1, cols * 24 + 1, 3].

    Raises:
        MissingDependency: If Pillow is not installed.
    """
    try:
        from PIL import Image, ImageDraw
    except ImportError as error:
        raise MissingDependency('render_mode="rgb_array"', "pillow", "render") from error
    import numpy as np

    size = CELL_PIXELS
    image = Image.new("RGB", (level.cols * size + 1, level.rows * size + 1), _PAPER)
    pen = ImageDraw.Draw(image)
    for row, line in enumerate(level.cells.split("\n")):
        for col, symbol in enumerate(line):
            box = (col * size, row * size, (col + 1) * size, (row + 1) * size)
            is_goal = level.cell(row, col) == level.goal
            fill = _GOAL if is_goal else _WALL if symbol == WALL else _PAPER
            pen.rectangle(box, fill=fill, outline=_LINE)
    row, col = divmod(position, level.stride)
    left, top = col * size + 5, row * size + 5
    pen.ellipse((left, top, left + size - 10, top + size - 10), fill=_PLAYER)
    return np.asarray(image)
