"""Grids: against brute force on small boards, and on the texts that models write."""

import random
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pettingllms_envs import grid


@pytest.mark.parametrize(
    ("rows", "cols", "num_classes"),
    # Numbers of two-coloured boards up to all symmetries of the shape, by Burnside's lemma.
    [(1, 1, 2), (2, 2, 6), (3, 3, 102), (2, 3, 24), (3, 2, 24), (1, 4, 10)],
)
def test_canonical_form_tells_different_boards_apart(rows, cols, num_classes):
    every = product(product("#.", repeat=cols), repeat=rows)
    forms = {grid.canonical(["".join(row) for row in board]) for board in every}
    assert len(forms) == num_classes


@pytest.mark.parametrize("bits", [0b1, 0b1010010, 1 << 4000, (1 << 4000) | 1])
def test_random_cell_draws_every_set_bit_and_no_other(bits):
    rng = random.Random(0)
    drawn = {grid.random_cell(rng, bits) for _ in range(300)}
    assert drawn == set(grid.cells_of(bits))


@given(st.integers(1, 120), st.integers(1, 120), st.data())
def test_the_numbers_of_a_drawn_board_stand_over_their_columns(rows, cols, data):
    drawing = grid.labelled(["." * cols] * rows)
    row, col = data.draw(st.integers(0, rows - 1)), data.draw(st.integers(0, cols - 1))
    lines = drawing.with_symbol(row, col, "@").split("\n")
    (at,) = [line.index("@") for line in lines if "@" in line]
    assert "".join(line[at] for line in lines[:-rows]).strip() == str(col)
    assert next(line for line in lines if "@" in line)[: len(str(rows - 1))].strip() == str(row)


def test_rows_are_read_with_blank_lines_around_them_and_any_line_ends():
    assert grid.parse_rows("\n\n#.\r\n.#\r\n\n", symbols="#.") == ["#.", ".#"]
    assert grid.first_line("\n\n#.\r\n.#") == 3
    assert grid.parse_rows("#\n##.\n", symbols="#.", pad=" ") == ["#  ", "##."]
