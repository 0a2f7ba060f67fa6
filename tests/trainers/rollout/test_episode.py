"""Where environments live: plain values go in and out, threads change nothing but the time."""

import asyncio
import pickle
import random
import threading
from dataclasses import replace

import pytest
from run_toys import number, request

import pettingllms
from pettingllms.ends import End
from pettingllms_trainers.algorithms.base import Alone
from pettingllms_trainers.algorithms.continuation import Continuation
from pettingllms_trainers.errors import EpisodeFailure, RolloutError
from pettingllms_trainers.policies.pool import Batcher
from pettingllms_trainers.rollout.candidates import FailureLog, RolloutSettings, RolloutSpec
from pettingllms_trainers.rollout.episode import Asked, Branch, BranchingEpisode, LocalEpisodes
from pettingllms_trainers.rollout.player import play_episodes
from pettingllms_trainers.types import SamplingSettings

PATIENCE_S = 30.0
"""After this long without what a test waits for, it fails instead of hanging."""


def test_an_episode_is_branched_and_followed(echo_env):
    env = echo_env(max_turns=1)

    def asked(called):
        twin = env.fork()
        twin.step("x" if called is None else str(called))
        return Asked("echo_0", tuple(twin.messages("echo_0")))

    episode = BranchingEpisode(env.fork())
    start = episode.start(7)
    env.reset(seed=7)
    assert (start.state_hash, start.state_key) == (env.state_hash(), env.state_key())
    assert list(start.messages) == env.messages("caller_0")
    assert (start.agent, start.turn, start.is_over) == ("caller_0", 0, False)
    assert start.rewards == {"caller_0": 0.0, "echo_0": 0.0}
    assert episode.branch(["20", "what"]) == (
        Branch(2.0, 0.0, 2.0, None, False, asked=(asked(20),)),
        Branch(-1.0, 0.0, -1.0, "not a number", False, asked=(asked(None),)),
    )
    middle = episode.follow(0)
    assert "called=20" in middle.messages[-1]["content"], "team-mates see what was played"
    assert middle.rewards == {"caller_0": 2.0, "echo_0": 0.0}
    assert [branch.success for branch in episode.branch(["1", "99"])] == [False, True]
    end = episode.follow(1)
    assert (end.is_over, end.terminated, end.truncated, end.success) == (True, True, False, True)
    assert end.messages == ()


@pytest.mark.parametrize("num_threads", [0, 2])
def test_episodes_of_one_level_begin_alike_and_make_it_once(echo_env, monkeypatch, num_threads):
    env, made = echo_env(max_turns=2), []
    generate = type(env)._generate

    def counted(self, *args):
        made.append(args)
        return generate(self, *args)

    monkeypatch.setattr(type(env), "_generate", counted)

    async def play():
        episodes = LocalEpisodes(env, num_threads)
        begun = [await episodes.start(seed) for seed in (7, 7, 8, 8, 7)]
        (first, state), (second, same), (_, other), *_ = begun
        await episodes.branch(first, ["20"])
        moved = await episodes.follow(first, 0)
        await episodes.branch(second, ["20"])
        assert same == state != other
        assert await episodes.follow(second, 0) == moved
        assert (await episodes.start(7))[1] == state, "no episode has moved the level itself"

    asyncio.run(play())
    assert len(made) == 3, "one level is kept"


def test_what_goes_in_and_out_can_be_pickled(echo_env):
    episode = BranchingEpisode(echo_env())
    values = [episode.start(1), episode.branch(["3"]), episode.follow(0)]
    assert pickle.loads(pickle.dumps(values)) == values
    failure = pickle.loads(pickle.dumps(EpisodeFailure("KeyError: gone", End.SANDBOX, "Key")))
    assert (type(failure), str(failure)) == (EpisodeFailure, "KeyError: gone")
    assert (failure.end, failure.kind) == (End.SANDBOX, "Key")


def test_only_what_the_environment_raises_is_its_failure(echo_env):
    episode = BranchingEpisode(echo_env(crash_on="13", crash=ConnectionError))
    episode.start(1)
    with pytest.raises(EpisodeFailure, match="ConnectionError: the toy crashed"):
        episode.branch(["1", "13"])
    with pytest.raises(IndexError):
        episode.follow(5)


def test_an_environment_that_cannot_be_forked_fails_its_episode(echo_env, monkeypatch):
    env = echo_env()
    episodes = LocalEpisodes(env)
    episode, _ = asyncio.run(episodes.start(1))

    def fork(self):
        raise OSError("no room")

    monkeypatch.setattr(type(env), "fork", fork)
    calls = (episodes.start(1), episodes.environment(episode), episodes.branch(episode, ["1"]))
    for call in calls:
        with pytest.raises(EpisodeFailure, match="OSError: no room"):
            asyncio.run(call)


@pytest.mark.parametrize("name", ["plan_path_v0", "code_v0", "math_v0"])
def test_an_environment_is_sent_as_its_snapshot(name):
    env = pettingllms.make(name, checks=False)
    episode = BranchingEpisode(env.fork())
    found = episode.start(3)
    far = env.fork()
    far.restore(pickle.loads(pickle.dumps(episode.environment().snapshot())))
    assert far.state_hash() == found.state_hash


def test_episodes_of_a_lost_worker_are_played_again_and_no_others(echo_env, scripted_pool):
    lost = {1, 5, 8}  # the last is the second try of the first

    class Lossy(LocalEpisodes):
        async def branch(self, episode, texts):
            if episode in lost:
                raise EpisodeFailure("the worker was lost")
            return await super().branch(episode, texts)

    pool, _ = scripted_pool(number)
    settings = RolloutSettings(sampling=dict.fromkeys(pool.roles, SamplingSettings()))
    specs = [RolloutSpec(index, index, index) for index in range(8)]
    episodes = Lossy(echo_env())
    trees = asyncio.run(play_episodes(episodes, pool, specs, settings, Alone(), FailureLog(0.5)))
    assert not any(tree.has_failed for tree in trees), "they were played again"
    lost |= set(range(1000))
    with pytest.raises(RolloutError, match=r"8 of 8 rollouts failed.*the worker was lost"):
        asyncio.run(play_episodes(episodes, pool, specs, settings, Alone(), FailureLog(0.5)))
    assert not episodes._episodes, "nothing is kept of episodes that are over"


def test_episodes_are_stepped_at_the_same_time(echo_env):
    meeting = threading.Barrier(2)
    env = echo_env()
    act = env._act
    env._act = lambda *arguments: (meeting.wait(PATIENCE_S), act(*arguments))[1]

    async def play_both():
        episodes = LocalEpisodes(env, 2)
        started = await asyncio.gather(*(episodes.start(seed) for seed in range(2)))
        return await asyncio.gather(*(episodes.branch(id, ["1"]) for id, _ in started))

    assert len(asyncio.run(play_both())) == 2


class BlockingEngine:
    """Computes in the calling thread until it is let go."""

    is_concurrent = False

    def __init__(self, answer):
        self.answer, self.calls = answer, []
        self.started, self.may_end = threading.Event(), threading.Event()
        self.has_ended = None

    def check(self, request):
        pass

    async def generate(self, requests):
        self.calls.append([request.seed for request in requests])
        self.started.set()
        self.has_ended = self.may_end.wait(PATIENCE_S)
        return [[self.answer(str(request.seed))] for request in requests]


def test_coroutines_go_on_while_an_engine_computes_and_share_its_next_call(replies):
    engine = BlockingEngine(replies)

    async def main():
        batcher = Batcher(engine, overlaps=True)
        first = asyncio.ensure_future(batcher.sample(request(1)))
        assert await asyncio.to_thread(engine.started.wait, PATIENCE_S)
        others = [asyncio.ensure_future(batcher.sample(request(seed))) for seed in (2, 3)]
        while len(batcher._requests) < 2:
            await asyncio.sleep(0)
        engine.may_end.set()
        answers = await asyncio.gather(first, *others)
        assert batcher.generate_s > 0
        return [completions[0].text for completions in answers]

    assert asyncio.run(asyncio.wait_for(main(), 2 * PATIENCE_S)) == ["1", "2", "3"]
    assert engine.calls == [[1], [2, 3]], "one call at a time"


def test_nobody_waits_at_the_end_for_an_engine_that_hangs(replies):
    engine = BlockingEngine(replies)

    async def main():
        asking = asyncio.ensure_future(Batcher(engine, overlaps=True).sample(request(1)))
        assert await asyncio.to_thread(engine.started.wait, PATIENCE_S)
        assert not asking.done()

    asyncio.run(main())
    assert engine.has_ended is None
    engine.may_end.set()


@pytest.mark.parametrize(
    ("name", "arguments", "wrong"),
    [("code_v0", {"labels": "easy"}, "constant"), ("math_v0", {}, "constant")],
)
def test_sandbox_judge_and_verifier_are_safe_in_threads(name, arguments, wrong):
    """Episodes that many threads play at once end like those that are played one by one."""
    pytest.importorskip("math_verify")
    env = pettingllms.make(name, checks=False, **arguments)

    async def play(episodes, seed):
        rewards = []
        episode, state = await episodes.start(seed)
        while not state.is_over:
            now = await episodes.environment(episode)
            rng = random.Random(seed)
            texts = [now.scripted_action(state.agent, p, rng) for p in ("oracle", wrong)]
            rewards.append(await episodes.branch(episode, [*texts, f"no answer of {seed}"]))
            state = await episodes.follow(episode, 0)
        return rewards, state

    async def play_all(num_threads):
        episodes = LocalEpisodes(env, num_threads)
        return await asyncio.gather(*(play(episodes, seed) for seed in SEEDS))

    threaded = asyncio.run(play_all(4))
    assert all(end.success for _, end in threaded)
    assert threaded == asyncio.run(play_all(0))


SEEDS = (1, 2, 3, 4, 5, 1, 2, 3)
"""Some levels twice, so that threads ask for the same thing at once."""


class TimedEngine:
    """Takes requests while it computes; longer answers take longer. Seeds are per request."""

    is_concurrent = True

    def __init__(self, engine):
        self._engine = engine
        self.log = []

    def check(self, request):
        pass

    async def generate(self, requests):
        return await asyncio.gather(*map(self._answer, requests))

    async def _answer(self, request):
        self.log.append(("asked", request.seed))
        for _ in range(request.seed % 97):
            await asyncio.sleep(0)
        self.log.append(("answered", request.seed))
        return (await self._engine.generate([request]))[0]


@pytest.fixture
def play_with(scripted_pool, echo_env, play):
    def run(is_continuous, **settings):
        pool, _ = scripted_pool(caller=number, echo=number)
        engines = {
            name: TimedEngine(policy.batcher.engine) for name, policy in pool.policies.items()
        }
        policies = {
            name: replace(policy, batcher=Batcher(engines[name], is_continuous=is_continuous))
            for name, policy in pool.policies.items()
        }
        trees = play(
            echo_env(max_turns=3), replace(pool, policies=policies), seeds=range(8), **settings
        )
        return trees, [engine.log for engine in engines.values()]

    return run


@pytest.mark.parametrize(
    "settings", [{}, {"branch_choice": "softmax"}, {"algorithm": Continuation}, {"env_threads": 2}]
)
def test_trees_do_not_depend_on_who_waits_for_whom(play_with, settings):
    assert play_with(True, **settings)[0] == play_with(False, **settings)[0]


def test_an_episode_does_not_wait_for_the_longest_completion_of_others(play_with):
    _, logs = play_with(False)
    for log in logs:
        asked = [at for at, (kind, _) in enumerate(log) if kind == "asked"]
        assert asked[8] >= 16, "all have answered"
    _, logs = play_with(True)
    assert any([at for at, (kind, _) in enumerate(log) if kind == "asked"][8] < 16 for log in logs)


def test_what_an_engine_raises_reaches_who_asked(play_with, monkeypatch):
    plain = TimedEngine._answer

    async def broken(self, request):
        if request.seed % 9 == 0:
            raise ValueError("no")
        return await plain(self, request)

    monkeypatch.setattr(TimedEngine, "_answer", broken)
    trees, _ = play_with(True, allowed=0.99)
    failed = {(tree.cause, tree.end) for tree in trees if tree.has_failed}
    assert failed == {("ValueError: no", End.SERVER)}
