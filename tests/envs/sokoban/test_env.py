"""The environment: rewards, teams, tools, levels, texts."""

import pytest

from pettingllms.errors import InvalidArgument, LevelFormatError
from pettingllms_envs.planning.env import moves_json
from pettingllms_envs.sokoban import SokobanEnv
from pettingllms_envs.sokoban.generator import certify
from pettingllms_envs.sokoban.rules import warehouse_of
from pettingllms_envs.sokoban.text import level_text, read_level, read_levels_of_file
from pettingllms_envs.team_table import MAX_MOVES_PER_TURN

CORRIDOR = "#######\n#@ $ .#\n#     #\n#######"


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
