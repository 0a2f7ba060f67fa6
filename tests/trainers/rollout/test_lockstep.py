"""Episodes of a level that continue from each other: lockstep, and vines."""

import asyncio
import itertools
import math
import random
from collections import Counter
from dataclasses import replace
from statistics import fmean, pvariance

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pettingllms import TextEnv
from pettingllms_trainers.algorithms.lockstep import Evidence, Lockstep
from pettingllms_trainers.algorithms.reinforce import Reinforce
from pettingllms_trainers.algorithms.vine import Vine
from pettingllms_trainers.config.algorithm import StepContext
from pettingllms_trainers.errors import EpisodeFailure
from pettingllms_trainers.learning.groups import score_decisions
from pettingllms_trainers.rollout.candidates import FailureLog, RolloutSettings, RolloutSpec
from pettingllms_trainers.rollout.episode import LocalEpisodes
from pettingllms_trainers.rollout.player import play_episodes
from pettingllms_trainers.types import SamplingSettings

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
            raise EpisodeFailure("the machine is gone")
        return await super().fork(episode, index)


def played(
    env, pool, *, levels=range(4), algorithm=COMPARED, allowed=0.0, kind=Watched, memory=None
):
    """Return the trees of every level, and the episodes they were played in."""
    num = algorithm.num_candidates
    specs = [
        RolloutSpec(num * level + index, level, 100 * level + index)
        for level in levels
        for index in range(num)
    ]
    settings = RolloutSettings(sampling=dict.fromkeys(pool.roles, SamplingSettings()))
    episodes, strategy = kind(env), algorithm.strategy(StepContext(memory=memory or {}))
    trees = asyncio.run(
        play_episodes(episodes, pool, specs, settings, strategy, FailureLog(allowed))
    )
    return [trees[start : start + num] for start in range(0, len(trees), num)], episodes


def simultaneous(echo_env):
    """The toy, with both agents in one stage."""

    class Simultaneous(type(echo_env())):
        def __init__(self):
            TextEnv.__init__(self, stages=(("caller_0", "echo_0"),), max_turns=2)
            self.split, self.crash_on, self.crash = "train", "", None

    return Simultaneous()


def assert_returns_are_those_of(tree, path):
    for agent, earned in tree.outcome.returns.items():
        parts = [(d.key.agent == agent, d.candidates[0]) for d in path]
        assert earned == pytest.approx(sum(c.reward if own else c.team for own, c in parts))


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
        assert_returns_are_those_of(tree, path)


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

    levels, _ = played(simultaneous(echo_env), scripted_pool(draw)[0], levels=range(60))
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


def test_an_episode_that_fails_does_not_hold_up_the_others(echo_env, scripted_pool):
    def sometimes(prompt, candidate, seed):
        return "50" if seed % 7 == 0 else str(seed % 40)

    levels, episodes = played(
        echo_env(max_turns=NUM_TURNS, crash_on="50", crash=ConnectionError),
        scripted_pool(sometimes)[0],
        levels=range(12),
        allowed=0.99,
    )
    mixed = [{tree.has_failed for tree in level} for level in levels]
    assert {False, True} in mixed
    for tree in (tree for level in levels for tree in level):
        assert not tree.has_failed or "crashed" in tree.cause
    assert episodes.open == set()
    trees = [tree for level in levels for tree in level]
    assert score_decisions(trees, COMPARED).decisions


def test_an_episode_that_cannot_be_moved_fails_alone(echo_env, scripted_pool):
    levels, episodes = played(
        echo_env(max_turns=NUM_TURNS), scripted_pool(draw)[0], allowed=0.99, kind=Fragile
    )
    failed = [t for level in levels for t in level if t.has_failed]
    assert failed, "the toy's rewards differ, so that some are moved"
    assert {tree.cause for tree in failed} == {"the machine is gone"}
    assert any(not tree.has_failed for level in levels for tree in level)
    assert episodes.open == set()


SHOWN = {role: [5.0, 1.0, 3.0] for role in ("caller", "echo")}
"""What is remembered where those that lead are surely solved more often."""
NOT_SHOWN = {role: [1.0, 1.0, 3.0] for role in ("caller", "echo")}


def moved(env, pool, algorithm, memory, num_levels=40):
    """Return for every level whether its episodes have moved."""
    levels, _ = played(env, pool, levels=range(num_levels), algorithm=algorithm, memory=memory)
    return levels, [any(tree.num_given_up for tree in level) for level in levels]


def test_a_share_of_the_levels_never_moves(echo_env, scripted_pool):
    algorithm = Lockstep(num_candidates=K, free_share=0.5)
    env = echo_env(max_turns=NUM_TURNS)
    _, found = moved(env, scripted_pool(draw)[0], algorithm, SHOWN)
    assert 10 <= sum(found) <= 30


@pytest.mark.parametrize("shown", [(), ("caller",), ("echo",)])
def test_nobody_moves_after_who_is_not_shown_to_lead(shown, echo_env, scripted_pool):
    algorithm, env = Lockstep(num_candidates=K), echo_env(max_turns=NUM_TURNS)
    memory = NOT_SHOWN | {role: SHOWN[role] for role in shown}
    levels, found = moved(env, scripted_pool(draw)[0], algorithm, memory, 20)
    assert any(found) == bool(shown)
    given_up = {tree.num_given_up for level in levels for tree in level} - {0}
    assert {num % 2 for num in given_up} == {(): set(), ("caller",): {1}, ("echo",): {0}}[shown]


def test_while_nothing_is_solved_episodes_move_but_in_the_first_train_step(echo_env, scripted_pool):
    env, nothing = echo_env(max_turns=NUM_TURNS), [0.0, 0.0, 0.0]
    assert not any(moved(env, scripted_pool(draw)[0], Lockstep(), {})[1])
    later = {"caller": nothing, "echo": nothing}
    assert any(moved(env, scripted_pool(draw)[0], Lockstep(), later)[1])


def solved_level(echo_env, scripted_pool, solved):
    """Return a level in which nobody moved, with who is solved."""
    levels, _ = played(
        echo_env(max_turns=2), scripted_pool(draw)[0], levels=[0], algorithm=Lockstep()
    )
    return [
        replace(tree, outcome=replace(tree.outcome, success=is_solved))
        for tree, is_solved in zip(levels[0], solved, strict=True)
    ]


def test_evidence_is_the_mean_lead_over_a_roles_decisions_but_the_last(echo_env, scripted_pool):
    trees = solved_level(echo_env, scripted_pool, (True, False, False, False))
    algorithm = Lockstep(num_candidates=K)
    found = algorithm.remember(trees, StepContext())
    earned = [
        [sum(d.candidates[0].reward for d in t.decisions[:n]) for t in trees] for n in (1, 2, 3)
    ]
    ahead = [one[0] - sum(one) / K for one in earned]
    assert found["caller"][0] == pytest.approx((ahead[0] + ahead[2]) / 2)
    assert found["echo"][0] == pytest.approx(ahead[1]), "its second decision is the last"
    assert algorithm.metrics(found).keys() == {"caller/lead_z", "echo/lead_z"}
    faded = algorithm.remember([], StepContext(memory=found))
    total, variance, _ = found["echo"]
    assert faded["echo"] == pytest.approx([0.9 * total, 0.81 * variance, 0.9])


def test_levels_in_which_somebody_moved_or_failed_are_no_evidence(echo_env, scripted_pool):
    trees = solved_level(echo_env, scripted_pool, (True, False, False, False))
    algorithm = Lockstep(num_candidates=K)
    for change in ({"outcome": None}, {"num_given_up": 2}, {"prefix": trees[0].decisions[:2]}):
        assert algorithm.remember([*trees[:-1], replace(trees[-1], **change)], StepContext()) == {}
    untold = algorithm.remember(
        [replace(t, outcome=replace(t.outcome, success=False)) for t in trees], StepContext()
    )
    assert untold == {"caller": [0.0, 0.0, 0.0], "echo": [0.0, 0.0, 0.0]}
    assert algorithm.metrics(untold) == {}


@pytest.mark.parametrize(
    ("memory", "free_share", "what"),
    [
        ({}, 0.25, "success"),
        (NOT_SHOWN, 0.25, "success"),
        (SHOWN, 0.25, "rewards"),
        ({"caller": [0.0, 0.0, 0.0], "echo": [0.0, 0.0, 0.0]}, 0.25, "rewards"),
        ({role: [1.0, 1.0, 0.9] for role in NOT_SHOWN}, 0.25, "rewards"),
        ({}, 0, "rewards"),
    ],
    ids=["first step", "not shown", "shown", "could not tell", "long ago", "untested"],
)
def test_what_counts_follows_from_what_is_known(memory, free_share, what, echo_env, scripted_pool):
    trees = solved_level(echo_env, scripted_pool, (True, False, False, True))
    algorithm = Lockstep(num_candidates=K, norm="none", free_share=free_share)
    scored = score_decisions(trees, algorithm, context=StepContext(memory=memory))
    advantages = {d.key: d.candidates[0].advantage for d in scored.decisions}
    of_rewards = {
        d.key: d.candidates[0].advantage
        for d in score_decisions(trees, Reinforce(norm="none", credit="state_return")).decisions
    }
    if what == "rewards":
        assert advantages == pytest.approx(of_rewards)
        return
    for tree in trees:
        for decision in tree.decisions:
            assert advantages[decision.key] == pytest.approx(tree.outcome.success - 0.5)


def test_a_role_whose_rewards_mean_something_keeps_them(echo_env, scripted_pool):
    trees = solved_level(echo_env, scripted_pool, (True, False, False, True))
    memory = NOT_SHOWN | {"caller": SHOWN["caller"]}
    algorithm = Lockstep(num_candidates=K, norm="none")
    scored = score_decisions(trees, algorithm, context=StepContext(memory=memory))
    advantages = {d.key: d.candidates[0].advantage for d in scored.decisions}
    own = [tree.decisions[2].candidates[0].reward + tree.outcome.success for tree in trees]
    for tree, value in zip(trees, own, strict=True):
        assert advantages[tree.decisions[2].key] == pytest.approx(value - sum(own) / K)
        assert advantages[tree.decisions[3].key] == pytest.approx(tree.outcome.success - 0.5)


def test_a_stage_is_led_by_all_that_act_in_it_and_the_last_one_is_no_evidence(
    echo_env, scripted_pool
):
    """Who acts first in the last stage knows the outcome: it is not what was earned before."""

    (trees,), _ = played(
        simultaneous(echo_env), scripted_pool(draw)[0], levels=[0], algorithm=Lockstep()
    )
    assert [d.within_stage for d in trees[0].decisions] == [True, False, True, False]
    trees = [
        replace(tree, outcome=replace(tree.outcome, success=is_solved))
        for tree, is_solved in zip(trees, (True, False, False, False), strict=True)
    ]
    found = Lockstep(num_candidates=K).remember(trees, StepContext())
    earned = [sum(d.candidates[0].reward for d in tree.decisions[:2]) for tree in trees]
    assert found["caller"] == found["echo"]
    assert found["echo"][0] == pytest.approx(earned[0] - sum(earned) / K)


def test_episodes_that_end_before_anybody_can_lead_are_no_evidence(echo_env, scripted_pool):
    trees = solved_level(echo_env, scripted_pool, (True, True, False, True))
    early = replace(trees[0], decisions=trees[0].decisions[:1])
    algorithm = Lockstep(num_candidates=K)
    found = algorithm.remember([early, *trees[1:]], StepContext())
    rest = algorithm.remember(trees[1:], StepContext())
    assert found == rest
    assert found["caller"][1] > 0


def test_a_role_that_nobody_can_follow_keeps_its_rewards_after_the_first_step(
    echo_env, scripted_pool
):
    """As in tasks of one decision, of which a graded reward may be all there is."""
    trees = solved_level(echo_env, scripted_pool, (False,) * K)
    trees = [replace(tree, decisions=tree.decisions[:1]) for tree in trees]
    algorithm = Lockstep(num_candidates=K)
    memory = algorithm.remember(trees, StepContext())
    assert memory == {"caller": [0.0, 0.0, 0.0]}
    assert not score_decisions(trees, algorithm).decisions
    assert score_decisions(trees, algorithm, context=StepContext(1, memory)).decisions


VINE = Vine(num_candidates=K, norm="none")


def begin(stem, fork):
    """Return the position of the stem's decision from which a fork was played."""
    return len(stem.decisions) - len(fork.decisions)


def test_forks_begin_at_one_decision_of_the_stem(echo_env, scripted_pool):
    env = echo_env(max_turns=NUM_TURNS)
    levels, episodes = played(env, scripted_pool(draw)[0], algorithm=VINE)
    for stem, *forks in levels:
        assert len(stem.decisions) == 2 * NUM_TURNS
        (position,) = {begin(stem, fork) for fork in forks}
        for fork in forks:
            assert fork.initial_state_hash == stem.initial_state_hash
            assert fork.env_seed == stem.env_seed
            assert fork.outcome.num_turns == NUM_TURNS
            assert_returns_are_those_of(fork, [*stem.decisions[:position], *fork.decisions])
            assert fork.prefix == stem.decisions[:position]
            assert fork.decisions[0].prompt_ids == stem.decisions[position].prompt_ids
            of_stem = [(d.key.agent, d.key.turn) for d in stem.decisions[position:]]
            assert [(d.key.agent, d.key.turn) for d in fork.decisions] == of_stem
            assert [d.key.position for d in fork.decisions] == list(range(len(fork.decisions)))
    assert episodes.open == set(), "no copy is left"


def test_decisions_from_the_fork_on_are_compared(echo_env, scripted_pool):
    env = echo_env(max_turns=NUM_TURNS)
    levels, _ = played(env, scripted_pool(draw)[0], algorithm=VINE)
    trees = [tree for level in levels for tree in level]
    scored = score_decisions(trees, VINE).decisions
    count = Counter((d.key.episode // K, d.key.agent, d.key.turn) for d in scored)
    assert set(count.values()) == {K}, "the stem is one of those compared"
    assert len(count) == sum(len(forks[0].decisions) for _, *forks in levels)


def test_every_decision_of_the_stem_is_as_likely(echo_env, scripted_pool):
    num = 600
    env, two = echo_env(max_turns=NUM_TURNS), Vine(num_candidates=2)
    levels, _ = played(env, scripted_pool(draw)[0], levels=range(num), algorithm=two)
    counts = Counter(begin(stem, fork) for stem, fork in levels)
    expected = num / (2 * NUM_TURNS)
    assert set(counts) == set(range(2 * NUM_TURNS))
    # Chi-square with 5 degrees of freedom: above 25 with a probability of 1e-4.
    assert sum((n - expected) ** 2 / expected for n in counts.values()) < 25


def test_a_stem_that_fails_fails_its_forks_and_nothing_else(echo_env, scripted_pool):
    def sometimes(prompt, candidate, seed):
        return "50" if seed % 11 == 0 and "echo" in prompt else str(seed % 40)

    levels, episodes = played(
        echo_env(max_turns=NUM_TURNS, crash_on="50", crash=ConnectionError),
        scripted_pool(sometimes)[0],
        levels=range(12),
        algorithm=VINE,
        allowed=0.99,
    )
    failed = [level for level in levels if level[0].has_failed]
    assert 0 < len(failed) < len(levels)
    for stem, *forks in failed:
        assert "crashed" in stem.cause
        assert {fork.cause for fork in forks} == {"the episode to fork from has failed"}
    assert any(not level[0].has_failed for level in levels)
    assert episodes.open == set()


leads = st.integers(-9, 9).map(float)
levels = st.lists(st.tuples(leads, st.booleans()), min_size=2, max_size=6)


@given(levels)
def test_the_variance_is_that_of_all_orders_in_which_a_level_may_be_solved(level):
    """By enumeration: which of the episodes are solved is drawn, and their number is not."""
    xs, ys = zip(*level, strict=True)
    mean = fmean(xs)
    drawn = [
        sum((x - mean) * y for x, y in zip(xs, order, strict=True))
        for order in itertools.permutations(ys)
    ]
    evidence = Evidence().with_level(xs, ys)
    assert evidence.total == pytest.approx(drawn[0], abs=1e-9)
    assert evidence.variance == pytest.approx(pvariance(drawn), abs=1e-9)
    assert fmean(drawn) == pytest.approx(0, abs=1e-9)


def test_levels_are_compared_within_and_not_with_each_other():
    """Easy levels pay more and are solved more often: that says nothing of who leads in a level."""
    easy, hard = [11.0, 12.0, 11.0, 12.0], [1.0, 2.0, 1.0, 2.0]
    evidence = Evidence().with_level(easy, [1, 1, 1, 0]).with_level(hard, [0, 0, 1, 0])
    assert evidence == pytest.approx((-1.0, 0.5, 4.0))
    assert evidence.z == pytest.approx(-math.sqrt(2))


@pytest.mark.parametrize(
    ("xs", "ys"), [([1.0], [True]), ([1.0, 2.0], [True, True]), ([0.1 + 0.2, 0.3], [True, False])]
)
def test_a_level_that_cannot_tell_changes_nothing(xs, ys):
    assert Evidence().with_level(xs, ys).z is None
    found = Evidence(1.0, 0.25).with_level(xs, ys)
    assert found.z == pytest.approx(2)


def test_later_steps_count_more():
    before = Evidence(2.0, 1.0, 8.0).faded(0.5)
    assert before == (1.0, 0.25, 4.0)
    assert before.z == 2, "as sure as before, as long as nothing new is known"


def test_nothing_can_be_told_where_nothing_was_solved_of_late_or_nobody_led():
    one = Evidence().with_level([1.0, 0.0, 0.0], [True, False, False])
    assert one.can_tell
    assert not one.faded(0.9).can_tell, "a single success is forgotten, however it was led up to"
    assert one.with_level([1.0, 1.0], [True, True]).faded(0.9).can_tell, "all is success, too"
    assert not Evidence().with_level([1.0, 1.0], [True, False]).can_tell


@pytest.mark.parametrize(("total", "is_shown"), [(-9, False), (0, False), (2, False), (2.1, True)])
def test_a_lead_counts_from_two_standard_errors_on(total, is_shown):
    assert Evidence(total, 1.0).is_shown is is_shown
    assert not Evidence().is_shown


def test_of_leads_that_mean_nothing_few_are_taken_for_something():
    """Simulated nulls: ten levels of four episodes, a fifth of which are solved."""
    rng = random.Random(1)
    shown = 0
    for _ in range(2000):
        evidence = Evidence()
        for _ in range(10):
            xs = [rng.expovariate(1) for _ in range(4)]
            evidence = evidence.with_level(xs, [rng.random() < 0.2 for _ in xs])
        shown += evidence.is_shown
    assert 0.005 < shown / 2000 < 0.04
