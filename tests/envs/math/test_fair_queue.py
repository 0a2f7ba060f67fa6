"""Places go to those who have waited longest."""

import threading

import pytest

from pettingllms_envs.math.fair_queue import FairQueue


def test_free_places_are_taken_at_once():
    queue = FairQueue("ab")
    assert {queue.take(), queue.take()} == {"a", "b"}


def test_a_place_goes_to_the_first_in_the_line():
    queue, order, threads = FairQueue("a"), [], []
    queue.take()

    def wait(number):
        order.append((number, queue.take()))
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
    queue, taken = FairQueue("a"), []
    place = queue.take()
    thread = threading.Thread(target=lambda: taken.append(queue.take()))
    thread.start()
    while not queue._line:
        pass
    queue.give_back(place)
    assert not queue._free, "it belongs to the one who waited"
    thread.join()
    assert taken == ["a"]


def test_an_interrupted_wait_loses_no_place(monkeypatch):
    queue = FairQueue("a")
    queue.take()

    def interrupted(self, timeout=None):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("concurrent.futures.Future.result", interrupted)
        with pytest.raises(KeyboardInterrupt):
            queue.take()
    queue.give_back("a")
    assert queue.take() == "a"
