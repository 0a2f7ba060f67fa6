"""Boards against a slow reference, what messages can carry, what both read, rewards, ends."""

import random
from itertools import permutations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pettingllms
from pettingllms.types import ParseError
from pettingllms_envs.relay import RelayEnv
from pettingllms_envs.relay import env as relay
from pettingllms_envs.relay.rules import (
    ALPHABET,
    Fill,
    Level,
    RelayState,
    Said,
    blank,
    board_bits,
    canonical_form,
    message_bits,
    num_wrong,
    painted,
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
REQUEST = relay.Request(6, 3, 3, 30, 3, is_terse=False, split=None)


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


def played(state, policy, num_turns, max_chars, is_terse=False):
    """Play a scripted policy in both roles by its messages alone; return the state."""
    rng = random.Random(0)
    for _ in range(num_turns):
        said = relay.message_of(state, policy, rng, max_chars, is_terse)
        assert len(said) <= max_chars
        assert set(said) <= set(ALPHABET)
        # what the builder paints depends on the message and on names, not on the target
        blind = state.level._replace(target=blank(len(state.board)), fills=())
        heard = RelayState(blind, state.board, (Said(False, said),))
        state = state._replace(board=painted(state.board, *relay.fills_of(heard, policy, rng)))
    return state


@pytest.mark.parametrize("is_terse", [False, True])
def test_the_certificate_is_an_episode_that_keeps_all_limits(is_terse):
    for seed in range(20):
        level = relay.generate(random.Random(seed), REQUEST._replace(is_terse=is_terse))
        start = RelayState(level, blank(6))
        for num_turns in range(4):
            built = played(start, "oracle", num_turns, 30, is_terse).board
            assert (built == level.target) == (num_turns >= level.turns_needed > 0)


@settings(max_examples=40)
@given(seed=st.integers(0, 10**6), garbage=FILLS)
def test_oracle_and_greedy_mend_whatever_was_built(seed, garbage):
    level = relay.generate(random.Random(seed), REQUEST)
    board = painted(blank(6), *garbage)
    for policy, num_turns in (("oracle", 4), ("greedy", 40)):
        assert played(RelayState(level, board), policy, num_turns, 30).board == level.target


@given(fills=FILLS, seed=st.integers(0, 10**6))
def test_what_is_described_is_understood(fills, seed):
    level = relay.generate(random.Random(seed), REQUEST)
    assert relay.understood(
        level, ";".join(relay.described(level, fill) for fill in fills)
    ) == tuple(fills)


@pytest.mark.parametrize(("max_chars", "max_turns"), [(1, 1), (5, 2), (48, 3)])
def test_messages_tell_no_more_than_their_bits(max_chars, max_turns):
    texts = sum(len(ALPHABET) ** length for length in range(max_chars + 1))
    assert texts**max_turns <= 2 ** message_bits(max_chars, max_turns) * (1 + 1e-9)


@pytest.mark.parametrize("name", ["expert", "extreme"])
def test_no_code_transmits_the_boards_of_the_hardest_levels(name):
    level = RelayEnv.difficulties.attributes[RelayEnv.difficulties.names[name]]
    told = message_bits(level["max_chars"], level["max_turns"])
    assert told < board_bits(level["size"], level["symbols"])


LEVEL = Level(
    blank(8),
    (),
    (("red", "star"), ("red", "moon"), ("blue", "moon"), ("gold", "key")),
    "KTVX",
    "QBWD",
    1,
)


def started(seed=0, **kwargs):
    env = pettingllms.make("relay_v0", checks=False, **kwargs)
    env.reset(seed=seed)
    return env


def parts(env, agent):
    return env.infos[agent]["reward_parts"]


def test_nothing_that_the_builder_reads_depends_on_the_target():
    for seed in range(10):
        env = started(seed)
        env.step("#### hello")
        state = env.state()
        other = state.level._replace(target=state.level.target[::-1], fills=())
        fields = env._fields(state._replace(level=other), "builder_0", 0)
        assert dict(fields) == dict(env._fields(state, "builder_0", 0))


def test_letters_of_the_witness_mean_nothing_to_the_builder():
    env = started()
    level = env.state().level
    assert relay.legend_text(level, level.witness_letters) in env.observe("witness_0")
    assert relay.legend_text(level, level.builder_letters) in env.observe("builder_0")
    fills = relay.fills_text(level._replace(builder_letters=level.witness_letters), level.fills)
    assert isinstance(relay.read_build(f"#### {fills}", level, is_marked=True), ParseError)
    assert relay.read_build(
        f"#### {relay.fills_text(level, level.fills)}", level, is_marked=True
    ) == relay.Build(level.fills, "")


def test_names_are_drawn_for_each_level():
    words, letters = set(), set()
    for seed in range(20):
        level = started(seed).state().level
        words.add(frozenset(level.palette))
        letters.add(level.witness_letters + level.builder_letters)
    assert len(words) == len(letters) == 20


def test_messages_are_cut_and_stripped_of_signs():
    env = started(max_chars=10)
    env.step("#### Red\u4e00STAR \u2460 b3!? d5 and more")
    assert env.state().messages[-1].text == "redstar b3"
    assert env.infos["witness_0"]["num_cut"] == len(" d5 and more")
    assert parts(env, "witness_0")["local"] == pytest.approx(-0.04 / 3)
    assert "witness: redstar b3" in env.observe("builder_0")


def test_cells_pay_what_they_are_worth_and_closed_loops_nothing():
    env = started(seed=1, max_turns=5)
    level = env.state().level
    letters, num_cells = level.builder_letters, sum(map(bool, sum(level.target, ())))
    row, column = next(
        (r, c) for r, line in enumerate(level.target) for c, cell in enumerate(line) if cell
    )
    cell = f"{'abcde'[column]}{row + 1}"
    right = letters[level.target[row][column] - 1]
    wrong = next(letter for letter in letters if letter != right)
    paid = []
    for letter in (right, wrong, "empty", "empty"):
        env.step("#### hello")
        assert parts(env, "witness_0") == {"team": 0, "local": 0}
        env.step(f"#### {letter} {cell}")
        paid.append(parts(env, "builder_0"))
    gains = [one["team"] for one in paid]
    assert gains == pytest.approx([0.1 / num_cells, -0.1 / num_cells, 0, 0])
    assert [one["local"] for one in paid] == pytest.approx([0, 0, 0, -0.04 / 5])


def test_boards_with_more_wrong_cells_than_the_empty_one_are_below_it():
    num_below = 0
    for seed in range(10):
        env = started(seed)
        num_cells = sum(map(bool, sum(env.state().level.target, ())))
        for letter in env.state().level.builder_letters:
            env.reset(seed=seed)
            env.step("#### hello")
            env.step(f"#### {letter} a1 e5")
            num_wrong = env.infos["builder_0"]["num_wrong"]
            if num_wrong > num_cells:
                num_below += 1
                expected = 0.01 * (num_cells / num_wrong - 1)
                assert parts(env, "builder_0")["team"] == pytest.approx(expected)
    assert num_below > 3


def test_unreadable_texts_change_nothing_and_cost():
    env = started()
    before = env.state()
    for agent in ("witness_0", "builder_0"):
        env.step("hm")
        assert parts(env, agent) == pytest.approx({"team": 0, "local": -0.05 / 3})
    assert env.state() == before


def test_limits_are_in_the_infos():
    env = started(difficulty="expert")
    env.step("#### hello")
    info = env.infos["witness_0"]
    assert 350 < info["message_bits"] < info["board_bits"] < 380


def test_symbols_have_the_shortest_words_that_tell_them_apart():
    words = [relay.symbol_words(LEVEL, symbol) for symbol in range(5)]
    assert words == ["empty", "star", "red moon", "blue", "key"]


def test_compact_boards_say_what_is_there_and_what_is_missing():
    user = "{target_compact}|{board_compact}|{missing_compact}"
    env = started(prompts={"witness": {"system": "", "user": user}})
    target, board, missing = env.observe("witness_0").split("|")
    assert set(target) <= set("0123")
    assert board == "0" * 25
    assert missing == target.replace("0", "-")
