"""The rules once more, written as plainly as possible, to compare with."""

from collections import deque
from types import SimpleNamespace

import pytest
from hypothesis import strategies as st

STEPS = {"U": (-1, 0), "D": (1, 0), "L": (0, -1), "R": (0, 1)}


def find(text, symbol):
    return next((r, row.index(symbol)) for r, row in enumerate(text.split("\n")) if symbol in row)


def distances(text, source):
    """Cell -> number of moves from source, over a dict of the cells that are not walls."""
    rows = text.split("\n")
    open_cells = {(r, c) for r, row in enumerate(rows) for c, s in enumerate(row) if s != "#"}
    found, queue = {source: 0}, deque([source])
    while queue:
        row, col = queue.popleft()
        for d_row, d_col in STEPS.values():
            near = (row + d_row, col + d_col)
            if near in open_cells and near not in found:
                found[near] = found[row, col] + 1
                queue.append(near)
    return found


def walk(text, position, moves):
    """Final cell, executed moves, number of illegal moves, number of moves after the goal."""
    rows, goal = text.split("\n"), find(text, "G")
    executed, illegal = [], 0
    for number, move in enumerate(moves):
        if position == goal:
            return position, executed, illegal, len(moves) - number
        row, col = position[0] + STEPS[move][0], position[1] + STEPS[move][1]
        if 0 <= row < len(rows) and 0 <= col < len(rows[0]) and rows[row][col] != "#":
            position = (row, col)
            executed.append(move)
        else:
            illegal += 1
    return position, executed, illegal, 0


@st.composite
def level_texts(draw, max_side=7, connected=True):
    """Level texts of 1 to `max_side` rows and columns with P and G."""
    rows = draw(st.integers(1, max_side))
    cols = draw(st.integers(1 if rows > 1 else 2, max_side))
    symbols = draw(st.lists(st.sampled_from("..#"), min_size=rows * cols, max_size=rows * cols))
    places = st.integers(0, rows * cols - 1)
    start, goal = draw(st.tuples(places, places).filter(lambda pair: pair[0] != pair[1]))
    symbols[start], symbols[goal] = "P", "G"
    text = "\n".join("".join(symbols[at : at + cols]) for at in range(0, rows * cols, cols))
    if connected and find(text, "P") not in distances(text, find(text, "G")):
        # A straight corridor joins them: down or up the start's column, then along the goal's row.
        grid = [list(row) for row in text.split("\n")]
        (p_row, p_col), (g_row, g_col) = find(text, "P"), find(text, "G")
        for row in range(min(p_row, g_row), max(p_row, g_row) + 1):
            grid[row][p_col] = "."
        for col in range(min(p_col, g_col), max(p_col, g_col) + 1):
            grid[g_row][col] = "."
        grid[p_row][p_col], grid[g_row][g_col] = "P", "G"
        text = "\n".join(map("".join, grid))
    return text


@pytest.fixture(scope="session")
def reference():
    return SimpleNamespace(find=find, distances=distances, walk=walk, STEPS=STEPS)


@pytest.fixture(scope="session", name="level_texts")
def level_texts_fixture():
    return level_texts
