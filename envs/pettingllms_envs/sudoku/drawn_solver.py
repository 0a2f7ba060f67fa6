"""Puzzles with drawn rules, and an exact search for their solutions.

The one big integer of `solver` counts on boxes of one shape; here every cell has a mask.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from itertools import combinations, islice
from typing import NamedTuple, TypeAlias

from pettingllms.errors import UnreachableRequest
from pettingllms_envs.sudoku.solver import NODE_LIMIT

Cage: TypeAlias = tuple[int, tuple[int, ...]]
"""(sum, cells): the values of the cells differ and add up to the sum."""


class Rules(NamedTuple):
    """The rules of a puzzle beside those of rows and columns."""

    boxes: tuple[int, ...]
    """[N] cell -> number of its box, from 0; n connected boxes of n cells."""
    cages: tuple[Cage, ...] = ()
    """Connected groups of cells, none in two of them."""
    diagonals: bool = False
    """Whether both long diagonals hold each value once."""

    def extra_units(self, size: int) -> list[tuple[int, ...]]:
        """The groups of cells, beside rows, columns and boxes, in which values differ."""
        down, up = range(0, size * size, size + 1), range(size - 1, size * size - 1, size - 1)
        diagonals = [tuple(down), tuple(up)] if self.diagonals else []
        return diagonals + [cells for _, cells in self.cages]


@cache
def neighbours(size: int, cell: int) -> tuple[int, ...]:
    """The cells that share an edge with a cell."""
    row, col = divmod(cell, size)
    near = ((row - 1, col), (row + 1, col), (row, col - 1), (row, col + 1))
    return tuple(r * size + c for r, c in near if 0 <= r < size and 0 <= c < size)


def is_connected(size: int, cells: Iterable[int]) -> bool:
    """Whether steps between neighbours lead from each of some cells to all others."""
    left = {*cells}
    todo = [left.pop()]
    while todo:
        near = left.intersection(neighbours(size, todo.pop()))
        left -= near
        todo += near
    return not left


class _Shape(NamedTuple):
    units: tuple[tuple[int, ...], ...]
    """Groups of n cells that hold each value once."""
    peers: tuple[tuple[int, ...], ...]
    """[N] cell -> the cells whose values differ from its own."""
    cages: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]
    """(cells, sets of values that add up to the sum), values as bits."""


@lru_cache(maxsize=64)
def _shape(size: int, rules: Rules) -> _Shape:
    cells = range(size * size)
    names = ([c // size for c in cells], [c % size for c in cells], rules.boxes)
    units = [tuple(c for c in cells if of[c] == at) for of in names for at in range(size)]
    extra = rules.extra_units(size)
    peers: list[set[int]] = [set() for _ in cells]
    for unit in [*units, *extra]:
        for cell in unit:
            peers[cell] |= set(unit) - {cell}
    units += extra[: len(extra) - len(rules.cages)]
    cages = tuple((group, _sets(size, len(group), total)) for total, group in rules.cages)
    return _Shape(tuple(units), tuple(tuple(sorted(one)) for one in peers), cages)


@cache
def _sets(size: int, count: int, total: int) -> tuple[int, ...]:
    sets = combinations(range(1, size + 1), count)
    return tuple(sum(1 << value - 1 for value in one) for one in sets if sum(one) == total)


def solutions(
    size: int,
    cells: bytes,
    rules: Rules,
    limit: int = 2,
    node_limit: int = NODE_LIMIT,
    rng: random.Random | None = None,
) -> list[bytes]:
    """The solutions of a grid under drawn rules, at most `limit` of them.

    Args:
        size: n.
        cells: [N] digits, row by row; 0 for an empty cell.
        rules: The rules.
        limit: Stop after this many solutions; 2 decides uniqueness.
        node_limit: Maximum number of search nodes.
        rng: Source of chance for the order in which values are tried; None: from 1 on.

    Raises:
        UnreachableRequest: If the search did not end within the node limit.
    """
    return list(islice(search(size, cells, rules, node_limit, rng), limit))


def search(
    size: int, cells: bytes, rules: Rules, node_limit: int, rng: random.Random | None
) -> Iterator[bytes]:
    """Yield all solutions; see `solutions`."""
    shape, every, nodes = _shape(size, rules), (1 << size) - 1, 0
    stack = [([1 << value - 1 if value else every for value in cells], 0)]
    while stack:
        nodes += 1
        if nodes > node_limit:
            raise UnreachableRequest(
                f"the number of solutions of a {size}x{size} grid with drawn rules was not decided "
                f"within {node_limit} search nodes; give more clues"
            )
        masks, placed = stack.pop()
        placed = _narrow(shape, masks, placed, every)
        if placed < 0:
            continue
        counts = [(mask.bit_count(), cell) for cell, mask in enumerate(masks) if mask & mask - 1]
        if not counts:
            yield bytes(mask.bit_length() for mask in masks)
            continue
        cell = min(counts)[1]
        options = [1 << at for at in range(size) if masks[cell] >> at & 1]
        if rng is not None:
            rng.shuffle(options)
        stack += [([*masks[:cell], one, *masks[cell + 1 :]], placed) for one in reversed(options)]


def _narrow(shape: _Shape, masks: list[int], placed: int, every: int) -> int:
    """Remove what singles and cages exclude from the masks of possible values, in place.

    `placed` has the cells whose peers know of their value already, `every` all values, as bits.

    Returns:
        The bits of the cells with one value; -1 for a contradiction.
    """
    while True:
        size = placed
        for cell, mask in enumerate(masks):
            if not mask & mask - 1 and not placed >> cell & 1:
                if not mask:
                    return -1
                placed |= 1 << cell
                for peer in shape.peers[cell]:
                    masks[peer] &= ~mask
        if placed != size:
            continue
        if not (_hidden(shape, masks, every) and _summed(shape, masks)):
            return -1
        # Nothing new is single, and nothing more can be said.
        if all(mask & mask - 1 or placed >> cell & 1 for cell, mask in enumerate(masks)):
            return placed


def _hidden(shape: _Shape, masks: list[int], every: int) -> bool:
    """Place values that have one cell left in a unit; return False for a contradiction."""
    for unit in shape.units:
        once = twice = 0
        for cell in unit:
            twice |= once & masks[cell]
            once |= masks[cell]
        if once != every:
            return False
        if single := once & ~twice:
            for cell in unit:
                if here := masks[cell] & single:
                    masks[cell] = here
    return True


def _summed(shape: _Shape, masks: list[int]) -> bool:
    """Keep the values of sets that add up to a cage's sum; return False for a contradiction."""
    for cells, sets in shape.cages:
        union = allowed = 0
        for cell in cells:
            union |= masks[cell]
        for one in sets:
            if not one & ~union and all([masks[cell] & one for cell in cells]):
                allowed |= one
        if not allowed:
            return False
        if union & ~allowed:
            for cell in cells:
                masks[cell] &= allowed
    return True
