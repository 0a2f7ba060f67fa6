"""What a judge remembers."""

from hypothesis import given
from hypothesis import strategies as st

from pettingllms_envs.code.memory import Memory


@given(st.integers(1, 4), st.lists(st.tuples(st.integers(0, 6), st.booleans()), max_size=40))
def test_the_least_recently_used_goes_first(size, steps):
    memory, known = Memory(size), []
    for key, is_new in steps:
        if is_new:
            memory.remember(key, (key,))
            known = [other for other in known if other != key] + [key]
            known = known[-size:]
        elif key in known:
            assert memory.recall(key) == (key,)
            known = [other for other in known if other != key] + [key]
        else:
            assert memory.recall(key) is None
