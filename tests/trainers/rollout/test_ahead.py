"""Rollouts of the next train step: by the weights before the update, whatever the timing."""

import signal
import threading

import pytest

from pettingllms_trainers.config.loading import load_config
from pettingllms_trainers.errors import RolloutError
from pettingllms_trainers.ranks import Ranks
from pettingllms_trainers.rollout.ahead import TrainingRollouts
from pettingllms_trainers.rollout.sampler import Sample
from pettingllms_trainers.stopping import StopRequest

RUN = """
num_steps = 4
[env]
id = "toy_echo_v0"
[policies.team]
model = "tiny"
[roles]
caller = "team"
echo = "team"
"""
SERVERS = ["--engine.kind", "vllm_server", "--policies.team.endpoints", "http://127.0.0.1:8000"]


class Weights:
    """What rollouts are drawn from: the engine's copy, which `push` renews."""

    def __init__(self):
        self.num_updates = self.pushed = 0


class WatchedSampler:
    """Notes which weights draw the rollouts of which step, and in which thread."""

    def __init__(self, weights, has_copy):
        self.weights, self.has_copy = weights, has_copy
        self.num_levels_used, self.memory, self.records = 0, {}, {}
        self.played, self.threads = [], []
        self.may_play = threading.Event()
        self.may_play.set()
        self.error = None

    def rollouts(self, step, age=0):
        assert self.may_play.wait(10)
        if self.error and age:
            raise self.error
        version = self.weights.pushed if self.has_copy else self.weights.num_updates
        self.played.append((step, age, version, self.num_levels_used))
        self.threads.append(threading.current_thread())
        return Sample([], 3, 0)


@pytest.fixture
def build(tmp_path):
    def make(*flags, ranks=None, stop=None):
        (tmp_path / "run.toml").write_text(RUN)
        config = load_config(tmp_path / "run.toml", ["--rollout.ahead=1", *flags])
        weights = Weights()
        sampler = WatchedSampler(weights, has_copy=config.engine.has_copy)
        return TrainingRollouts(sampler, config, stop or StopRequest(), ranks), sampler, weights

    return make


def learn(rollouts, sampler, weights, step, holds=False):
    """One train step; with `holds` the rollouts begin when the update is over."""
    assert rollouts.take(step) is not None
    if holds:
        sampler.may_play.clear()
    with rollouts.playing_next(step):
        weights.num_updates += 1
        sampler.may_play.set()
    weights.pushed = weights.num_updates


@pytest.mark.parametrize("flags", [[], SERVERS])
@pytest.mark.parametrize("holds", [False, True])
def test_every_step_learns_from_the_weights_before_the_last_update(build, flags, holds):
    rollouts, sampler, weights = build(*flags)
    for step in range(4):
        learn(rollouts, sampler, weights, step, holds=holds and bool(flags))
    assert sampler.played == [(0, 0, 0, 0), (1, 1, 0, 3), (2, 1, 1, 6), (3, 1, 2, 9)]
    assert rollouts.pending is None, "nothing is played for a step that does not come"
    assert rollouts.num_levels_used == 12


def test_only_engines_elsewhere_play_beside_the_update(build):
    main = threading.current_thread()
    for flags, ranks, is_beside in (
        ([], None, False),
        (SERVERS, None, True),
        (["--engine.kind=vllm"], None, True),
        ([*SERVERS, "--algorithm.name=value"], None, False),
        ([*SERVERS, "--ray.enabled"], None, True),
        (SERVERS, type("Two", (Ranks,), {"size": 2})(), False),
    ):
        rollouts, sampler, weights = build(*flags, ranks=ranks)
        learn(rollouts, sampler, weights, 0)
        assert sampler.threads[0] is main
        assert (sampler.threads[1] is not main) == is_beside


def test_a_resumed_run_takes_what_was_played(build):
    first, sampler, weights = build(*SERVERS)
    learn(first, sampler, weights, 0)
    resumed, other, weights = build(*SERVERS)
    resumed.restore(first.num_levels_used, first.pending, first.memory, first.records)
    assert resumed.take(1) is first.pending
    assert not other.played
    with resumed.playing_next(1):
        pass
    assert other.played == [(2, 1, 0, 6)]


def test_without_the_key_nothing_is_played_ahead(build):
    rollouts, sampler, weights = build("--rollout.ahead=0")
    for step in range(3):
        learn(rollouts, sampler, weights, step)
        assert rollouts.pending is None
    assert sampler.played == [(0, 0, 0, 0), (1, 0, 1, 3), (2, 0, 2, 6)]


def test_a_signal_gives_up_what_is_played_now_and_keeps_what_is_played_ahead(build):
    stop = StopRequest()
    rollouts, sampler, weights = build(*SERVERS, stop=stop)
    stop.signal = signal.SIGTERM
    assert rollouts.take(0) is None
    assert rollouts.num_levels_used == 0
    stop.signal = None
    learn(rollouts, sampler, weights, 0)
    stop.signal = signal.SIGTERM
    assert rollouts.pending is not None
    assert rollouts.num_levels_used == 6


def test_what_fails_in_rollouts_ends_the_step_and_an_update_that_fails_is_what_is_seen(build):
    rollouts, sampler, weights = build(*SERVERS)
    sampler.error = RolloutError("too many")
    with pytest.raises(RolloutError, match="too many"):
        learn(rollouts, sampler, weights, 0)
    with pytest.raises(ZeroDivisionError), rollouts.playing_next(0):
        _ = 1 / 0
