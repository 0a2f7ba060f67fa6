"""Who asks, and what it has cost others."""

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pettingllms
from pettingllms import callers
from pettingllms.callers import FairShare, current_caller


@given(
    st.floats(0.01, 1),
    st.lists(st.tuples(st.integers(0, 3), st.floats(0, 100), st.floats(0, 100)), max_size=20),
)
def test_debts_add_up_and_are_forgiven_per_caller(forgiven, charges):
    with pytest.MonkeyPatch.context() as patch:
        now = 1000.0
        patch.setattr(callers.time, "monotonic", lambda: now)
        debts, owed = FairShare(forgiven), dict.fromkeys(range(4), 0.0)
        for caller, seconds, pause in charges:
            debts.charge(caller, seconds)
            owed[caller] += seconds
            for other, expected in owed.items():
                assert debts.owed_s(other) == pytest.approx(expected, abs=1e-6)
            now += pause
            owed = {who: max(0.0, debt - forgiven * pause) for who, debt in owed.items()}


def test_only_debtors_are_remembered(monkeypatch):
    monkeypatch.setattr(callers.time, "monotonic", lambda: now)
    now, debts = 0.0, FairShare(1.0)
    for caller in range(5000):
        debts.charge(caller, 1.0)
        now += 1.0
    assert len(debts._free_s) <= 1001


def test_an_environment_is_one_caller_and_a_thread_another(monkeypatch):
    first, second = (pettingllms.make("sokoban_v0").unwrapped for _ in range(2))
    seen = []
    original = type(first)._act

    def act(env, *arguments):
        seen.append(current_caller())
        return original(env, *arguments)

    monkeypatch.setattr(type(first), "_act", act)
    for env in (first, second):
        env.reset(seed=1)
    for env in (first, first.fork(), second, first):
        env.step("no move")
    assert seen[0] == seen[1] == seen[3] != seen[2]
    ours = current_caller()
    assert ours == threading.get_ident()
    assert ours not in seen
