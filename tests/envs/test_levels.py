"""Levels that people write: what is wrong with one is told with its place."""

import json
from pathlib import Path

import pytest

from pettingllms.errors import LevelFormatError
from pettingllms_envs.blocksworld.env import parse_level as blocksworld
from pettingllms_envs.plan_path.env import parse_level as plan_path
from pettingllms_envs.queens.env import parse_level as queens
from pettingllms_envs.sokoban.text import read_level as sokoban
from pettingllms_envs.sudoku.text import read_puzzle as sudoku

READERS = {
    "blocksworld": blocksworld,
    "plan_path": plan_path,
    "queens": queens,
    "sokoban": sokoban,
    "sudoku": sudoku,
}
CASES = json.loads(Path(__file__).with_name("ill_formed_levels.json").read_text("utf-8"))
"""By game: the text, the line and column that the error names (null: not asked), its words."""


@pytest.mark.parametrize(
    ("game", "text", "line", "column", "problem"),
    [(game, *case) for game, cases in CASES.items() for case in cases],
)
def test_ill_formed_levels_are_refused_with_their_place(game, text, line, column, problem):
    with pytest.raises(LevelFormatError, match=problem) as caught:
        READERS[game](text)
    assert line in (None, caught.value.line)
    assert column in (None, caught.value.column)
