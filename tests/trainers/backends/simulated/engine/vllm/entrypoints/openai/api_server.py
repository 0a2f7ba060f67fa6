"""vLLM's server on a simulated card."""

import argparse
import os
from types import SimpleNamespace

import simulated_ledger as ledger
from fake_vllm import FakeServer, choice_of
from transformers import AutoConfig

from vllm import completions

assert os.environ["VLLM_SERVER_DEV_MODE"] == "1"
parser = argparse.ArgumentParser()
for name in (
    "model",
    "worker-extension-cls",
    "logprobs-mode",
    "generation-config",
    "host",
    "dtype",
):
    parser.add_argument(f"--{name}")
for name in ("enable-scale-out", "enable-lora"):
    parser.add_argument(f"--{name}", action="store_true")
parser.add_argument("--port", type=int, default=8000)
parser.add_argument("--gpu-memory-utilization", type=float, default=0.92)
parser.add_argument("--tensor-parallel-size", type=int, default=1)
parser.add_argument("--max-num-seqs", type=int)
parser.add_argument("--max-loras", type=int, default=0)
parser.add_argument("--max-lora-rank", type=int, default=0)
options = parser.parse_args()
for shard in range(options.tensor_parallel_size):
    assert ledger.claim("server", round(options.gpu_memory_utilization * ledger.CARD_BYTES), shard)
settings = AutoConfig.from_pretrained(options.model)


def written(body):
    parameters = SimpleNamespace(**body["sampling_params"])
    made = completions(settings.vocab_size, parameters)
    return [choice_of(one.token_ids, one.logprobs.logprobs, one.finish_reason) for one in made]


FakeServer(
    written,
    settings.vocab_size,
    settings.max_position_embeddings,
    options.port,
    logprobs_mode=options.logprobs_mode,
    max_loras=options.max_loras,
    max_lora_rank=options.max_lora_rank,
).serve_forever()
