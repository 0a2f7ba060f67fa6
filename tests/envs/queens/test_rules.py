"""Solutions, distances, moves and canonical forms against plain references."""

import random
from itertools import permutations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pettingllms.errors import InvalidArgument, LevelFormatError, UnreachableRequest
from pettingllms.splits import SPLITS, split_of
from pettingllms.transition import ParseError
from pettingllms_envs.queens.generator import Request, generate
from pettingllms_envs.queens.rules import (
    Move,
    after,
    attacks,
    canonical_form,
    distance,
    legal_moves,
    solutions,
)
from pettingllms_envs.queens.text import (
    board_text,
    labelled_board,
    moves_compact,
    moves_json,
    parse_level,
    parse_levels,
    read_moves,
    read_printed,
)

LEVEL = "Q...\n...F\nQ...\n..Q."
NUM_SOLUTIONS = {4: 2, 5: 10, 6: 4, 7: 40, 8: 92, 9: 352, 10: 724}
"""OEIS A000170."""


def levels(size=6, fixed=1, low=2, high=6):
    request = Request(size, fixed, low, high, None).checked()
    return st.integers(0, 10**6).map(lambda seed: generate(random.Random(seed), request))


@pytest.mark.parametrize("size", NUM_SOLUTIONS)
def test_all_solutions_are_found(size):
    found = solutions(size)
    assert len(found) == len(set(found)) == NUM_SOLUTIONS[size]
    assert not any(map(attacks, found))


def test_solutions_are_the_permutations_without_attacks():
    expected = [one for one in permutations(range(6)) if not attacks(one)]
    assert list(solutions(6)) == expected


def test_distances_are_those_of_a_search():
    """Breadth-first search over all boards with a fixed queen, from all solutions."""
    level = parse_level(LEVEL)
    boards = [one for one in product(range(4), repeat=4) if one[1] == 3]
    found = {one: 0 for one in boards if not attacks(one)}
    queue = list(found)
    for board in queue:
        for near in (after(level, board, move) for move in legal_moves(level, board)):
            if near not in found:
                found[near] = found[board] + 1
                queue.append(near)
    assert {one: distance(level, one) for one in boards} == found


@given(level=levels(), row=st.integers(-1, 6), col=st.integers(-1, 6))
def test_moves_change_one_free_queen(level, row, col):
    following = after(level, level.start, Move(row, col))
    inside = 0 <= row < 6 and 0 <= col < 6
    is_legal = inside and not level.fixed[row] and level.start[row] != col
    assert (
        (following is not None) == is_legal == (Move(row, col) in legal_moves(level, level.start))
    )
    if is_legal:
        expected = list(level.start)
        expected[row] = col
        assert following == tuple(expected)
        assert after(level, following, Move(row, level.start[row])) == level.start


def test_pairs_that_attack():
    assert attacks((0, 0, 0)) == 3
    assert attacks((0, 1, 2)) == 3
    assert attacks((1, 3, 0, 2)) == 0
    assert attacks((0, 3, 0, 2)) == 1


@given(level=levels())
def test_mirror_images_have_one_canonical_form(level):
    rows = board_text(level, level.start).split("\n")
    for image in (rows[::-1], [row[::-1] for row in rows], [row[::-1] for row in rows[::-1]]):
        assert canonical_form(parse_level("\n".join(image))) == canonical_form(level)


@pytest.mark.parametrize("split", SPLITS)
def test_generated_levels_keep_their_request(split):
    request = Request(8, 2, 4, 5, split).checked()
    for seed in range(20):
        level = generate(random.Random(seed), request)
        assert sum(level.fixed) == 2
        assert 4 <= level.shortest == distance(level, level.start) <= 5
        assert split_of(canonical_form(level)) == split
        assert parse_level(board_text(level, level.start)) == level


def test_requests_that_cannot_be_met_are_refused():
    with pytest.raises(UnreachableRequest, match="there are 2 queens to move"):
        Request(4, 2, 3, 4, None).checked()
    with pytest.raises(
        InvalidArgument, match="invalid fixed: got 0; allowed: an integer from 1 to"
    ):
        Request(4, 0, 1, 4, None).checked()
    with pytest.raises(UnreachableRequest, match="2000 random boards held no level"):
        generate(random.Random(0), Request(10, 1, 9, 9, None))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("Q..\n..Q\n.F.", "a board of 3x3 cells"),
        ("F...\n....\nQ...\n..Q.", "not exactly one queen in this row"),
        ("Q...\n...Q\nQ...\n..Q.", "no queen is fixed"),
        ("F...\nQ...\nQ...\n..Q.", "no solution has the fixed queens"),
        (".F..\n...Q\nQ...\n..Q.", "no queen attacks another"),
        ("Q..x\n...F\nQ...\n..Q.", "unknown symbol 'x'"),
    ],
)
def test_ill_formed_levels_are_refused(text, problem):
    with pytest.raises(LevelFormatError, match=problem):
        parse_level(text)


def test_files_hold_levels_divided_by_blank_lines():
    assert len(parse_levels(f"\n{LEVEL}\n\n\n{LEVEL}\n")) == 2
    with pytest.raises(LevelFormatError, match="line 6"):
        parse_levels(f"{LEVEL}\n\nx...\n...F\nQ...\n..Q.")


def test_boards_are_drawn_with_numbers():
    level = parse_level(LEVEL)
    assert labelled_board(level, level.start).split("\n")[:3] == [
        "  0 1 2 3",
        "0 Q . . .",
        "1 . . . F",
    ]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=6))
def test_moves_are_read_back(pairs):
    moves = tuple(Move(*pair) for pair in pairs)
    for text in (f"#### {moves_json(moves)}", f"so {moves_json(moves)}", moves_json(moves)):
        assert read_moves(text) == moves
    assert read_printed(f"plan:\n{moves_json(moves)}\n") == moves
    if moves:
        assert read_moves(moves_compact(moves)) == moves


@pytest.mark.parametrize("text", ["", "1", "#### [[1]]", "#### [[a, b]]", "#### [[1,2,3]]"])
def test_what_is_no_list_of_moves(text):
    assert isinstance(read_moves(text), ParseError)
