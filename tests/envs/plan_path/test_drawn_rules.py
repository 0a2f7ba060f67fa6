"""Levels with rules of their own, against the rules read from the level's text and nothing else."""

import random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import pettingllms
from pettingllms.errors import LevelFormatError
from pettingllms_envs.plan_path import env, rules
from pettingllms_envs.plan_path.rules import Request, generate

STEPS = {"U": (-1, 0), "D": (1, 0), "L": (0, -1), "R": (0, 1)}
RULES = "q: ice\nr: one-way R\nu: one-way U\nk: key of m\nm: door of k\na: key of b\nb: door of a"


class Plain:
    """The rules as a reader of the level's text would play them; a state is (row, col, keys)."""

    def __init__(self, level_text):
        lines = level_text.split("\n")
        self.rows = [line for line in lines if ":" not in line]
        self.means = dict(line.split(": ") for line in lines if ":" in line)
        self.at = {(r, c): s for r, row in enumerate(self.rows) for c, s in enumerate(row)}
        self.start = (*next(cell for cell, s in self.at.items() if s in "P*"), frozenset())
        self.goal = next(cell for cell, s in self.at.items() if s in "G*")

    def can_enter(self, cell, move, keys):
        means = self.means.get(self.at.get(cell, "#"), self.at.get(cell, "#"))
        if means.startswith("door of "):
            return means[-1] in keys
        return means == f"one-way {move}" if means.startswith("one-way") else means != "#"

    def step(self, state, move):
        row, col, keys = state
        while True:
            ahead = row + STEPS[move][0], col + STEPS[move][1]
            if not self.can_enter(ahead, move, keys):
                return row, col, keys
            row, col = ahead
            if self.means.get(self.at[ahead], "").startswith("key"):
                keys |= {self.at[ahead]}
            if self.means.get(self.at[ahead]) != "ice":
                return row, col, keys

    def moves_left(self, state):
        """Search from this state alone; None if there is no way."""
        found, queue = {state: 0}, [state]
        for here in queue:
            if here[:2] == self.goal:
                return found[here]
            for move in STEPS:
                if (there := self.step(here, move)) not in found:
                    found[there] = found[here] + 1
                    queue.append(there)
        return None

    def board(self, state):
        row, col, keys = state
        drawn = [list(line) for line in self.rows]
        for (r, c), symbol in self.at.items():
            if symbol == "P" or symbol in keys or self.means.get(symbol, "")[-1:] in keys - {""}:
                drawn[r][c] = "."
        drawn[row][col] = "*" if (row, col) == self.goal else "P"
        symbol, lines = self.at[row, col], [f"{a}: {b}" for a, b in self.means.items()]
        if symbol.islower() and not keys & {symbol, self.means[symbol][-1]}:
            lines.append(f"under row {row}, column {col}: {symbol}")
        return "\n".join([*map("".join, drawn), *lines])


@st.composite
def ruled_texts(draw, max_side=6):
    rows, cols = draw(st.tuples(st.integers(1, max_side), st.integers(2, max_side)))
    symbols = draw(
        st.lists(st.sampled_from("...#qqrukmab"), min_size=rows * cols, max_size=rows * cols)
    )
    start, goal = draw(
        st.lists(st.integers(0, rows * cols - 1), min_size=2, max_size=2, unique=True)
    )
    symbols[start], symbols[goal] = "P", "G"
    board = "".join(symbols)
    return "\n".join([board[at : at + cols] for at in range(0, rows * cols, cols)] + [RULES])


def read(board):
    """Return the level and the plain rules; levels without a way are refused."""
    plain = Plain(board)
    if plain.moves_left(plain.start) is None:
        with pytest.raises(LevelFormatError, match="no path"):
            env.parse_level(board)
        assume(False)
    return env.parse_level(board), plain


@given(ruled_texts(), st.text("UDLR", max_size=30))
def test_moves_and_boards_equal_the_plain_rules(board, moves):
    level, plain = read(board)
    state, executed = plain.start, ""
    for move in moves:
        after = plain.step(state, move)
        if state[:2] == plain.goal:
            break
        executed += move if after != state else ""
        state = after
    done = rules.walk(rules.maze_of(level), level.start, moves)
    assert done.executed == executed
    assert env.level_text(level, done.position) == plain.board(state)
    assert env.level_text(level) == board


@given(ruled_texts(max_side=5))
def test_distances_equal_a_plain_search_from_every_state(board):
    level, plain = read(board)
    maze = rules.maze_of(level)
    states, queue = {plain.start: level.start}, [plain.start]
    for state in queue:
        left = plain.moves_left(state)
        assert maze.distance(states[state]) == (-1 if left is None else left)
        path = rules.shortest_path(maze, states[state], level.goal)
        assert (None if path is None else len(path)) == left
        for move in STEPS if state[:2] != plain.goal else ():
            there = plain.step(state, move)
            assert maze.is_open(states[state], move) == (there != state)
            if there not in states:
                states[there] = maze.step(states[state], move)
                queue.append(there)
    assert level.shortest == plain.moves_left(plain.start)


@given(st.integers(1, 3), st.integers(0, 999))
def test_generated_levels_are_certified_and_need_their_rules(num_rules, seed):
    level = generate(random.Random(seed), Request(9, 8, 0.25, 5, 40, None, num_rules).checked())
    plain = Plain(env.level_text(level))
    assert plain.moves_left(plain.start) == level.shortest
    assert 5 <= level.shortest <= 40
    assert env.parse_level(env.level_text(level)) == level
    kinds = {"door" if "of" in means else means.split()[0] for means in plain.means.values()}
    assert len(kinds) == num_rules
    keys = {letter for letter, means in plain.means.items() if means.startswith("key")}
    states = [plain.start]
    for state in states:
        states += {plain.step(state, move) for move in STEPS} - {*states}
    assert all(found == keys for *cell, found in states if tuple(cell) == plain.goal)


TURNED = dict(zip("URDL", "RDLU", strict=True))
MIRRORED = {"L": "R", "R": "L"}


def image(board, ways, rows):
    lines = [line for line in board.split("\n") if ":" in line]
    return "\n".join(
        rows
        + [line[:-1] + ways.get(line[-1], line[-1]) if "way" in line else line for line in lines]
    )


@given(ruled_texts(), st.permutations("qrukmab"))
def test_symmetric_and_renamed_levels_are_one(board, letters):
    level, plain = read(board)
    form = rules.canonical_form(level)
    columns = ["".join(column) for column in zip(*plain.rows[::-1], strict=True)]
    others = [
        image(board, TURNED, columns),
        image(board, MIRRORED, [row[::-1] for row in plain.rows]),
        "\n".join(
            line.translate(str.maketrans("qrukmab", "".join(letters)))
            if ":" not in line
            else renamed(line, dict(zip("qrukmab", letters, strict=True)))
            for line in board.split("\n")
        ),
    ]
    for other in others:
        assert rules.canonical_form(env.parse_level(other)) == form


def renamed(line, letters):
    letter, means = line.split(": ")
    if " of " in means:
        means = means[:-1] + letters[means[-1]]
    return f"{letters[letter]}: {means}"


def test_levels_that_differ_in_a_rule_alone_are_different():
    boards = [f"Pq.G\n....\nq: {means}" for means in ("ice", "one-way R", "one-way D", "one-way U")]
    assert len({rules.canonical_form(env.parse_level(board)) for board in boards}) == 4


@pytest.mark.parametrize(
    ("board", "line", "word"),
    [
        ("PqG\nq: slippery", 2, "no rule"),
        ("\nPqG\nq: ice\nr: one-way X", 4, "no rule"),
        ("PqG\nq: ice\nq: one-way R", 3, "said twice"),
        ("PqG\nq: ice\nr: ice", 3, "said twice"),
        ("PqG\nq: key of r", 2, "not pairs"),
        ("PqG\nq: key of r\nr: door of s", 2, "not pairs"),
        ("PaG\nq: ice", 1, "unknown symbol 'a'"),
        ("P~G\nq: ice", 1, "unknown symbol '~'"),
        ("PqG q: ice", 1, "no rule"),
    ],
)
def test_ill_formed_rules_are_refused_with_their_line(board, line, word):
    with pytest.raises(LevelFormatError, match=word) as caught:
        env.parse_level(board)
    assert caught.value.line == line


def test_agents_read_the_rules_and_which_doors_are_open():
    env = pettingllms.make("plan_path_v0", team="single", observation_mode="delta", checks=False)
    env.reset(seed=0, options={"level": f"Pk.mG\n{RULES}"})
    assert env.observe("planner_0").endswith(f"below the board:\n{RULES}")
    assert "0 P k . m G" in env.observe("planner_0")
    env.step("R")
    assert env.observe("planner_0").endswith(
        "The goal is at row 0, column 4. Now free: the doors m."
    )
    env.step("RRR")
    assert env.infos["planner_0"]["success"]


def test_a_picture_shows_letters():
    level = env.parse_level(f"Pk.mG\n{RULES}")
    closed, opened = (env.draw_image(level, at) for at in (level.start, 2 * level.area + 1))
    assert (closed[:, 72:96] != opened[:, 72:96]).any()
