"""Boards against a slow reference, certificates, splits, and what messages can carry."""

import random
from itertools import permutations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pettingllms.errors import InvalidArgument, UnreachableRequest
from pettingllms.seeding import SPLITS, split_of
from pettingllms_envs.relay import RelayEnv
from pettingllms_envs.relay.rules import (
    ALPHABET,
    Fill,
    RelayState,
    Said,
    blank,
    board_bits,
    canonical_form,
    message_bits,
    num_wrong,
    painted,
)
from pettingllms_envs.relay.text import (
    Request,
    described,
    fills_of,
    generate,
    message_of,
    understood,
)

SIZE = 5
SIDES = st.tuples(st.integers(0, SIZE - 1), st.integers(0, SIZE - 1)).map(sorted)
FILLS = st.lists(
    st.builds(
        lambda symbol, rows, columns: Fill(symbol, rows[0], columns[0], rows[1], columns[1]),
        st.integers(0, 3),
        SIDES,
        SIDES,
    ),
    max_size=6,
)
REQUEST = Request(6, 3, 3, 30, 3, is_terse=False, split=None)


@given(fills=FILLS, others=FILLS)
def test_a_cell_shows_the_last_rectangle_that_covers_it(fills, others):
    board = painted(blank(SIZE), *fills)
    for row, column in product(range(SIZE), repeat=2):
        covering = [
            fill.symbol
            for fill in fills
            if row in range(fill.top, fill.bottom + 1)
            and column in range(fill.left, fill.right + 1)
        ]
        assert board[row][column] == [0, *covering][-1]
    other = painted(blank(SIZE), *others)
    cells = product(range(SIZE), repeat=2)
    assert num_wrong(board, other) == sum(board[r][c] != other[r][c] for r, c in cells)


def images(board):
    """Return all boards that are equal up to symmetry, by the coordinates of their cells."""
    end = len(board) - 1
    turns = [
        lambda r, c: (r, c),
        lambda r, c: (end - r, c),
        lambda r, c: (r, end - c),
        lambda r, c: (end - r, end - c),
        lambda r, c: (c, r),
        lambda r, c: (end - c, r),
        lambda r, c: (c, end - r),
        lambda r, c: (end - c, end - r),
    ]
    for turn, names in product(turns, permutations((1, 2))):
        named = [[(0, *names)[cell] for cell in row] for row in board]
        rows = [[0] * len(board) for _ in board]
        for r, c in product(range(len(board)), repeat=2):
            place = turn(r, c)
            rows[place[0]][place[1]] = named[r][c]
        yield tuple(map(tuple, rows))


def test_canonical_forms_of_all_small_boards_are_equal_for_images_alone():
    boards = [
        tuple(zip(cells[:2], cells[2:], strict=True)) for cells in product(range(3), repeat=4)
    ]
    orbits = {board: min(images(board)) for board in boards}
    forms = {board: canonical_form(board) for board in boards}
    pairs = set(zip(orbits.values(), forms.values(), strict=True))
    assert len(pairs) == len(set(orbits.values())) == len(set(forms.values()))


@pytest.mark.parametrize("split", SPLITS)
def test_generated_levels_keep_their_request(split):
    for seed in range(10):
        level = generate(random.Random(seed), REQUEST._replace(split=split))
        assert split_of(canonical_form(level.target)) == split
        assert painted(blank(6), *level.fills) == level.target
        assert len(set(level.palette)) == 3
        assert not set(level.witness_letters) & set(level.builder_letters)
        assert len(set(level.witness_letters + level.builder_letters)) == 6
        for at in range(3):
            fewer = level.fills[:at] + level.fills[at + 1 :]
            assert painted(blank(6), *fewer) != level.target


def played(state, policy, num_turns, max_chars, is_terse=False):
    """Play a scripted policy in both roles by its messages alone; return the state."""
    rng = random.Random(0)
    for _ in range(num_turns):
        said = message_of(state, policy, rng, max_chars, is_terse)
        assert len(said) <= max_chars
        assert set(said) <= set(ALPHABET)
        # what the builder paints depends on the message and on names, not on the target
        blind = state.level._replace(target=blank(len(state.board)), fills=())
        heard = RelayState(blind, state.board, (Said(False, said),))
        state = state._replace(board=painted(state.board, *fills_of(heard, policy, rng)))
    return state


@pytest.mark.parametrize("is_terse", [False, True])
def test_the_certificate_is_an_episode_that_keeps_all_limits(is_terse):
    for seed in range(20):
        level = generate(random.Random(seed), REQUEST._replace(is_terse=is_terse))
        start = RelayState(level, blank(6))
        for num_turns in range(4):
            built = played(start, "oracle", num_turns, 30, is_terse).board
            assert (built == level.target) == (num_turns >= level.turns_needed > 0)


@settings(max_examples=40)
@given(seed=st.integers(0, 10**6), garbage=FILLS)
def test_oracle_and_greedy_mend_whatever_was_built(seed, garbage):
    level = generate(random.Random(seed), REQUEST)
    board = painted(blank(6), *garbage)
    for policy, num_turns in (("oracle", 4), ("greedy", 40)):
        assert played(RelayState(level, board), policy, num_turns, 30).board == level.target


@given(fills=FILLS, seed=st.integers(0, 10**6))
def test_what_is_described_is_understood(fills, seed):
    level = generate(random.Random(seed), REQUEST)
    assert understood(level, ";".join(described(level, fill) for fill in fills)) == tuple(fills)


@pytest.mark.parametrize(("max_chars", "max_turns"), [(1, 1), (5, 2), (48, 3)])
def test_messages_tell_no_more_than_their_bits(max_chars, max_turns):
    texts = sum(len(ALPHABET) ** length for length in range(max_chars + 1))
    assert texts**max_turns <= 2 ** message_bits(max_chars, max_turns) * (1 + 1e-9)


@pytest.mark.parametrize("name", ["expert", "extreme"])
def test_no_code_transmits_the_boards_of_the_hardest_levels(name):
    level = RelayEnv.difficulties.attributes[RelayEnv.difficulties.names[name]]
    told = message_bits(level["max_chars"], level["max_turns"])
    assert told < board_bits(level["size"], level["symbols"])


def test_one_character_a_cell_is_too_much_from_hard_on():
    for level in RelayEnv.difficulties.attributes[RelayEnv.difficulties.names["hard"] :]:
        assert level["max_turns"] * level["max_chars"] < level["size"] ** 2


def test_requests_that_cannot_be_met_are_refused():
    with pytest.raises(InvalidArgument, match="invalid size: got 21"):
        REQUEST._replace(size=21).checked()
    with pytest.raises(UnreachableRequest, match="raise max_chars, max_turns or size"):
        generate(random.Random(0), REQUEST._replace(max_chars=5))
