"""What is fitted to train steps on this machine."""

import asyncio
import itertools
import math
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
from pettingllms_trainers.types import (
    GenerateRequest,
    RequestLimits,
    SamplingSettings,
    TokenCompletion,
    TrainingCompletion,
    TrainingGroup,
    UpdateStats,
)

ANSWER = TokenCompletion(token_ids=(1, 2), logprobs=(0.0, 0.0), text="", finish_reason="stop")


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


class Engine:
    """A server: it takes requests while it computes."""

    is_concurrent = True
    limits = RequestLimits(max_batch_tokens=0, context_length=None, vocab_size=8)

    def __init__(self):
        self.calls, self.running = [], 0

    def check(self, request):
        pass

    async def generate(self, requests):
        self.calls.append([(one.prompt_ids[0], one.num_candidates) for one in requests])
        self.running += 1
        assert self.running == 1, "the seconds of a call are its own"
        await asyncio.sleep(0)
        self.running -= 1
        return [[ANSWER] * one.num_candidates for one in requests]


class Updater:
    def __init__(self):
        self.updates = []

    def update_together(self, updates):
        ((_, groups),) = updates
        self.updates.append([(one.prompt_ids[0], len(one.completions)) for one in groups])
        return [UpdateStats(num_groups=len(groups), num_optimizer_steps=3)]

    def values(self, prompts):
        return [0.5] * len(prompts)


def test_calls_and_updates_are_seen_one_by_one_and_parts_of_them_once_more():
    """After the first train step: every fourth request, one candidate of all; updates alike."""
    config = load_config("recipe:plan_path_shared", [])
    engine, updater = Engine(), Updater()
    policy = ModelPolicy(
        name="p",
        encode=lambda _: (),
        encode_answer=lambda _: (),
        batcher=Batcher(engine, is_continuous=True),
        updater=updater,
    )
    watch = Watch(config, num_unprobed=1)
    (seen,) = watch.watched(PolicyPool(policies={"p": policy}, roles={"a": "p"})).policies.values()
    asked = [
        GenerateRequest(
            prompt_ids=(number, 0, 0), num_candidates=2, sampling=SamplingSettings(), seed=number
        )
        for number in range(5)
    ]
    completion = TrainingCompletion((1, 2), (0.0, 0.0), 1.0)
    groups = [
        TrainingGroup(role="a", prompt_ids=(number, 0, 0), completions=(completion,) * 2)
        for number in range(5)
    ]

    async def step():
        await asyncio.gather(*map(seen.batcher.sample, asked))
        return seen.updater.update_together([(seen.updater, groups)])[0]

    for _ in range(2):
        assert asyncio.run(step()).num_groups == 5
    both, one, part = [(n, 2) for n in range(5)], [(n, 1) for n in range(5)], [(0, 2), (4, 2)]
    assert engine.calls == [both, both, part, one]
    assert updater.updates == [both, both, part, one]
    assert [(c.num_requests, c.num_prompt_tokens, sum(c.lengths)) for c in watch.calls["p"]] == [
        (5, 15, 20), (5, 15, 20), (2, 6, 8), (5, 15, 10)
    ]  # fmt: skip
    assert [each[:-1] for each in watch.learnt["p"]] == [
        (3, 15 + 20, 20), (3, 15 + 20, 20), (3, 6 + 8, 8), (3, 15 + 10, 10)
    ]  # fmt: skip
    assert seen.updater.values([()]) == [0.5]
    assert all(math.isfinite(call.seconds) for call in watch.calls["p"])


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


def test_engines_that_write_at_the_same_time_cannot_be_told_apart():
    config = load_config("recipe:plan_path", ["--engine.kind=vllm"])
    with pytest.raises(ConfigError, match='engines "vllm" of 2 policies write at the same time'):
        measured_here(config, [], num_steps=1)
