"""Levels with rules of their own, against the rules read from the level's text and nothing else."""

import random

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import pettingllms
from pettingllms.errors import LevelFormatError, UnreachableRequest
from pettingllms_envs.sokoban.generator import Request, canonical_form, generate
from pettingllms_envs.sokoban.rules import Placement, outlook_of, warehouse_of
from pettingllms_envs.sokoban.text import draw_image, full_text, read_level, read_levels_of_file

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
def ruled_texts(draw, max_side=4):
    rows, cols = draw(st.tuples(st.integers(2, max_side), st.integers(2, max_side)))
    symbols = draw(
        st.lists(st.sampled_from("    #qqqrukm"), min_size=rows * cols, max_size=rows * cols)
    )
    count = draw(st.integers(1, 2)) if rows * cols > 5 else 1
    places = st.lists(
        st.integers(0, rows * cols - 1), min_size=2 * count + 1, max_size=2 * count + 1, unique=True
    )
    for cell, symbol in zip(draw(places), "@" + "$." * count, strict=True):
        symbols[cell] = symbol
    board = "".join(symbols)
    inner = [f"#{board[at : at + cols]}#" for at in range(0, rows * cols, cols)]
    frame = "#" * (cols + 2)
    return "\n".join([frame, *inner, frame, RULES])


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


@MANY_UNSOLVABLE
@given(ruled_texts(), st.text("UDLR", max_size=30))
def test_moves_equal_the_plain_rules(text, moves):
    level, plain, _ = read(text)
    state, executed, pushes = plain.start, "", 0
    for move in moves:
        if state[1] == plain.goals:
            break
        there = plain.after(state, move)
        executed += move if there != state else ""
        pushes += there[1] != state[1]
        state = there
    place, done, num_illegal, num_pushes = warehouse_of(level).play(level.start, moves)
    assert place == placed(level, state)
    assert (done, num_pushes) == (executed, pushes)
    assert len(done) + num_illegal <= len(moves)


@MANY_UNSOLVABLE
@given(ruled_texts())
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
    found = plain.reached()
    solved = [state for state in found if state[1] == plain.goals]
    assert min(found[state] for state in solved) == level.num_moves
    assert 6 <= level.num_moves <= 30
    keys = {letter for letter, means in plain.means.items() if means.startswith("key")}
    assert all(state[2] == keys for state in solved)
    assert read_level(full_text(level, level.start)) == level
    kinds = {"door" if "of" in means else means.split()[0] for means in plain.means.values()}
    assert len(kinds) == num_rules


def test_boards_whose_states_are_too_many_are_refused():
    with pytest.raises(UnreachableRequest, match=r"9x9 .* boxes=2 and rules=1 .* 200000 states"):
        pettingllms.make("sokoban_v0", size=9, boxes=2, rules=1)
    pettingllms.make("sokoban_v0", size=8, boxes=2, rules=3)


TURNED = dict(zip("URDL", "RDLU", strict=True))


@MANY_UNSOLVABLE
@given(ruled_texts(), st.permutations("qrukm"))
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


@pytest.mark.parametrize(
    ("text", "line", "word"),
    [
        ("#####\n#@$.#\n#####\nq: mud", 4, "no rule"),
        ("#####\n#@a.#\n#####\nq: ice", 2, "unknown symbol 'a'"),
        ("######\n#@$l.#\n######\nl: one-way L", 1, "by its rules the level has no solution"),
        ("#######\n#@$k .#\n#######\nk: key of m\nm: door of k", 1, "by its rules"),
    ],
)
def test_ill_formed_levels_are_refused(text, line, word):
    with pytest.raises(LevelFormatError, match=word) as caught:
        read_level(text)
    assert caught.value.line == line


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


@pytest.mark.parametrize("policy", pettingllms.spec("sokoban_v0").load().scripted_policies)
def test_policies_make_legal_moves_until_the_end(policy):
    env = pettingllms.make("sokoban_v0", team="single", difficulty="extreme", checks=False)
    for seed in range(3):
        env.reset(seed=seed)
        while not any((*env.terminations.values(), *env.truncations.values())):
            env.step(env.scripted_action("planner_0", policy, random.Random(seed)))
            assert env.infos["planner_0"]["illegal_moves"] == 0
        assert env.infos["planner_0"]["success"] or policy != "oracle"
        if policy in ("never-push", "there-and-back"):
            assert env.infos["planner_0"]["num_pushes"] == 0
