"""Asynchronous and long work for callers that just wait, also inside a running event loop.

A notebook's cells run inside one, where `asyncio.run` is refused. There the work has a thread, and
an event loop of its own.
"""

from __future__ import annotations

import asyncio
import contextvars
import signal
import threading
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator
from concurrent.futures import Executor, Future, wait
from contextlib import contextmanager
from functools import partial
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeVar

T = TypeVar("T")
P = ParamSpec("P")
_LOOK_UP_S = 0.2


def is_in_loop() -> bool:
    """Whether an event loop is running in this thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def finish(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end and return its result, inside a running event loop too.

    Raises:
        KeyboardInterrupt: The user interrupted; the coroutine was cancelled, and has ended.
    """
    if not is_in_loop():
        return asyncio.run(work)
    begun: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]]] = Future()

    async def main() -> T:
        task = asyncio.current_task()
        assert task is not None
        begun.set_result((asyncio.get_running_loop(), task))
        return await work

    def cancel() -> None:
        loop, task = begun.result()
        loop.call_soon_threadsafe(task.cancel)

    with _interruptible():
        return in_thread(lambda: asyncio.run(main()), cancel)


async def work_off(jobs: Iterator[T], do: Callable[[T], Awaitable[None]], num_workers: int) -> None:
    """Do jobs, several at a time; the first that raises cancels those that are running.

    Args:
        jobs: What is to be done, taken one by one.
        do: Does a job.
        num_workers: Jobs at the same time, at least 1.
    """

    async def work() -> None:
        # All workers share one iterator: no job is done twice, and none waits for a slow worker.
        for job in jobs:
            await do(job)
            await asyncio.sleep(0)  # policies without a server never wait: let signals through

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(num_workers):
                group.create_task(work())
    except BaseExceptionGroup as errors:
        # All workers stop for one reason; the others only repeat it.
        raise errors.exceptions[0] from errors


def in_thread(work: Callable[[], T], interrupt: Callable[[], None] = lambda: None) -> T:
    """Run a function in a thread of its own, and wait for its result.

    Args:
        work: The function.
        interrupt: Called when the user interrupts; should make `work` end soon.

    Raises:
        KeyboardInterrupt: The user interrupted; `work` has ended, unless there was a second one.
    """
    done: Future[T] = Future()
    is_awaited = threading.Event()

    def run() -> None:
        is_awaited.wait()  # an interrupt before that has nothing to end
        try:
            done.set_result(work())
        except BaseException as error:  # noqa: BLE001  raised again where it is waited for
            done.set_exception(error)

    context = contextvars.copy_context()
    thread = threading.Thread(target=context.run, args=(run,), name="pettingllms", daemon=True)
    thread.start()
    try:
        is_awaited.set()
        wait_for(done)
    except KeyboardInterrupt:
        interrupt()
        wait_for(done)
        raise
    return done.result()


class DaemonThreads(Executor):
    """Threads for code of others, which may never return: no process waits for them to end.

    For those of `concurrent.futures` every process waits, and an event loop for its own.

    Args:
        num_threads: How many, at most.
    """

    def __init__(self, num_threads: int) -> None:
        self._num_left = num_threads
        self._jobs: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        weakref.finalize(self, self._jobs.put, None)

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Have a thread call a function."""
        future: Future[T] = Future()
        self._jobs.put((future, partial(fn, *args, **kwargs)))
        if self._num_left:
            self._num_left -= 1
            threading.Thread(target=_work, args=(self._jobs,), daemon=True).start()
        return future


def _work(jobs: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None]) -> None:
    while job := jobs.get():
        future, call = job
        if future.set_running_or_notify_cancel():
            try:
                future.set_result(call())
            except BaseException as error:  # noqa: BLE001  raised again where it is waited for
                future.set_exception(error)
        del job, future, call  # what they hold may be large, and the next job may never come
    jobs.put(None)  # for the other threads


def wait_for(done: Future[Any]) -> None:
    """Wait until a future is done; an interrupt ends the wait."""
    # Looking up now and then: a signal that comes just before a wait would not end it.
    while not wait([done], timeout=_LOOK_UP_S).done:
        pass


@contextmanager
def _interruptible() -> Generator[None]:
    """Have SIGINT raise here: what asyncio does with it waits for the loop that waits for us."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


@contextmanager
def meanwhile(every_s: float, report: Callable[[], None]) -> Generator[None]:
    """Call a function every so many seconds while the context lasts, in a thread.

    A call of a model may take minutes, in which nothing else would be heard of it.

    Args:
        every_s: Seconds before the first call and between calls; infinite: there are none.
    """
    done = threading.Event()

    def repeat() -> None:
        while not done.wait(every_s):
            report()

    # A daemon, so that a call which never returns does not keep the process from ending.
    thread = threading.Thread(target=repeat, daemon=True)
    if every_s != float("inf"):
        thread.start()
    try:
        yield
    finally:
        done.set()
        if thread.is_alive():
            thread.join()
