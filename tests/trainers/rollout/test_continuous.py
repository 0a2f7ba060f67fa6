"""Episodes that continue as soon as their own completions are there; the same trees."""

import asyncio
from dataclasses import replace

import pytest

from pettingllms_trainers.algorithms.continuation import Continuation
from pettingllms_trainers.policies.pool import Batcher


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


def number(prompt, candidate, seed):
    return str((seed + candidate) % 50)


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
    found = {tree.cause for tree in trees}
    assert found <= {None, "ValueError: no"}
    assert "ValueError: no" in found
