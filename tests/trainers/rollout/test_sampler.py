"""The rollouts of a train step: no level twice, refills while too little is taught."""

import asyncio
import math
import signal
from collections import Counter
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from run_toys import EACH_ITS_OWN, config_of

import pettingllms
from pettingllms.curriculum import LevelRecord
from pettingllms_trainers.algorithms.at_grpo import AtGrpo
from pettingllms_trainers.algorithms.reinforce import Reinforce
from pettingllms_trainers.learning.groups import score_decisions
from pettingllms_trainers.ranks import Ranks, StopRequest
from pettingllms_trainers.rollout.candidates import FailureLog
from pettingllms_trainers.rollout.environments import make_environments
from pettingllms_trainers.rollout.episode import LocalEpisodes, local_episodes
from pettingllms_trainers.rollout.sampler import (
    Sampler,
    TrainingEnvironment,
    WeightGate,
    apportioned,
    level_counts,
)


def rarely(prompt, candidate, seed):
    """Candidates that differ at one decision in six."""
    return str(candidate) if seed % 6 == 0 else "1"


@pytest.fixture
def sampler(echo_env, scripted_pool):
    def make(script=rarely, trained=("caller", "echo"), stop=None, algorithm=None, **settings):
        rollout = {"num_levels": 2} | settings
        config = config_of(**EACH_ITS_OWN, algorithm={"num_candidates": 3}, rollout=rollout)
        if algorithm:
            config = config.model_copy(update={"algorithm": algorithm})
        pool, _ = scripted_pool(caller=script, echo=script)
        policies = {
            name: replace(policy, updater=object()) if name in trained else policy
            for name, policy in pool.policies.items()
        }
        pool = replace(pool, policies=policies)
        episodes = LocalEpisodes(echo_env(max_turns=1))
        stop = stop or StopRequest()
        env = TrainingEnvironment(config=config.env[0], roles=config.roles, episodes=[episodes])
        return Sampler([env], pool, config, FailureLog(), stop)

    return make


def played(sampler, step):
    """The rollouts of a train step, and how many levels they took."""
    before, gate = sampler.num_levels_used, WeightGate()
    gate.open(step)
    in_flight = gate.rollouts(sampler.pending(step, step))
    found = asyncio.run(sampler.rollouts(in_flight, may_stop=True))
    return found, sampler.num_levels_used - before


def num_groups(trees):
    return Counter(group.policy for group in score_decisions(trees, AtGrpo()).decisions)


def test_levels_are_played_until_every_trained_policy_has_its_groups(sampler):
    found, num_levels = played(sampler(max_refills=100, min_groups=2), 0)
    assert found.num_refills > 0
    assert num_levels == len(found.trees) == 2 * (1 + found.num_refills)
    assert min(num_groups(found.trees)[name] for name in ("caller", "echo")) >= 2
    before = num_groups(found.trees[:-2])
    assert min(before[name] for name in ("caller", "echo")) < 2, "no round too many"
    assert len({tree.env_seed for tree in found.trees}) == num_levels, "no level twice"
    assert [tree.episode for tree in found.trees] == list(range(num_levels))


def test_refills_end(sampler):
    found, num_levels = played(sampler(lambda *_: "1", max_refills=3), 0)
    assert (found.num_refills, num_levels) == (3, 8)
    assert not num_groups(found.trees)


def test_a_signal_ends_refills_after_the_round_that_is_played(sampler):
    stop = StopRequest()

    def stopped(prompt, candidate, seed):
        stop.signal = signal.SIGTERM
        return "1"

    found, num_levels = played(sampler(stopped, stop=stop, max_refills=3), 0)
    assert (found.num_refills, num_levels) == (0, 2)


def test_a_signal_to_another_rank_ends_refills_on_all(sampler):
    class Other(Ranks):
        def gather(self, share):
            return [*share, int(signal.SIGTERM)]

    stop = StopRequest(Other())
    found, _ = played(sampler(lambda *_: "1", stop=stop, max_refills=3), 0)
    assert found.num_refills == 0
    assert stop.signal is signal.SIGTERM, "the train step gives the sample up"


def test_policies_that_are_not_trained_need_no_groups(sampler):
    def caller_only(prompt, candidate, seed):
        return str(candidate) if "caller" in prompt else "1"

    assert played(sampler(caller_only, max_refills=3), 0)[0].num_refills == 3
    assert played(sampler(caller_only, trained=("caller",), max_refills=3), 0)[0].num_refills == 0


def test_steps_share_no_level_and_go_on_from_the_cursor(sampler):
    settings = {"max_refills": 100, "min_groups": 2}
    first = sampler(**settings)
    steps = []
    for step in range(3):
        used = first.num_levels_used
        steps.append(played(first, step)[0])
    seeds = [tree.env_seed for found in steps for tree in found.trees]
    assert len(set(seeds)) == len(seeds) == first.num_levels_used
    resumed = sampler(**settings)
    resumed.num_levels_used = used
    assert played(resumed, 2)[0].trees == steps[2].trees


CURRICULUM = """
[env]
id = "plan_path_v0"
kwargs = { team = "single", max_turns = 1 }
[[env.curriculum]]
kwargs = { difficulty = "easy" }
[[env.curriculum]]
kwargs = { difficulty = "medium" }
[policies.shared]
model = "tiny"
[roles]
planner = "shared"
[rollout]
num_levels = 20
"""


def test_levels_are_those_of_their_stage_which_success_decides(scripted_pool, load):
    config = load(CURRICULUM)
    pool, _ = scripted_pool(lambda *_: "wait")
    pool = replace(pool, roles=config.roles)

    def hash_in(level, tree):
        env = pettingllms.make("plan_path_v0", difficulty=level, team="single", max_turns=1)
        env.reset(seed=tree.env_seed)
        return env.unwrapped.state_hash()

    ((episodes, _),) = local_episodes(config, make_environments(config))
    env = TrainingEnvironment(config=config.env[0], roles=config.roles, episodes=episodes)
    sampler = Sampler([env], pool, config, FailureLog(), StopRequest())
    untried, mastered = LevelRecord(), LevelRecord(1e9, 1e9)
    for records, stages in (
        ([untried, untried], {0: 10, 1: 10}),
        ([mastered, untried], {0: 2, 1: 18}),  # the floor: 20 * 0.2 / 2
        ([untried, mastered], {0: 18, 1: 2}),
    ):
        sampler.records = {"": records}
        found, num_levels = played(sampler, 0)
        assert Counter(tree.stage for tree in found.trees) == stages
        for tree in found.trees:
            hashes = [hash_in(level, tree) for level in ("easy", "medium")]
            assert hashes[tree.stage] == tree.initial_state_hash != hashes[1 - tree.stage]
        assert len({tree.env_seed for tree in found.trees}) == num_levels == 20


def test_trajectories_of_refills_have_ids_of_their_own(sampler):
    made = sampler(algorithm=Reinforce(num_candidates=2), max_refills=1, min_groups=100)
    found, _ = played(made, 0)
    assert [tree.episode for tree in found.trees] == list(range(8))
    assert Counter(Counter(tree.env_seed for tree in found.trees).values()) == {2: 4}


def test_parallel_mode_counts_what_is_compared_not_decisions(sampler):
    """One level of two trajectories of one decision: two decisions, and one group of them."""
    algorithm = Reinforce(credit="step", num_candidates=2)
    settings = {"num_levels": 1, "max_refills": 50, "min_groups": 2}
    made = sampler(lambda prompt, k, seed: str(seed % 5), algorithm=algorithm, **settings)
    found, _ = played(made, 0)
    scored = score_decisions(found.trees, algorithm)
    for name in ("caller", "echo"):
        levels = {key.episode // 2 for key in (g.key for g in scored.decisions if g.policy == name)}
        assert len(levels) == scored.num_groups[name] >= 2
    assert found.num_refills > 0, "the decisions of one level would be enough"


WEIGHTS = st.lists(st.floats(0.01, 100), min_size=1, max_size=5)


@given(WEIGHTS, st.integers(0, 200), st.fractions(0, 1).filter(lambda offset: offset < 1))
def test_every_count_is_its_quota_rounded(weights, num, offset):
    counts = apportioned(weights, num, offset)
    assert sum(counts) == num
    for weight, count in zip(weights, counts, strict=True):
        quota = num * Fraction(weight) / sum(map(Fraction, weights))
        assert math.floor(quota) <= count <= math.ceil(quota)


@settings(max_examples=20)
@given(st.integers(0, 1000))
def test_a_rare_environment_keeps_near_its_quota_over_steps(seed):
    """Less than one level per step: after any number of steps within four levels of the quota."""
    played = 0
    for step in range(200):
        rare, _ = level_counts([1, 15], 8, seed=seed, step=step, refill=0)
        played += rare
        assert abs(played - (step + 1) / 2) <= 4


def test_counts_depend_on_their_arguments_alone():
    counts = [level_counts([1, 2], 4, seed=0, step=step, refill=0) for step in range(30)]
    assert counts == [level_counts([1, 2], 4, seed=0, step=step, refill=0) for step in range(30)]
    assert len({tuple(count) for count in counts}) == 2
    others = [level_counts([1, 2], 4, seed=1, step=step, refill=0) for step in range(30)]
    refills = [level_counts([1, 2], 4, seed=0, step=step, refill=1) for step in range(30)]
    assert counts not in (others, refills)
