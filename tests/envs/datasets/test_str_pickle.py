"""The reader of pickles that knows nothing but texts."""

import base64
import contextlib
import os
import pickle
import pickletools
import tracemalloc
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pettingllms_envs.datasets import str_pickle
from pettingllms_envs.datasets.str_pickle import text_from_packed_pickle, text_from_pickle


class Touch:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


@given(st.text(), st.integers(0, pickle.HIGHEST_PROTOCOL))
def test_texts_come_back(text, protocol):
    data = pickle.dumps(text, protocol)
    assert text_from_pickle(data) == text
    assert text_from_packed_pickle(base64.b64encode(zlib.compress(data)).decode()) == text


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_nothing_is_called(tmp_path, protocol):
    target = tmp_path / "made"
    for value in (Touch(str(target)), ["harmless", Touch(str(target))]):
        with pytest.raises(ValueError, match="not one text"):
            text_from_pickle(pickle.dumps(value, protocol))
    assert not target.exists()


@pytest.mark.parametrize("value", [b"bytes", 1, None, ["text"], {"a": "b"}, ("x",), ("x", "y")])
def test_other_values_are_refused(value):
    with pytest.raises(ValueError, match="not one text"):
        text_from_pickle(pickle.dumps(value))


def test_nothing_is_allocated_but_the_text():
    """A place in the memo of an unpickler costs 16 bytes, up to that of the highest number."""
    text, memo = b"X\x01\x00\x00\x00a", pickle.LONG_BINPUT + (2**28).to_bytes(4, "little")
    tracemalloc.start()
    try:
        assert text_from_pickle(text + memo + pickle.STOP) == "a"
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@given(st.binary(max_size=200))
def test_damaged_pickles_are_value_errors(data):
    with contextlib.suppress(ValueError):
        assert isinstance(text_from_pickle(data), str)


@given(st.data())
def test_cut_and_changed_pickles_are_value_errors(data):
    good = pickletools.optimize(pickle.dumps("some text", 4))
    place = data.draw(st.integers(0, len(good) - 1))
    byte = data.draw(st.integers(0, 255))
    for bad in (good[:place], good[:place] + bytes([byte]) + good[place + 1 :]):
        with contextlib.suppress(ValueError):
            assert isinstance(text_from_pickle(bad), str)


@pytest.mark.parametrize("packed", ["", "not base64!", "AAAA", base64.b64encode(b"xx").decode()])
def test_damaged_layers_are_value_errors(packed):
    with pytest.raises(ValueError, match="not"):
        text_from_packed_pickle(packed)


def test_a_decompression_bomb_is_refused(monkeypatch):
    monkeypatch.setattr(str_pickle, "MAX_DECODED_BYTES", 1000)
    packed = base64.b64encode(zlib.compress(pickle.dumps("a" * 5000))).decode()
    with pytest.raises(ValueError, match="more than 1000 bytes"):
        text_from_packed_pickle(packed)
