"""The solver against a search that only knows the rules."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pettingllms.errors import InvalidArgument, UnreachableRequest
from pettingllms_envs.sudoku.solver import (
    BOX_SHAPES,
    geometry,
    place,
    propagate,
    singles_suffice,
    solutions,
)

HARD = "8..........36......7..9.2...5...7.......457.....1...3...1....68..85...1..9....4.."
SEVENTEEN = "000000010400000000020000000000050407008000300001090000300400200050100000000806000"


def cells(text):
    return bytes(int(symbol) for symbol in text.replace(".", "0"))


def allowed(size, grid, cell, digit):
    height, width = BOX_SHAPES[size]
    row, col = divmod(cell, size)
    for other, value in enumerate(grid):
        r, c = divmod(other, size)
        same_box = r // height == row // height and c // width == col // width
        if other != cell and value == digit and (r == row or c == col or same_box):
            return False
    return True


def brute_force(size, grid):
    """All solutions, cell by cell, with no idea but the rules."""
    grid = list(grid)
    if any(value and not allowed(size, grid, cell, value) for cell, value in enumerate(grid)):
        return []
    found = []

    def fill(cell):
        if cell == len(grid):
            found.append(bytes(grid))
        elif grid[cell]:
            fill(cell + 1)
        else:
            for digit in range(1, size + 1):
                if allowed(size, grid, cell, digit):
                    grid[cell] = digit
                    fill(cell + 1)
                    grid[cell] = 0

    fill(0)
    return found


def test_there_are_288_grids_of_size_four():
    assert len(solutions(4, bytes(16), limit=1000)) == 288


@settings(max_examples=150)
@given(st.lists(st.sampled_from([0, 0, 0, 1, 2, 3, 4]), min_size=16, max_size=16))
def test_finds_exactly_the_solutions_of_the_rules(grid):
    assert sorted(solutions(4, bytes(grid), limit=1000)) == sorted(brute_force(4, grid))


@pytest.mark.parametrize("seed", range(6))
def test_size_six_against_the_rules(seed):
    rng = random.Random(seed)
    full = solutions(6, bytes(36), limit=1)[0]
    grid = bytes(digit if rng.random() < 0.45 else 0 for digit in full)
    assert sorted(solutions(6, grid, limit=10**6)) == sorted(brute_force(6, grid))


@pytest.mark.parametrize("text", [HARD, SEVENTEEN])
def test_known_puzzles_have_one_solution(text):
    found = solutions(9, cells(text))
    assert len(found) == 1
    assert all(clue in (0, value) for clue, value in zip(cells(text), found[0], strict=True))
    assert brute_force(9, found[0]) == found
    assert not singles_suffice(9, cells(HARD))


@settings(max_examples=60)
@given(st.integers(0, 10**6), st.sampled_from([4, 6, 9]))
def test_propagation_never_loses_a_solution(seed, size):
    rng = random.Random(seed)
    shape = geometry(size)
    full = solutions(size, bytes(rng.sample(range(1, size + 1), size)) + bytes(size * size - size))[
        0
    ]
    clues = bytes(digit if rng.random() < 0.3 else 0 for digit in full)
    cube, placed = propagate(shape, place(shape, clues))
    solution = place(shape, full)
    assert cube & solution == solution
    assert placed & ~solution == 0


def test_search_is_bounded_and_says_so():
    with pytest.raises(UnreachableRequest, match="within 3 search nodes"):
        solutions(16, bytes(256), limit=2, node_limit=3)


def test_unknown_size():
    with pytest.raises(InvalidArgument, match="4, 6, 9, 16"):
        geometry(5)
