"""When weights move to an engine that has a copy of them."""

import asyncio
import sys
import threading
from dataclasses import replace
from types import ModuleType, SimpleNamespace

import pytest

from pettingllms_trainers.backends import build
from pettingllms_trainers.backends.engines import (
    AdapterSync,
    WeightSync,
    build_engines,
    computes_elsewhere,
    folder_for_files,
)
from pettingllms_trainers.config import EngineConfig
from pettingllms_trainers.config.loading import load_config
from pettingllms_trainers.config.sections import KINDS, EngineKind
from pettingllms_trainers.policies.pool import PolicyPool
from pettingllms_trainers.ranks import Ranks
from pettingllms_trainers.types import SamplingSettings


@pytest.fixture
def small_config(small_run_file):
    return load_config(small_run_file())


class CountingEngine:
    """Knows how many weights it got."""

    def __init__(self):
        self.calls, self.is_asleep = [], False

    @property
    def needs_weights(self):
        return self.is_asleep or "load" not in self.calls

    def load_weights(self, weights):
        assert list(weights) == [("w", 1)]
        self.calls.append("load")
        self.is_asleep = False

    def release(self):
        self.calls.append("release")

    async def generate(self, requests):
        raise NotImplementedError


class StubPolicy:
    is_sharded = False

    def __init__(self, *, is_trainable, adapter=None):
        self.engine = object()
        self.updater = object() if is_trainable else None
        self.loaded = SimpleNamespace(adapter=adapter)

    def named_weights(self):
        yield "w", 1


def test_trained_weights_move_every_time_and_frozen_ones_when_they_are_needed():
    trained, frozen = CountingEngine(), CountingEngine()
    syncs = [
        WeightSync(trained, StubPolicy(is_trainable=True)),
        WeightSync(frozen, StubPolicy(is_trainable=False)),
    ]
    for sync in syncs * 3:
        sync.release()
        sync.push()
    assert trained.calls == ["release", "load"] * 3
    assert frozen.calls == ["release", "load", "release", "release"]
    frozen.is_asleep = True
    syncs[1].push()
    assert frozen.calls.count("load") == 2


def test_a_kind_of_engine_is_a_row_and_a_module(small_config, monkeypatch):
    """What a run asks of an engine follows from the row; its module starts it."""
    started = []

    def build_engine(spec):
        kind = spec.config.engine.kind
        started.append((kind, spec.loaded, spec.has_own_process, spec.max_adapters))
        return CountingEngine()

    module = ModuleType("an_engine_of_a_third_party")
    module.build_engine = build_engine
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(KINDS, "vllm", EngineKind(module.__name__))
    engine = EngineConfig.model_validate(
        {"kind": "vllm", "vllm": {"sleep": True, "tensor_parallel_size": 2, "max_model_len": 9}}
    )
    assert (engine.sleeps, engine.num_shards, engine.max_length) == (False, 1, 0)
    config = small_config.model_copy(update={"engine": engine})
    policies = {name: StubPolicy(is_trainable=True) for name in config.policies}
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


@pytest.mark.parametrize("vllm", [{}, {"sleep": True}, {"tensor_parallel_size": 2}])
def test_engines_with_processes_of_their_own_generate_at_the_same_time(
    small_config, monkeypatch, vllm
):
    meeting = threading.Barrier(2)
    engines = {name: (MeetingEngine(meeting), object()) for name in small_config.policies}
    monkeypatch.setattr(build, "build_engines", lambda *_: engines)
    config = small_config.model_copy(
        update={"engine": EngineConfig.model_validate({"kind": "vllm", "vllm": vllm})}
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


class StubAdapter:
    """Writes its name and how often it was written."""

    def __init__(self, name):
        self.name, self.num_writes = name, 0

    def write(self, folder):
        self.num_writes += 1
        folder.mkdir()
        (folder / "adapter").write_text(f"{self.name} {self.num_writes}")


class AdapterStubPolicy(StubPolicy):
    def __init__(self, name, *, is_trainable=True):
        super().__init__(is_trainable=is_trainable, adapter=StubAdapter(name))


class CountingAdapterEngine(CountingEngine):
    """Knows which adapters it got; their files are there until they are replaced."""

    is_concurrent, limits = False, None

    def __init__(self):
        super().__init__()
        self.folders = {}

    def load_adapter(self, name, folder):
        old = self.folders.get(name)
        assert old is None or ((old / "adapter").is_file() and old != folder)
        self.folders[name] = folder
        self.calls.append((folder / "adapter").read_text())


def test_the_base_moves_once_and_trained_adapters_every_time(tmp_path):
    engine = CountingAdapterEngine()
    policies = [
        AdapterStubPolicy("tool"),
        AdapterStubPolicy("judge", is_trainable=False),
        AdapterStubPolicy(None, is_trainable=False),
    ]
    sync = AdapterSync(engine, policies, tmp_path)
    sync.push()
    assert engine.calls == ["load", "tool 1", "judge 1"]
    for _ in range(2):
        sync.release()
        sync.push()
    assert engine.calls[3:] == ["release", "tool 2", "release", "tool 3"]
    engine.is_asleep = True  # or a server was started again
    sync.push()
    assert engine.calls[7:] == ["load", "tool 4", "judge 2"]
    (folder,) = tmp_path.iterdir()
    assert len(list(folder.iterdir())) == 2, "old files are removed"
    del sync
    assert not folder.exists()


def test_a_pool_moves_all_weights_and_what_policies_share_once(scripted_pool, tmp_path):
    pool, _ = scripted_pool(caller=lambda *_: "1", echo=lambda *_: "2")
    engines = [CountingAdapterEngine(), CountingEngine()]
    shared = AdapterSync(engines[0], [AdapterStubPolicy(name) for name in pool.policies], tmp_path)
    alone = WeightSync(engines[1], StubPolicy(is_trainable=True))
    policies = {name: replace(policy, sync=shared) for name, policy in pool.policies.items()}
    policies["alone"] = replace(policies["caller"], sync=alone)
    policies["itself"] = replace(policies["caller"], sync=None)
    pool = PolicyPool(policies=policies, roles=pool.roles)
    pool.release_engines()
    pool.push_weights()
    assert engines[0].calls == ["release", "load", "caller 1", "echo 1"]
    assert engines[1].calls == ["release", "load"]


def test_roles_are_sampled_as_they_want(echo_env, scripted_pool, play):
    pool, engines = scripted_pool(lambda prompt, k, seed: "1")
    own = SamplingSettings(temperature=0.3, max_completion_tokens=5, stop=("x",))
    (tree,) = play(echo_env(), pool, sampling={"echo": own})
    for call in engines["shared"].calls:
        for request in call:
            role = "echo" if b"You are the echo" in bytes(request.prompt_ids) else "caller"
            assert request.sampling == (own if role == "echo" else SamplingSettings())
    assert {d.role: d.temperature for d in tree.decisions} == {"caller": 1.0, "echo": 0.3}


def test_adapters_are_put_into_memory_only_where_it_can_hold_them(tmp_path, monkeypatch):
    config = SimpleNamespace(engine=SimpleNamespace(vllm_server=SimpleNamespace(sync_dir="")))
    usage = SimpleNamespace(free=2000)
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage)
    assert folder_for_files(config, 1000, tmp_path) == tmp_path
    assert folder_for_files(config, 1001, tmp_path) is None, "two versions are there at a time"
    assert folder_for_files(config, 0, tmp_path / "none") is None
    config.engine.vllm_server.sync_dir = "/shared"
    assert folder_for_files(config, 1001, tmp_path) == "/shared"
