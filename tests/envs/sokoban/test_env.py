"""The environment: rewards, teams, tools, levels, texts."""

import pytest

from pettingllms.errors import (
    InvalidArgument,
    LevelFormatError,
)
from pettingllms_envs.planning.env import moves_json
from pettingllms_envs.sokoban import SokobanEnv
from pettingllms_envs.sokoban.generator import certify
from pettingllms_envs.sokoban.rules import warehouse_of
from pettingllms_envs.sokoban.text import level_text, read_level, read_levels_of_file
from pettingllms_envs.team_table import MAX_MOVES_PER_TURN

TEAMS = [
    {"team": "tool-planner"},
    {"team": "proposer-planner"},
    {"team": "single"},
    {"team": "single-tool"},
]
CORRIDOR = "#######\n#@ $ .#\n#     #\n#######"


def names(kwargs):
    return "-".join(map(str, kwargs.values())) or "default"


def test_illegal_and_cut_moves():
    env = SokobanEnv(team="single", levels=[CORRIDOR], moves_per_turn=5, max_moves=20)
    env.reset(seed=0)
    env.step('#### ["U","U","L","D","D","R","R"]')
    info = env.infos["planner_0"]
    assert info["illegal_moves"] == 4
    assert info["cut_moves"] == 2
    assert info["executed"] == ("D",)
    assert info["reward_parts"]["local"] == pytest.approx(-4 * 0.04 / (4 * 5))


def huge_level():
    """Return the largest board that can be read: 64 rows and columns, 10 boxes."""
    row = "#" + " " * 62 + "#"
    boxes, goals = ("#" + " " * 40 + f" {symbol}" * 10 + "  #" for symbol in "$.")
    rows = ["#" * 64, "#@" + row[2:], *[row] * 58, goals, boxes, row, "#" * 64]
    return "\n".join(rows)


@pytest.mark.parametrize("kwargs", TEAMS[:2], ids=names)
def test_prompts_of_the_largest_levels_are_in_the_space(kwargs):
    env = SokobanEnv(**kwargs, levels=[huge_level()], moves_per_turn=MAX_MOVES_PER_TURN)
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
    with pytest.raises(InvalidArgument, match=r"a level of 3 moves.*at most 2 moves"):
        SokobanEnv(levels=[CORRIDOR], max_turns=1, moves_per_turn=2)


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


def test_reads_what_it_writes():
    level = read_level(GOOD)
    assert level_text(level) == GOOD
    assert (level.rows, level.cols) == (6, 7)
    assert level.boxes.bit_count() == level.goals.bit_count() == 3
    solution = warehouse_of(level).solve(level.start)
    assert (level.certificate, level.num_moves) == ("optimal", len(solution))
    on_goal = "#####\n#+$.#\n# $ #\n#   #\n#####"
    assert level_text(read_level("\n" + on_goal + "\n\n")) == on_goal


def test_too_large_and_too_many():
    wide = "#" * 65
    with pytest.raises(LevelFormatError, match="at most 64"):
        read_level(f"{wide}\n#@$.{'#' * 61}\n{wide}")
    boxes = "#" * 30 + "\n#@" + "$." * 13 + " #\n" + "#" * 30
    with pytest.raises(LevelFormatError, match="13 boxes and 13 goals"):
        read_level(boxes)


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
