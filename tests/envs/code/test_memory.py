"""What a judge remembers, and what that takes."""

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from pettingllms.sandbox import ExecutionResult, Status
from pettingllms_envs.code import Judge, judge
from pettingllms_envs.code.judge import ENTRY_BYTES, Memory, key_of
from pettingllms_envs.datasets import CodeTest

STEPS = st.lists(st.tuples(st.integers(0, 6), st.booleans()), max_size=40)


@given(st.integers(1, 4), STEPS)
def test_the_least_recently_used_goes_first(size, steps):
    memory, known = Memory(size * ENTRY_BYTES), []
    for number, is_new in steps:
        key = key_of(number)
        if is_new:
            memory.remember(key, number + 0.5)  # a number takes no bytes of its own
            known = [other for other in known if other != number] + [number]
            known = known[-size:]
        elif number in known:
            assert memory.recall(key) == number + 0.5
            known = [other for other in known if other != number] + [number]
        else:
            assert memory.recall(key) is None


def test_keys_keep_neighbouring_parts_apart():
    parts = [("ab", "c"), ("a", "bc"), ("ab", "c", ""), ("a', 'b", "c"), ("ab", None), ("\ud800",)]
    assert len({key_of(*part) for part in parts}) == len(parts)


class Echo:
    """A sandbox whose programs print what they read, and which counts runs."""

    num_runs = 0

    def run_many(self, code, stdins, limits):
        self.num_runs += len(stdins)
        return [ExecutionResult(Status.OK, text, "", 0, 0.1, 0.1, 0, False) for text in stdins]


def bytes_kept(work):
    tracemalloc.start()
    work()
    kept = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return kept


def test_long_programs_and_tests_are_not_kept(double):
    sandbox, tests = Echo(), (CodeTest("1", "1"),)
    judged = Judge(sandbox)

    def work():
        for number in range(400):
            program = f"# {number}\n".ljust(48_000, "x")
            judged.passes(double, program, tests)
            judged.run(double, program, ["1".ljust(5_000)])

    assert bytes_kept(work) < 5 * 10**6, "texts of 20 MB and outputs of 2 MB"
    assert sandbox.num_runs == 800
    work()
    assert sandbox.num_runs == 800, "each was remembered"


def test_what_is_kept_is_bounded_by_bytes(double, monkeypatch):
    monkeypatch.setattr(judge, "MAX_BYTES", 1 << 20)
    sandbox = Echo()
    judged = Judge(sandbox)

    def work():
        for number in range(3000):
            judged.run(double, f"# {number}", ["1".ljust(2000)])

    assert (1 << 19) < bytes_kept(work) < 3 << 19
    judged.run(double, "# 2999", ["1".ljust(2000)])
    assert sandbox.num_runs == 3000
    judged.run(double, "# 0", ["1".ljust(2000)])
    assert sandbox.num_runs == 3001
