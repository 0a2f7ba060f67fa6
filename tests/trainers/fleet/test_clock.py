"""Simulated time."""

import asyncio

import pytest

from pettingllms_trainers.fleet.simulate import VirtualLoop


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
