"""Grids: against brute force on small boards, and on the texts that models write."""

import random
from collections import deque
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pettingllms.errors import LevelFormatError
from pettingllms_envs import grid


@st.composite
def boards(draw, max_side=7, symbols="#."):
    cols = draw(st.integers(1, max_side))
    row = st.text(symbols, min_size=cols, max_size=cols)
    return draw(st.lists(row, min_size=1, max_size=max_side))


def turned(rows):
    return ["".join(column) for column in zip(*rows[::-1], strict=True)]


def images(rows):
    for _ in range(4):
        yield rows
        yield rows[::-1]
        rows = turned(rows)


def reference_distances(rows, source):
    found = {source: 0}
    queue = deque([source])
    while queue:
        row, col = queue.popleft()
        for d_row, d_col in ((-1, 0), (1, 0), (0, -1), (0, 1)):
            near = (row + d_row, col + d_col)
            inside = 0 <= near[0] < len(rows) and 0 <= near[1] < len(rows[0])
            if inside and near not in found and rows[near[0]][near[1]] == ".":
                found[near] = found[row, col] + 1
                queue.append(near)
    return found


@given(boards())
def test_bits_and_cells_are_inverse(rows):
    stride = len(rows[0]) + 1
    expected = [r * stride + c for r, c in grid.find_symbols(rows, ".")]
    bits = grid.bits_of(rows, ".")
    assert grid.cells_of(bits) == expected
    assert bits & ~grid.board_mask(len(rows), len(rows[0])) == 0


@given(boards(), st.data())
def test_distances_equal_those_of_a_search_over_a_dict(rows, data):
    free_cells = grid.find_symbols(rows, ".")
    if not free_cells:
        return
    source = data.draw(st.sampled_from(free_cells))
    stride = len(rows[0]) + 1
    bit = 1 << source[0] * stride + source[1]
    free = grid.bits_of(rows, ".")
    expected = reference_distances(rows, source)
    layers = [grid.cells_of(layer) for layer in grid.layers(free, bit, stride)]
    assert {divmod(cell, stride): n for n, layer in enumerate(layers) for cell in layer} == expected
    reached = {divmod(cell, stride) for cell in grid.cells_of(grid.flood(free, bit, stride))}
    assert reached == set(expected)


@given(boards(symbols="#.PG"))
def test_canonical_form_is_the_same_for_all_images(rows):
    assert {grid.canonical(image) for image in images(rows)} == {grid.canonical(rows)}


@pytest.mark.parametrize(
    ("rows", "cols", "num_classes"),
    # Numbers of two-coloured boards up to all symmetries of the shape, by Burnside's lemma.
    [(1, 1, 2), (2, 2, 6), (3, 3, 102), (2, 3, 24), (3, 2, 24), (1, 4, 10)],
)
def test_canonical_form_tells_different_boards_apart(rows, cols, num_classes):
    every = product(product("#.", repeat=cols), repeat=rows)
    forms = {grid.canonical(["".join(row) for row in board]) for board in every}
    assert len(forms) == num_classes


@pytest.mark.parametrize("probability", [0.0, 0.01, 0.22, 0.5, 0.78, 1.0])
def test_random_bits_have_the_probability_asked_for(probability):
    bits = grid.random_bits(random.Random(0), probability, 200_000)
    assert bits.bit_length() <= 200_000
    assert bits.bit_count() / 200_000 == pytest.approx(probability, abs=0.004)


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


@pytest.mark.parametrize(
    ("text", "line", "column", "word"),
    [
        ("", 0, 0, "no rows"),
        (" \n\n", 0, 0, "no rows"),
        ("#.\n#x", 2, 2, "'x'"),
        ("\n\n#.\n#\t", 4, 2, "unknown symbol"),
        ("#.\n\n#.", 2, 0, "blank line"),
        ("#..\n#.", 2, 3, "2 cells"),
        ("#.\n#..", 2, 3, "3 cells"),
    ],
)
def test_ill_formed_rows_are_refused_with_their_place(text, line, column, word):
    with pytest.raises(LevelFormatError, match=word) as caught:
        grid.parse_rows(text, symbols="#.")
    assert (caught.value.line, caught.value.column) == (line, column)
