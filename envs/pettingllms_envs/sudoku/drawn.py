"""Rules that are drawn with a puzzle: cages with sums, irregular boxes, diagonals.

What they are, an exact search for the solutions under them, how they are drawn, and their text. The
one big integer of `solver` counts on boxes of one shape; here every cell has a mask.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cache, lru_cache
from itertools import combinations, islice
from typing import Any, NamedTuple, TypeAlias

from pettingllms.errors import LevelFormatError, UnreachableRequest
from pettingllms_envs.sudoku import solver
from pettingllms_envs.sudoku.solver import NODE_LIMIT, geometry

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


def boxes_of(size: int, rules: Rules | None) -> tuple[int, ...]:
    """[N] cell -> number of its box, with drawn rules or without."""
    return rules.boxes if rules else geometry(size).boxes


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
    """What the rules of a puzzle say about its cells."""

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
    rules: Rules | None = None,
    limit: int = 2,
    node_limit: int = NODE_LIMIT,
    rng: random.Random | None = None,
) -> list[bytes]:
    """The solutions of a grid, at most `limit` of them, with drawn rules or without.

    With them `rng` is the source of chance for the order in which values are tried; None: from 1
    on. See `solver.solutions` for the other arguments and errors.
    """
    if rules is None:
        return solver.solutions(size, cells, limit, node_limit)
    return list(islice(search(size, cells, rules, node_limit, rng), limit))


def search(
    size: int, cells: bytes, rules: Rules, node_limit: int, rng: random.Random | None
) -> Iterator[bytes]:
    """Yield all solutions under drawn rules; see `solutions`."""
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


# ---- rules drawn

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


# ---- as text: what prompts show, what programs read, and what stands behind the clues

_NUMBER = r"(?:0|[1-9]\d{0,2})"
_BOXES = rf"\[\[{_NUMBER}(?:,{_NUMBER}|\],\[{_NUMBER})*\]\]"
_CAGE = rf"\[{_NUMBER}(?:,\[{_NUMBER},{_NUMBER}\])+\]"
_RULES = re.compile(
    rf"(?:\s+boxes ({_BOXES}))?(?:\s+cages (\[{_CAGE}(?:,{_CAGE})*\]))?(\s+diagonals)?\s*", re.ASCII
)
_FORMAT = "boxes [[1,1,2,2],...], cages [[7,[0,0],[0,1]],...] and diagonals, in this order"


def rules_lines(size: int, rules: Rules | None) -> list[str]:
    """A line for each drawn rule, as `read_rules` reads them; none without rules."""
    lines: list[str] = []
    if rules is None:
        return lines
    if rules.boxes != geometry(size).boxes:
        numbers = [box + 1 for box in rules.boxes]
        lines.append(
            _line("boxes", [numbers[at : at + size] for at in range(0, len(numbers), size)])
        )
    if rules.cages:
        cages = [
            [total, *([*divmod(cell, size)] for cell in cells)] for total, cells in rules.cages
        ]
        lines.append(_line("cages", cages))
    return lines + ["diagonals"] * rules.diagonals


def _line(name: str, value: list[Any]) -> str:
    return f"{name} {json.dumps(value, separators=(',', ':'))}"


def read_rules(size: int, text: str, line: int) -> Rules | None:
    """Read the rules behind the clues; None if the text has none. Errors name `line`.

    Raises:
        LevelFormatError: If it is not a list of rules, the size has none, boxes are not n connected
            groups of n cells, or cages are not connected, overlap or have more than n cells.
    """
    if not text.strip():
        return None
    found = _RULES.fullmatch(text)
    if found is None:
        raise LevelFormatError("no rules in the form that is read", line, 0, _FORMAT)
    if size not in SIZES:
        raise LevelFormatError(f"rules of a {size}x{size} grid", line, 0, f"n one of {SIZES}")
    boxes = geometry(size).boxes
    if found[1]:
        boxes = tuple(number - 1 for row in json.loads(found[1]) for number in row)
        groups = [[at for at, box in enumerate(boxes) if box == one] for one in range(size)]
        if not (
            len(boxes) == size * size
            and all(len(one) == size and is_connected(size, one) for one in groups)
        ):
            allowed = f"{size} connected boxes of {size} cells, numbered from 1"
            raise LevelFormatError("boxes that are not boxes", line, 0, allowed)
    cages = json.loads(found[2] or "[]")
    places = [place for _, *group in cages for place in group]
    read = tuple((total, tuple(row * size + col for row, col in group)) for total, *group in cages)
    if not (
        all(0 <= number < size for place in places for number in place)
        and len({*map(tuple, places)}) == len(places)
        and all(len(cells) <= size and is_connected(size, cells) for _, cells in read)
    ):
        allowed = f"connected cells of the grid, at most {size}, none in two cages"
        raise LevelFormatError("cages that are not cages", line, 0, allowed)
    return Rules(boxes, read, bool(found[3]))
