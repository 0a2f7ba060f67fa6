"""Simulated engines against what can be calculated."""

import asyncio
import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pettingllms_trainers.fleet.simulate import Server, SimulatedEngine, VirtualLoop, prompt_of
from pettingllms_trainers.fleet.speeds import EngineSpeed
from pettingllms_trainers.types import GenerateRequest, SamplingSettings

SPEED = EngineSpeed(
    request_s=0.3, prompt_s=1e-4, iteration_s=2e-3, weights_s=7e-3, token_s=1e-4, cache_s=1e-7
)


def run(play):
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(play())


def seconds_of(speed, num_prompt_tokens, length, num):
    """What equal sequences take, an iteration at a time."""
    total = speed.request_s + num_prompt_tokens * speed.prompt_s
    for written in range(length):
        total += speed.iteration(num, num * (num_prompt_tokens + written))
    return total


@settings(max_examples=30)
@given(st.integers(1, 300), st.integers(1, 300), st.integers(1, 200))
def test_equal_sequences_take_the_sum_of_their_iterations(prompt, length, num):
    async def play():
        server = Server({"m": SPEED})
        await server.write("m", prompt, [length] * num)
        return asyncio.get_running_loop().time(), server

    passed, server = run(play)
    assert passed == pytest.approx(seconds_of(SPEED, prompt, length, num), rel=1e-6)
    assert server.busy_s["m"] == pytest.approx(passed)
    assert server.num_asked["m"] == 0


@settings(max_examples=30)
@given(st.lists(st.tuples(st.floats(0, 5), st.integers(1, 400)), min_size=1, max_size=20))
def test_a_server_that_only_computes_divides_its_time(jobs):
    """With nothing but `token_s` it is a processor-sharing queue: the order of ends is checked."""
    speed = EngineSpeed(token_s=0.01)

    async def play():
        server, ends = Server({"m": speed}), {}

        async def job(number, start, length):
            await asyncio.sleep(start)
            await server.write("m", 1, [length])
            ends[number] = asyncio.get_running_loop().time()

        await asyncio.gather(*(job(n, *one) for n, one in enumerate(jobs)))
        return ends

    assert run(play) == pytest.approx(shared(jobs, 0.01), rel=1e-6, abs=1e-6)


def shared(jobs, token_s):
    """When each job ends if those present always have equal shares of the time."""
    left, ends, now = {}, {}, 0.0
    coming = sorted((start, number, length) for number, (start, length) in enumerate(jobs))
    while coming or left:
        until = min(left.values(), default=math.inf) * token_s * len(left) if left else math.inf
        arrival = coming[0][0] - now if coming else math.inf
        passed = min(until, arrival)
        for number in left:
            left[number] -= passed / (token_s * len(left))
        now += passed
        if arrival <= until:
            _, number, length = coming.pop(0)
            left[number] = length
        for number in [n for n, rest in left.items() if rest < 1e-9]:
            ends[number] = now
            del left[number]
    return ends


def test_what_finds_no_room_in_the_cache_waits():
    speed = EngineSpeed(iteration_s=1.0, max_tokens=100)

    async def play():
        server = Server({"m": speed})
        await server.write("m", 50, [40, 40])
        return asyncio.get_running_loop().time()

    assert run(play) == pytest.approx(80), "one after the other"


def test_models_on_one_server_take_turns():
    async def play():
        server = Server({"a": EngineSpeed(iteration_s=1.0), "b": EngineSpeed(iteration_s=2.0)})
        await asyncio.gather(server.write("a", 1, [10]), server.write("b", 1, [10]))
        return asyncio.get_running_loop().time()

    assert run(play) == pytest.approx(30)


@pytest.mark.parametrize("num_servers", [1, 2])
def test_requests_go_to_the_server_with_the_fewest_sequences(num_servers):
    speed = EngineSpeed(call_s=2.0, iteration_s=1.0, token_s=0.02)
    asked = GenerateRequest(
        prompt_ids=prompt_of(7, 3), num_candidates=10, sampling=SamplingSettings(), seed=1
    )

    async def play():
        servers = [Server({"m": speed}) for _ in range(num_servers)]
        engine = SimulatedEngine("m", servers, speed, draw, is_concurrent=True)
        found = await engine.generate([asked, asked])
        return asyncio.get_running_loop().time(), found

    def draw(place, rng):
        assert place == 7
        assert isinstance(rng, random.Random)
        return 10

    passed, found = run(play)
    assert [len(one) for one in found] == [10, 10]
    assert len(found[0][0].token_ids) == 10
    assert passed == pytest.approx(2.0 + 10 * (1.0 + 0.02 * 20 / num_servers))


def test_an_answer_is_not_longer_than_the_limit():
    async def play():
        engine = SimulatedEngine(
            "m", [Server({"m": SPEED})], SPEED, lambda *_: 999, is_concurrent=False
        )
        sampling = SamplingSettings(max_completion_tokens=5)
        asked = GenerateRequest(
            prompt_ids=prompt_of(0, 1), num_candidates=1, sampling=sampling, seed=0
        )
        return await engine.generate([asked])

    ((answer,),) = run(play)
    assert len(answer.token_ids) == 5


def test_equal_prompts_of_a_call_are_read_once():
    speed = EngineSpeed(prompt_s=1.0)

    async def play():
        engine = SimulatedEngine("m", [Server({"m": speed})], speed, draw, is_concurrent=False)
        await engine.generate([asked(7), asked(8), asked(7)])
        return asyncio.get_running_loop().time()

    def draw(*_):
        return 1

    def asked(place):
        return GenerateRequest(
            prompt_ids=prompt_of(place, 5), num_candidates=1, sampling=SamplingSettings(), seed=0
        )

    assert run(play) == pytest.approx(2 * 5)


@settings(max_examples=30)
@given(st.lists(st.integers(1, 50), min_size=1, max_size=8), st.lists(st.floats(0, 1), max_size=5))
def test_a_server_writes_on_while_nobody_looks(lengths, pauses):
    """Its caller computes for a while again and again; what ends then has ended then."""

    async def play(pauses):
        server, loop = Server({"m": SPEED}), asyncio.get_running_loop()
        writing = [asyncio.ensure_future(server.write("m", 3, [length])) for length in lengths]
        for pause in pauses:
            await asyncio.sleep(0)
            loop.leap(pause)
        await asyncio.gather(*writing)
        return sorted(server.changes), server.busy_s["m"]

    (looked, busy), (left, busy_left) = run(lambda: play([])), run(lambda: play([0.0, *pauses]))
    assert left == [(pytest.approx(moment, abs=1e-3), *rest) for moment, *rest in looked]
    assert busy_left == pytest.approx(busy, abs=1e-3)


def test_the_clock_leaps_from_event_to_event():
    async def main():
        loop, seen = asyncio.get_running_loop(), []

        async def worker(name, seconds):
            await asyncio.sleep(seconds)
            seen.append((name, loop.time()))

        await asyncio.gather(worker("a", 3600.0), worker("b", 0.25), worker("c", 3600.0))
        return seen

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        assert runner.run(main()) == [("b", 0.25), ("a", 3600.0), ("c", 3600.0)]


def test_standing_still_is_an_error():
    with (
        asyncio.Runner(loop_factory=VirtualLoop) as runner,
        pytest.raises(RuntimeError, match="stands still"),
    ):
        runner.run(asyncio.Event().wait())
