"""Rollouts in flight: no token older than allowed, whatever the timing, and nothing is lost."""

import asyncio
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from pettingllms.seeding import derive_seed
from pettingllms_trainers.errors import RolloutError
from pettingllms_trainers.policies.pool import PolicyPool
from pettingllms_trainers.ranks import Ranks, StopRequest, StopRequested
from pettingllms_trainers.rollout.candidates import FailureLog
from pettingllms_trainers.rollout.episode import LocalEpisodes
from pettingllms_trainers.rollout.sampler import Sampler, TrainingEnvironment, TrainingRollouts
from pettingllms_trainers.runs.checkpoint import TrainingProgress, load_checkpoint, save_checkpoint

RUN = """
num_steps = 7
[env]
id = "toy_echo_v0"
[policies.shared]
model = "tiny"
[roles]
caller = "shared"
echo = "shared"
[algorithm]
num_candidates = 2
[rollout]
num_levels = 1
"""
SERVERS = ["--engine.kind", "vllm_server", "--policies.shared.endpoints", "http://127.0.0.1:8000"]
REFILLS = ["--rollout.max-refills=2", "--rollout.min-groups=3"]


class Pair(Ranks):
    """One of two processes, which are threads here."""

    size = 2

    def __init__(self, rank, shared=None):
        self.rank = rank
        self.shared = shared or (threading.Barrier(2, timeout=300), [None, None], {})

    def gather(self, share):
        barrier, shares, _ = self.shared
        shares[self.rank] = list(share)
        barrier.wait()
        found = [list(one) for one in shares]
        barrier.wait()
        longest = max(map(len, found))
        return [one[index] for index in range(longest) for one in found if index < len(one)]

    def apart(self):
        *_, others = self.shared
        return Pair(self.rank, others.setdefault("apart", Pair(0).shared))


class World:
    """A run without learning: every answer is the number of the weights that wrote it."""

    def __init__(self, pools, env, config, ranks=None):
        self.config = config
        self.has_copy, self.ranks = self.config.engine.has_copy, ranks
        self.num_updates = self.pushed = 0
        self.threads, self.may_write, self.has_asked = [], threading.Event(), threading.Event()
        self.may_write.set()
        self.stop, self.runner = StopRequest(), asyncio.Runner()
        pool, engines = pools(self.write)
        self.calls = engines["shared"].calls
        # Servers take requests at once; those that an engine collects first may meet newer weights.
        engines["shared"].is_concurrent = self.config.swaps_within_answers
        policies = {"shared": replace(pool.policies["shared"], updater=self)}
        own = (ranks or Ranks()).apart()
        pool = PolicyPool(policies=policies, roles=dict.fromkeys(pool.roles, "shared"), ranks=own)
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
        self.has_asked.set()
        assert self.may_write.wait(60)
        self.threads.append(threading.current_thread())
        return "99" if "called=None" not in prompt and seed % 4 == 0 else str(self.version)

    def values(self, prompts):
        """V, of which every update makes another one."""
        return [derive_seed(self.num_updates, *prompt) % 100 for prompt in prompts]

    def checkpoint(self, folder, step):
        sampler = self.rollouts.sampler
        progress = TrainingProgress(
            step=step,
            num_levels_used=sampler.num_levels_used,
            pending=self.rollouts.pending,
            memory=sampler.memory,
            records=sampler.records,
        )
        return save_checkpoint(folder, {}, progress, config_hash="abc", keep=1, ranks=self.ranks)

    def resume(self, folder, step):
        found = load_checkpoint(folder, config_hash="abc")
        self.num_updates = self.pushed = step
        self.rollouts.restore(found.num_levels_used, found.pending, found.memory, found.records)

    def learn(self, step, holds=""):
        """Take a train step; the update waits for rollouts, or rollouts for the update."""
        sample = self.rollouts.take(step)
        self.rollouts.sampler.memory = self.rollouts.remembered(step, sample.trees)
        if holds == "rollouts":
            self.may_write.clear()
        self.has_asked.clear()
        with self.rollouts.playing_next(step):
            assert holds != "update" or self.has_asked.wait(60)
            self.num_updates += 1
            self.may_write.set()
        self.pushed = self.num_updates
        return sample

    def run(self, first=0, **kwargs):
        return [self.learn(step, **kwargs) for step in range(first, self.config.num_steps)]


@pytest.fixture
def world(scripted_pool, echo_env, load):
    """A function that makes the rollouts of a run of `max_staleness = k`."""
    made = []

    def make(k, *flags, env=None, ranks=None):
        config = load(RUN, flags=[f"--rollout.max-staleness={k}", *flags])
        made.append(World(scripted_pool, env or echo_env(max_turns=6), config, ranks))
        return made[-1]

    yield make
    for one in made:
        one.runner.close()


def ages(samples):
    """The ages of all answers, by train step; versions must be those that wrote."""
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


@pytest.mark.parametrize("k", [0, 1, 3])
def test_answers_are_compared_by_what_was_known_when_they_began(world, monkeypatch, k):
    one = world(k)
    algorithm = type(one.config.algorithm)
    monkeypatch.setattr(algorithm, "remember", lambda self, trees, context: {"n": context.step})
    known = [sample.memory.get("n", -1) for sample in one.run()]
    assert known == [-1, *(max(step - max(k, 1), 0) for step in range(1, len(known)))]


def test_new_weights_do_not_wait_for_what_engines_are_writing(world):
    """An answer outlives two updates; its version is that of its first token."""
    one, waited = world(3, *SERVERS), []
    batcher = one.rollouts.sampler.pool.policies["shared"].batcher
    engine, batcher._is_continuous = batcher.engine, True
    plain = engine.generate

    async def generate(requests):
        found, is_first = await plain(requests), b"results=[]" in bytes(requests[0].prompt_ids)
        if one.pushed == 1 and is_first and not waited:  # of train step 4, in flight with 2 and 3
            waited.append(0)
            while one.pushed < 3 and waited[0] < 10_000:
                await asyncio.sleep(0)
                waited[0] += 1
            waited.append(one.pushed)
        return found

    engine.generate = generate
    samples = one.run()
    assert waited[1] == 3
    assert max(map(max, ages(samples))) == 3


@pytest.mark.parametrize("flags", [[], REFILLS, ["--algorithm.name=value"]])
@pytest.mark.parametrize(("k", "killed"), [(1, 2), (3, 1), (3, 2), (3, 5)])
def test_a_resumed_run_is_the_same_run(world, tmp_path, k, killed, flags):
    """What is in flight is played again from the answers in the checkpoint, and goes on."""
    whole = world(k, *flags)
    for step in range(killed):
        whole.learn(step)
    whole.checkpoint(tmp_path / "checkpoints", killed)
    num_calls = len(whole.calls)
    samples = whole.run(killed)
    resumed = world(k, *flags)
    resumed.resume(tmp_path / "checkpoints", killed)
    again = resumed.run(killed)
    assert [one.trees for one in again] == [one.trees for one in samples]
    assert resumed.calls == whole.calls[num_calls:], "nothing is asked twice, nor in another order"
    assert resumed.rollouts.sampler.num_levels_used == whole.rollouts.sampler.num_levels_used


def test_only_engines_elsewhere_play_beside_the_update(world):
    main = threading.current_thread()
    for flags, is_beside in (
        ([], False),
        (SERVERS, True),
        (["--engine.kind=vllm"], True),
        ([*SERVERS, "--algorithm.name=value"], False),
        ([*SERVERS, "--ray.enabled"], True),
    ):
        one = world(1, *flags)
        assert one.config.plays_beside_updates == is_beside
        if not one.config.algorithm.critic:
            one.learn(0)
            assert one.threads[0] is main
            assert (one.threads[-1] is not main) == is_beside


def both(calls):
    with ThreadPoolExecutor(2) as threads:
        return list(threads.map(lambda call: call(), calls))


@pytest.mark.parametrize("flags", [[], SERVERS, [*SERVERS, *REFILLS]])
@pytest.mark.parametrize("k", [1, 3])
def test_several_processes_play_their_own_levels_and_learn_from_all(world, tmp_path, k, flags):
    """Also beside the update, which has exchanges of its own; a checkpoint has what all asked."""
    flags = [*flags, "--rollout.num-levels=5"]
    first = Pair(0)
    pair = [world(k, *flags, ranks=one) for one in (first, Pair(1, first.shared))]
    begun = both([lambda one=one: [one.learn(step) for step in range(3)] for one in pair])
    both([lambda one=one: one.checkpoint(tmp_path / "checkpoints", 3) for one in pair])
    samples, others = both([lambda one=one: one.run(3) for one in pair])
    assert [one.trees for one in samples] == [one.trees for one in others]
    found = ages([*begun[0], *samples])
    assert max(map(max, found)) == k
    for one in [*begun[0], *samples]:
        assert len(one.trees) + one.num_stale == 5 * (1 + one.num_refills)
        episodes = [tree.episode for tree in one.trees]
        assert episodes == sorted(set(episodes)), "in the order of one process"
    again = Pair(0)
    resumed = [world(k, *flags, ranks=one) for one in (again, Pair(1, again.shared))]
    for one in resumed:
        one.resume(tmp_path / "checkpoints", 3)
    found, _ = both([lambda one=one: one.run(3) for one in resumed])
    if not pair[0].has_copy:  # else what has which age depends on timing
        assert [one.trees for one in found] == [one.trees for one in samples]


@pytest.fixture
def stragglers(echo_env):
    """An environment in which one level of twenty takes 30 turns, and the others one."""

    class Uneven(type(echo_env())):
        def _act(self, state, agent, action):
            found = super()._act(state, agent, action)
            num = 30 if state.base % 40 < 2 else 1
            is_over = len(found.state.results) == num
            return found._replace(terminated=is_over, success=is_over)

    return Uneven(max_turns=40)


def test_a_step_does_not_wait_for_stragglers(world, stragglers, tmp_path):
    flags = ["--rollout.num-levels=20"]
    waiting = world(1, *flags, env=stragglers)
    assert [len(one.trees) for one in waiting.run()] == [20] * 7
    flying = world(2, *flags, env=stragglers)
    samples = [flying.learn(step) for step in range(4)]
    flying.checkpoint(tmp_path / "checkpoints", 4)
    samples += flying.run(4)
    assert sum(one.num_stale for one in samples) > 0
    assert len(flying.calls) < len(waiting.calls)
    for one, other in zip(samples, world(0, *flags, env=stragglers).run(), strict=True):
        assert one.num_stale == 20 - len(one.trees) <= 2
        kept = {tree.episode for tree in one.trees}
        assert kept >= {t.episode for t in other.trees if len(t.decisions) == 2}
    assert max(map(max, ages(samples))) == 2
    resumed = world(2, *flags, env=stragglers)
    resumed.resume(tmp_path / "checkpoints", 4)
    again = [(one.trees, one.num_stale) for one in resumed.run(4)]
    assert again == [(one.trees, one.num_stale) for one in samples[4:]]


def test_a_signal_gives_up_what_is_played_now_and_keeps_what_is_in_flight(world):
    one = world(2, *SERVERS)
    one.stop.signal = signal.SIGTERM
    assert one.rollouts.take(0) is None
    assert (one.rollouts.sampler.num_levels_used, one.rollouts.pending) == (0, [])
    one.stop.signal = None
    assert one.rollouts.take(0) is not None
    with one.rollouts.playing_next(0):
        one.stop.signal = signal.SIGTERM
    assert [pending.step for pending in one.rollouts.pending] == [1, 2]
    assert one.rollouts.take(1).trees


def test_a_run_that_is_prolonged_begins_with_its_newest_weights(world):
    one = world(2)
    one.run()
    assert not one.rollouts.pending, "nothing is played for a step that does not come"
    assert ages([one.learn(7)]) == [{-7}]


def test_what_fails_in_rollouts_ends_the_step_and_an_update_that_fails_is_what_is_seen(
    world, echo_env
):
    crashing = world(1, *SERVERS, env=echo_env(max_turns=1, crash_on="99", crash=ConnectionError))
    with pytest.raises(RolloutError, match="the toy crashed"):
        crashing.run()
    one = world(1, *SERVERS)
    one.rollouts.take(0)
    with pytest.raises(ZeroDivisionError), one.rollouts.playing_next(0):
        _ = 1 / 0


def test_levels_of_rounds_that_began_in_a_failed_step_are_not_used_twice(world):
    one = world(3)
    sampler, kept = one.rollouts.sampler, one.rollouts.sampler.pending(1, 0)
    kept.first_levels += [0, 7]
    one.rollouts.restore(1, [kept], sampler.memory, sampler.records)
    assert sampler.num_levels_used == 7 + one.config.rollout.num_levels


@pytest.mark.parametrize(("before", "after"), [(signal.SIGTERM, 0), (0, signal.SIGTERM)])
def test_a_signal_that_raises_does_not_wait_for_rollouts(world, monkeypatch, before, after):
    async def endless(step, is_updated):
        await asyncio.to_thread(is_updated.wait)
        os.kill(os.getpid(), after)  # 0 is no signal
        await asyncio.Event().wait()

    one = world(1, *SERVERS)
    one.rollouts.take(0)
    monkeypatch.setattr(one.rollouts, "_play", endless)
    with (
        pytest.raises(StopRequested),
        StopRequest(raises=True),
        one.rollouts.playing_next(0),
    ):
        os.kill(os.getpid(), before)
