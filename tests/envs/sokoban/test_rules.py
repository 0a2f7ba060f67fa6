"""Moves, searches and bounds against rules on a list of characters."""

import itertools
import random
from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pettingllms.errors import UnreachableRequest
from pettingllms_envs.grid import cells_of
from pettingllms_envs.sokoban.rules import Level, Placement, layers_of_states, warehouse_of
from pettingllms_envs.sokoban.text import board_text, level_text, read_level

WAYS = {"U": (-1, 0), "D": (1, 0), "L": (0, -1), "R": (0, 1)}


class Board:
    """The rules in their plainest form: sets of (row, column)."""

    def __init__(self, text):
        self.walls, self.goals, boxes = set(), set(), set()
        for row, line in enumerate(text.split("\n")):
            for col, symbol in enumerate(line):
                if symbol == "#":
                    self.walls.add((row, col))
                if symbol in ".*+":
                    self.goals.add((row, col))
                if symbol in "$*":
                    boxes.add((row, col))
                if symbol in "@+":
                    player = (row, col)
        self.start = (player, frozenset(boxes))

    def after(self, state, move):
        player, boxes = state
        target = (player[0] + WAYS[move][0], player[1] + WAYS[move][1])
        beyond = (target[0] + WAYS[move][0], target[1] + WAYS[move][1])
        if target in self.walls:
            return state
        if target in boxes:
            if beyond in self.walls or beyond in boxes:
                return state
            boxes = boxes - {target} | {beyond}
        return (target, boxes)

    def shortest(self, limit=10**6):
        """Length of a shortest solution by plain breadth-first search, None if there is none."""
        seen, queue = {self.start}, deque([(self.start, 0)])
        while queue:
            state, length = queue.popleft()
            if state[1] == self.goals:
                return length
            for move in WAYS:
                following = self.after(state, move)
                if following not in seen:
                    seen.add(following)
                    queue.append((following, length + 1))
        return None


def random_text(rng, rows, cols, num_boxes):
    """A random board, solvable or not; None if there is no place."""
    grid = [["#"] * cols for _ in range(rows)]
    inside = [(r, c) for r in range(1, rows - 1) for c in range(1, cols - 1)]
    floor = [cell for cell in inside if rng.random() < 0.75]
    for row, col in floor:
        grid[row][col] = " "
    if len(floor) < 2 * num_boxes + 1:
        return None
    boxes, goals = rng.sample(floor, num_boxes), rng.sample(floor, num_boxes)
    player = rng.choice([cell for cell in floor if cell not in boxes])
    for row, col in floor:
        cell = (row, col)
        symbols = "*" if cell in goals else "$"
        if cell in boxes:
            grid[row][col] = symbols
        elif cell == player:
            grid[row][col] = "+" if cell in goals else "@"
        elif cell in goals:
            grid[row][col] = "."
    return "\n".join(map("".join, grid))


def raw_level(text):
    """A level without the checks of `read_level`, so that hopeless ones can be tried too."""
    board, rows = Board(text), text.split("\n")
    stride = len(rows[0]) + 1

    def bits(cells):
        return sum(1 << row * stride + col for row, col in cells)

    everything = {(r, c) for r in range(len(rows)) for c in range(stride - 1)}
    (row, col), boxes = board.start
    return Level(
        len(rows),
        stride - 1,
        bits(everything - board.walls),
        bits(board.goals),
        bits(boxes),
        row * stride + col,
    )


boards = st.builds(
    lambda seed, rows, cols, boxes: random_text(random.Random(seed), rows, cols, boxes),
    st.integers(0, 10**9),
    st.integers(4, 6),
    st.integers(4, 6),
    st.integers(1, 2),
).filter(bool)


@settings(max_examples=150)
@given(boards, st.text(alphabet="UDLR", max_size=30))
def test_moves_follow_the_rules(text, moves):
    level, board = raw_level(text), Board(text)
    assert level_text(level) == text
    state, stride = board.start, level.stride
    house, place = warehouse_of(level), level.start
    executed = ""
    for move in moves:
        if state[1] == board.goals:
            break
        before, state = state, board.after(state, move)
        executed += move if state != before else ""
        place = house.step(place, move)
        assert divmod(place.player, stride) == state[0]
        assert {divmod(cell, stride) for cell in cells_of(place.boxes)} == state[1]
    assert house.play(level.start, moves)[:2] == (place, executed)
    assert level.boxes.bit_count() == place.boxes.bit_count()
    shown = board_text(level, place)
    again = Board(shown)
    assert again.start == state
    assert again.goals == board.goals


@settings(max_examples=200)
@given(boards)
def test_solve_is_exact(text):
    level, board = raw_level(text), Board(text)
    shortest = board.shortest()
    solution = warehouse_of(level).solve(level.start)
    if shortest is None:
        assert solution is None
    else:
        assert len(solution) == shortest
        place, executed, *_ = warehouse_of(level).play(level.start, solution)
        assert (place.boxes, executed) == (level.goals, solution)


@settings(max_examples=100)
@given(boards)
def test_bounds_never_lie(text):
    """`lost` is said of hopeless states only, and the pushes left are a lower bound."""
    level, board = raw_level(text), Board(text)
    house, place = warehouse_of(level), level.start
    shortest = board.shortest()
    if shortest is None:
        return
    pushes = house.pushes_left(place)
    assert 0 <= pushes <= shortest
    assert (pushes == 0) == (level.boxes == level.goals)
    for move in house.solve(place):
        place = house.step(place, move)
        assert house.pushes_left(place) >= 0
        assert house.distance(place) >= 0
    assert house.distance(place) == 0


@settings(max_examples=60)
@given(boards)
def test_layers_backwards_are_exact(text):
    level = raw_level(text)
    solved = {level.goals: level.floor & ~level.goals}
    found = layers_of_states(solved, level.floor, level.stride, is_backward=True)
    layers = list(itertools.islice(found, 13))
    rng = random.Random(0)
    for depth in range(1, len(layers)):
        boxes, players = rng.choice(list(layers[depth].items()))
        player = rng.choice(cells_of(players))
        text_here = board_text(level, Placement(player, boxes))
        assert Board(text_here).shortest() == depth


DEAD = {
    "corner": "######\n#$  .#\n# @  #\n######",
    "wall without a goal": "#######\n#  $  #\n# .@  #\n#     #\n#######",
    "square of boxes": "#######\n#     #\n# $$ .#\n# $$ .#\n#@  ..#\n#     #\n#######",
}


@pytest.mark.parametrize("name", DEAD)
def test_lost_placements_are_recognised(name):
    level = raw_level(DEAD[name])
    assert warehouse_of(level).pushes_left(level.start) == -1
    assert Board(DEAD[name]).shortest() is None


def test_search_is_bounded_and_says_so():
    text = "########\n#      #\n# $$$  #\n#  @   #\n# ...  #\n#      #\n########"
    level = read_level(text)
    with pytest.raises(UnreachableRequest, match="within 5 search nodes"):
        warehouse_of(level).solve(level.start, node_limit=5)
