"""The environment: rewards, teams, tools, levels, texts."""

import random

import pytest

from pettingllms.errors import InvalidArgument
from pettingllms_envs import grid
from pettingllms_envs.sudoku import SudokuEnv
from pettingllms_envs.sudoku.generator import generate
from pettingllms_envs.sudoku.text import fills_json, puzzle_text

LARGE = puzzle_text(generate(random.Random(0), 16))


def test_given_values_cannot_be_overwritten():
    """A valid grid that ignores the clues is not a solution (the paper's code accepts it)."""
    env = SudokuEnv(team="single", split=None)
    for seed in range(5):
        env.reset(seed=seed)
        puzzle = env.state().level
        other = bytes(value % 4 + 1 for value in puzzle.solution)
        rows = [list(other[start : start + 4]) for start in range(0, 16, 4)]
        env.step(f"#### {rows}")
        grid = env.state().position
        cells = bytes(map(int, grid.text.split()))
        assert not env.infos["planner_0"]["success"]
        assert env.infos["planner_0"]["num_refused"] >= 6
        assert all(clue in (0, cell) for clue, cell in zip(puzzle.clues, cells, strict=True))
        assert env.rewards["planner_0"] < 0
        env.step(f"#### {[list(puzzle.solution[start : start + 4]) for start in range(0, 16, 4)]}")
        assert env.infos["planner_0"]["success"]


def test_solvable_is_told_in_info_and_not_in_texts():
    env = SudokuEnv(team="single")
    for seed in range(40):
        env.reset(seed=seed)
        env.step(env.scripted_action("planner_0", "random", random.Random(seed)))
        state = env.state()
        cells = bytes(map(int, state.position.text.split()))
        pairs = zip(cells, state.level.solution, strict=True)
        assert env.infos["planner_0"]["solvable"] == all(c in (0, s) for c, s in pairs)
        assert "solvable" not in env.observe("planner_0")


@pytest.mark.parametrize("team", ["tool-planner", "proposer-planner"])
def test_an_honest_proposal_is_shown_whole(team):
    env = SudokuEnv(team=team, size=16, levels=[LARGE])
    env.reset(seed=0)
    env.step(env.scripted_action(env.agent_selection, "oracle", random.Random(0)))
    text = env.observe("planner_0")
    state = env.state()
    assert state.potential == pytest.approx(0.1)
    if team == "proposer-planner":
        assert fills_json(state.proposal) in text


def test_refused_fills_are_told_next_turn():
    env = SudokuEnv(team="single")
    env.reset(seed=2)
    clues = env.state().level.clues
    cell = next(index for index, value in enumerate(clues) if value)
    row, col = divmod(cell, 4)
    env.step(f"#### [[{row},{col},1],[9,9,9]]")
    text = env.observe("planner_0")
    assert f"Refused last turn: [{row},{col},1] (a clue), [9,9,9] (outside the grid)" in text
    env.step("#### []")
    assert "Refused" not in env.observe("planner_0")


def test_levels_of_another_size_are_refused():
    with pytest.raises(InvalidArgument, match=r"levels.*16x16.*4x4.*size=16"):
        SudokuEnv(levels=[LARGE])
    env = SudokuEnv(size=9)
    with pytest.raises(InvalidArgument, match=r"level.*16x16.*9x9.*size=16"):
        env.reset(seed=0, options={"level": LARGE})
    env.reset(seed=0, options={"level": puzzle_text(generate(random.Random(0), 9))})
    assert "9x9" in env.observe("tool_0")


def test_a_picture_shows_the_rules_that_were_drawn():
    """Diagonals are sand; a cage is dashed all around it, and between its cells nowhere."""
    env = SudokuEnv(size=6, clues=4, rules=3, team="single", render_mode="rgb_array", split=None)
    env.reset(seed=0)
    rules = env.unwrapped.state().level.rules
    is_dash = (env.render() == (126, 84, 160)).all(-1)
    for cell in range(36):
        row, col = divmod(cell, 6)
        corner = env.render()[row * 32 + 29, col * 32 + 26]
        assert (tuple(corner) == grid.SAND) == (col in (row, 5 - row))
    for _, cells in rules.cages:
        for cell in cells:
            y, x = (place * 32 + 1 for place in divmod(cell, 6))
            middle = slice(10, 23)
            sides = {
                cell - 6: is_dash[y + 3, x:][middle],
                cell + 6: is_dash[y + 29, x:][middle],
                cell - 1: is_dash[y:, x + 3][middle],
                cell + 1: is_dash[y:, x + 29][middle],
            }
            for other, dashes in sides.items():
                is_near = abs(cell % 6 - other % 6) < 2 and other in cells
                assert dashes.any() != is_near
