"""Returns order policies by their success: every game, team, size and number of boxes."""

import json
from collections import Counter
from pathlib import Path

import pytest

from pettingllms.errors import ConformanceError
from pettingllms.testing.ladder import check_ladder
from pettingllms_envs.sokoban import env as sokoban
from pettingllms_envs.sokoban.rules import outlook_of
from pettingllms_envs.sudoku import rules as sudoku

CASES = json.loads(Path(__file__).with_name("ladder.json").read_text("utf-8"))
"""Environment, arguments, number of levels: few where agents are many, levels large, or programs
run in the sandbox."""


def by_day(cases):
    """Mark all but the first two cases of each game as nightly: together they take a minute."""
    seen = Counter()
    for case in cases:
        env_id, kwargs, _ = case
        seen[env_id] += 1
        name = "-".join([env_id, *map(str, kwargs.values())])
        yield pytest.param(*case, id=name, marks=[pytest.mark.nightly] if seen[env_id] > 2 else [])


@pytest.mark.parametrize(("env_id", "kwargs", "num_levels"), list(by_day(CASES)))
def test_returns_order_policies_by_success(env_id, kwargs, num_levels):
    """Levels and policies are drawn from fixed seeds; few episodes more or less do not count."""
    results = check_ladder(env_id, num_levels, gap=max(0.05, 3 / num_levels), **kwargs)
    assert results[0].success == 0
    assert max(one.success for one in results) > 0.1


@pytest.fixture
def uncached():
    """What games remember has the potential of the terms that it was made with."""
    remembered = (sokoban.attempt, outlook_of, sudoku.attempt)
    for function in remembered:
        function.cache_clear()
    yield
    for function in remembered:
        function.cache_clear()


@pytest.mark.parametrize(
    ("env_id", "kwargs", "term", "value"),
    [
        ("sokoban_v0", {"boxes": 3}, "pettingllms_envs.reward.LOST", -1.0),
        ("sudoku_v0", {"size": 9, "max_turns": 1}, "pettingllms_envs.sudoku.rules.PROGRESS", 1.0),
    ],
)
def test_terms_that_mislead_are_found(monkeypatch, uncached, env_id, kwargs, term, value):
    monkeypatch.setattr(term, value)
    with pytest.raises(ConformanceError, match="more success must return more"):
        check_ladder(env_id, 60, team="single", **kwargs)
