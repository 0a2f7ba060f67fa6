"""When weights move to an engine that has a copy of them."""

import asyncio
import contextlib
import random
import sys
import threading
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from fake_vllm import FakeServer, choice_of

from pettingllms_trainers.backends import build
from pettingllms_trainers.backends.engines import WeightSync, build_engines, computes_elsewhere
from pettingllms_trainers.cli import main
from pettingllms_trainers.config import EngineConfig
from pettingllms_trainers.config.loading import load_config
from pettingllms_trainers.config.sections import KINDS, EngineKind
from pettingllms_trainers.ranks import Ranks


@pytest.fixture
def small_config(small_run_file):
    return load_config(small_run_file())


@pytest.mark.parametrize("has_adapter", [False, True])
def test_trained_weights_move_every_step_and_frozen_ones_once(
    small_run_file, model_directory, tmp_path, has_adapter
):
    """A policy that learns and a frozen one, on servers; as an adapter and its base they share."""

    def written(body):
        wanted, rng = body["sampling_params"], random.Random(body["sampling_params"]["seed"])
        length = wanted["max_tokens"]
        return [
            choice_of([rng.randrange(4, 90) for _ in range(length)], [-2.5] * length, "length")
            for _ in range(wanted["n"])
        ]

    def received(server, route):
        return [body for path, body in server.calls if (path == route and "lora_path" in str(body))
                or (path == route and body.get("method") == "load_trained_weights")]  # fmt: skip

    flags = ["--engine.kind=vllm_server", "--engine.max-logprob-gap=1000", "--policies.p.frozen"]
    flags += ["--warm-start.num-steps=0", "--output-dir", str(tmp_path / "run")]
    flags += ["--policies.t.lora.rank=4"] * has_adapter
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(FakeServer(written, 99, 256).running()) for _ in range(2)]
        for name, server in zip("tp", servers, strict=True):
            url = servers[0].url if has_adapter else server.url
            flags += [f"--policies.{name}.model={model_directory()}"]
            flags += [f"--policies.{name}.endpoints", url]
        assert main([str(small_run_file(2)), *flags, "--trust"]) == 0
    weights = [len(received(server, "/collective_rpc")) for server in servers]
    adapters = received(servers[0], "/v1/load_lora_adapter")
    assert weights == ([1, 0] if has_adapter else [3, 1])
    assert len(adapters) == len({body["lora_path"] for body in adapters}) == 3 * has_adapter
    assert not any(Path(body["lora_path"]).exists() for body in adapters)


def test_a_kind_of_engine_is_a_row_and_a_module(small_config, monkeypatch):
    """What a run asks of an engine follows from the row; its module starts it."""
    started = []

    def build_engine(spec):
        kind = spec.config.engine.kind
        started.append((kind, spec.loaded, spec.has_own_process, spec.max_adapters))
        return SimpleNamespace(limits=None)

    module = ModuleType("an_engine_of_a_third_party")
    module.build_engine = build_engine
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(KINDS, "vllm", EngineKind(module.__name__))
    engine = EngineConfig.model_validate(
        {"kind": "vllm", "vllm": {"sleep": True, "tensor_parallel_size": 2, "max_model_len": 9}}
    )
    assert (engine.sleeps, engine.num_shards, engine.max_length) == (False, 1, 0)
    config = small_config.model_copy(update={"engine": engine})
    loaded = SimpleNamespace(adapter=None)
    policies = {
        name: SimpleNamespace(loaded=loaded, updater=object(), is_sharded=False)
        for name in config.policies
    }
    engines = build_engines(config, policies, Ranks())
    assert started == [("vllm", policy.loaded, True, 0) for policy in policies.values()]
    assert all(isinstance(sync, WeightSync) for _, sync in engines.values())


class MeetingEngine:
    """Answers once all engines have been asked."""

    is_concurrent = False

    def __init__(self, meeting):
        self._meeting = meeting

    def check(self, request):
        pass

    async def generate(self, requests):
        self._meeting.wait(60)
        return [[request] for request in requests]


def test_engines_with_processes_of_their_own_generate_at_the_same_time(small_config, monkeypatch):
    meeting = threading.Barrier(2)
    engines = {name: (MeetingEngine(meeting), object()) for name in small_config.policies}
    monkeypatch.setattr(build, "build_engines", lambda *_: engines)
    config = small_config.model_copy(
        update={"engine": EngineConfig.model_validate({"kind": "vllm"})}
    )
    policy = SimpleNamespace(
        chat=SimpleNamespace(encode=None, encode_answer=None, token_texts=None, tool_parser=""),
        updater=None,
        grammars=None,
        loaded=SimpleNamespace(adapter=None),
    )
    pool = build.build_pool(config, dict.fromkeys(engines, policy))

    async def main():
        members = pool.policies.values()
        return await asyncio.gather(*(member.sample(1) for member in members))

    assert asyncio.run(main()) == [[1], [1]]


@pytest.mark.parametrize(
    ("kind", "vllm", "num_engines", "expected"),
    [
        ("vllm", {"sleep": True}, 2, True),
        ("vllm", {"tensor_parallel_size": 2}, 2, True),
        ("vllm", {}, 2, True),
        ("vllm", {}, 1, False),
        ("vllm", {"sleep": True}, 1, False),
        ("transformers", {"sleep": True}, 2, False),
    ],
)
def test_where_engines_compute(small_config, kind, vllm, num_engines, expected):
    engine = EngineConfig.model_validate({"kind": kind, "vllm": vllm})
    config = small_config.model_copy(update={"engine": engine})
    assert computes_elsewhere(config, num_engines) == expected
