"""Reading answers of models, and puzzles of people."""

import json
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pettingllms.types import ParseError
from pettingllms_envs.sudoku.generator import generate
from pettingllms_envs.sudoku.text import (
    FillAnswer,
    fills_json,
    fills_terse,
    puzzle_text,
    read_puzzle,
    read_puzzles,
    reader,
)

FILLS = json.loads(Path(__file__).with_name("fills.json").read_text("utf-8"))
"""Texts, and the fills that are read in them."""
GRID = "[[1,2,3,4],[3,4,1,2],[2,1,4,3],[4,3,2,1]]"


def read_answer(text, size):
    return reader(size).read(text)


@pytest.mark.parametrize(("text", "fills"), FILLS)
def test_reads_fills(text, fills):
    assert read_answer(text, 4) == FillAnswer(tuple(map(tuple, fills)))


@pytest.mark.parametrize("size", [4, 6, 9, 16])
def test_too_many_fills_are_no_answer(size):
    most = 2 * size * size
    assert read_answer(fills_json([(1, 1, 1)] * most), size) == FillAnswer(((1, 1, 1),) * most)
    read = read_answer(fills_json([(1, 1, 1)] * (most + 1)), size)
    assert read == ParseError(f"more than {most} fills")


def test_reads_a_grid():
    answer = read_answer(f"#### {GRID}", 4)
    assert answer.is_grid
    assert answer.fills[0] == (0, 0, 1)
    assert answer.fills[-1] == (3, 3, 1)
    assert len(answer.fills) == 16
    assert isinstance(read_answer(GRID, 9), ParseError)


@pytest.mark.parametrize(
    "text",
    ["", "none", "1 2 3", "[[1,2]]", "[[a,b,c]]", "[12 3.5 1]", "[1,[2,3,4]]", "[[1,2,3],4]"],
)
def test_what_is_no_answer(text):
    assert isinstance(read_answer(text, 4), ParseError)


@settings(max_examples=300)
@given(
    st.text("#[]1, \n<ab.", max_size=12),
    st.lists(st.tuples(*[st.integers(-1, 100)] * 3), min_size=1, max_size=40),
    st.sampled_from(["", " ", "\n", " .", "\n[]", "#"]),
    st.sampled_from([",", ", ", " "]),
)
def test_answers_in_the_usual_form_are_read_as_all_others(before, fills, behind, comma):
    rows = comma.join(f"[{row},{col}, {value}]" for row, col, value in fills)
    text = f"{before}#### [{rows}]{behind}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pettingllms.parsing.usual_answer", lambda text, most: None)
        reader.cache_clear()
        expected = read_answer(text, 4)
    reader.cache_clear()
    assert read_answer(text, 4) == expected


@settings(max_examples=100)
@given(st.lists(st.tuples(st.integers(0, 16), st.integers(0, 16), st.integers(0, 16)), max_size=40))
def test_reads_what_it_writes(fills):
    assert read_answer("so #### " + fills_json(fills), 5) == FillAnswer(tuple(fills))


@settings(max_examples=100)
@given(st.lists(st.tuples(*[st.integers(0, 9)] * 3), max_size=32), st.sampled_from([4, 6, 9]))
def test_reads_digits_alone(fills, size):
    assert read_answer(fills_terse(fills, size), size) == FillAnswer(tuple(fills))


@pytest.mark.parametrize(
    ("text", "size"),
    [("123,412", 16), ("12,34", 4), ("1234", 4), ("123 412", 4), ("so 123,412", 4), ("123,", 4)],
)
def test_other_digits_are_no_answer(text, size):
    assert isinstance(read_answer(text, size), ParseError)


@pytest.mark.parametrize("size", [4, 6, 9, 16])
def test_reads_the_puzzles_it_writes(size):
    puzzle = generate(random.Random(1), size)
    line = puzzle_text(puzzle)
    assert read_puzzle(line) == puzzle
    rows = "\n".join(line[start : start + size] for start in range(0, size * size, size))
    assert read_puzzle(rows) == puzzle
    assert read_puzzle(line.lower().replace(".", "0") + "\n") == puzzle


def test_the_example_is_well_formed():
    text = puzzle_text(generate(random.Random(3), 4))
    assert read_puzzles(f"; a comment\n\n{text}\n{text}\n") == [read_puzzle(text)] * 2
