"""Waiting for asynchronous work: with and without a running loop, interrupted, failing."""

import asyncio
import os
import signal
import threading

import pytest

from pettingllms.loops import DaemonThreads, finish, is_in_loop


def outside(call):
    assert not is_in_loop()
    return call()


def inside(call):
    async def cell():
        assert is_in_loop()
        return call()

    return asyncio.run(cell())


async def double(number):
    await asyncio.sleep(0)
    return 2 * number


@pytest.mark.parametrize("where", [outside, inside])
def test_it_returns_and_raises(where):
    async def fail():
        raise LookupError("own")

    assert where(lambda: finish(double(21))) == 42
    with pytest.raises(LookupError, match="own"):
        where(lambda: finish(fail()))


@pytest.mark.parametrize("where", [outside, inside])
@pytest.mark.usefixtures("heard_sigint")
def test_an_interrupt_ends_the_work_before_it_is_raised(where):
    seen = []

    async def endless():
        try:
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.Event().wait()
        finally:
            seen.append(threading.current_thread() is threading.main_thread())

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        where(lambda: finish(endless()))
    assert seen == [where is outside]
    assert signal.getsignal(signal.SIGINT) is before


def test_threads_call_functions_some_at_a_time_and_end_with_whoever_has_them():
    threads, both, seen = DaemonThreads(2), threading.Barrier(2), []

    def work(number):
        both.wait(60)
        seen.append(threading.current_thread())
        return 1 // number

    zero, *rest = [threads.submit(work, number) for number in (0, 1, 2, 3)]
    assert [one.result() for one in rest] == [1, 0, 0]
    with pytest.raises(ZeroDivisionError):
        zero.result()
    assert len({*seen}) == 2
    assert all(thread.daemon for thread in seen)
    del threads
    for thread in seen:
        thread.join(60)
        assert not thread.is_alive()
