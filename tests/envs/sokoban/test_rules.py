"""Moves, searches, bounds, levels and texts against the rules read from text alone."""

import random

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import pettingllms
from pettingllms.errors import InvalidArgument, LevelFormatError, UnreachableRequest
from pettingllms_envs.grid import cells_of, flood
from pettingllms_envs.planning.env import moves_json
from pettingllms_envs.sokoban import SokobanEnv
from pettingllms_envs.sokoban.env import (
    board_text,
    draw_image,
    full_text,
    level_text,
    read_level,
    read_levels_of_file,
)
from pettingllms_envs.sokoban.rules import (
    Level,
    Placement,
    Request,
    canonical_form,
    certify,
    generate,
    outlook_of,
    warehouse_of,
)
from pettingllms_envs.team_table import MAX_MOVES_PER_TURN

WAYS = {"U": (-1, 0), "D": (1, 0), "L": (0, -1), "R": (0, 1)}
MANY_UNSOLVABLE = settings(
    max_examples=40, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow]
)
RULES = "q: ice\nr: one-way R\nu: one-way U\nk: key of m\nm: door of k"


class Plain:
    """The rules as a reader of the text would play them; a state is (player, boxes, keys)."""

    def __init__(self, text):
        lines = text.split("\n")
        rows = [line for line in lines if ":" not in line]
        self.means = dict(line.split(": ") for line in lines if ":" in line)
        self.at = {(r, c): symbol for r, row in enumerate(rows) for c, symbol in enumerate(row)}
        self.goals = {cell for cell, symbol in self.at.items() if symbol in ".*+"}
        boxes = frozenset(cell for cell, symbol in self.at.items() if symbol in "$*")
        player = next(cell for cell, symbol in self.at.items() if symbol in "@+")
        self.start = (player, boxes, frozenset())

    def can_enter(self, cell, move, keys, is_player):
        means = self.means.get(self.at.get(cell, "#"), self.at.get(cell, "#"))
        if means.startswith("door of "):
            return means[-1] in keys
        if means.startswith("key of "):
            return is_player or self.at[cell] in keys
        return means == f"one-way {move}" if means.startswith("one-way") else means != "#"

    def slide(self, cell, move, keys, boxes, is_player):
        while True:
            ahead = cell[0] + WAYS[move][0], cell[1] + WAYS[move][1]
            if ahead in boxes or not self.can_enter(ahead, move, keys, is_player):
                return cell
            cell = ahead
            if self.means.get(self.at[cell]) != "ice":
                return cell

    def after(self, state, move):
        player, boxes, keys = state
        target = player[0] + WAYS[move][0], player[1] + WAYS[move][1]
        if target in boxes and self.can_enter(target, move, keys, True):
            rest = self.slide(target, move, keys, boxes, False)
            if rest == target:
                return state
            boxes = boxes - {target} | {rest}
        player = self.slide(player, move, keys, boxes, True)
        if self.means.get(self.at[player], "").startswith("key"):
            keys |= {self.at[player]}
        return player, boxes, keys

    def reached(self):
        """Return the states that can be reached, and how many moves from the start."""
        found, queue = {self.start: 0}, [self.start]
        for state in queue:
            for move in WAYS if state[1] != self.goals else ():
                if (there := self.after(state, move)) not in found:
                    found[there] = found[state] + 1
                    queue.append(there)
        return found

    def shortest(self):
        """Return the length of a shortest solution, None if there is none."""
        ends = (moves for state, moves in self.reached().items() if state[1] == self.goals)
        return min(ends, default=None)

    def moves_left(self):
        """Return state -> moves left, by relaxing all moves until nothing changes."""
        left = {state: 0 if state[1] == self.goals else None for state in self.reached()}
        changed = True
        while changed:
            changed = False
            for state in left:
                ways = [left[self.after(state, move)] for move in WAYS] if left[state] != 0 else []
                best = min((way + 1 for way in ways if way is not None), default=None)
                if best is not None and (left[state] is None or best < left[state]):
                    left[state], changed = best, True
        return left


@st.composite
def level_texts(draw, is_ruled=True):
    """Boards, solvable or not, on which boxes and the player may stand on goals."""
    rows, cols = draw(st.tuples(st.integers(2, 4), st.integers(2, 4)))
    symbol = st.sampled_from("    #qqqrukm" if is_ruled else "   #")
    symbols = draw(st.lists(symbol, min_size=rows * cols, max_size=rows * cols))
    count = draw(st.integers(1, 2)) if rows * cols > 5 else 1

    def places(size):
        cells = st.integers(0, rows * cols - 1)
        return draw(st.lists(cells, min_size=size, max_size=size, unique=True))

    goals, (player, *boxes) = places(count), places(count + 1)
    assume(not is_ruled or {*boxes} != {*goals})
    for cell in goals:
        symbols[cell] = "."
    for cell in boxes:
        symbols[cell] = "*" if cell in goals else "$"
    symbols[player] = "+" if player in goals else "@"
    board = "".join(symbols)
    inner = [f"#{board[at : at + cols]}#" for at in range(0, rows * cols, cols)]
    frame = "#" * (cols + 2)
    return "\n".join([frame, *inner, frame] + [RULES] * is_ruled)


def read(text):
    """Return the level and the plain rules; of levels that are refused there is no solution."""
    plain = Plain(text)
    left = plain.moves_left()
    try:
        return read_level(text), plain, left
    except LevelFormatError:
        assert left[plain.start] is None
    assume(False)


def placed(level, state):
    """Return the placement of a plain state; the only key is number 0."""
    player, boxes, keys = state
    cells = sum(1 << row * level.stride + col for row, col in boxes)
    return Placement(player[0] * level.stride + player[1], cells, len(keys))


@pytest.mark.parametrize("is_ruled", [False, True])
@MANY_UNSOLVABLE
@given(data=st.data(), moves=st.text("UDLR", max_size=30))
def test_moves_equal_the_plain_rules(data, is_ruled, moves):
    text = data.draw(level_texts(is_ruled))
    level, plain = read(text)[:2] if is_ruled else (raw_level(text), Plain(text))
    house, step = warehouse_of(level), level.start
    state, executed, pushes = plain.start, "", 0
    for move in moves:
        if state[1] == plain.goals:
            break
        there = plain.after(state, move)
        executed += move if there != state else ""
        pushes += there[1] != state[1]
        state, step = there, house.step(step, move)
        assert step == placed(level, state)
    place, done, num_illegal, num_pushes = house.play(level.start, moves)
    assert place == step
    assert (done, num_pushes) == (executed, pushes)
    assert len(done) + num_illegal <= len(moves)
    if not is_ruled:
        assert level_text(level) == text
        shown = Plain(board_text(level, place))
        assert (shown.start, shown.goals) == (state, plain.goals)


def test_no_box_is_pushed_into_another():
    level = raw_level("######\n#@$$ #\n#..  #\n######")
    assert warehouse_of(level).play(level.start, "R") == (level.start, "", 1, 0)


@MANY_UNSOLVABLE
@given(level_texts())
def test_distances_equal_a_plain_search_from_every_state(text):
    level, plain, left = read(text)
    assert level.num_moves == left[plain.start]
    assert level.certificate == "optimal"
    for state, moves in left.items():
        place = placed(level, state)
        distance = -1 if moves is None else moves
        assert warehouse_of(level).distance(place) == distance
        outlook = outlook_of(level, place)
        assert (outlook.pushes_left < 0) == (moves is None)
        assert outlook.boxes_home == len(state[1] & plain.goals)


@settings(max_examples=15)
@given(st.integers(1, 3), st.integers(0, 999))
def test_generated_levels_are_certified_and_have_their_rules(num_rules, seed):
    wanted = Request(6, 6, 1, 0.1, 6, 30, None, num_rules).checked(80)
    level = generate(random.Random(seed), wanted)
    plain = Plain(full_text(level, level.start))
    solved = [state for state in plain.reached() if state[1] == plain.goals]
    assert plain.shortest() == level.num_moves
    assert 6 <= level.num_moves <= 30
    keys = {letter for letter, means in plain.means.items() if means.startswith("key")}
    assert all(state[2] == keys for state in solved)
    assert read_level(full_text(level, level.start)) == level
    kinds = {"door" if "of" in means else means.split()[0] for means in plain.means.values()}
    assert len(kinds) == num_rules


TURNED = dict(zip("URDL", "RDLU", strict=True))


@MANY_UNSOLVABLE
@given(level_texts(), st.permutations("qrukm"))
def test_turned_and_renamed_levels_are_one(text, letters):
    level, _, _ = read(text)
    board, rules = text.split("\n")[: level.rows], text.split("\n")[level.rows :]
    turned = ["".join(column) for column in zip(*board[::-1], strict=True)]
    ways = [line[:-1] + TURNED[line[-1]] if "way" in line else line for line in rules]
    new = dict(zip("qrukm", letters, strict=True))
    named = [row.translate(str.maketrans(new)) for row in board]
    lines = [
        f"{new[line[0]]}{line[1:-1]}{new[line[-1]] if ' of ' in line else line[-1]}"
        for line in rules
    ]
    for other in (turned + ways, named + lines):
        assert canonical_form(read_level("\n".join(other))) == canonical_form(level)
    switched = [line.replace("one-way U", "one-way D") for line in rules]
    if any("u" in row for row in board):
        plain = Plain("\n".join(board + switched))
        if plain.moves_left()[plain.start] is not None:
            changed = read_level("\n".join(board + switched))
            assert changed.cells != level.cells


CORRIDOR = "#######\n#@$q .#\n#######\nq: ice"
FILE = f"; a remark\n{CORRIDOR}\n\nTitle: a second\n#####\n#@$.#\n#####"


def test_files_hold_levels_with_and_without_rules():
    with_rules, without = read_levels_of_file(FILE)
    assert (with_rules.rules, with_rules.num_moves) == ("q: ice", 3)
    assert (without.rules, without.num_moves) == ("", 1)


def started(**kwargs):
    env = pettingllms.make("sokoban_v0", checks=False, stop_when_lost=False, **kwargs)
    text = "########\n#@ q$ .#\n#k  q  #\n# m    #\n########"
    env.reset(seed=0, options={"level": f"{text}\nq: ice\nk: key of m\nm: door of k"})
    return env


def test_agents_read_rules_open_doors_and_what_is_covered():
    env = started(team="single")
    assert env.observe("planner_0").endswith("\nq: ice\nk: key of m\nm: door of k")
    env.step("D")
    assert "Now free: the doors m." in env.observe("planner_0")
    assert "3 # _ _ _" in env.observe("planner_0")
    env.step("URR")
    assert "Boxes not on goals: (1, 4)" in env.observe("planner_0")
    assert "under row 1, column 3: q" in env.observe("planner_0")


def test_a_picture_shows_letters_until_doors_are_open():
    level = started(team="single").state().level
    closed, opened = (draw_image(level, level.start._replace(opened=keys)) for keys in (0, 1))
    assert (closed[72:96, 48:72] != opened[72:96, 48:72]).any()


def test_programs_read_the_rules_below_the_board():
    env = started()
    env.step("```python\nimport sys; print(sys.stdin.read())\n```")
    assert "######\nq: ice\nk: key of m\nm: door of k" in env.state().tool_result


def raw_level(text):
    """A level without the checks of `read_level`, so that hopeless ones can be tried too."""
    plain, rows = Plain(text), text.split("\n")
    stride = len(rows[0]) + 1

    def bits(cells):
        return sum(1 << row * stride + col for row, col in cells)

    (row, col), boxes, _ = plain.start
    return Level(
        len(rows),
        stride - 1,
        bits(cell for cell, symbol in plain.at.items() if symbol != "#"),
        bits(plain.goals),
        bits(boxes),
        row * stride + col,
    )


boards = level_texts(is_ruled=False)


@given(boards)
def test_solve_is_exact(text):
    level, board = raw_level(text), Plain(text)
    shortest = board.shortest()
    solution = warehouse_of(level).solve(level.start)
    if shortest is None:
        assert solution is None
    else:
        assert len(solution) == shortest
        place, executed, *_ = warehouse_of(level).play(level.start, solution)
        assert (place.boxes, executed) == (level.goals, solution)


@given(boards)
def test_bounds_never_lie(text):
    """`lost` is said of hopeless states only, and the pushes left are a lower bound."""
    level, board = raw_level(text), Plain(text)
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


DEAD = {
    "corner": "######\n#$  .#\n# @  #\n######",
    "wall without a goal": "#######\n#  $  #\n# .@  #\n#     #\n#######",
    "square of boxes": "#######\n#     #\n# $$ .#\n# $$ .#\n#@  ..#\n#     #\n#######",
}


@pytest.mark.parametrize("name", DEAD)
def test_lost_placements_are_recognised(name):
    level = raw_level(DEAD[name])
    assert warehouse_of(level).pushes_left(level.start) == -1
    assert Plain(DEAD[name]).shortest() is None


def test_search_is_bounded_and_says_so():
    text = "########\n#      #\n# $$$  #\n#  @   #\n# ...  #\n#      #\n########"
    level = read_level(text)
    with pytest.raises(UnreachableRequest, match="within 5 search nodes"):
        warehouse_of(level).solve(level.start, node_limit=5)


def request(size, boxes, low=None, high=None, split=None, ratio=0.25, budget=400):
    return Request(size, size, boxes, ratio, low, high, split).checked(budget)


@pytest.mark.parametrize(("size", "boxes"), [(10, 4), (16, 6)])
def test_large_levels_carry_a_solution(size, boxes):
    wanted = request(size, boxes)
    for seed in range(5):
        level = generate(random.Random(seed), wanted)
        assert level.certificate == "reference"
        assert len(level.solution) == level.num_moves <= wanted.max_moves
        place, executed, num_illegal, _ = warehouse_of(level).play(level.start, level.solution)
        assert (place.boxes, executed, num_illegal) == (level.goals, level.solution, 0)
        again = read_level(level_text(level))
        assert again == level._replace(certificate="none", num_moves=0, solution="")


def test_rectangles():
    level = generate(random.Random(0), Request(5, 9, 2, 0.2, 8, 30, None).checked(400))
    assert (level.rows, level.cols) == (5, 9)


def images(text):
    """All rotations and reflections of a board."""
    rows = text.split("\n")
    for turned in (rows, ["".join(column) for column in zip(*rows, strict=True)]):
        for image in (turned, turned[::-1]):
            yield "\n".join(image)
            yield "\n".join(row[::-1] for row in image)


def test_canonical_form_ignores_symmetry_the_players_place_and_the_frame():
    for seed in range(15):
        level = generate(random.Random(seed), request(7, 2))
        form = canonical_form(level)
        text = level_text(level)
        assert {canonical_form(read_level(image)) for image in images(text)} == {form}
        region = flood(level.floor & ~level.boxes, 1 << level.player, level.stride)
        for player in cells_of(region):
            assert canonical_form(level._replace(player=player)) == form
        framed = "\n".join(["#" * 9, *("#" + row + "#" for row in text.split("\n"))])
        assert canonical_form(read_level(framed)) == form
        others = level.floor & ~level.boxes & ~region
        for player in cells_of(others):
            assert canonical_form(level._replace(player=player)) != form


def huge_level():
    """Return the largest board that can be read: 64 rows and columns, 10 boxes."""
    row = "#" + " " * 62 + "#"
    boxes, goals = ("#" + " " * 40 + f" {symbol}" * 10 + "  #" for symbol in "$.")
    rows = ["#" * 64, "#@" + row[2:], *[row] * 58, goals, boxes, row, "#" * 64]
    return "\n".join(rows)


@pytest.mark.parametrize("team", ["tool-planner", "proposer-planner"])
def test_prompts_of_the_largest_levels_are_in_the_space(team):
    env = SokobanEnv(team=team, levels=[huge_level()], moves_per_turn=MAX_MOVES_PER_TURN)
    env.reset(seed=0)
    for text in (moves_json("RL" * 200_000), "```python\nprint(['R'] * 200_000)\n```"):
        branch = env.fork()
        branch.step(text)
        prompt = branch.observe("planner_0")
        assert len(prompt) < 64 * 65 + 4 * MAX_MOVES_PER_TURN + 10_000
        assert branch.observation_space("planner_0").contains(prompt)


def test_larger_levels_and_longer_turns_are_refused():
    with pytest.raises(LevelFormatError, match="at most 64 rows and columns"):
        SokobanEnv(levels=["#" * 65 + "\n" + huge_level().replace("\n", "#\n") + "#"])
    with pytest.raises(InvalidArgument, match=r"moves_per_turn: .* from 1 to 10000"):
        SokobanEnv(moves_per_turn=MAX_MOVES_PER_TURN + 1)


def test_compact_placeholders():
    names = ("board_flat", "places_compact", "proposal_compact")
    user = "/".join(f"{{{name}}}" for name in names)
    prompts = {"planner": {"system": "", "user": user}}
    env = SokobanEnv(team="proposer-planner", prompts=prompts)
    env.reset(seed=0, options={"level": "######\n#@$ .#\n######"})
    env.step('#### ["R","R"]')
    assert env.observe("planner_0") == "#######@$_.#######/111214/RR"
    env.reset(seed=0, options={"level": f"{'#' * 12}\n#@$.{' ' * 7}#\n{'#' * 12}"})
    assert env.observe("planner_0").split("/")[1] == "010101020103"


GOOD = "#######\n#@ $ .#\n# $  .#\n#  *  #\n#     #\n#######"


RAGGED = "  ####\n###  ####\n#     $ #\n# #  #$ #\n# . .#@ #\n#########"


def test_shorter_rows_are_filled_up():
    level = read_level(RAGGED)
    assert (level.rows, level.cols) == (6, 9)
    filled = "#########\n###  ####\n#     $ #\n# #  #$ #\n# . .#@ #\n#########"
    assert level == read_level(filled)
    assert level_text(level) == filled
    solution = warehouse_of(level).solve(level.start)
    assert warehouse_of(level).play(level.start, solution)[0].boxes == level.goals


def test_collections_with_titles_and_remarks_load():
    text = f"Title: Two\nAuthor: A person\n\n; 1\n\n{RAGGED}\nTitle: first\n\n{GOOD}\n; end\n"
    assert [level.cols for level in read_levels_of_file(text)] == [9, 7]
    with pytest.raises(LevelFormatError, match="unknown symbol 'T'"):
        read_level(f"{GOOD}\nTitle")


@pytest.mark.parametrize("name", ["unfiltered_train", "medium_valid", "hard"])
def test_boxoban_levels_load_and_are_certified(shared_data, name):
    text = shared_data(f"boxoban/{name}.txt").read_text()
    levels = read_levels_of_file(text)
    assert len(levels) == 50
    boards = [block.partition("\n")[2].rstrip("\n") for block in text.split(";") if block.strip()]
    assert [level_text(level) for level in levels] == boards
    for level in levels[:5]:
        assert level.certificate in ("none", "optimal")
        solution = warehouse_of(level).solve(level.start)
        assert certify(level) == level._replace(certificate="optimal", num_moves=len(solution))
        place, executed, *_ = warehouse_of(level).play(level.start, solution)
        assert (place.boxes, executed) == (level.goals, solution)
