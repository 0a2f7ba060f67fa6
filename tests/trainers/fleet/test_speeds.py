"""Speeds by data sheets."""

import pytest

from pettingllms_trainers.backends.hf.shapes import shape_of
from pettingllms_trainers.config import PolicyConfig
from pettingllms_trainers.errors import ConfigError
from pettingllms_trainers.fleet.speeds import GPUS, USUAL, engine_of, learning_of

QWEN = shape_of("m", PolicyConfig(model="Qwen/Qwen3-8B"))


def test_a_data_sheet_by_hand():
    """Qwen3-8B on an H100: 16.4 GB of weights at 0.7 of 3.35 TB/s, half of 989 TFLOPS."""
    speed = engine_of(QWEN, GPUS["h100"], 1, USUAL)
    assert QWEN.num_parameters == pytest.approx(8.19e9, rel=1e-3)
    assert speed.weights_s == pytest.approx(2 * 8.19e9 / (0.7 * 3.35e12), rel=1e-3)
    assert speed.token_s == pytest.approx(2 * 8.19e9 / (0.5 * 989e12), rel=1e-3)
    # 36 layers, 8 heads of 128, keys and values, 2 bytes each.
    assert speed.cache_s == pytest.approx(36 * 8 * 128 * 2 * 2 / (0.7 * 3.35e12), rel=1e-3)
    learning, longer = (
        learning_of(QWEN, GPUS["h100"], USUAL, is_recomputed=True, is_checkpointed=is_checkpointed)
        for is_checkpointed in (False, True)
    )
    # A layer keeps 26 bytes of each of 4096 hidden numbers, 8 of 12288, 12 of 4096 of queries, and
    # 10 of 1024 of keys and values; four passes read or write each byte 11 times.
    kept = 36 * (26 * 4096 + 8 * 12288 + 12 * 4096 + 10 * 1024)
    products_s, bytes_s = 8 * 8.19e9 / (0.5 * 989e12), 44 * kept / (0.7 * 3.35e12)
    assert learning.token_s == pytest.approx(products_s + bytes_s, rel=1e-3)
    # One more forward pass: two operations beside eight, a fifth pass beside four.
    more_s = 10 / 8 * products_s + 5 / 4 * bytes_s
    assert longer.token_s == pytest.approx(more_s, rel=1e-3)


def test_a_model_that_does_not_fit_says_what_to_set():
    large = shape_of("m", PolicyConfig(model="Qwen/Qwen3-32B"))
    with pytest.raises(ConfigError, match="tensor_parallel_size"):
        engine_of(large, GPUS["l40s"], 1, USUAL)
