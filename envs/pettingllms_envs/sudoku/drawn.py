"""Rules that are drawn with a puzzle: cages with sums, irregular boxes, diagonals."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from typing import TypeAlias

from pettingllms.errors import UnreachableRequest
from pettingllms_envs.sudoku.drawn_solver import (
    Cage,
    Rules,
    is_connected,
    neighbours,
    search,
    solutions,
)
from pettingllms_envs.sudoku.solver import geometry

SIZES = (6, 9)
"""Sizes of puzzles with drawn rules: of size 4 there are too few, of 16 the search takes long."""
MAX_RULES = 3
"""Cages, irregular boxes, diagonals: the first few of them are drawn."""

_SWAPS = 20
_CAGE_SIZES = (2, 3, 3, 4)
_GRID_NODES = 200
"""Search nodes after which the complete grids of some boxes are enough."""
_NODES = 500
"""Search nodes after which clues and cages are given up."""
_TRIES = 5
"""Clues and cages that are tried for the same complete grid."""

IsWanted: TypeAlias = Callable[[bytes, Rules], bool]


def draw(
    rng: random.Random, size: int, num_clues: int, num_rules: int, is_wanted: IsWanted
) -> tuple[bytes, bytes, Rules] | None:
    """Clues, their only solution and the rules; None where chance came to none.

    No rule can be left out: boxes are not those of the size alone, and without diagonals, or
    without cages, there are several solutions. Fewer clues leave more to cages.

    Args:
        rng: The only source of chance.
        size: n; `SIZES` have enough different puzzles.
        num_clues: Number of clues.
        num_rules: 1 to `MAX_RULES`.
        is_wanted: (solution, rules without cages) -> whether they are of the wanted split.
    """
    boxes = _boxes(rng, size) if num_rules > 1 else geometry(size).boxes
    rules = Rules(boxes, diagonals=num_rules > 2)
    grids: list[bytes] = []
    with suppress(UnreachableRequest):  # a search that takes long is given up
        grids.extend(search(size, bytes(size * size), rules, _GRID_NODES, rng))
    if num_rules > 1:  # grids that would do with the usual boxes are no use
        usual = geometry(size).boxes
        grids = [grid for grid in grids if len({*zip(usual, grid, strict=True)}) < len(grid)]
    wanted = [grid for grid in grids if is_wanted(grid, rules)]
    for _ in range(_TRIES if wanted else 0):
        with suppress(UnreachableRequest):
            if puzzle := _clued(rng, size, num_clues, rules, rng.choice(wanted)):
                return puzzle
    return None


def _clued(
    rng: random.Random, size: int, num_clues: int, rules: Rules, solution: bytes
) -> tuple[bytes, bytes, Rules] | None:
    """Random clues, and cages that leave one solution; None if there are none, or no need.

    Raises:
        UnreachableRequest: If that was not decided within `_NODES` search nodes.
    """
    clues = bytearray(size * size)
    for cell in rng.sample(range(size * size), num_clues):
        clues[cell] = solution[cell]

    def other(rules: Rules) -> bytes | None:
        found = solutions(size, bytes(clues), rules, 2, _NODES, rng)
        return next((one for one in found if one != solution), None)

    pool = _cages(rng, size, solution)
    # With few clues most cages are needed: it is quicker to begin with some of them.
    cages = pool[2 * num_clues :]
    while wrong := other(rules._replace(cages=tuple(cages))):
        broken = [cage for cage in pool if not _holds(cage, wrong)]
        if not broken:
            return None
        cages.append(rng.choice(broken))
    cages.sort(key=lambda cage: cage[1])
    rules = rules._replace(cages=tuple(cages))
    if rules.diagonals and not other(rules._replace(diagonals=False)):
        return None
    return (bytes(clues), solution, rules) if other(rules._replace(cages=())) else None


def _holds(cage: Cage, cells: bytes) -> bool:
    values = [cells[cell] for cell in cage[1]]
    return sum(values) == cage[0] and len({*values}) == len(values)


def _boxes(rng: random.Random, size: int) -> tuple[int, ...]:
    """The n boxes of the size, after random exchanges between neighbours; each stays connected."""
    boxes, cells = list(geometry(size).boxes), range(size * size)
    done = 0
    while done < _SWAPS:
        cell = rng.choice(cells)
        mine, other = boxes[cell], boxes[rng.choice(neighbours(size, cell))]
        border = [
            one
            for one in cells
            if boxes[one] == other and mine in [boxes[near] for near in neighbours(size, one)]
        ]
        if mine == other:
            continue
        back = rng.choice(border)
        boxes[cell], boxes[back] = other, mine
        pair = ([one for one in cells if boxes[one] == box] for box in (mine, other))
        if all(is_connected(size, one) for one in pair):
            done += 1
        else:
            boxes[cell], boxes[back] = mine, other
    return tuple(boxes)


def _cages(rng: random.Random, size: int, solution: bytes) -> list[Cage]:
    """Connected groups of cells with different values; few cells are left without one."""
    free, found = set(range(size * size)), list[Cage]()
    for cell in rng.sample(sorted(free), len(free)):
        group, most = [cell], rng.choice(_CAGE_SIZES)
        while cell in free and len(group) < most:
            near = {one for member in group for one in neighbours(size, member)} & free
            taken = {solution[member] for member in group}
            if not (options := sorted(one for one in near if solution[one] not in taken)):
                break
            group.append(rng.choice(options))
        if len(group) > 1:
            free -= {*group}
            found.append((sum(solution[one] for one in group), tuple(sorted(group))))
    return found
