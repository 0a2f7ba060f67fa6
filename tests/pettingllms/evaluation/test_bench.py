"""The climb: what is measured is independent of what chose the level; few episodes are played."""

import random
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pettingllms.evaluation.bench import FIRST, cell_plan, climbed
from pettingllms.evaluation.statistics import wilson_interval

LEVELS = (0, 2, 3, 5, 8)


class Team:
    """Solves a board of level k with a chance; notes what is asked for."""

    def __init__(self, chances, rng):
        self.chances, self.rng, self.asked = dict(zip(LEVELS, chances, strict=True)), rng, []

    def play(self, level, num_tried, num_boards):
        self.asked.append((level, num_tried, num_boards))
        num_success = sum(self.rng.random() < self.chances[level] for _ in range(num_boards))
        return SimpleNamespace(num_success=num_success, num_episodes=num_boards)


@given(st.lists(st.floats(0, 1), min_size=5, max_size=5), st.integers(0, 999))
def test_tries_grow_and_the_measurement_comes_last_and_in_full(chances, seed):
    team = Team(sorted(chances, reverse=True), random.Random(seed))
    found = climbed(LEVELS, 50, team.play)
    *tries, (level, num_tried, num_boards) = team.asked
    assert (level, num_tried, num_boards) == (found.measured_at, None, 50)
    assert found.passed == LEVELS[: len(found.passed)]
    before = dict.fromkeys(LEVELS, 0)
    for level, num_tried, num_boards in tries:
        assert num_tried == before[level]
        assert num_boards == min(max(FIRST, num_tried), 50 - num_tried)
        before[level] += num_boards
    assert {k: one.num_episodes for k, one in found.tried.items()} == {
        k: num for k, num in before.items() if num
    }
    assert found.num_played == sum(before.values()) + 50


def test_intervals_hold_what_they_promise_at_the_level_that_was_chosen():
    """Boards that chose a level were lucky there: with them the estimate would be too high."""
    rng, num_held, chosen, measured = random.Random(3), 0, [], []
    chances = [0.7, 0.6, 0.5, 0.45, 0.4]
    for _ in range(1000):
        team = Team(chances, rng)
        found = climbed(LEVELS, 50, team.play)
        truth, share = team.chances[found.measured_at], found.measured.num_success / 50
        low, high = wilson_interval(share, 50)
        num_held += low <= truth <= high
        measured.append(share - truth)
        record = found.tried.get(found.measured_at)
        if found.passed and record:
            chosen.append(record.num_success / record.num_episodes - truth)
    assert num_held >= 915
    assert abs(sum(measured) / 1000) < 0.01
    assert sum(chosen) / len(chosen) > 0.03


@pytest.mark.parametrize(
    ("chances", "passed"), [([1] * 5, 5), ([0] * 5, 0), ([1, 0.9, 0.8, 0.1, 0], 3)]
)
def test_fewer_episodes_than_the_whole_climb(chances, passed):
    team = Team(chances, random.Random(1))
    found = climbed(LEVELS, 50, team.play)
    assert len(found.passed) == passed
    assert found.num_played < min(100, 50 * min(5, passed + 1) + 13)


def test_tries_and_measurement_draw_other_boards():
    cells = [cell_plan("queens_v0", 1, tried, 8, 0, {"tool": "random", "planner": "random"})
             for tried in (None, 0, 4)]  # fmt: skip
    seeds = [{spec.level_seed for spec in cell.episodes()} for cell in cells]
    assert len(set.union(*seeds)) == 24
