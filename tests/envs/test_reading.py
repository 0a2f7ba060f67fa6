"""What agents write is read, in the form that is asked for and in others; else it is refused."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pettingllms.types import ParseError
from pettingllms_envs.blocksworld import env as blocksworld
from pettingllms_envs.blocksworld.rules import BLOCKS
from pettingllms_envs.dining.env import read_move
from pettingllms_envs.fireworks.env import read_action
from pettingllms_envs.fireworks.rules import Rules
from pettingllms_envs.panel.env import read_expert, read_moderator
from pettingllms_envs.planning import env as planning
from pettingllms_envs.queens import env as queens
from pettingllms_envs.queens.rules import Move
from pettingllms_envs.relay.env import read_build, read_message
from pettingllms_envs.relay.rules import Level, blank
from pettingllms_envs.sudoku import env as sudoku

CARDS = Rules(5, 5, 5, 4, 8, 3, 25)
PALETTE = (("red", "star"), ("red", "moon"), ("blue", "moon"), ("gold", "key"))
BOARD = Level(blank(8), (), PALETTE, "KTVX", "QBWD", 1)
READERS = {
    "blocksworld": blocksworld.READER.read,
    "dining": read_move,
    "fireworks": lambda text: read_action(text, CARDS, is_marked=True),
    "moves": planning.MOVE_READER.read,
    "panel: moderator": lambda text: read_moderator(text, 3, is_marked=True),
    "panel: expert": lambda text: read_expert(text, "c", is_marked=True),
    "panel: expert with links": lambda text: read_expert(text, "b", True, True),
    "queens": queens.READER.read,
    "relay: builder": lambda text: read_build(text, BOARD, is_marked=True),
    "relay: witness": lambda text: read_message(text, is_marked=True),
    "sudoku": sudoku.reader(4).read,
    "sudoku 16x16": sudoku.reader(16).read,
}
READINGS = json.loads(Path(__file__).with_name("readings.json").read_text("utf-8"))


@pytest.mark.parametrize(
    ("reader", "text", "expected"),
    [(reader, *row) for reader in READINGS for row in READINGS[reader]],
)
def test_what_is_written_is_read(reader, text, expected):
    """The kind of an action and its fields, or a text; null is what cannot be read."""
    found = READERS[reader](text)
    if isinstance(found, tuple) and not isinstance(found, ParseError):
        found = json.loads(json.dumps([type(found).__name__, *found]))
    assert isinstance(found, ParseError) if expected is None else found == expected


CELLS = st.tuples(st.integers(0, 9), st.integers(0, 9))
STACKED = st.tuples(st.sampled_from(BLOCKS), st.sampled_from(BLOCKS + "-")).map("".join)
LISTS = {
    # Answers; the reader, what is read in them; what is written, also where no mark is needed.
    "blocksworld": (
        *(st.lists(STACKED, max_size=6), blocksworld.READER, tuple),
        *(blocksworld.moves_json, blocksworld.moves_compact),
    ),
    "moves": (st.text("UDLR", max_size=30), planning.MOVE_READER, str, planning.moves_json, str),
    "queens": (
        *(st.lists(CELLS.map(lambda cell: Move(*cell)), max_size=6), queens.READER, tuple),
        *(queens.moves_json, lambda moves: queens.moves_terse(queens.parse_level(FOUR), moves)),
    ),
    "sudoku": (
        *(st.lists(st.tuples(*[st.integers(0, 9)] * 3), max_size=32), sudoku.reader(5)),
        *(lambda fills: sudoku.FillAnswer(tuple(fills)), sudoku.fills_json),
        lambda fills: sudoku.fills_terse(fills, 5),
    ),
}
FOUR = "Q...\n...F\nQ...\n..Q."


@pytest.mark.parametrize("game", LISTS)
@given(data=st.data())
def test_a_written_list_is_read_back(game, data):
    answers, reader, read, as_json, terse = LISTS[game]
    items = data.draw(answers)
    wanted = read(items)
    for text in (as_json(items), f"so {as_json(items)}", f"Well.\n#### {as_json(items)}\nDone."):
        assert reader.read(text) == wanted
    assert reader.read_printed(f"plan:\n{as_json(items)}\n") == wanted
    assert not items or reader.read(terse(items)) == wanted


@pytest.mark.parametrize("game", LISTS)
@given(
    data=st.data(),
    before=st.text("#[]UDLR1, \n<ab.x", max_size=12),
    behind=st.text("[]UDLR1, \n.#x", max_size=4),
)
def test_the_usual_form_of_a_list_is_read_as_any_other(game, data, before, behind):
    answers, reader, _, as_json, _ = LISTS[game]
    text = f"{before}#### {as_json(data.draw(answers))}{behind}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pettingllms.parsing.usual_answer", lambda text, most: None)
        expected = reader._read(text)
    found = reader._read(text)
    assert found == expected or (isinstance(found, ParseError) and isinstance(expected, ParseError))
