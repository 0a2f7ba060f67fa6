"""Places go to those who owe least, and among equals to those who have waited longest."""

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pettingllms_envs.math.fair_queue import FairQueue


def nothing(caller):
    return 0.0


def test_free_places_are_taken_at_once():
    queue = FairQueue("ab", nothing)
    assert {queue.take(1), queue.take(1)} == {"a", "b"}


def test_a_place_goes_to_the_first_in_the_line():
    queue, order, threads = FairQueue("a", nothing), [], []
    queue.take(1)

    def wait(number):
        order.append((number, queue.take(1)))
        queue.give_back("a")

    for number in range(5):
        threads.append(threading.Thread(target=wait, args=(number,)))
        threads[-1].start()
        while len(queue._line) <= number:
            pass
    queue.give_back("a")
    assert not queue._free or not queue._line, "handed over, not put down"
    for thread in threads:
        thread.join()
    assert order == [(number, "a") for number in range(5)]
    assert list(queue._free) == ["a"]


def test_who_gives_a_place_back_and_asks_again_is_last():
    queue, taken = FairQueue("a", nothing), []
    place = queue.take(1)
    thread = threading.Thread(target=lambda: taken.append(queue.take(1)))
    thread.start()
    while not queue._line:
        pass
    queue.give_back(place)
    assert not queue._free, "it belongs to the one who waited"
    thread.join()
    assert taken == ["a"]


def test_an_interrupted_wait_loses_no_place(monkeypatch):
    queue = FairQueue("a", nothing)
    queue.take(1)

    def interrupted(self, timeout=None):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("concurrent.futures.Future.result", interrupted)
        with pytest.raises(KeyboardInterrupt):
            queue.take(1)
    queue.give_back("a")
    assert queue.take(1) == "a"


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), min_size=1, max_size=8))
def test_who_owes_least_is_next(asking):
    """Callers in the order of asking, each with what it owes when a place becomes free."""
    owed, order, threads = {}, [], []
    queue = FairQueue("a", lambda caller: owed[caller])
    queue.take(0)

    def wait(number, caller):
        queue.take(caller)
        order.append(number)
        queue.give_back("a")

    for number, (caller, seconds) in enumerate(asking):
        owed[caller] = seconds
        threads.append(threading.Thread(target=wait, args=(number, caller)))
        threads[-1].start()
        while len(queue._line) <= number:
            pass
    queue.give_back("a")
    for thread in threads:
        thread.join()
    assert order == sorted(range(len(asking)), key=lambda n: owed[asking[n][0]])
