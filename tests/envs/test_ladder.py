"""Returns order policies by their success: every game, team, size and number of boxes."""

from collections import Counter

import pytest

from pettingllms.errors import ConformanceError
from pettingllms.testing.ladder import check_ladder
from pettingllms_envs.sokoban import env as sokoban
from pettingllms_envs.sokoban.rules import outlook_of
from pettingllms_envs.sudoku import rules as sudoku

SOKOBAN = [
    {"team": "single"},
    {"team": "proposer-planner"},
    {"team": "single", "boxes": 2},
    {"team": "proposer-planner", "boxes": 2, "size": 7},
    {"team": "single", "boxes": 3},
    {"team": "single", "max_turns": 1},
    {"team": "single", "boxes": 2, "max_turns": 8, "moves_per_turn": 5},
    {"team": "single", "size": 5, "min_moves": 2},
    {"team": "single", "size": 8, "boxes": 2},
    {"team": "single", "size": 12},
    {"team": "single", "boxes": 2, "stop_when_lost": False},
]
SUDOKU = [
    {"team": "single"},
    {"team": "proposer-planner"},
    {"team": "single", "size": 6},
    {"team": "single", "size": 9},
    {"team": "single", "size": 9, "max_turns": 1},
    {"team": "single", "clues": 10},
]
PLAN_PATH = [
    {"team": "single"},
    {"team": "proposer-planner"},
    {"tool": "call"},
    {"team": "single-tool", "tool": "call"},
    {"team": "single", "size": 5},
    {"team": "single", "size": 16, "moves_per_turn": 20},
    {"team": "single", "size": 32, "moves_per_turn": 40},
    {"team": "single", "max_turns": 1, "moves_per_turn": 40},
    {"team": "single", "obstacle_ratio": 0.4},
]
PLANNING = [
    {"team": "single"},
    {"team": "proposer-planner"},
    {"team": "single", "max_turns": 1},
    *({"team": "single", "difficulty": level} for level in ("easy", "hard")),
]
DINING = [{}, {"difficulty": "easy"}, {"difficulty": "medium"}, {"max_turns": 6}]
SEARCH = [{}, {"difficulty": "easy"}, {"difficulty": "hard"}, {"style": "letters", "documents": 12}]
FIREWORKS = [{}, {"difficulty": "medium"}, {"difficulty": "hard"}]
RELAY = [{}, {"difficulty": "medium"}, {"difficulty": "hard"}]
PANEL = [{}, {"difficulty": "easy"}, {"difficulty": "hard"}]
FEW = [  # slow: many agents, large levels, or a sandbox
    *(
        (game, {"team": "single", "difficulty": "expert"})
        for game in ("blocksworld_v0", "queens_v0")
    ),
    ("dining_v0", {"difficulty": "hard"}),
    ("sokoban_v0", {}),
    ("sokoban_v0", {"team": "single", "size": 10, "boxes": 4}),
    ("sokoban_v0", {"team": "single", "size": 12, "boxes": 6}),
    ("sudoku_v0", {}),
    ("sudoku_v0", {"team": "single", "size": 16}),
    ("sudoku_v0", {"team": "single", "size": 9, "clues": 28, "singles_only": False}),
    ("plan_path_v0", {}),
    ("code_v0", {"team": "single"}),
    ("math_v0", {}),
    ("math_v0", {"team": "single"}),
    ("math_ensemble_v0", {"reasoners": 1, "tools": 0}),
]
CASES = [
    *[("sokoban_v0", kwargs, 60) for kwargs in SOKOBAN],
    *[("sudoku_v0", kwargs, 60) for kwargs in SUDOKU],
    *[("plan_path_v0", kwargs, 60) for kwargs in PLAN_PATH],
    *[("blocksworld_v0", kwargs, 60) for kwargs in PLANNING],
    *[("dining_v0", kwargs, 60) for kwargs in DINING],
    *[("search_v0", kwargs, 60) for kwargs in SEARCH],
    *[("fireworks_v0", kwargs, 60) for kwargs in FIREWORKS],
    *[("relay_v0", kwargs, 60) for kwargs in RELAY],
    *[("panel_v0", kwargs, 60) for kwargs in PANEL],
    *[("queens_v0", kwargs, 60) for kwargs in PLANNING],
    *[(env_id, kwargs, 12) for env_id, kwargs in FEW],
]


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
    rungs = check_ladder(env_id, num_levels, gap=max(0.05, 3 / num_levels), **kwargs)
    assert rungs[0].success == 0
    assert max(rung.success for rung in rungs) > 0.1


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
