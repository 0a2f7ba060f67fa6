"""Solutions, distances, moves and canonical forms against plain references."""

import random
import re
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pettingllms
from pettingllms.errors import InvalidArgument
from pettingllms_envs.queens import rules
from pettingllms_envs.queens.env import board_text, kind_text, parse_level

NUM_SOLUTIONS = {4: 2, 5: 10, 6: 4, 7: 40, 8: 92, 9: 352, 10: 724}
"""OEIS A000170."""


def queens(size):
    return rules.Level((0,) * size, (False,) * size, 0)


def levels(size=6, fixed=1, low=2, high=6, pieces=0):
    request = rules.Request(size, fixed, low, high, None, pieces).checked()
    return st.integers(0, 10**6).map(lambda seed: rules.generate(random.Random(seed), request))


@pytest.mark.parametrize("size", NUM_SOLUTIONS)
def test_all_solutions_are_found(size):
    found = rules.solutions(size)
    assert len(found) == len(set(found)) == NUM_SOLUTIONS[size]
    assert not any(rules.attacks(queens(size), one) for one in found)


@given(level=levels(), row=st.integers(-1, 6), col=st.integers(-1, 6))
def test_moves_change_one_free_queen(level, row, col):
    move = rules.Move(row, col)
    following = rules.after(level, level.start, move)
    inside = 0 <= row < 6 and 0 <= col < 6
    is_legal = inside and not level.fixed[row] and level.start[row] != col
    assert (following is not None) == is_legal == (move in rules.legal_moves(level, level.start))
    if is_legal:
        expected = list(level.start)
        expected[row] = col
        assert following == tuple(expected)
        assert rules.after(level, following, rules.Move(row, level.start[row])) == level.start


def walked(level, columns):
    """The rule once more, from the text that programs read: pairs of rows that attack.

    Every piece walks its steps in all eight directions over a board of letters.
    """
    lines = board_text(level, columns).split("\n")
    steps = {"Q": [(0, 1, 99), (1, 1, 99)]}
    for letter, *words in (line.split() for line in lines if " " in line):
        parts = [re.fullmatch(r"(\d),(\d)(\*?)(\d?)", word).groups() for word in words]
        times = [1 if not star else int(most or 99) for _, _, star, most in parts]
        steps[letter] = [(int(p[0]), int(p[1]), n) for p, n in zip(parts, times, strict=True)]
    board, pairs = [line for line in lines if " " not in line], set()
    for row, line in enumerate(board):
        col = len(line) - len(line.lstrip("."))
        for a, b, most in steps[line[col].upper().replace("F", "Q")]:
            for (x, y), p, q in product(((a, b), (b, a)), (1, -1), (1, -1)):
                for times in range(1, min(most, len(board)) + 1):
                    r, c = row + p * times * x, col + q * times * y
                    if r != row and 0 <= r < len(board) > c >= 0 and board[r][c] != ".":
                        pairs.add(frozenset((row, r)))
    return len(pairs)


@settings(max_examples=30)
@given(level=levels(size=5, low=1, high=4) | levels(size=5, low=1, high=4, pieces=2))
def test_rules_and_distances_are_those_of_the_text(level):
    """Every board with the fixed piece, and its distance by breadth-first search."""
    still = [(row, level.start[row]) for row in range(5) if level.fixed[row]]
    boards = [
        one for one in product(range(5), repeat=5) if all(one[row] == col for row, col in still)
    ]
    found = {one: 0 for one in boards if not walked(level, one)}
    assert sorted(found) == list(rules.goals(level))
    queue = list(found)
    for board in queue:
        for near in (rules.after(level, board, move) for move in rules.legal_moves(level, board)):
            if near not in found:
                found[near] = found[board] + 1
                queue.append(near)
    assert found[level.start] == level.shortest
    for one in random.Random(0).sample(boards, 50):
        assert found[one] == rules.distance(level, one)
        assert walked(level, one) == rules.attacks(level, one)


@settings(max_examples=40)
@given(
    level=levels() | levels(size=12, fixed=3, low=5, high=9, pieces=3), order=st.permutations("ABC")
)
def test_levels_are_read_back_and_their_mirror_images_have_one_form(level, order):
    text = board_text(level, level.start)
    assert parse_level(text) == level
    heads, rows = ([line for line in text.split("\n") if (" " in line) == has] for has in (1, 0))
    renamed = str.maketrans("ABCabc", "".join(order) + "".join(order).lower())
    for image in (rows[::-1], [row[::-1] for row in rows], [row[::-1] for row in rows[::-1]]):
        lines = sorted(line.translate(renamed) for line in heads)
        lines += [row.translate(renamed) for row in image]
        assert rules.canonical_form(parse_level("\n".join(lines))) == rules.canonical_form(level)


@given(level=levels(size=6, fixed=1, low=1, high=5, pieces=1))
def test_other_rules_are_another_form(level):
    """A leap over the whole board is another rule; one beyond it is none."""
    near, far = (
        level._replace(kinds=((*level.kinds[0], leap),)) for leap in ((1, 5, 1), (1, 6, 1))
    )
    assert rules.canonical_form(far) == rules.canonical_form(level)
    assert (rules.canonical_form(near) == rules.canonical_form(level)) == (
        rules.reaches(near) == rules.reaches(level)
    )


def test_every_drawn_kind_differs_from_queens_and_the_others():
    for seed in range(20):
        level = rules.generate(random.Random(seed), rules.Request(9, 3, 3, 9, None, 4).checked())
        assert set(level.pieces) >= set(rules.KINDS[:4])
        assert len(set(rules.reaches(level))) == len(set(level.pieces))


def test_environments_of_queens_alone_refuse_other_pieces():
    level = rules.generate(random.Random(0), rules.Request(6, 1, 2, 5, None, 1).checked())
    text = board_text(level, level.start)
    with pytest.raises(InvalidArgument, match="Make the environment with pieces=1 or more"):
        pettingllms.make("queens_v0", levels=[text])
    env = pettingllms.make("queens_v0", levels=[text], pieces=1, team="single")
    env.reset(seed=0)
    assert f"A {kind_text(level.kinds[0])}." in env.observe("planner_0")


def test_boards_under_other_rules_are_other_states():
    """Even if the rules differ beyond the board alone: prompts do."""
    env = pettingllms.make("queens_v0", pieces=1, checks=False)
    here = rules.generate(random.Random(0), rules.Request(6, 1, 2, 5, None, 1).checked())
    far = here._replace(kinds=((*here.kinds[0], (1, 6, 1)),))
    hashes = []
    for level in (here, far):
        env.reset(seed=0, options={"level": board_text(level, level.start)})
        hashes.append((env.state_hash(), env.level_hash()))
    assert hashes[0][0] != hashes[1][0]
    assert hashes[0][1] == hashes[1][1]
