"""vLLM on simulated cards: takes memory as the real one does, and writes random tokens.

Of the real one it has what the trainer calls. An engine of this process is on the first card that
the process sees; one elsewhere, or one of several cards, starts a process for each.
"""

import json
import os
import random
import subprocess
import sys
from types import SimpleNamespace

import simulated_ledger as ledger

ENGINE_BYTES, SLEEPING_BYTES = 2 << 30, 1 << 30


class SamplingParams(SimpleNamespace):
    """See vLLM."""


class Part:
    """What one card holds of an engine."""

    def __init__(self, index, total):
        self._index, self._total = index, total

    def start(self):
        # vLLM refuses to start where others have left too little.
        return ledger.claim("engine", self._total, self._index)

    def sleep(self):
        return ledger.claim("asleep", SLEEPING_BYTES - self._total, self._index)

    def wake_weights(self):
        return ledger.claim("awake: weights", (self._total - SLEEPING_BYTES) // 2, self._index)

    def wake_kv_cache(self):
        rest = self._total - SLEEPING_BYTES
        return ledger.claim("awake: kv_cache", rest - rest // 2, self._index)


class RemotePart:
    """A part in a process of its own."""

    def __init__(self, index, total):
        command = [sys.executable, "-m", "vllm.part", str(index), str(total)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __getattr__(self, name):
        def call():
            self._process.stdin.write(f"{name}\n")
            self._process.stdin.flush()
            return json.loads(self._process.stdout.readline())

        return call


class LLM:
    """See vLLM."""

    def __init__(
        self, *, model, gpu_memory_utilization, enable_sleep_mode, dtype, kv_cache_memory_bytes=0,
        tensor_parallel_size=1, max_model_len=None, **options,
    ):  # fmt: skip
        # Imported here: the processes of an engine need none of it.
        from transformers import AutoConfig

        settings = AutoConfig.from_pretrained(model)
        total = round(gpu_memory_utilization * ledger.CARD_BYTES)
        if kv_cache_memory_bytes:
            total = kv_cache_memory_bytes + ENGINE_BYTES
        is_elsewhere = os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] == "1"
        kind = RemotePart if is_elsewhere or tensor_parallel_size > 1 else Part
        self._parts = [kind(index, total) for index in range(tensor_parallel_size)]
        self._can_sleep = enable_sleep_mode
        if not all([part.start() for part in self._parts]):
            raise ValueError("free memory on startup is less than desired gpu_memory_utilization")
        self._size, length = settings.vocab_size, max_model_len or settings.max_position_embeddings
        self.model_config = SimpleNamespace(
            max_model_len=length, get_vocab_size=lambda: self._size, dtype=_dtype(dtype)
        )
        self._queue = []
        self.llm_engine = SimpleNamespace(
            add_lora=lambda adapter: None,
            step=self._step,
            abort_request=lambda names: None,
            set_weight_version=lambda version: None,
        )

    def collective_rpc(self, method, args=()):
        if method == "load_trained_weights" and not isinstance(args[0], str):
            for _ in args[0]:
                pass

    def sleep(self, level, mode="abort"):
        if level == 0:
            return
        assert self._can_sleep
        assert all([part.sleep() for part in self._parts])

    def wake_up(self, tags):
        for tag in set(tags) - {"scheduling"}:
            if not all([getattr(part, f"wake_{tag}")() for part in self._parts]):
                raise RuntimeError(f"waking {tag}: out of memory")

    def reset_prefix_cache(self, reset_running_requests=False):
        return True

    def generate(self, prompts, parameters, lora_request, use_tqdm):
        return [self._output(str(number), each) for number, each in enumerate(parameters)]

    def enqueue(self, prompts, parameters, lora_request, use_tqdm):
        self._queue += [(str(random.Random().getrandbits(60)), each) for each in parameters]
        return [f"{name}-x" for name, _ in self._queue[-len(prompts) :]]

    def _step(self):
        queue, self._queue = self._queue, []
        return [self._output(name, each) for name, each in queue]

    def _output(self, name, parameters):
        written = completions(self._size, parameters)
        return SimpleNamespace(request_id=name, finished=True, outputs=written)


def completions(size, parameters):
    """Random completions of a request, as long as they may be."""
    rng, length = random.Random(parameters.seed), parameters.max_tokens
    return [
        SimpleNamespace(
            token_ids=[rng.randrange(4, size) for _ in range(length)],
            logprobs=SimpleNamespace(logprobs=[-2.5] * length),
            finish_reason="length",
            weight_versions=[],
        )
        for _ in range(parameters.n)
    ]


def _dtype(name):
    import torch

    return getattr(torch, name)
