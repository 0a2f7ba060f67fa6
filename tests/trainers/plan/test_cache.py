"""vLLM on a CPU gets a cache for the run's own lengths."""

import pytest

from pettingllms_trainers.backends.hf.shapes import shape_of
from pettingllms_trainers.config import Config
from pettingllms_trainers.rollout.environments import make_environments
from pettingllms_trainers.runs.prompts import first_prompts, lengths_of, with_cpu_cache


@pytest.fixture
def sized():
    def call(max_length=256, precision="float32", num_levels=3, **vllm):
        config = Config.model_validate(
            {
                "env": {"id": "toy_echo_v0"},
                "device": "cpu",
                "policies": {"p": {"model": "tiny", "max_length": max_length}},
                "roles": {"caller": "p", "echo": "p"},
                "rollout": {
                    "num_levels": num_levels,
                    "max_completion_tokens": 5,
                },
                "evaluation": {"num_episodes": 2},
                "engine": {"kind": "vllm", "precision": precision, "vllm": vllm},
            }
        )
        prompts = first_prompts(config, make_environments(config))
        shapes = {name: shape_of(name, policy) for name, policy in config.models.items()}
        (lengths,) = lengths_of(config, shapes, prompts).values()
        blocks = -(-sum(lengths) // 32)
        per_block = 32 * 2 * shapes["p"].key_value_size * shapes["p"].num_layers
        size = with_cpu_cache(config, prompts).engine.vllm.kv_cache_bytes
        # vLLM keeps an empty block for itself.
        empty = 0 if "kv_cache_bytes" in vllm else per_block * (4 if precision == "float32" else 2)
        return size - empty, blocks * per_block

    return call


def test_all_sequences_of_a_step_fit(sized):
    size, of_one = sized()
    assert size == 12 * 4 * of_one
    assert sized(precision="bfloat16")[0] == size / 2
    assert sized(num_levels=6)[0] == 2 * size
    assert sized(max_num_seqs=6)[0] == size / 2


def test_the_longest_sequence_fits(sized):
    one_long, of_one = sized(max_length=8192, max_num_seqs=1)
    assert one_long > 4 * of_one
    assert sized(max_length=8192, max_num_seqs=1, max_model_len=4096)[0] == one_long / 2


def test_a_size_of_its_own_stays(sized):
    assert sized(kv_cache_bytes=12345)[0] == 12345
