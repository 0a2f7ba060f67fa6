"""What witness and builder read and write, rewards, ends."""

import pytest

import pettingllms
from pettingllms.types import ParseError
from pettingllms_envs.relay.rules import Level, blank
from pettingllms_envs.relay.text import (
    Build,
    fills_text,
    legend_text,
    read_build,
    symbol_words,
)

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
    assert legend_text(level, level.witness_letters) in env.observe("witness_0")
    assert legend_text(level, level.builder_letters) in env.observe("builder_0")
    fills = fills_text(level._replace(builder_letters=level.witness_letters), level.fills)
    assert isinstance(read_build(f"#### {fills}", level, is_marked=True), ParseError)
    assert read_build(f"#### {fills_text(level, level.fills)}", level, is_marked=True) == Build(
        level.fills, ""
    )


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
    words = [symbol_words(LEVEL, symbol) for symbol in range(5)]
    assert words == ["empty", "star", "red moon", "blue", "key"]


def test_compact_boards_say_what_is_there_and_what_is_missing():
    user = "{target_compact}|{board_compact}|{missing_compact}"
    env = started(prompts={"witness": {"system": "", "user": user}})
    target, board, missing = env.observe("witness_0").split("|")
    assert set(target) <= set("0123")
    assert board == "0" * 25
    assert missing == target.replace("0", "-")
