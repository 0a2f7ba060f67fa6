"""Puzzles are what was asked for, or the request is refused in words."""

import random

import pytest

from pettingllms.errors import InvalidArgument, UnreachableRequest
from pettingllms_envs.sudoku.generator import DEFAULT_CLUES, generate, random_solution
from pettingllms_envs.sudoku.solver import geometry, singles_suffice, solutions

CASES = [(4, 6), (4, 5), (6, 14), (6, 10), (9, 60), (9, 40), (9, 31), (9, 26), (16, 150), (16, 200)]


@pytest.mark.parametrize(("size", "num_clues"), CASES)
def test_one_solution_and_the_number_of_clues(size, num_clues):
    for seed in range(3 if size < 16 else 1):
        puzzle = generate(random.Random(seed), size, num_clues)
        assert size * size - puzzle.clues.count(0) == num_clues
        assert solutions(size, puzzle.clues) == [puzzle.solution]
        assert puzzle.singles_only
        assert singles_suffice(size, puzzle.clues)


@pytest.mark.parametrize(("size", "num_clues"), [(6, 14), (9, 30), (9, 45)])
def test_puzzles_that_need_more_than_singles(size, num_clues):
    puzzle = generate(random.Random(1), size, num_clues, singles_only=False)
    assert size * size - puzzle.clues.count(0) == num_clues
    assert solutions(size, puzzle.clues) == [puzzle.solution]
    assert not puzzle.singles_only
    assert not singles_suffice(size, puzzle.clues)


def test_default_number_of_clues():
    for size, num_clues in DEFAULT_CLUES.items():
        puzzle = generate(random.Random(0), size)
        assert size * size - puzzle.clues.count(0) == num_clues


@pytest.mark.parametrize(("size", "num_clues"), [(4, 3), (6, 7), (9, 16), (16, 54)])
def test_fewer_clues_than_any_known_puzzle_are_refused_at_once(size, num_clues):
    with pytest.raises(UnreachableRequest, match="fewest are"):
        generate(random.Random(0), size, num_clues)


def test_what_is_not_found_is_refused_after_bounded_work():
    with pytest.raises(UnreachableRequest, match="attempts"):
        generate(random.Random(0), 9, 17)
    with pytest.raises(UnreachableRequest, match="not solvable by singles"):
        generate(random.Random(0), 4, 6, singles_only=False)


@pytest.mark.parametrize("num_clues", [0, 16, -1, True, 2.5])
def test_clue_numbers_that_make_no_sense(num_clues):
    with pytest.raises(InvalidArgument, match="clues"):
        generate(random.Random(0), 4, num_clues)


def test_all_grids_of_size_four_occur():
    rng = random.Random(0)
    seen = {random_solution(rng, geometry(4)) for _ in range(6000)}
    assert len(seen) == 288
