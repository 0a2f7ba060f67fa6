"""An exact Sudoku solver on one big integer, and the geometry of the grids.

A grid of size n has N = n * n cells, numbered row by row, and the digits 1..n. The candidates of all
cells stand in one integer, the cube: bit `(digit - 1) * N + cell` is set while the digit is possible
in the cell. Four families of units (cells, rows, columns, boxes) each ask for exactly one of n bits
that lie at the same n offsets from an anchor, so that a dozen shifts look at all units at once.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from pettingllms.errors import InvalidArgument, UnreachableRequest

BOX_SHAPES = {4: (2, 2), 6: (2, 3), 9: (3, 3), 16: (4, 4)}
"""Size -> (rows, columns) of a box."""

NODE_LIMIT = 20_000
"""Greatest number of search nodes of one `solutions` call."""


class Geometry(NamedTuple):
    """What all grids of one size share."""

    size: int
    """n: rows, columns, boxes, digits and cells per box."""
    box_rows: int
    box_cols: int
    num_cells: int
    """N = n * n."""
    full: int
    """The cube in which everything is possible."""
    keep: tuple[int, ...]
    """[n * N] candidate -> cube of what stays possible once it is placed."""
    families: tuple[tuple[int, tuple[int, ...]], ...]
    """[4] (anchors, [n] offsets): cells, rows, columns, boxes."""
    boxes: tuple[int, ...]
    """[N] cell -> number of its box."""
    digits_of_cell: int
    """The candidates of cell 0; shift left by the cell for another one."""


@cache
def geometry(size: int) -> Geometry:
    """Return the geometry of a size.

    Raises:
        InvalidArgument: If the size is none of 4, 6, 9 and 16.
    """
    if size not in BOX_SHAPES:
        raise InvalidArgument("size", size, ", ".join(map(str, BOX_SHAPES)))
    n, (height, width) = size, BOX_SHAPES[size]
    cells = n * n
    boxes = tuple(
        (cell // n) // height * height + cell % n // width for cell in range(cells)
    )
    planes = [digit * cells for digit in range(n)]
    firsts = [[0], range(0, cells, n), range(n), [boxes.index(box) for box in range(n)]]
    shifts = [
        planes,
        range(n),
        range(0, cells, n),
        [row * n + col for row in range(height) for col in range(width)],
    ]
    anchors = [(1 << cells) - 1]
    anchors += [sum(1 << plane + cell for plane in planes for cell in first) for first in firsts[1:]]
    full = (1 << n * cells) - 1
    return Geometry(
        size=n,
        box_rows=height,
        box_cols=width,
        num_cells=cells,
        full=full,
        keep=tuple(_keep(n, cells, boxes, full, digit, cell) for digit in range(n) for cell in range(cells)),
        families=tuple((anchor, tuple(shift)) for anchor, shift in zip(anchors, shifts, strict=True)),
        boxes=boxes,
        digits_of_cell=sum(1 << plane for plane in planes),
    )


def _keep(n: int, cells: int, boxes: tuple[int, ...], full: int, digit: int, cell: int) -> int:
    gone = sum(1 << other * cells + cell for other in range(n) if other != digit)
    for peer in range(cells):
        shares = peer // n == cell // n or peer % n == cell % n or boxes[peer] == boxes[cell]
        if shares and peer != cell:
            gone |= 1 << digit * cells + peer
    return full & ~gone


def place_clues(shape: Geometry, cells: bytes) -> int:
    """Return the cube after placing all digits of a grid (0: empty cell)."""
    cube, keep, num_cells = shape.full, shape.keep, shape.num_cells
    for cell, digit in enumerate(cells):
        if digit:
            cube &= keep[(digit - 1) * num_cells + cell]
    return cube


def propagate(shape: Geometry, cube: int) -> int:
    """Place naked and hidden singles until none is left.

    Returns:
        The cube, in which every remaining candidate is compatible with all singles placed; 0 if the
        clues contradict each other. It is a solution if it has exactly N candidates.
    """
    keep, families = shape.keep, shape.families
    placed = 0
    while True:
        found = 0
        for anchors, offsets in families:
            once = twice = 0
            for offset in offsets:
                bits = cube >> offset & anchors
                twice |= once & bits
                once |= bits
            if once != anchors:
                return 0
            singles = once & ~twice
            if singles:
                for offset in offsets:
                    found |= (cube >> offset & singles) << offset
        found &= ~placed
        if not found:
            return cube
        placed |= found
        while found:
            lowest = found & -found
            cube &= keep[lowest.bit_length() - 1]
            found ^= lowest
