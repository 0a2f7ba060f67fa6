import json
import pickle

import numpy as np
from gymnasium.spaces import flatten, flatten_space, unflatten
from hypothesis import given
from hypothesis import strategies as st

from pettingllms.types import Observation, TextSpace


@given(st.text())
def test_every_text_is_inside(text):
    space = TextSpace(1000)
    assert space.contains(text)
    assert Observation(text) in space
    codes = flatten(space, text)
    assert codes in flatten_space(space)
    assert unflatten(space, codes) == text


def test_length_and_type_are_the_limits():
    space = TextSpace(3)
    assert space.contains("")
    assert not space.contains("abcd")
    assert not space.contains(7)
    assert not space.contains(b"abc")


def test_samples_are_short_printable_seeded_and_inside():
    space, twin = TextSpace(20, seed=1), TextSpace(20, seed=1)
    samples = [space.sample() for _ in range(50)]
    assert samples == [twin.sample() for _ in range(50)]
    assert all(space.contains(s) and all(c.isprintable() or c == "\n" for c in s) for s in samples)
    assert len(set(samples)) > 10
    assert space.sample(mask=(0, None)) == ""


def test_equality_and_repr():
    assert TextSpace(5) == TextSpace(5) != TextSpace(6)
    assert repr(TextSpace(5)) == "TextSpace(5)"


@given(st.text())
def test_observation_is_a_string_everywhere(text):
    observation = Observation(text)
    assert observation == text
    assert hash(observation) == hash(text)
    assert json.dumps(observation) == json.dumps(text)
    assert pickle.loads(pickle.dumps(observation)) == text
    assert observation.dtype == np.dtype(str) == TextSpace(5).dtype
