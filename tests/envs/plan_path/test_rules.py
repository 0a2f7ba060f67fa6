"""Levels, with rules of their own or none, their generator and helpers, against the text alone."""

import json
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

import pettingllms
from pettingllms import ParseError
from pettingllms.errors import LevelFormatError
from pettingllms_envs.plan_path import env, rules
from pettingllms_envs.plan_path.env import HelperCall, answer, level_text, parse_level, read_call
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

    def moves_left(self, state, goal=None):
        """Search from this state alone; None if there is no way."""
        found, queue = {state: 0}, [state]
        for here in queue:
            if here[:2] == (goal or self.goal):
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
def level_texts(draw, max_side=6, is_ruled=None):
    is_ruled = draw(st.booleans()) if is_ruled is None else is_ruled
    rows, cols = draw(st.tuples(st.integers(1, max_side), st.integers(2, max_side)))
    symbol = st.sampled_from("...#qqrukmab" if is_ruled else "...#")
    symbols = draw(st.lists(symbol, min_size=rows * cols, max_size=rows * cols))
    start, goal = draw(
        st.lists(st.integers(0, rows * cols - 1), min_size=2, max_size=2, unique=True)
    )
    symbols[start], symbols[goal] = "P", "G"
    board = "".join(symbols)
    return "\n".join(
        [board[at : at + cols] for at in range(0, rows * cols, cols)] + [RULES] * is_ruled
    )


def read(board):
    """Return the level and the plain rules; levels without a way are refused."""
    plain = Plain(board)
    if plain.moves_left(plain.start) is None:
        with pytest.raises(LevelFormatError, match="no path"):
            env.parse_level(board)
        assume(False)
    return env.parse_level(board), plain


@example("PkmG\nk: key of m\nm: door of k", "R")
@given(level_texts(), st.text("UDLR", max_size=30))
def test_moves_and_boards_equal_the_plain_rules(board, moves):
    level, plain = read(board)
    state, executed, num_tried = plain.start, "", 0
    for move in moves:
        after = plain.step(state, move)
        if state[:2] == plain.goal:
            break
        num_tried += 1
        executed += move if after != state else ""
        state = after
    done = rules.walk(rules.maze_of(level), level.start, moves)
    assert (done.executed, done.illegal) == (executed, num_tried - len(executed))
    assert env.level_text(level, done.position) == plain.board(state)
    assert env.level_text(level) == board
    for (row, col), symbol in plain.at.items():
        if symbol != "#":
            found = {symbol} if plain.means.get(symbol, "").startswith("key") else set()
            here = row, col, state[2] | found
            told = answer(level, done.position, HelperCall("neighbours", row, col), 8).result
            assert json.loads(told) == [way for way in STEPS if plain.step(here, way) != here]


@given(level_texts(max_side=5))
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


@given(level_texts(is_ruled=False))
def test_shortest_paths_lead_to_any_cell(board):
    level, plain = read(board)
    maze = rules.maze_of(level)
    for (row, col), symbol in plain.at.items():
        cell, left = level.cell(row, col), plain.moves_left((row, col, frozenset()))
        assert symbol == "#" or maze.distance(cell) == (-1 if left is None else left)
        path, state = rules.shortest_path(maze, level.start, cell), plain.start
        assert (None if path is None else len(path)) == plain.moves_left(plain.start, (row, col))
        for move in path or ():
            state = plain.step(state, move)
        assert path is None or state[:2] == (row, col)


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


@given(level_texts(), st.permutations("qrukmab"))
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
    if not level.rules:
        others.append(board.translate({ord("P"): "G", ord("G"): "P"}))
    for other in others:
        assert rules.canonical_form(env.parse_level(other)) == form


def renamed(line, letters):
    letter, means = line.split(": ")
    if " of " in means:
        means = means[:-1] + letters[means[-1]]
    return f"{letters[letter]}: {means}"


def test_other_levels_have_other_forms():
    boards = [f"Pq.G\n....\nq: {means}" for means in ("ice", "one-way R", "one-way D", "one-way U")]
    boards += ["P.G\n...", "P..\n..G", "P.G\n.#.", "PG.\n...", ".P.\n..G"]
    assert len({rules.canonical_form(env.parse_level(board)) for board in boards}) == 9


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


@given(st.data())
def test_centred_map_is_the_board_seen_from_the_player(data):
    level, _ = read(data.draw(level_texts(is_ruled=False)))
    maze = rules.maze_of(level)
    reachable = [cell for cell in range(level.area) if maze.distance(cell) >= 0]
    position = data.draw(st.sampled_from(reachable))
    rows = env.centred_rows(level, position)
    height, width = level.rows + 1, level.cols + 1
    assert len(rows) == height
    assert {len(row) for row in rows} == {width}
    player_row, player_col = divmod(position, level.stride)
    plain = env.level_text(level, position).split("\n")
    for row in range(height):
        for col in range(width):
            source = (
                (player_row + row - height // 2) % height,
                (player_col + col - width // 2) % width,
            )
            is_edge = source[0] == level.rows or source[1] == level.cols
            assert rows[row][col] == ("#" if is_edge else plain[source[0]][source[1]])
    assert rows[height // 2][width // 2] in "P*"


DEFAULT = Request(10, 10, 0.22, 4, 40, "train")


def test_walls_have_the_density_asked_for():
    rng = random.Random(0)
    walls = sum(generate(rng, DEFAULT._replace(split=None)).cells.count("#") for _ in range(400))
    # A little below 0.22: boards on which no start is found are left out.
    assert walls / 40_000 == pytest.approx(0.22, abs=0.015)


LEVEL = "P..#\n##..\n...G"


def make(**kwargs):
    return pettingllms.make("plan_path_v0", checks=False, **{"tool": "call", **kwargs})


def started(**kwargs):
    env = make(**kwargs)
    env.reset(seed=0, options={"level": LEVEL})
    return env


def test_info_tells_what_a_list_of_moves_did():
    env = started(team="single", moves_per_turn=7)
    env.step('["U","R","R","L","R","D","X"]')
    assert env.infos["planner_0"]["parse_error"] == "'X' is none of the moves U, D, L, R"
    env.step('["U","R","R","L","R","D","D","R","U"]')
    info = env.infos["planner_0"]
    assert info["executed"] == tuple("RRLRDD")
    assert (info["illegal_moves"], info["cut_moves"], info["unused_moves"]) == (1, 2, 0)
    assert (info["position"], info["distance"], info["shortest"]) == ((2, 2), 1, 5)
    assert (info["moves_used"], info["optimality"], info["success"]) == (6, 0.0, False)
    env.step("RLLL")
    info = env.infos["planner_0"]
    assert (info["executed"], info["unused_moves"], info["distance"]) == (("R",), 3, 0)
    assert (info["moves_used"], info["success"]) == (7, True)
    assert info["optimality"] == pytest.approx(5 / 7)
    assert env.terminations == {"planner_0": True}


@pytest.mark.parametrize("kwargs", [{"max_turns": 1, "moves_per_turn": 2}, {"max_moves": 2}])
def test_small_budgets_lower_the_default_range(kwargs):
    env = make(**kwargs)
    for seed in range(20):
        env.reset(seed=seed)
        assert env.state().level.shortest <= 2


def test_pictures_show_walls_goal_and_player():
    env = started(render_mode="rgb_array")
    picture = env.render()
    assert (picture.shape, picture.dtype) == ((73, 97, 3), np.uint8)
    centres = {
        (row, col): tuple(picture[row * 24 + 12, col * 24 + 12])
        for row in range(3)
        for col in range(4)
    }
    colours = {centres[0, 0], centres[2, 3], centres[0, 1], centres[1, 0]}
    assert len(colours) == 4
    assert centres[0, 3] == centres[1, 0]
    assert centres[1, 2] == centres[0, 1]


CALLS = json.loads(Path(__file__).with_name("calls.json").read_text("utf-8"))
"""`read`: texts and their calls, or null; `answers`: call, result, moves (null: the first 8)."""
#                    0123456
BOARD = parse_level("P.#...#\n..#.#.#\n....#.#\n###.#G#\n..#....")


@pytest.mark.parametrize(("text", "call"), CALLS["read"])
def test_calls_are_read_liberally_and_other_texts_not(text, call):
    found = read_call(text)
    assert isinstance(found, ParseError) if call is None else str(found) == call


@given(
    st.builds(
        HelperCall, st.sampled_from(["path", "distance", "neighbours"]), *[st.integers(0, 99)] * 2
    )
)
def test_a_written_call_is_read_back(call):
    assert read_call(str(call)) == call


@pytest.mark.parametrize(
    "text", ["path(" * 50_000, "path(1,", "1" * 200_000, "path(1 " + " " * 99_999]
)
def test_long_texts_are_no_trap(text):
    assert isinstance(read_call(text), ParseError)


@pytest.mark.parametrize(("name", "row", "col", "text", "moves", "is_answered"), CALLS["answers"])
def test_answers(name, row, col, text, moves, is_answered):
    call = HelperCall(name, row, col)
    result = answer(BOARD, BOARD.start, call, 8)
    assert result.call == str(call)
    assert result.result == text
    assert result.answer == ("DDRRRDDR" if moves is None else moves)
    assert result.is_useful is (None if result.answer else is_answered)


def test_programs_read_the_present_board():
    env = before_call()
    env.step("no program")
    env.step("DDRR")
    env.step("```python\nimport sys; print(repr(sys.stdin.read()))\n```")
    assert repr(level_text(BOARD, BOARD.cell(2, 2)) + "\n") in env.state().tool_result


def before_call():
    env = pettingllms.make("plan_path_v0", checks=False, moves_per_turn=8)
    env.reset(seed=0, options={"level": level_text(BOARD)})
    return env
