"""Levels of difficulty: all can be solved, simple policies solve fewer of harder ones."""

import json
import random
from collections import Counter
from pathlib import Path

import pytest

import pettingllms
from pettingllms.errors import ConformanceError
from pettingllms.evaluation.statistics import wilson_interval
from pettingllms.policies.loading import program_action
from pettingllms.testing import play
from pettingllms.testing.ladder import check_ladder
from pettingllms.testing.play import scripted_actor
from pettingllms_envs.blocksworld.env import level_text as blocks_text
from pettingllms_envs.plan_path.env import level_text
from pettingllms_envs.queens.env import board_text
from pettingllms_envs.sokoban import env as sokoban
from pettingllms_envs.sokoban.env import level_text as sokoban_text
from pettingllms_envs.sokoban.rules import outlook_of
from pettingllms_envs.sudoku import rules as sudoku
from pettingllms_envs.sudoku.env import puzzle_text

GAMES = ("blocksworld_v0", "plan_path_v0", "queens_v0", "sokoban_v0", "sudoku_v0")
CASES = [
    pytest.param(env_id, k, marks=[pytest.mark.nightly] if k > 3 else [], id=f"{env_id}-{k}")
    for env_id in GAMES
    for k in range(len(pettingllms.spec(env_id).load().difficulties))
]
EXTREME = [id for id in GAMES if "extreme" in pettingllms.spec(id).load().difficulties.names]
"""Games with rules that are drawn with the level, from extreme on."""
RULES = {
    "dining_v0": ("alternate", "greedy", "random"),
    "fireworks_v0": ("conventions", "greedy", "random"),
    "panel_v0": ("guess", "random"),
    "relay_v0": ("greedy", "random"),
    "search_v0": ("guess", "random"),
}


def actor_of(policy, rng):
    """The actor of a policy; a scripted one plays without what a tool says."""
    if policy == "program":
        return program_action
    scripted = scripted_actor(policy, rng)
    return lambda env, agent: "" if agent == "tool_0" else scripted(env, agent)


def solved(env, seeds, *policies):
    """Return how many levels of the seeds each policy solves; a level takes long to make."""
    totals = dict.fromkeys(policies, 0)
    for seed in seeds:
        env.reset(seed=seed)
        for policy in policies:
            last = play(env.fork(), actor_of(policy, random.Random(seed)))[-1]
            totals[policy] += last["info"]["success"]
    return [*totals.values()]


@pytest.mark.parametrize("env_id", [*GAMES, *RULES])
def test_names_are_the_same_for_all_games(env_id):
    names = pettingllms.spec(env_id).load().difficulties.names
    named = [name for name in names if name != "paper"]
    assert named[:4] == ["easy", "medium", "hard", "expert"]
    assert named[4:] in ([], ["extreme"])
    assert list(names.values()) == sorted(names.values())


@pytest.mark.parametrize("env_id", ["plan_path_v0", "sokoban_v0", "sudoku_v0"])
def test_the_defaults_are_the_settings_of_the_paper(env_id):
    paper = pettingllms.make(env_id, difficulty="paper", checks=False)
    defaults = pettingllms.make(env_id, checks=False)
    assert paper.difficulty == defaults.difficulty == paper.difficulties.names["paper"]
    for env in (paper, defaults):
        env.reset(seed=4)
    assert paper.state_hash() == defaults.state_hash()


@pytest.mark.parametrize(("env_id", "level"), CASES)
@pytest.mark.parametrize("team", ["single", "proposer-planner"])
def test_the_oracle_solves_every_level(env_id, level, team):
    env = pettingllms.make(env_id, difficulty=level, team=team, split="test", checks=False)
    assert solved(env, range(3), "oracle") == [3]


def falls(shares, num_levels):
    """Return whether shares fall from level to level, as far as their intervals can tell."""
    ends = [wilson_interval(share / num_levels, num_levels) for share in shares]
    return all(later[0] <= min(high for _, high in ends[:k]) for k, later in enumerate(ends) if k)


@pytest.mark.parametrize("env_id", [*GAMES, *RULES])
@pytest.mark.parametrize("num_levels", [12, pytest.param(100, marks=pytest.mark.nightly)])
def test_simple_policies_solve_no_more_of_harder_levels(env_id, num_levels):
    count = len(pettingllms.spec(env_id).load().difficulties)
    team = {} if env_id in RULES else {"team": "single"}
    solved_of = []
    # The hardest levels take longest to make.
    for level in range(count) if num_levels > 12 else (0, 2):
        env = pettingllms.make(env_id, difficulty=level, checks=False, **team)
        policies = RULES.get(env_id, ("greedy", "random"))
        solved_of.append(solved(env, range(num_levels), *policies))
    for shares in zip(*solved_of, strict=True):
        assert falls(shares, num_levels), shares


@pytest.mark.parametrize("env_id", GAMES)
def test_the_fixed_program_solves_what_a_program_for_all_levels_can(env_id):
    """It is not a straw man: it solves every level whose rules are not drawn."""
    for level in ("easy", "hard", "expert"):
        env = pettingllms.make(env_id, difficulty=level, checks=False)
        assert solved(env, range(2), "program") == [2]


@pytest.mark.parametrize("env_id", EXTREME)
@pytest.mark.parametrize("num_levels", [8, pytest.param(200, marks=pytest.mark.nightly)])
def test_where_rules_are_drawn_neither_a_fixed_program_nor_a_simple_rule_helps(env_id, num_levels):
    env = pettingllms.make(env_id, difficulty="extreme", split="test", checks=False)
    shares = solved(env, range(num_levels), "program", *env.scripted_policies[1:])
    assert max(shares) <= max(1, num_levels // 20), shares


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


LADDERS = json.loads(Path(__file__).with_name("ladder.json").read_text("utf-8"))
"""Environment, arguments, number of levels: few where agents are many, levels large, or programs
run in the sandbox."""


def by_day(cases):
    """Mark all but the first case of each game as nightly: together they take a minute."""
    seen = Counter()
    for case in cases:
        env_id, kwargs, _ = case
        seen[env_id] += 1
        name = "-".join([env_id, *map(str, kwargs.values())])
        yield pytest.param(*case, id=name, marks=[pytest.mark.nightly] if seen[env_id] > 1 else [])


@pytest.mark.parametrize(("env_id", "kwargs", "num_levels"), list(by_day(LADDERS)))
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
