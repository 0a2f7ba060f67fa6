"""Equivalent puzzles have one canonical form; splits are decided by it."""

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pettingllms.seeding import SPLITS, split_of
from pettingllms_envs.sudoku.env import SudokuEnv
from pettingllms_envs.sudoku.generator import generate
from pettingllms_envs.sudoku.solver import BOX_SHAPES
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


@settings(max_examples=150)
@given(st.lists(st.integers(0, 4), min_size=16, max_size=16), st.integers(0, 10**6))
def test_any_pattern_of_digits(digits, seed):
    rng, clues = random.Random(seed), bytes(digits)
    assert canonical(4, clues) == canonical(4, transformed(rng, 4, clues))


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


@pytest.mark.parametrize("size", [4, 9])
def test_splits_hold_what_they_promise_and_share_nothing(size):
    forms = {}
    for split in SPLITS:
        env = SudokuEnv(size=size, split=split, team="single")
        forms[split] = set()
        for seed in range(120 if size == 4 else 25):
            env.reset(seed=seed)
            form = canonical(size, env.state().level.clues)
            assert split_of(form) == split
            forms[split].add(form)
    for one, other in itertools.combinations(SPLITS, 2):
        assert not forms[one] & forms[other]
