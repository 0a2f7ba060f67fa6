"""What is fitted to train steps on this machine."""

import itertools
from fractions import Fraction
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from run_toys import decision, tree

from pettingllms_trainers.config.loading import load_config
from pettingllms_trainers.errors import ConfigError
from pettingllms_trainers.fleet import workload
from pettingllms_trainers.fleet.here import Watch, measured_here
from pettingllms_trainers.policies.pool import Batcher, ModelPolicy, PolicyPool
from pettingllms_trainers.rollout.environments import make_environments
from pettingllms_trainers.runs.measuring import measured
from pettingllms_trainers.types import TrainingCompletion, TrainingGroup, UpdateStats


@given(st.lists(st.lists(st.sampled_from([0.0, 1.0, 2.0]), min_size=5, max_size=5), min_size=1))
def test_signal_of_fewer_candidates_is_that_of_all_their_subsets(rewards):
    decisions = [decision(own, agent="a_0", index=n) for n, own in enumerate(rewards)]
    shares = workload.shares_with_signal([tree(*decisions)], "a_0")
    for num in range(2, 6):
        subsets = [
            len(set(own)) > 1 for drawn in rewards for own in itertools.combinations(drawn, num)
        ]
        assert shares[num - 1] == pytest.approx(float(Fraction(sum(subsets), len(subsets))))
    assert shares[0] == 1
    assert all(low <= high + 1e-9 for low, high in itertools.pairwise(shares[1:]))
    assert max(shares) <= 1


def test_steps_in_which_parts_were_learnt_once_more_are_not_played():
    """Nor the first: policies that learn from more than a run does play better than it."""
    config = load_config(
        "recipe:plan_path_shared",
        [
            "--rollout.num-levels=3",
            "--algorithm.num-candidates=2",
            "--warm-start.num-steps=0",
            "--evaluation.num-episodes=1",
            "--num-threads=1",
        ],
    )
    seen = []

    def recorded(*args, watch, **kwargs):
        found = measured(*args, watch=watch, **kwargs)
        seen.append(found)
        return found

    with mock.patch("pettingllms_trainers.fleet.here.measured", recorded):
        here = measured_here(config, make_environments(config), num_steps=2)
    (found,) = seen
    assert [len(trees) for trees in found.trees] == [3] * 5
    counted = [tree for trees in found.trees[1:3] for tree in trees]
    assert [len(episode) for episode in here.workload.episodes] == [
        len(tree.decisions) for tree in counted
    ]
    assert here.step_s == [step["time/step_s"] for step in found.steps[1:3]]


@pytest.mark.parametrize(("packing", "num_tokens"), [("true", 22), ("false", 31)])
def test_a_prompt_is_read_as_often_as_the_update_reads_it(packing, num_tokens):
    """Once where it is packed, else once for each of its completions, however many others have."""
    updater = mock.Mock()
    updater.update_together.return_value = [UpdateStats(num_groups=2, num_optimizer_steps=1)]
    policy = ModelPolicy(
        name="p", encode=None, encode_answer=None, batcher=Batcher(mock.Mock()), updater=updater
    )
    flags = [f"--optimizer.packing={packing}", "--engine.attention=expanded"]
    watch = Watch(load_config("recipe:plan_path", flags[: 1 + (packing == "false")]), 9)
    pool = watch.watched(PolicyPool(policies={"p": policy}, roles={}))
    answer = TrainingCompletion((7,) * 4, (0.0,) * 4, 1.0)
    groups = [
        TrainingGroup(role="", prompt_ids=(1,) * length, completions=(answer,) * num)
        for length, num in ((1, 1), (9, 2))
    ]
    pool.policies["p"].updater.update_together([(None, groups)])
    (learnt,) = watch.learnt["p"]
    assert (learnt.num_tokens, learnt.num_answer_tokens) == (num_tokens, 12)


@pytest.mark.parametrize(("flags", "num_updates"), [([], 2), (["--policies.tool.frozen=true"], 1)])
def test_parts_are_probed_once_all_that_learn_have_learnt(flags, num_updates):
    watch = Watch(load_config("recipe:plan_path", flags), 1)
    watch.num_updates = num_updates - 1
    assert not watch.is_probing
    watch.num_updates += 1
    assert watch.is_probing


def test_engines_that_write_at_the_same_time_cannot_be_told_apart():
    config = load_config("recipe:plan_path", ["--engine.kind=vllm"])
    with pytest.raises(ConfigError, match='engines "vllm" of 2 policies write at the same time'):
        measured_here(config, [], num_steps=1)
