"""Lockstep: episodes of a level that continue from the best of them."""

import asyncio
from dataclasses import replace

import pytest

from pettingllms import TextEnv
from pettingllms_trainers.algorithms.lockstep import Lockstep
from pettingllms_trainers.algorithms.reinforce import Reinforce
from pettingllms_trainers.config.algorithm import Moment
from pettingllms_trainers.errors import EnvironmentFailure
from pettingllms_trainers.learning.groups import score_decisions
from pettingllms_trainers.rollout.episode import LocalEpisodes
from pettingllms_trainers.rollout.failures import FailureLog
from pettingllms_trainers.rollout.playing import play_episodes
from pettingllms_trainers.rollout.settings import RolloutSettings, RolloutSpec
from pettingllms_trainers.types import RolloutStatus, SamplingSettings

K = 4
NUM_TURNS = 3
COMPARED = Lockstep(num_candidates=K, norm="none", free_share=0)


def draw(prompt, candidate, seed):
    return str(seed % 40)


class Watched(LocalEpisodes):
    """Knows which episodes are open."""

    @property
    def open(self):
        return set(self._episodes)


class Fragile(Watched):
    """Loses every other environment that is forked."""

    num_forks = 0

    async def fork(self, episode, index=None):
        self.num_forks += 1
        if self.num_forks % 2:
            raise EnvironmentFailure("the machine is gone")
        return await super().fork(episode, index)


def played(
    env, pool, *, levels=range(4), algorithm=COMPARED, allowed=0.0, kind=Watched, memory=None
):
    """Return the trees of every level, and the episodes they were played in."""
    specs = [
        RolloutSpec(K * level + index, level, 100 * level + index)
        for level in levels
        for index in range(K)
    ]
    settings = RolloutSettings(sampling=dict.fromkeys(pool.roles, SamplingSettings()))
    episodes, strategy = kind(env), algorithm.strategy(Moment(memory=memory or {}))
    trees = asyncio.run(
        play_episodes(episodes, pool, specs, settings, strategy, FailureLog(allowed))
    )
    return [trees[start : start + K] for start in range(0, len(trees), K)], episodes


def rewards_at(level, position):
    return [tree.decisions[position].candidates[0].reward for tree in level]


def test_whenever_rewards_differ_all_continue_from_the_best(echo_env, scripted_pool):
    levels, episodes = played(echo_env(max_turns=NUM_TURNS), scripted_pool(draw)[0])
    for level in levels:
        for position in range(2 * NUM_TURNS - 1):
            rewards = rewards_at(level, position)
            assert len(set(rewards)) > 1, "the toy pays the number that is written"
            best = level[rewards.index(max(rewards))].decisions[position]
            (prompt,) = {tree.decisions[position + 1].prompt_ids for tree in level}
            (after,) = {tree.decisions[position + 1].state_key for tree in level}
            if not position % 2:
                assert f"called={best.candidates[0].completion.text} " in bytes(prompt).decode()
            assert after != best.state_key
    assert episodes.open == set(), "none is left"


def test_an_episode_knows_the_path_that_led_to_its_state(echo_env, scripted_pool):
    levels, _ = played(echo_env(max_turns=NUM_TURNS), scripted_pool(draw)[0])
    for tree in (tree for level in levels for tree in level):
        path = [*tree.prefix, *tree.decisions[tree.num_given_up :]]
        assert [d.key.position for d in path] == list(range(2 * NUM_TURNS))
        assert [d.key.position for d in tree.decisions] == list(range(2 * NUM_TURNS))
        for agent, earned in tree.outcome.returns.items():
            parts = [(d.key.agent == agent, d.candidates[0]) for d in path]
            assert earned == pytest.approx(sum(c.reward if own else c.team for own, c in parts))


def test_with_rewards_that_never_differ_episodes_are_those_of_parallel(echo_env, scripted_pool):
    def alike(prompt, candidate, seed):
        return "7"

    env = echo_env(max_turns=NUM_TURNS)
    together, _ = played(env, scripted_pool(alike)[0])
    alone, _ = played(env, scripted_pool(alike)[0], algorithm=Reinforce())
    assert together == alone
    assert {tree.num_given_up for level in together for tree in level} == {0}


def test_a_tie_moves_nobody(echo_env, scripted_pool):
    def script(prompt, candidate, seed):
        return str(seed % 2) if "echo" in prompt else "10"

    levels, _ = played(echo_env(max_turns=1), scripted_pool(script)[0], levels=range(9))
    for level in levels:
        assert rewards_at(level, 0) == [1.0] * K
        assert {tree.num_given_up for tree in level} == {0}, "nothing differs before the end"


def test_all_levels_share_the_calls_of_the_engine(echo_env, scripted_pool):
    def script(prompt, candidate, seed):
        """In some levels rewards differ, in others they never do."""
        return "7" if seed % 50 else "8"

    pool, engines = scripted_pool(script)
    levels, _ = played(echo_env(max_turns=NUM_TURNS), pool, levels=range(30))
    moved = {any(tree.num_given_up for tree in level) for level in levels}
    assert moved == {True, False}
    (engine,) = engines.values()
    assert [len(call) for call in engine.calls] == [30 * K] * 2 * NUM_TURNS


def test_those_who_act_simultaneously_move_together(echo_env, scripted_pool):
    """Within a stage agents are asked about the moment before it; both parts decide who is best."""

    class Simultaneous(type(echo_env())):
        def __init__(self, **kwargs):
            TextEnv.__init__(self, stages=(("caller_0", "echo_0"),), max_turns=2, **kwargs)
            self.split, self.crash_on = "train", ""

    levels, _ = played(Simultaneous(), scripted_pool(draw)[0], levels=range(60))
    decided_by_both = 0
    for level in levels:
        earned = [a + b for a, b in zip(rewards_at(level, 0), rewards_at(level, 1), strict=True)]
        best = level[earned.index(max(earned))]
        decided_by_both += rewards_at(level, 1)[level.index(best)] < max(rewards_at(level, 1))
        assert len({tree.decisions[2].state_key for tree in level}) == 1
        assert {tree.num_given_up for tree in level} <= {0, 2}
        assert all(d.key.episode == best.episode for tree in level for d in tree.prefix)
        assert len({tree.decisions[1].state_key for tree in level}) > 1, "no move in between"
    assert decided_by_both


def test_those_that_are_over_stay_so(echo_env, scripted_pool):
    """99 ends an episode of the toy; the others go on without it."""

    def script(prompt, candidate, seed):
        return "99" if "echo" in prompt and seed % 3 == 0 else str(seed % 40)

    levels, _ = played(echo_env(max_turns=NUM_TURNS), scripted_pool(script)[0], levels=range(12))
    lengths = [sorted(len(tree.decisions) for tree in level) for level in levels]
    assert any(one[0] < one[-1] for one in lengths)
    for tree in (tree for level in levels for tree in level):
        is_early = len(tree.decisions) < 2 * NUM_TURNS
        assert tree.outcome.success or not is_early


def test_credit_is_the_own_reward_while_all_continue_from_the_best(echo_env, scripted_pool):
    levels, _ = played(echo_env(max_turns=NUM_TURNS), scripted_pool(draw)[0])
    trees = [tree for level in levels for tree in level]
    scored = {d.key: d for d in score_decisions(trees, COMPARED).decisions}
    for level in levels:
        for position in range(2 * NUM_TURNS):
            rewards = rewards_at(level, position)
            mean = sum(rewards) / K
            for tree, reward in zip(level, rewards, strict=True):
                advantage = scored[tree.decisions[position].key].candidates[0].advantage
                assert advantage == pytest.approx(reward - mean)


def test_it_is_repeatable_and_independent_of_companions(echo_env, scripted_pool):
    env = echo_env(max_turns=NUM_TURNS)
    together, _ = played(env, scripted_pool(draw)[0], levels=(1, 2, 5))
    alone, _ = played(env, scripted_pool(draw)[0], levels=(2,))
    assert together[1] == alone[0]


def test_an_episode_that_fails_does_not_hold_up_the_others(echo_env, scripted_pool):
    def sometimes(prompt, candidate, seed):
        return "50" if seed % 7 == 0 else str(seed % 40)

    levels, episodes = played(
        echo_env(max_turns=NUM_TURNS, crash_on="50"),
        scripted_pool(sometimes)[0],
        levels=range(12),
        allowed=0.99,
    )
    mixed = [{tree.status for tree in level} for level in levels]
    assert {RolloutStatus.OK, RolloutStatus.ENV_FAILED} in mixed
    for tree in (tree for level in levels for tree in level):
        assert tree.status is RolloutStatus.OK or "crashed" in tree.cause
    assert episodes.open == set()
    trees = [tree for level in levels for tree in level]
    assert score_decisions(trees, COMPARED).decisions


def test_an_episode_that_cannot_be_moved_fails_alone(echo_env, scripted_pool):
    levels, episodes = played(
        echo_env(max_turns=NUM_TURNS), scripted_pool(draw)[0], allowed=0.99, kind=Fragile
    )
    failed = [t for level in levels for t in level if t.status is RolloutStatus.ENV_FAILED]
    assert failed, "the toy's rewards differ, so that some are moved"
    assert {tree.cause for tree in failed} == {"the machine is gone"}
    assert any(tree.status is RolloutStatus.OK for level in levels for tree in level)
    assert episodes.open == set()


def test_a_share_of_the_levels_never_moves(echo_env, scripted_pool):
    algorithm = Lockstep(num_candidates=K, free_share=0.5)
    levels, _ = played(
        echo_env(max_turns=NUM_TURNS), scripted_pool(draw)[0], levels=range(40), algorithm=algorithm
    )
    num_free = sum(not any(tree.num_given_up for tree in level) for level in levels)
    assert 10 <= num_free <= 30
    trees = [tree for level in levels for tree in level]
    found = algorithm.remember(trees, Moment())
    assert {key.split()[0] for key in found} == {"caller", "echo"}
    assert found["caller 0"][0] == num_free * (K - 1), "evidence is of the levels that are free"
    assert "echo 2" not in found, "what is earned at the end says how it has ended"
    assert algorithm.metrics(found) == {"caller/follows": 1, "echo/follows": 1}, "none is solved"


def test_nobody_moves_where_who_leads_does_not_win(echo_env, scripted_pool):
    env, algorithm = echo_env(max_turns=NUM_TURNS), Lockstep(num_candidates=K)
    against = {
        f"{role} {turn}": [400, 1.0, -0.1, 1.0] for role in ("caller", "echo") for turn in "012"
    }
    assert algorithm.metrics(against) == {"caller/follows": 0, "echo/follows": 0}
    for memory, moves in ((against, False), (against | {"echo 1": [400, 1.0, 0.5, 1.0]}, True)):
        levels, _ = played(
            env, scripted_pool(draw)[0], levels=range(20), algorithm=algorithm, memory=memory
        )
        given_up = {tree.num_given_up for level in levels for tree in level}
        assert given_up == ({0, 4} if moves else {0})


def test_evidence_is_what_was_earned_by_a_turn_and_fades(echo_env, scripted_pool):
    levels, _ = played(echo_env(max_turns=2), scripted_pool(draw)[0], levels=range(1))
    trees = [
        replace(tree, num_given_up=0, prefix=(), outcome=replace(tree.outcome, success=solved))
        for tree, solved in zip(levels[0], (True, False, False, False), strict=True)
    ]
    algorithm = Lockstep(num_candidates=K)
    found = algorithm.remember(trees, Moment())
    earned = [sum(d.candidates[0].reward for d in tree.decisions[:2]) for tree in trees]
    mean = sum(earned) / K
    assert found["echo 0"] == pytest.approx(
        [3, sum((x - mean) ** 2 for x in earned), earned[0] - mean, 0.75]
    )
    faded = algorithm.remember([], Moment(memory=found))
    assert faded["echo 0"] == pytest.approx([0.9 * value for value in found["echo 0"]])
    assert algorithm.remember([*trees[:-1], replace(trees[-1], outcome=None)], Moment()) == {}
