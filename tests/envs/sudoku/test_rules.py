"""Fills against a grid of lists that only knows the rules."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from pettingllms_envs.sudoku.generator import generate
from pettingllms_envs.sudoku.rules import candidates, is_solved, start, write
from pettingllms_envs.sudoku.solver import BOX_SHAPES

PUZZLES = {size: generate(random.Random(size), size) for size in (4, 6, 9, 16)}


class Reference:
    """The rules in their plainest form."""

    def __init__(self, puzzle):
        self.puzzle, n = puzzle, puzzle.size
        self.grid = [list(puzzle.clues[r * n : r * n + n]) for r in range(n)]

    def peers(self, row, col):
        n, (height, width) = self.puzzle.size, BOX_SHAPES[self.puzzle.size]
        for r in range(n):
            for c in range(n):
                same_box = r // height == row // height and c // width == col // width
                if (r, c) != (row, col) and (r == row or c == col or same_box):
                    yield self.grid[r][c]

    def fill(self, row, col, value):
        n = self.puzzle.size
        if not (0 <= row < n and 0 <= col < n and 0 <= value <= n):
            return False
        if self.puzzle.clues[row * n + col]:
            return False
        if value and value in self.peers(row, col):
            return False
        self.grid[row][col] = value
        return True

    def cells(self):
        return bytes(value for row in self.grid for value in row)


@settings(max_examples=120)
@given(st.data(), st.sampled_from([4, 6, 9, 16]))
def test_any_sequence_of_fills(data, size):
    puzzle = PUZZLES[size]
    grid, reference = start(puzzle), Reference(puzzle)
    number = st.integers(-1, size + 1)
    fills = []
    # Values of the solution are mixed in, so that grids get full.
    for _ in range(data.draw(st.integers(1, 25))):
        row, col, value = data.draw(number), data.draw(number), data.draw(number)
        if 0 <= row < size and 0 <= col < size and data.draw(st.booleans()):
            value = puzzle.solution[row * size + col]
        before = grid
        grid, refused = write(puzzle, grid, [(row, col, value)])
        assert (not refused) == reference.fill(row, col, value)
        assert [fill for fill, _ in refused] == [(row, col, value)] * len(refused)
        assert not refused or grid == before
        fills.append((row, col, value))
    assert write(puzzle, start(puzzle), fills)[0] == grid
    cells = reference.cells()
    assert grid.cells == cells
    assert [bytes(map(int, row.split())) for row in grid.text.split("\n")] == [
        cells[start : start + size] for start in range(0, size * size, size)
    ]
    assert len({len(row) for row in grid.text.split("\n")}) == 1
    pairs = list(zip(puzzle.clues, cells, puzzle.solution, strict=True))
    assert grid.num_right == sum(not clue and cell == right for clue, cell, right in pairs)
    assert grid.num_empty == cells.count(0)
    assert grid.num_wrong == sum(cell not in (0, right) for _, cell, right in pairs)
    assert all(clue in (0, cell) for clue, cell, _ in pairs)
    for cell in range(size * size):
        taken = set(reference.peers(*divmod(cell, size)))
        options = [] if cells[cell] else sorted(set(range(1, size + 1)) - taken)
        assert candidates(puzzle, grid, cell) == options


def test_a_grid_is_solved_when_all_cells_are_right():
    for size, puzzle in PUZZLES.items():
        grid = start(puzzle)
        for cell in range(size * size):
            assert is_solved(grid) == (grid.cells == puzzle.solution)
            right = puzzle.solution[cell]
            grid, _ = write(puzzle, grid, [(*divmod(cell, size), right)])
        assert is_solved(grid)


def test_a_wrong_value_that_contradicts_nothing_is_written_and_can_be_cleared():
    """What is refused must not tell the solution."""
    puzzle = PUZZLES[4]
    grid = start(puzzle)
    wrong = [
        (cell, value)
        for cell in range(16)
        for value in candidates(puzzle, grid, cell)
        if value != puzzle.solution[cell]
    ]
    assert wrong
    for cell, value in wrong:
        place = divmod(cell, 4)
        filled, refused = write(puzzle, grid, [(*place, value)])
        assert not refused
        assert filled.num_wrong == 1
        assert write(puzzle, filled, [(*place, 0)]) == (grid, [])
