"""Forms of puzzles that do not change under the symmetries of Sudoku.

The symmetries: renaming the digits; permuting the rows of a band, the columns of a stack, the
bands, the stacks; and transposition where boxes are square. Puzzles that are the same up to these
are the same content, and `canonical` gives them the same bytes; splits are decided by it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from itertools import chain, groupby, permutations, product

from pettingllms_envs.sudoku.drawn import Rules
from pettingllms_envs.sudoku.solver import geometry

EXACT_SIZES = (4, 6)
"""Sizes for which `canonical` is exact: equal only for equivalent puzzles."""

_MASK = (1 << 64) - 1
_ROUNDS = 3


def canonical(size: int, cells: bytes, rules: Rules | None = None) -> bytes:
    """Bytes that are equal for equivalent puzzles.

    For sizes 4 and 6 they are a canonical form: different for all others. For 9 and 16 they are an
    invariant (three rounds of colour refinement over rows, columns, boxes, bands, stacks, digits):
    now and then two different puzzles share it, and then share their split, which does no harm.

    With drawn rules the symmetries are rotation and reflection, and v -> n + 1 - v with cages, all
    renaming without. Two puzzles of one solution have different forms of clues, and the same form
    of the solution, given without cages, which decides their split.
    """
    if rules is not None:
        return min(_images(size, cells, rules))
    form = _canonical_form if size in EXACT_SIZES else _invariant
    return bytes([size]) + form(size, cells)


def _images(size: int, cells: bytes, rules: Rules) -> Iterable[bytes]:
    numbers = range(size)
    turned = [row * size + col for row in numbers for col in numbers]
    for turn in range(8):
        turned = [turned[(size - 1 - col) * size + row] for row in numbers for col in numbers]
        if turn == 4:
            turned = [cell for row in numbers for cell in turned[row * size :][:size][::-1]]
        place = {cell: at for at, cell in enumerate(turned)}
        cages = [(sorted(place[cell] for cell in group), total) for total, group in rules.cages]
        boxes = _renamed([rules.boxes[cell] + 1 for cell in turned])
        values = bytes(cells[cell] for cell in turned)
        others = bytes(value and size + 1 - value for value in values)
        other_cages = [(group, (size + 1) * len(group) - total) for group, total in cages]
        pairs = [(values, cages), (others, other_cages)] if cages else [(_renamed(values), [])]
        for image, groups in pairs:
            head = bytes([size, rules.diagonals]) + image + boxes
            yield head + repr(sorted(groups)).encode()


# ---- the exact form


def _canonical_form(size: int, clues: bytes) -> bytes:
    """The smallest image: by the pattern of clues first, then by the renamed digits."""
    shape = geometry(size)
    height, width = shape.box_rows, shape.box_cols
    images = [clues]
    if height == width:
        images.append(bytes(clues[col * size + row] for row in range(size) for col in range(size)))
    # Comparing patterns of clues (one bit mask per row) first avoids renaming digits for most
    # images: only those that tie for the smallest pattern are compared digit by digit.
    best: tuple[tuple[int, ...], ...] = ()
    ties: list[tuple[list[bytes], list[int]]] = []
    for image in images:
        rows = [image[start : start + size] for start in range(0, size * size, size)]
        masks = [sum(1 << col for col, digit in enumerate(row) if digit) for row in rows]
        for columns, table in _column_orders(size, width):
            # [n] bit masks of the rows under this order of columns, by table look-up.
            permuted = [table[mask] for mask in masks]
            # Sorting rows in a band and bands in the grid is the best that row symmetries can do,
            # so they need no enumeration here.
            bands = (permuted[start : start + height] for start in range(0, size, height))
            key = tuple(sorted(tuple(sorted(band)) for band in bands))
            if not ties or key < best:
                best, ties = key, []
            if key == best:
                ties.append(([bytes(row[col] for col in columns) for row in rows], permuted))
    forms = (
        _renamed(chain.from_iterable(rows[row] for row in order))
        for rows, masks in ties
        for order in _row_orders(masks, height)
    )
    return min(forms)


@cache
def _column_orders(size: int, width: int) -> tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]:
    """All allowed orders of the columns, each with its table mask -> permuted mask."""
    stacks = [range(start, start + width) for start in range(0, size, width)]
    orders = [
        tuple(chain.from_iterable(parts))
        for arrangement in permutations(stacks)
        for parts in product(*(permutations(stack) for stack in arrangement))
    ]
    return tuple(
        (
            order,
            tuple(
                sum((mask >> col & 1) << size - 1 - place for place, col in enumerate(order))
                for mask in range(1 << size)
            ),
        )
        for order in orders
    )


def _row_orders(masks: Sequence[int], height: int) -> Iterable[tuple[int, ...]]:
    """The orders of the rows that sort the masks within bands, and the bands."""
    bands: list[tuple[tuple[int, ...], list[tuple[int, ...]]]] = []
    for start in range(0, len(masks), height):
        rows = range(start, start + height)
        bands.append((tuple(sorted(masks[row] for row in rows)), _sortings(rows, masks)))
    bands.sort(key=lambda band: band[0])
    # Equal bands (below: equal rows) can be in any order without changing the pattern, but not
    # without changing the digits: all their orders are tried.
    groups = [[rows for _, rows in group] for _, group in groupby(bands, key=lambda band: band[0])]
    for arrangement in product(*(permutations(group) for group in groups)):
        for parts in product(*chain.from_iterable(arrangement)):
            yield tuple(chain.from_iterable(parts))


def _sortings(rows: Iterable[int], masks: Sequence[int]) -> list[tuple[int, ...]]:
    """All orders of rows in which their masks are sorted."""
    ordered = sorted(rows, key=lambda row: masks[row])
    groups = [tuple(group) for _, group in groupby(ordered, key=lambda row: masks[row])]
    return [tuple(chain.from_iterable(p)) for p in product(*(permutations(g) for g in groups))]


def _renamed(digits: Iterable[int]) -> bytes:
    names = {0: 0}
    return bytes(names.setdefault(digit, len(names)) for digit in digits)


# ---- the invariant


def _invariant(size: int, clues: bytes) -> bytes:
    shape = geometry(size)
    height, width = shape.box_rows, shape.box_cols
    given = [
        (cell // size, cell % size, shape.boxes[cell], digit - 1)
        for cell, digit in enumerate(clues)
        if digit
    ]
    # Colour refinement: each line, box and digit collects the colours of the clues in it. Sums do
    # not depend on order, so the result is the same for all equivalent puzzles.
    rows, cols, boxes, digits = ([1] * size for _ in range(4))
    for _ in range(_ROUNDS):
        sums = [[0] * size for _ in range(4)]
        for row, col, box, digit in given:
            # Rows and columns enter alike, since transposition may swap them; boxes and digits get
            # factors of their own so that the roles cannot be confused.
            colour = _mix(_mix(rows[row]) + _mix(cols[col]) + 3 * boxes[box] + 5 * digits[digit])
            sums[0][row] += colour
            sums[1][col] += colour
            sums[2][box] += colour
            sums[3][digit] += colour
        rows = _with_band(
            [_mix(7 * old + new) for old, new in zip(rows, sums[0], strict=True)], height
        )
        cols = _with_band(
            [_mix(7 * old + new) for old, new in zip(cols, sums[1], strict=True)], width
        )
        boxes = [_mix(11 * old + new) for old, new in zip(boxes, sums[2], strict=True)]
        digits = [_mix(13 * old + new) for old, new in zip(digits, sums[3], strict=True)]
    # Sorted, so that neither transposition nor the order of lines matters.
    lines = sorted([sorted(rows), sorted(cols)])
    colours = chain(*lines, sorted(boxes), sorted(digits))
    return b"".join(colour.to_bytes(8) for colour in colours)


def _with_band(colours: list[int], height: int) -> list[int]:
    """Mix into each line the colours of its band."""
    bands = [
        sum(map(_mix, colours[start : start + height])) for start in range(0, len(colours), height)
    ]
    return [_mix(colour + 17 * bands[line // height]) for line, colour in enumerate(colours)]


def _mix(value: int) -> int:
    """Scramble to 64 bits (the finalizer of splitmix64), the same in every process."""
    value = (value + 0x9E3779B97F4A7C15) & _MASK
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    value = (value ^ value >> 27) * 0x94D049BB133111EB & _MASK
    return value ^ value >> 31
