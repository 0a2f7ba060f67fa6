"""The environment: rewards, teams, tools, levels, texts."""

import pytest

from pettingllms.errors import (
    InvalidArgument,
    LevelFormatError,
)
from pettingllms_envs.planning.env import moves_json
from pettingllms_envs.sokoban import SokobanEnv
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
