"""Presets: every one makes levels, from easy to hard, that differ up to symmetry."""

import random

import pytest

import pettingllms
from pettingllms.testing import play
from pettingllms.testing.play import scripted_actor
from pettingllms_envs.blocksworld.text import level_text as blocks_text
from pettingllms_envs.plan_path.text import level_text
from pettingllms_envs.queens.text import board_text
from pettingllms_envs.sokoban.text import level_text as sokoban_text
from pettingllms_envs.sudoku.text import puzzle_text

GAMES = ("blocksworld_v0", "plan_path_v0", "queens_v0", "sokoban_v0", "sudoku_v0")
CASES = [(env_id, name) for env_id in GAMES for name in pettingllms.spec(env_id).load().presets]


@pytest.mark.parametrize("env_id", [*GAMES, "dining_v0", "panel_v0", "search_v0"])
def test_names_are_the_same_for_all_games(env_id):
    names = tuple(pettingllms.spec(env_id).load().presets)
    assert names == ("easy", "medium", "hard", "expert")


@pytest.mark.parametrize(("env_id", "preset"), CASES)
@pytest.mark.parametrize("team", ["single", "proposer-planner"])
def test_the_oracle_solves_every_level(env_id, preset, team):
    env = pettingllms.make(env_id, preset=preset, team=team, split="test", checks=False)
    for seed in range(3):
        env.reset(seed=seed)
        steps = play(env, scripted_actor("oracle", random.Random(0)))
        assert steps[-1]["info"]["success"]


@pytest.mark.parametrize("env_id", ["code_v0", "math_v0", "math_ensemble_v0"])
@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_presets_choose_built_in_problems_by_difficulty(env_id, split):
    presets = pettingllms.spec(env_id).load().presets
    seen = set()
    for preset in presets:
        env = pettingllms.make(env_id, preset=preset, split=split, checks=False)
        env.reset(seed=0)
        assert env.last()[0] not in seen
        seen.add(env.last()[0])


@pytest.mark.parametrize("env_id", GAMES)
def test_the_greedy_rule_solves_fewer_levels_of_harder_presets(env_id):
    shares = []
    for preset in ("easy", "expert"):
        env = pettingllms.make(env_id, preset=preset, team="single", checks=False)
        solved = 0
        for seed in range(12):
            env.reset(seed=seed)
            steps = play(env, scripted_actor("greedy", random.Random(seed)))
            solved += steps[-1]["info"]["success"]
        shares.append(solved)
    assert shares[0] > shares[1] + 3


def images(env_id, env):
    """Return the texts of levels that are equal to the present one up to symmetry."""
    state = env.state()
    if env_id == "sudoku_v0":
        swapped = str.maketrans("1234", "2143")
        return [puzzle_text(state.level).translate(swapped)]
    level = state.level
    if env_id == "blocksworld_v0":
        text = blocks_text(level, level.start)
        backwards = " -> ".join(reversed(text.split(" -> ")))
        return [backwards, text.translate(str.maketrans("ABCDE", "BCDEA"))]
    if env_id == "queens_v0":
        rows = board_text(level, level.start).split("\n")
        return ["\n".join(rows[::-1]), "\n".join(row[::-1] for row in rows)]
    text = sokoban_text(level) if env_id == "sokoban_v0" else level_text(level, level.start)
    rows = text.split("\n")
    turned = ["".join(column) for column in zip(*rows[::-1], strict=True)]
    return ["\n".join(one) for one in (rows[::-1], turned)]


@pytest.mark.parametrize("env_id", GAMES)
def test_level_hashes_are_equal_for_images_and_differ_for_others(env_id):
    env = pettingllms.make(env_id, team="single", checks=False)
    hashes = set()
    for seed in range(5):
        env.reset(seed=seed)
        here = env.level_hash()
        for image in images(env_id, env):
            env.reset(seed=0, options={"level": image})
            assert env.level_hash() == here
        hashes.add(here)
    assert len(hashes) >= 4
