"""Equivalent puzzles have one canonical form; splits are decided by it."""

import itertools
import random

import pytest

from pettingllms.errors import UnreachableRequest
from pettingllms_envs.sudoku.generator import generate, random_solution
from pettingllms_envs.sudoku.solver import BOX_SHAPES, geometry, singles_suffice, solutions
from pettingllms_envs.sudoku.symmetry import canonical


def lines(rng, size, thickness):
    """A random order of rows (or columns) that keeps bands together."""
    bands = [list(range(start, start + thickness)) for start in range(0, size, thickness)]
    rng.shuffle(bands)
    return [line for band in bands for line in rng.sample(band, thickness)]


def transformed(rng, size, clues):
    height, width = BOX_SHAPES[size]
    rows, cols = lines(rng, size, height), lines(rng, size, width)
    names = [0, *rng.sample(range(1, size + 1), size)]
    image = bytes(names[clues[row * size + col]] for row in rows for col in cols)
    if height == width and rng.random() < 0.5:
        image = bytes(image[col * size + row] for row in range(size) for col in range(size))
    return image


def smallest_image(clues):
    """The canonical form of size 4 by trying everything."""
    orders = [
        (*first, *second)
        for bands in (((0, 1), (2, 3)), ((2, 3), (0, 1)))
        for first in itertools.permutations(bands[0])
        for second in itertools.permutations(bands[1])
    ]
    images = []
    for grid in (clues, bytes(clues[c * 4 + r] for r in range(4) for c in range(4))):
        for rows in orders:
            for cols in orders:
                names = {0: 0}
                image = (grid[row * 4 + col] for row in rows for col in cols)
                images.append(bytes(names.setdefault(v, len(names)) for v in image))
    return min(images)


@pytest.mark.parametrize("size", [4, 6, 9, 16])
def test_symmetries_do_not_change_it(size):
    rng = random.Random(size)
    for _ in range(12 if size < 16 else 2):
        clues = generate(rng, size).clues
        form = canonical(size, clues)
        for _ in range(10):
            assert canonical(size, transformed(rng, size, clues)) == form


def test_size_four_is_exact():
    rng = random.Random(0)
    grids = [generate(rng, 4, rng.randint(4, 9)).clues for _ in range(150)]
    forms = {}
    for clues in grids:
        forms.setdefault(canonical(4, clues), set()).add(smallest_image(clues))
    assert all(len(images) == 1 for images in forms.values())
    assert len(forms) == len({smallest_image(clues) for clues in grids})


def test_the_invariant_of_size_nine_tells_puzzles_apart():
    rng = random.Random(2)
    puzzles = [generate(rng, 9, 31) for _ in range(100)]
    assert len({canonical(9, puzzle.clues) for puzzle in puzzles}) == 100


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


@pytest.mark.parametrize(("size", "num_clues"), [(4, 3), (6, 7), (9, 16), (16, 54)])
def test_fewer_clues_than_any_known_puzzle_are_refused_at_once(size, num_clues):
    with pytest.raises(UnreachableRequest, match="fewest are"):
        generate(random.Random(0), size, num_clues)


def test_what_is_not_found_is_refused_after_bounded_work():
    with pytest.raises(UnreachableRequest, match="attempts"):
        generate(random.Random(0), 9, 17)
    with pytest.raises(UnreachableRequest, match="not solvable by singles"):
        generate(random.Random(0), 4, 6, singles_only=False)


def test_all_grids_of_size_four_occur():
    rng = random.Random(0)
    seen = {random_solution(rng, geometry(4)) for _ in range(6000)}
    assert len(seen) == 288
