"""The scripted policies, for every role: oracle knows, greedy sees singles, random guesses.

There-and-back fills in right values, but not all, and clears them again; it shows what idling
returns.
"""

from __future__ import annotations

import random

from pettingllms_envs.sudoku.generator import Puzzle
from pettingllms_envs.sudoku.rules import Fill, Grid, candidates


def fills_of(
    puzzle: Puzzle, grid: Grid, policy: str, max_moves: int, rng: random.Random
) -> list[Fill]:
    """The fills of a policy; `max_moves` is not used, as there is no limit of fills.

    Oracle writes all that is missing, and corrects what is wrong; greedy the naked and hidden
    singles that can be seen at once (nothing follows from them within the turn), or a guess if
    there are none; random up to n guesses that the rules allow; there-and-back half of what is
    missing, or, if something is filled in, its removal.
    """
    if policy == "oracle":
        return _missing(puzzle, grid)
    if policy == "greedy":
        return _visible_singles(puzzle, grid) or _guesses(puzzle, grid, 1, rng)
    if policy == "there-and-back":
        return _clears(puzzle, grid) or _missing(puzzle, grid)[: puzzle.clues.count(0) // 2]
    return _guesses(puzzle, grid, puzzle.size, rng)


def _fill(size: int, cell: int, value: int) -> Fill:
    return (*divmod(cell, size), value)


def _missing(puzzle: Puzzle, grid: Grid) -> list[Fill]:
    """The fills that solve the puzzle; wrong values are cleared first."""
    size = puzzle.size
    values = grid.cells
    wrong = [c for c, value in enumerate(values) if value and value != puzzle.solution[c]]
    todo = [c for c, value in enumerate(values) if value != puzzle.solution[c]]
    clears = [_fill(size, cell, 0) for cell in wrong]
    return clears + [_fill(size, cell, puzzle.solution[cell]) for cell in todo]


def _clears(puzzle: Puzzle, grid: Grid) -> list[Fill]:
    """The fills that clear every cell but the clues."""
    size = puzzle.size
    return [
        _fill(size, cell, 0)
        for cell in range(size * size)
        if not puzzle.clues[cell] and grid.cells[cell]
    ]


def _visible_singles(puzzle: Puzzle, grid: Grid) -> list[Fill]:
    size = puzzle.size
    boxes = puzzle.boxes
    options = {cell: candidates(puzzle, grid, cell) for cell in range(size * size)}
    found = {cell: values[0] for cell, values in options.items() if len(values) == 1}
    places: dict[tuple[str, int, int], list[int]] = {}
    for cell, values in options.items():
        for value in values:
            for unit in (("row", cell // size), ("column", cell % size), ("box", boxes[cell])):
                places.setdefault((*unit, value), []).append(cell)
    for (_, _, value), cells in places.items():
        if len(cells) == 1:
            found.setdefault(cells[0], value)
    return [_fill(size, cell, value) for cell, value in sorted(found.items())]


def _guesses(puzzle: Puzzle, grid: Grid, count: int, rng: random.Random) -> list[Fill]:
    size = puzzle.size
    options = {cell: candidates(puzzle, grid, cell) for cell in range(size * size)}
    cells = [cell for cell, values in options.items() if values]
    chosen = rng.sample(cells, min(count, len(cells)))
    return [_fill(size, cell, rng.choice(options[cell])) for cell in chosen]
