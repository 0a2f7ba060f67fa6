"""Rollouts in flight: no token older than allowed, whatever the timing, and nothing is lost."""

import asyncio
import signal
import threading
from dataclasses import replace

import pytest

from pettingllms_trainers.config.loading import load_config
from pettingllms_trainers.errors import ConfigError, RolloutError
from pettingllms_trainers.ranks import Ranks
from pettingllms_trainers.rollout.episode import LocalEpisodes
from pettingllms_trainers.rollout.failures import FailureLog
from pettingllms_trainers.rollout.in_flight import TrainingRollouts
from pettingllms_trainers.rollout.sampler import Sampler, TrainingEnvironment
from pettingllms_trainers.runs.checkpoint import load_checkpoint, save_checkpoint
from pettingllms_trainers.stopping import StopRequest

RUN = """
num_steps = 7
[env]
id = "toy_echo_v0"
[policies.team]
model = "tiny"
[roles]
caller = "team"
echo = "team"
[algorithm]
num_candidates = 2
[rollout]
num_levels = 1
"""
SERVERS = ["--engine.kind", "vllm_server", "--policies.team.endpoints", "http://127.0.0.1:8000"]
TWO = type("Two", (Ranks,), {"size": 2})


class World:
    """A run without learning: every answer is the number of the weights that wrote it."""

    def __init__(self, pools, env, path, flags=(), ranks=None):
        self.config = load_config(path, flags)
        self.has_copy = self.config.engine.has_copy
        self.num_updates = self.pushed = 0
        self.threads, self.may_write = [], threading.Event()
        self.may_write.set()
        self.stop, self.runner = StopRequest(), asyncio.Runner()
        pool, engines = pools(self.write)
        self.calls = engines["shared"].calls
        pool = replace(pool, roles={"caller": "shared", "echo": "shared"})
        episodes = LocalEpisodes(env)
        played = TrainingEnvironment(
            config=self.config.env[0], roles=pool.roles, episodes=[episodes]
        )
        sampler = Sampler([played], pool, self.config, FailureLog(), self.stop)
        self.rollouts = TrainingRollouts(sampler, self.config, self.stop, self.runner, ranks)

    @property
    def version(self):
        return self.pushed if self.has_copy else self.num_updates

    def write(self, prompt, candidate, seed):
        """An episode ends when the echo answers 99, which levels do sooner or later."""
        assert self.may_write.wait(10)
        self.threads.append(threading.current_thread())
        return "99" if "called=None" not in prompt and seed % 4 == 0 else str(self.version)

    def learn(self, step, holds=""):
        """Take a train step; the update waits for rollouts, or rollouts for the update."""
        sample = self.rollouts.take(step)
        if holds == "rollouts":
            self.may_write.clear()
        num_calls = len(self.calls)
        with self.rollouts.playing_next(step):
            while holds == "update" and len(self.calls) == num_calls:
                pass
            self.num_updates += 1
            self.may_write.set()
        self.pushed = self.num_updates
        return sample

    def run(self, first=0, **kwargs):
        return [self.learn(step, **kwargs) for step in range(first, self.config.num_steps)]


@pytest.fixture
def world(scripted_pool, echo_env, tmp_path):
    """Return a function that makes the rollouts of a run of `max_staleness = k`."""
    (tmp_path / "run.toml").write_text(RUN)
    made = []

    def make(k, *flags, env=None, ranks=None):
        flags = [f"--rollout.max-staleness={k}", *flags]
        env = env or echo_env(max_turns=6)
        made.append(World(scripted_pool, env, tmp_path / "run.toml", flags, ranks))
        return made[-1]

    yield make
    for one in made:
        one.runner.close()


def ages(samples):
    """Return the ages of all answers, by train step; versions must be those that wrote."""
    found = []
    for step, sample in enumerate(samples):
        decisions = [d for tree in sample.trees for d in tree.decisions]
        for decision in decisions:
            texts = {candidate.completion.text for candidate in decision.candidates}
            assert texts - {"99"} <= {str(decision.version)}, "the version is what wrote"
        found.append({step - decision.version for decision in decisions})
    return found


@pytest.mark.parametrize("flags", [[], SERVERS])
@pytest.mark.parametrize("k", [0, 1, 2, 4])
def test_tokens_are_as_old_as_allowed_and_never_older(world, k, flags):
    found = ages(world(k, *flags).run())
    assert found[0] == {0}
    assert max(map(max, found)) == k
    assert all(min(of_step) >= min(k, 1) for of_step in found[1:])


@pytest.mark.parametrize("holds", ["update", "rollouts"])
def test_with_one_step_timing_changes_nothing(world, holds):
    in_turn, beside = world(1).run(), world(1, *SERVERS)
    samples = [beside.learn(step, holds if step < 6 else "") for step in range(7)]
    assert [one.trees for one in samples] == [one.trees for one in in_turn]
    assert ages(samples) == [{0}, *[{1}] * 6]


def test_an_episode_goes_on_with_new_weights(world):
    """It waits at the gate while they come, and its decisions say who wrote them."""
    samples = world(3).run()
    assert max(map(max, ages(samples))) == 3
    episodes = [[d.version for d in t.decisions] for s in samples for t in s.trees]
    assert any(len(set(versions)) > 1 for versions in episodes)
    assert all(versions == sorted(versions) for versions in episodes)


@pytest.mark.parametrize("k", [1, 2, 4])
def test_levels_and_chance_of_a_step_do_not_depend_on_what_is_in_flight(world, k):
    alone, flying = world(0).run(), world(k).run()
    for one, other in zip(alone, flying, strict=True):
        assert [t.env_seed for t in one.trees] == [t.env_seed for t in other.trees]
        assert [t.episode for t in one.trees] == [t.episode for t in other.trees]


@pytest.mark.parametrize("refills", [[], ["--rollout.max-refills=2", "--rollout.min-groups=3"]])
@pytest.mark.parametrize(("k", "killed"), [(1, 2), (3, 1), (3, 2), (3, 5)])
def test_a_resumed_run_is_the_same_run(world, tmp_path, k, killed, refills):
    """What is in flight is played again from the answers in the checkpoint, and goes on."""
    whole = world(k, *refills)
    samples = [whole.learn(step) for step in range(killed)]
    rollouts = whole.rollouts
    save_checkpoint(
        tmp_path / "checkpoints",
        {},
        step=killed,
        num_levels_used=rollouts.num_levels_used,
        flights=rollouts.flights,
        memory=rollouts.memory,
        records=rollouts.records,
        config_hash="abc",
        keep=1,
    )
    num_calls = len(whole.calls)
    samples = whole.run(killed)
    found = load_checkpoint(tmp_path / "checkpoints", config_hash="abc")
    resumed = world(k, *refills)
    resumed.num_updates = resumed.pushed = killed
    resumed.rollouts.restore(found.num_levels_used, found.flights, found.memory, found.records)
    again = resumed.run(killed)
    assert [one.trees for one in again] == [one.trees for one in samples]
    assert resumed.calls == whole.calls[num_calls:], "nothing is asked twice, nor in another order"
    assert resumed.rollouts.num_levels_used == rollouts.num_levels_used


def test_only_engines_elsewhere_play_beside_the_update(world):
    main = threading.current_thread()
    for flags, ranks, is_beside in (
        ([], None, False),
        (SERVERS, None, True),
        (["--engine.kind=vllm"], None, True),
        ([*SERVERS, "--algorithm.name=value"], None, False),
        ([*SERVERS, "--ray.enabled"], None, True),
        (SERVERS, TWO(), False),
    ):
        one = world(1, *flags, ranks=ranks)
        assert one.rollouts._overlaps == is_beside
        if not one.config.algorithm.critic:
            one.learn(0)
            assert one.threads[0] is main
            assert (one.threads[-1] is not main) == is_beside


def test_several_processes_cannot_keep_episodes_in_flight(world):
    with pytest.raises(ConfigError, match=r"max_staleness = 2 .* 2 processes .* set 0 or 1"):
        world(2, ranks=TWO())


def test_a_signal_gives_up_what_is_played_now_and_keeps_what_is_in_flight(world):
    one = world(2, *SERVERS)
    one.stop.signal = signal.SIGTERM
    assert one.rollouts.take(0) is None
    assert (one.rollouts.num_levels_used, one.rollouts.flights) == (0, [])
    one.stop.signal = None
    assert one.rollouts.take(0) is not None
    with one.rollouts.playing_next(0):
        one.stop.signal = signal.SIGTERM
    assert [flight.step for flight in one.rollouts.flights] == [1, 2]
    assert one.rollouts.take(1).trees


def test_a_run_that_is_prolonged_begins_with_its_newest_weights(world):
    one = world(2)
    one.run()
    assert not one.rollouts.flights, "nothing is played for a step that does not come"
    assert ages([one.learn(7)]) == [{-7}]


def test_what_fails_in_rollouts_ends_the_step_and_an_update_that_fails_is_what_is_seen(
    world, echo_env
):
    crashing = world(1, *SERVERS, env=echo_env(max_turns=1, crash_on="99"))
    with pytest.raises(RolloutError, match="the toy crashed"):
        crashing.run()
    one = world(1, *SERVERS)
    one.rollouts.take(0)
    with pytest.raises(ZeroDivisionError), one.rollouts.playing_next(0):
        _ = 1 / 0
