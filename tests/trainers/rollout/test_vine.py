"""Vines: episodes of a level that fork from one of the decisions of its first."""

import asyncio
from collections import Counter

import pytest

from pettingllms_trainers.algorithms.vine import Vine
from pettingllms_trainers.config.algorithm import StepContext
from pettingllms_trainers.learning.groups import score_decisions
from pettingllms_trainers.rollout.candidates import FailureLog, RolloutSettings, RolloutSpec
from pettingllms_trainers.rollout.episode import LocalEpisodes
from pettingllms_trainers.rollout.player import play_episodes
from pettingllms_trainers.types import RolloutStatus, SamplingSettings

NUM_FORKS = 3
NUM_TURNS = 3
COMPARED = Vine(norm="none")


def draw(prompt, candidate, seed):
    return str(seed % 40)


class Watched(LocalEpisodes):
    """Knows which episodes are open."""

    @property
    def open(self):
        return set(self._episodes)


def played(env, pool, *, levels=range(4), num_forks=NUM_FORKS, allowed=0.0):
    """Return the trees of every level, stem first, and the episodes they were played in."""
    size = 1 + num_forks
    specs = [
        RolloutSpec(size * level + index, level, 100 * level + index)
        for level in levels
        for index in range(size)
    ]
    settings = RolloutSettings(sampling=dict.fromkeys(pool.roles, SamplingSettings()))
    episodes, strategy = Watched(env), Vine(num_candidates=size).strategy(StepContext())
    trees = asyncio.run(
        play_episodes(episodes, pool, specs, settings, strategy, FailureLog(allowed))
    )
    return [trees[start : start + size] for start in range(0, len(trees), size)], episodes


def begin(stem, fork):
    """Return the position of the stem's decision from which a fork was played."""
    return len(stem.decisions) - len(fork.decisions)


def test_forks_begin_at_one_decision_of_the_stem(echo_env, scripted_pool):
    levels, episodes = played(echo_env(max_turns=NUM_TURNS), scripted_pool(draw)[0])
    for stem, *forks in levels:
        assert len(stem.decisions) == 2 * NUM_TURNS
        (position,) = {begin(stem, fork) for fork in forks}
        for fork in forks:
            assert fork.initial_state_hash == stem.initial_state_hash
            assert fork.env_seed == stem.env_seed
            assert fork.prefix == stem.decisions[:position]
            assert fork.decisions[0].prompt_ids == stem.decisions[position].prompt_ids
            of_stem = [(d.key.agent, d.key.turn) for d in stem.decisions[position:]]
            assert [(d.key.agent, d.key.turn) for d in fork.decisions] == of_stem
            assert [d.key.position for d in fork.decisions] == list(range(len(fork.decisions)))
    assert episodes.open == set(), "no copy is left"


def test_returns_and_outcomes_of_forks_are_those_of_whole_episodes(echo_env, scripted_pool):
    levels, _ = played(echo_env(max_turns=NUM_TURNS), scripted_pool(draw)[0])
    for stem, *forks in levels:
        for fork in forks:
            path = [*stem.decisions[: begin(stem, fork)], *fork.decisions]
            for agent, earned in fork.outcome.returns.items():
                parts = [(d.key.agent == agent, d.candidates[0]) for d in path]
                assert earned == pytest.approx(sum(c.reward if own else c.team for own, c in parts))
            assert fork.outcome.num_turns == NUM_TURNS


def test_decisions_from_the_fork_on_are_compared(echo_env, scripted_pool):
    levels, _ = played(echo_env(max_turns=NUM_TURNS), scripted_pool(draw)[0])
    trees = [tree for level in levels for tree in level]
    scored = score_decisions(trees, COMPARED).decisions
    count = Counter((d.key.episode // (1 + NUM_FORKS), d.key.agent, d.key.turn) for d in scored)
    assert set(count.values()) == {1 + NUM_FORKS}, "the stem is one of those compared"
    assert len(count) == sum(len(forks[0].decisions) for _, *forks in levels)


def test_every_decision_of_the_stem_is_as_likely(echo_env, scripted_pool):
    num = 600
    levels, _ = played(
        echo_env(max_turns=NUM_TURNS), scripted_pool(draw)[0], levels=range(num), num_forks=1
    )
    counts = Counter(begin(stem, fork) for stem, fork in levels)
    expected = num / (2 * NUM_TURNS)
    assert set(counts) == set(range(2 * NUM_TURNS))
    # Chi-square with 5 degrees of freedom: above 25 with a probability of 1e-4.
    assert sum((n - expected) ** 2 / expected for n in counts.values()) < 25


def test_vines_are_repeatable_and_independent_of_companions(echo_env, scripted_pool):
    env = echo_env(max_turns=NUM_TURNS)
    together, _ = played(env, scripted_pool(draw)[0], levels=(1, 2, 5))
    alone, _ = played(env, scripted_pool(draw)[0], levels=(2,))
    assert together[1] == alone[0]


def test_a_stem_that_fails_fails_its_forks_and_nothing_else(echo_env, scripted_pool):
    def sometimes(prompt, candidate, seed):
        return "50" if seed % 11 == 0 and "echo" in prompt else str(seed % 40)

    levels, episodes = played(
        echo_env(max_turns=NUM_TURNS, crash_on="50"),
        scripted_pool(sometimes)[0],
        levels=range(12),
        allowed=0.99,
    )
    failed = [level for level in levels if level[0].status is RolloutStatus.ENV_FAILED]
    assert 0 < len(failed) < len(levels)
    for stem, *forks in failed:
        assert "crashed" in stem.cause
        assert {fork.cause for fork in forks} == {"the episode to fork from has failed"}
    assert any(level[0].status is RolloutStatus.OK for level in levels)
    assert episodes.open == set()
