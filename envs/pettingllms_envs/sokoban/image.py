"""The board as a picture, for `render_mode="rgb_array"`; needs Pillow (extra `render`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pettingllms.errors import MissingDependency

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from pettingllms_envs.sokoban.rules import Level

CELL_PIXELS = 24
_PAPER, _LINE, _WALL = (250, 250, 247), (216, 216, 210), (66, 72, 82)
_GOAL, _PLAYER = (58, 156, 92), (40, 104, 196)
_BOX, _BOX_HOME, _EDGE = (206, 150, 82), (120, 178, 98), (120, 82, 36)


def draw_image(level: Level, player: int, boxes: int) -> npt.NDArray[np.uint8]:
    """Return a picture: dark walls, green rings for goals, boxes (green at home), a blue player.

    Args:
        level: The level.
        player: Number of the player's cell.
        boxes: The cells with boxes.

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
    for cell in range(level.rows * level.stride):
        row, col = divmod(cell, level.stride)
        if col == level.cols:
            continue
        left, top = col * size, row * size
        is_floor, is_goal = level.floor >> cell & 1, level.goals >> cell & 1
        fill = _PAPER if is_floor else _WALL
        pen.rectangle((left, top, left + size, top + size), fill=fill, outline=_LINE)
        if is_goal:
            pen.ellipse((left + 7, top + 7, left + 17, top + 17), outline=_GOAL, width=3)
        if boxes >> cell & 1:
            fill = _BOX_HOME if is_goal else _BOX
            pen.rectangle((left + 4, top + 4, left + 20, top + 20), fill=fill, outline=_EDGE)
        if cell == player:
            pen.ellipse((left + 5, top + 5, left + 19, top + 19), fill=_PLAYER)
    return np.asarray(image)
