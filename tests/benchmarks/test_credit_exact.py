"""Estimators of the trainer against their enumerated expectations, on small levels."""

import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

from credit_study.enumeration import (
    Prompts,
    action_values,
    cosine,
    enumerate_level,
    expected_tree_update,
    lemma_1,
    proposition_1,
    softmax,
    state_values,
    success_of,
    true_gradient,
)
from credit_study.tabular import EnumeratedEpisodes, Table, algorithm_of

import pettingllms
from pettingllms_trainers.rollout.episode import LocalEpisodes

KWARGS = {
    "team": "proposer-planner",
    "size": 4,
    "max_turns": 3,
    "moves_per_turn": 1,
    "min_moves": 2,
    "max_moves": 3,
    "obstacle_ratio": 0.25,
}
TEXTS = ('#### ["U"]', '#### ["D"]', '#### ["L"]', '#### ["R"]')
K = 4


def level_of(reward, **changes):
    """A level with its policy; of as many moves as turns all episodes are equally long."""
    prompts, kwargs = Prompts(), KWARGS | changes
    level = enumerate_level("plan_path_v0", 1, lambda env: TEXTS, prompts, reward=reward, **kwargs)
    logits = np.random.default_rng(0).normal(size=(len(prompts), len(TEXTS)))
    return level, logits


@pytest.fixture(scope="module")
def shaped():
    return level_of("shaped")


NAMES = {"step": "at_grpo", "value": "value", "continuation": "continuation"}


def tree(branch, credit, norm):
    return algorithm(NAMES[credit], branch_choice=branch, norm=norm)


def algorithm(name, **parameters):
    return algorithm_of({"algorithm": {"name": name, "num_candidates": K, **parameters}})


@pytest.mark.parametrize("reward", ["shaped", "outcome"])
@pytest.mark.parametrize("num_candidates", [2, 4])
def test_a_true_v_with_random_branches_expects_the_true_gradient(reward, num_candidates):
    level, logits = level_of(reward)
    policy = softmax(logits)
    gradient = true_gradient(level, policy)
    settings = {"branch": "random", "norm": "none"}
    update = expected_tree_update(level, policy, num_candidates, credit="value", **settings)
    assert cosine(update, gradient) >= 0.999
    # Up to the factor (K - 1) / K, which leave_one_out removes, it is the gradient itself.
    assert update == pytest.approx(gradient * (num_candidates - 1) / num_candidates, abs=1e-12)
    biased = expected_tree_update(level, policy, num_candidates, credit="step", **settings)
    assert cosine(biased, gradient) < 0.99


def test_the_gradient_is_that_of_the_return_by_finite_differences(shaped):
    level, logits = shaped
    gradient = true_gradient(level, softmax(logits))
    direction = np.random.default_rng(1).normal(size=logits.shape)
    step = 1e-5

    def value(scale):
        return state_values(level, softmax(logits + scale * direction))[0]

    slope = (value(step) - value(-step)) / (2 * step)
    assert float((gradient * direction).sum()) == pytest.approx(slope, rel=1e-5)


def test_enumerated_episodes_are_those_of_the_environment(shaped):
    level, logits = shaped
    env = pettingllms.make("plan_path_v0", checks=False, **KWARGS)

    class OfSeed(LocalEpisodes):
        async def start(self, env_seed):
            return await super().start(1)

    def played(episodes):
        table = Table([level], logits)
        table.v = np.arange(len(logits)) / 100
        variant = tree("greedy", "value", "std")
        trees = table.sample(variant, 3, 6, episodes=episodes)
        return [
            [
                (d.key, d.chosen, [(c.reward, c.team, c.value) for c in d.candidates])
                for d in t.decisions
            ]
            for t in trees
        ]

    assert played(EnumeratedEpisodes([level])) == played(OfSeed(env))


ENUMERATED = {
    "AT-GRPO": ("greedy", "step", "std"),
    "greedy, step, none": ("greedy", "step", "none"),
    "random, step, std": ("random", "step", "std"),
    "random, value, none": ("random", "value", "none"),
    "random, value, std": ("random", "value", "std"),
    "greedy, value, std": ("greedy", "value", "std"),
    "greedy, value, none": ("greedy", "value", "none"),
    "random, continuation, none": ("random", "continuation", "none"),
}


def updates(level, logits, variant, num, seed=0):
    """Return the updates of single trees, [num, R * A]."""
    table = Table([level], logits)
    policy = softmax(logits)
    values = state_values(level, policy)
    for node, value in zip(level.nodes, values, strict=True):
        table.v[node.row] = value
    trees = table.sample(variant, seed, num)
    size = variant.episodes_per_level
    groups = [trees[start : start + size] for start in range(0, len(trees), size)]
    return np.array([table.update(group, variant).ravel() for group in groups])


def assert_expects(found, expected):
    """Compare along the direction expected and along random ones, at 4.5 standard errors."""
    rng = np.random.default_rng(2)
    directions = [expected.ravel(), *rng.normal(size=(4, found.shape[1]))]
    for direction in directions:
        along = found @ direction
        error = along.std() / np.sqrt(len(along))
        assert abs(along.mean() - expected.ravel() @ direction) < 4.5 * error + 1e-12


BY_DAY = {"AT-GRPO", "random, value, none", "random, continuation, none"}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in BY_DAY else pytest.mark.nightly)
        for name in ENUMERATED
    ],
)
def test_the_implementation_of_a_tree_equals_its_expectation(shaped, name):
    level, logits = shaped
    branch, credit, norm = ENUMERATED[name]
    found = updates(level, logits, tree(branch, credit, norm), 300)
    credit = "value" if credit == "continuation" else credit
    settings = {"branch": branch, "credit": credit, "norm": norm}
    assert_expects(found, expected_tree_update(level, softmax(logits), K, **settings))


def test_whole_episodes_that_branch_once_expect_a_share_of_the_gradient():
    level, logits = level_of("outcome")
    variant = algorithm("tree_grpo", num_branchings=1000, norm="none")
    found = updates(level, logits, variant, 300)
    gradient = true_gradient(level, softmax(logits))
    assert_expects(found, gradient * (K - 1) / K)  # all decisions branch: the whole gradient


@pytest.mark.nightly
def test_a_vine_expects_the_gradient_with_late_decisions_weighted_more():
    # Equally long: the decision to fork at is one of 6, and those from there on are trained on.
    level, logits = level_of("outcome", min_moves=3)
    variant = algorithm("vine", norm="none", baseline="leave_one_out")
    found = updates(level, logits, variant, 4000)
    positions = [2 * node.turn + (node.agent == "planner_0") for node in level.nodes]
    weights = (1 + np.array(positions)) / 6
    assert_expects(found, true_gradient(level, softmax(logits), weights))


@pytest.mark.parametrize("name", ["grpo", "reinforce"])
def test_parallel_trajectories_expect_the_gradient(name):
    level, logits = level_of("outcome")
    variant = algorithm(name, norm="none", baseline="leave_one_out")
    found = updates(level, logits, variant, 400)
    if name == "grpo":
        assert_expects(found, true_gradient(level, softmax(logits)))
    else:  # groups lose members when trajectories end early, so only the direction is certain
        assert cosine(found.mean(0), true_gradient(level, softmax(logits)).ravel()) > 0.8


def test_lemma_and_proposition_are_counted(shaped):
    level, _ = shaped
    counts = lemma_1(level)
    assert set(counts) == {"proposer", "planner"}
    assert all(0 < success <= nodes for nodes, _, success in counts.values())
    solves, can = proposition_1(level)
    assert can
    assert solves
    blind, _ = level_of("outcome")
    blind_counts = lemma_1(blind)
    assert sum(c[2] for c in blind_counts.values()) < sum(c[2] for c in counts.values())


def test_success_is_that_of_play(shaped):
    level, logits = shaped
    trees = Table([level], logits).sample(tree("random", "step", "none"), 5, 600)
    share = np.mean([tree.outcome.success for tree in trees])
    expected = success_of(level, softmax(logits))
    assert abs(share - expected) < 4.5 * np.sqrt(expected * (1 - expected) / 600) + 1e-9
    assert action_values(level, softmax(logits)).shape == (len(level.nodes), len(TEXTS))
