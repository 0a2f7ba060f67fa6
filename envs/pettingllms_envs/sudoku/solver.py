"""An exact Sudoku solver on one big integer, and the geometry of the grids.

A grid of size n has N = n * n cells, numbered row by row, and the digits 1..n. The candidates of
all cells are in one integer, the *cube*: bit `(digit - 1) * N + cell` is set while the digit is
possible in the cell. Four families of units (cells, rows, columns, boxes) each ask for exactly one
of the n bits that lie at the same offsets from an anchor, so that a few shifts look at all units.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from pettingllms.errors import InvalidArgument, UnreachableRequest

BOX_SHAPES = {4: (2, 2), 6: (2, 3), 9: (3, 3), 16: (4, 4)}
"""Size -> (rows, columns) of a box."""

NODE_LIMIT = 20_000
"""Maximum number of search nodes of one call of `solutions`."""


class Geometry(NamedTuple):
    """What all grids of one size share."""

    size: int
    """n: the number of rows, columns, boxes, digits and cells per box."""
    box_rows: int
    """Rows of a box."""
    box_cols: int
    """Columns of a box."""
    num_cells: int
    """N = n * n."""
    full: int
    """The cube in which everything is possible."""
    keep: tuple[int, ...]
    """[n * N] candidate -> cube of what stays possible once it is placed."""
    families: tuple[tuple[int, tuple[tuple[int, ...], ...]], ...]
    """[4] (anchors, folds) of cells, rows, columns, boxes. The members of a unit lie where all
    combinations of one shift (or none) of every fold lead from its anchor."""
    boxes: tuple[int, ...]
    """[N] cell -> number of its box."""
    digits_of_cell: int
    """The candidates of cell 0; shifted left by c, those of cell c."""


@cache
def geometry(size: int) -> Geometry:
    """The geometry of a size.

    Raises:
        InvalidArgument: If the size is none of 4, 6, 9 and 16.
    """
    if size not in BOX_SHAPES:
        raise InvalidArgument("size", size, ", ".join(map(str, BOX_SHAPES)))
    n, (height, width) = size, BOX_SHAPES[size]
    num_cells = n * n
    boxes = tuple(cell // n // height * height + cell % n // width for cell in range(num_cells))
    # Bit legend of the cube: plane d (N bits from d * N on) has the cells where digit d + 1 is
    # possible. A unit of rows, columns or boxes lies within one plane, a cell's unit across planes.
    planes = range(0, n * num_cells, num_cells)
    first_cells = (range(0, num_cells, n), range(n), [boxes.index(box) for box in range(n)])
    anchors = [(1 << num_cells) - 1]
    anchors += [
        sum(1 << plane + cell for plane in planes for cell in first) for first in first_cells
    ]
    # Members of a unit lie at regular distances: N for the digits of a cell, 1 along a row, n along
    # a column; a box is a short row of short columns.
    folds = (_folds(num_cells, n), _folds(1, n), _folds(n, n), _folds(1, width) + _folds(n, height))
    full = (1 << n * num_cells) - 1
    return Geometry(
        size=n,
        box_rows=height,
        box_cols=width,
        num_cells=num_cells,
        full=full,
        keep=tuple(full & ~_excluded(n, boxes, bit) for bit in range(n * num_cells)),
        families=tuple(zip(anchors, folds, strict=True)),
        boxes=boxes,
        digits_of_cell=sum(1 << plane for plane in planes),
    )


def _folds(step: int, count: int) -> tuple[tuple[int, ...], ...]:
    """The folds of `count` members that lie `step` bits apart: in threes and twos."""
    # Counting n members one by one takes n shifts; folding by factors of 2 and 3 takes four for n =
    # 9 or 16, for all units of a family at once.
    folds: list[tuple[int, ...]] = []
    while count > 1:
        factor = 3 if count % 3 == 0 else 2
        folds.append(tuple(step * index for index in range(1, factor)))
        step *= factor
        count //= factor
    return tuple(folds)


def _excluded(n: int, boxes: tuple[int, ...], candidate: int) -> int:
    """The candidates that are impossible once one is placed."""
    # Once digit d is in a cell, no other digit is there, and d is in no other cell of its units.
    digit, cell = divmod(candidate, n * n)
    bits = sum(1 << other * n * n + cell for other in range(n) if other != digit)
    for peer in range(n * n):
        shares = peer // n == cell // n or peer % n == cell % n or boxes[peer] == boxes[cell]
        if shares and peer != cell:
            bits |= 1 << digit * n * n + peer
    return bits


def place(shape: Geometry, cells: bytes) -> int:
    """The cube after placing all digits of a grid (0: empty cell)."""
    cube, keep, num_cells = shape.full, shape.keep, shape.num_cells
    for cell, digit in enumerate(cells):
        if digit:
            cube &= keep[(digit - 1) * num_cells + cell]
    return cube


def propagate(shape: Geometry, cube: int, placed: int = 0) -> tuple[int, int]:
    """Place naked and hidden singles until none is left.

    `placed` are candidates that are known to be placed already, which saves time.

    Returns:
        The cube that is left and the singles placed. The cube is 0 if the grid has no solution; it
        is the only solution if it has exactly N candidates. Other cubes are undecided.
    """
    keep = shape.keep
    while True:
        found = 0
        for anchors, folds in shape.families:
            # `once`: at least one member of the unit is possible; `twice`: at least two.
            once, twice = cube, 0
            for fold in folds:
                # Only anchor bits mean something at the end; others sum over shifted windows.
                once_here, twice_here = once, twice
                for shift in fold:
                    members = once_here >> shift
                    twice |= twice_here >> shift | once & members
                    once |= members
            # Some unit has no candidate left: a contradiction.
            if once & anchors != anchors:
                return 0, 0
            singles = anchors & ~twice
            if singles:
                # Spread each anchor back over its members: the cube picks the possible one.
                for fold in folds:
                    here = singles
                    for shift in fold:
                        singles |= here << shift
                found |= cube & singles
        # Singles placed before are found again in each round: without this, no fixed point.
        found &= ~placed
        if not found:
            return cube, placed
        placed |= found
        while found:
            lowest = found & -found
            cube &= keep[lowest.bit_length() - 1]
            found ^= lowest


def narrowest_cell(shape: Geometry, cube: int) -> tuple[int, int]:
    """An undecided cell with the fewest candidates, and the bits of its digits."""
    fewest, best = shape.size + 1, (0, 0)
    for cell in range(shape.num_cells):
        digits = cube >> cell & shape.digits_of_cell
        count = digits.bit_count()
        if 1 < count < fewest:
            fewest, best = count, (cell, digits)
            # No undecided cell has fewer than two candidates: the first with two will do.
            if count == 2:
                break
    return best


def solutions(size: int, cells: bytes, limit: int = 2, node_limit: int = NODE_LIMIT) -> list[bytes]:
    """The solutions of a grid, at most `limit` of them.

    Args:
        size: n.
        cells: [N] digits, row by row; 0 for an empty cell.
        limit: Stop after this many solutions; 2 decides uniqueness.
        node_limit: Maximum number of search nodes.

    Raises:
        UnreachableRequest: If the search did not end within the node limit.
    """
    shape = geometry(size)
    # Depth first on copies of the cube: an int is immutable, so backtracking needs no undo.
    stack, found, nodes = [place(shape, cells)], list[bytes](), 0
    while stack and len(found) < limit:
        nodes += 1
        if nodes > node_limit:
            raise UnreachableRequest(
                f"the number of solutions of a {size}x{size} grid with "
                f"{len(cells) - cells.count(0)} clues was not decided within {node_limit} search "
                "nodes; give more clues"
            )
        cube, _ = propagate(shape, stack.pop())
        if cube.bit_count() == shape.num_cells:
            found.append(decode(shape, cube))
        elif cube:
            cell, digits = narrowest_cell(shape, cube)
            while digits:
                lowest = digits & -digits
                stack.append(cube & shape.keep[lowest.bit_length() - 1 + cell])
                digits ^= lowest
    return found


def singles_suffice(size: int, cells: bytes) -> bool:
    """Whether naked and hidden singles alone solve a grid."""
    shape = geometry(size)
    return propagate(shape, place(shape, cells))[0].bit_count() == shape.num_cells


def decode(shape: Geometry, cube: int) -> bytes:
    """The grid of a cube with one candidate per cell."""
    cells, num_cells = bytearray(shape.num_cells), shape.num_cells
    while cube:
        lowest = cube & -cube
        digit, cell = divmod(lowest.bit_length() - 1, num_cells)
        cells[cell] = digit + 1
        cube ^= lowest
    return bytes(cells)
