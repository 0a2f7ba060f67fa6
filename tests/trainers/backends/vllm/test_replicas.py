"""What becomes of requests when servers fail: against servers that speak vLLM's routes."""

import asyncio
import contextlib
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from backend_toys import TOKENIZER, V, make_requests
from fake_vllm import FakeServer, choice_of
from safetensors.torch import load_file

from pettingllms_trainers.backends.vllm import handover
from pettingllms_trainers.backends.vllm import server as vllm_server
from pettingllms_trainers.backends.vllm.handover import weight_files, write_weights
from pettingllms_trainers.backends.vllm.server import ServedVLLM, start_command
from pettingllms_trainers.config.sections import VLLMServerConfig
from pettingllms_trainers.errors import ConfigError, GenerationError


@pytest.fixture
def servers(monkeypatch):
    """Three servers, which write the letter a and end."""
    monkeypatch.setattr(vllm_server, "_PAUSE_S", 0.0)
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(FakeServer(written, V, 64).running()) for _ in range(3)]


WEIGHTS = (("x", torch.ones(2)),)
END, A = TOKENIZER.eos_token_id, TOKENIZER.convert_tokens_to_ids("a")


def written(body):
    return [choice_of([A, END], [-0.5, -0.25])] * body["sampling_params"]["n"]


def connect(servers, adapters=(0, 0), **settings):
    return ServedVLLM(
        [server.url for server in servers],
        TOKENIZER,
        stop_ids={END},
        config=VLLMServerConfig(**settings),
        max_adapters=adapters[0],
        max_adapter_rank=adapters[1],
    )


def generate(engine, requests):
    return asyncio.run(engine.generate(requests))


def num_generated(server):
    return sum(route == "/inference/v1/generate" for route, _ in server.calls)


@pytest.fixture
def requests():
    """Thirty requests of two candidates each."""
    settings = {"temperature": 0.5, "max_completion_tokens": 3, "stop": ("c",)}
    made = make_requests(30, candidates=(2,), **settings)
    return [replace(request, prompt_ids=(A,)) for request in made]


def test_requests_are_spread_over_the_servers(servers, requests):
    engine = connect(servers)
    completions = generate(engine, requests)
    assert [[c.text for c in group] for group in completions] == [["a", "a"]] * 30
    assert completions[0][0].token_ids == (A, END)
    assert completions[0][0].logprobs == (-0.5, -0.25)
    assert [num_generated(server) for server in servers] == [10, 10, 10]
    sent = {body["sampling_params"]["seed"]: body for server in servers
            for route, body in server.calls if "generate" in route}  # fmt: skip
    body = sent[requests[0].seed]
    assert body["token_ids"] == [A]
    assert body["sampling_params"] == {
        "n": 2, "temperature": 0.5, "top_p": 1.0, "top_k": 0, "max_tokens": 3, "stop": ["c"],
        "stop_token_ids": [END], "ignore_eos": True, "seed": requests[0].seed, "logprobs": 0,
        "detokenize": True,
    }  # fmt: skip


def test_answers_say_where_newer_weights_have_gone_on(servers, requests):
    """They come while the server writes: its spans have both, and neither is a stranger's."""
    (server, *_) = servers
    engine, plain = connect([server]), server.answer
    engine.load_weights(WEIGHTS)

    def answer(route, body):
        status, content = plain(route, body)
        if route == "/inference/v1/generate":
            old = server.version
            engine.load_weights(WEIGHTS)
            spans = [{"version": old, "start": 0}, {"version": server.version, "start": 1}]
            content["choices"] = [one | {"weight_versions": spans} for one in content["choices"]]
        return status, content

    server.answer = answer
    (found, *_) = asyncio.run(engine.generate(requests[:1]))
    assert [one.swaps for one in found] == [(1,)] * len(found)
    assert not engine.needs_weights
    server.version = "another's"
    server.answer = plain
    with pytest.raises(GenerationError, match="no vLLM server is left"):
        asyncio.run(engine.generate(requests[:1]))


def test_weights_are_loaded_in_order_and_the_folder_is_removed(servers, requests, tmp_path):
    engine = connect(servers, sync_dir=str(tmp_path))
    engine.load_weights(WEIGHTS)
    for server in servers:
        routes = [route for route, _ in server.calls[1:]]
        assert routes == [
            "/pause?mode=keep",
            "/collective_rpc",
            "/reset_prefix_cache?reset_running_requests=true",
            "/update_weight_version",
            "/resume",
        ]
        assert server.calls[2][1]["method"] == "load_trained_weights"
        assert server.calls[2][1]["args"][0].startswith(str(tmp_path))
    assert list(tmp_path.iterdir()) == []
    assert len({server.version for server in servers}) == 1
    assert not engine.needs_weights


def test_a_server_that_breaks_off_and_is_ill_is_left_out(servers, requests):
    engine = connect(servers)
    servers[0].script = {"/inference/v1/generate": (0, ""), "/health": (503, "")}
    assert all(len(group) == 2 for group in generate(engine, requests))
    assert engine.needs_weights
    before = num_generated(servers[0])
    assert all(len(group) == 2 for group in generate(engine, requests))
    assert num_generated(servers[0]) == before
    servers[0].script = {}
    engine.load_weights(WEIGHTS)
    assert not engine.needs_weights
    generate(engine, requests)
    assert num_generated(servers[0]) == before + 10


def test_a_server_that_never_finishes_its_answer_is_left_out(servers, requests, caplog):
    engine = connect(servers[:2], timeout_s=3.0)
    servers[0].script = {"/inference/v1/generate": (-1, "")}
    assert all(len(group) == 2 for group in generate(engine, requests[:2]))
    assert "is taken out: no answer within 3 s (timeout_s)" in caplog.text


def test_errors_of_a_healthy_server_are_tried_again(servers, requests):
    engine = connect(servers[:1], num_attempts=3)
    servers[0].script = {"/inference/v1/generate": [(500, "x"), (0, ""), None, (500, "y")]}
    assert all(len(group) == 2 for group in generate(engine, requests[:2]))
    assert not servers[0].script["/inference/v1/generate"]


def test_a_request_that_fails_too_often_is_left_out(servers, requests, caplog):
    engine = connect(servers[:1], num_attempts=2)
    servers[0].script = {"/inference/v1/generate": (500, "no luck")}
    assert generate(engine, requests[:1]) == [[]]
    assert num_generated(servers[0]) == 2
    assert "given up after 2 attempts" in caplog.text
    assert "no luck" in caplog.text


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ((404, "no such route"), r"refuses a request: status 404: no such route.*python -m vllm"),
        ((400, {"error": "n is too high"}), "n is too high"),
        ((200, "not json"), "an answer of another form"),
        ((200, {"choices": [{"token_ids": [1]}]}), r"another form .*KeyError"),
    ],
)
def test_answers_that_no_retry_would_change(servers, requests, answer, message):
    engine = connect(servers[:1])
    servers[0].script = {"/inference/v1/generate": answer}
    with pytest.raises(GenerationError, match=message):
        generate(engine, requests[:3])


def test_the_documents_start_servers_as_the_messages_say():
    document = Path(__file__).resolve().parents[4] / "docs" / "engines.md"
    assert " --host 127.0.0.1 " in start_command()
    assert start_command() in " ".join(document.read_text().replace("\\\n", " ").split())


def test_a_server_that_was_started_again_is_noticed(servers, requests):
    """It has the weights it was started with, whatever it was given before."""
    engine = connect(servers[:2])
    engine.load_weights(WEIGHTS)
    servers[1].version = "default"
    assert all(len(group) == 2 for group in generate(engine, requests))
    assert engine.needs_weights
    assert num_generated(servers[0]) >= 30


@pytest.mark.parametrize(
    "script",
    [
        {"/collective_rpc": (500, "does not fit")},
        {"/reset_prefix_cache?reset_running_requests=true": (200, {"success": False})},
        {"/resume": (0, "")},
    ],
)
def test_a_server_that_does_not_take_weights_is_left_out(servers, requests, script):
    engine = connect(servers)
    servers[2].script = script
    engine.load_weights(WEIGHTS)
    generate(engine, requests)
    assert num_generated(servers[2]) == 0
    assert engine.needs_weights
    servers[0].script = servers[1].script = script
    with pytest.raises(GenerationError, match="has taken what was to be loaded"):
        engine.load_weights(WEIGHTS)


def test_nobody_left(servers, requests):
    engine = connect(servers, timeout_s=2)
    for server in servers:
        server.script = {"/inference/v1/generate": (500, "boom"), "/health": (503, "")}
    with pytest.raises(GenerationError, match=r"no vLLM server is left \(.*boom.*Start them"):
        generate(engine, requests)


def test_wrong_servers_are_refused_at_the_start(servers):
    servers[1].settings = servers[1].settings | {"logprobs_mode": "raw_logprobs"}
    with pytest.raises(ConfigError, match=r"'raw_logprobs'; it must be 'processed_logprobs'"):
        connect(servers)
    servers[1].script = {"/collective_rpc": (404, "not found")}
    with pytest.raises(ConfigError, match=r"404: not found\)\. Start it with: .*DEV_MODE=1"):
        connect(servers)
    for answer in ("<html>", '{"results": [{}]}', "[" * 100_000):  # of another program
        servers[1].script = {"/collective_rpc": (200, answer)}
        with pytest.raises(ConfigError, match=r"does not say its settings: .*Start it with: "):
            connect(servers)
    with pytest.raises(ConfigError, match=r"cannot be used \(http://127.0.0.1:1: ConnectError"):
        ServedVLLM(["http://127.0.0.1:1"], TOKENIZER, stop_ids={END}, config=VLLMServerConfig())


def generate_with(engine, requests, adapter):
    return asyncio.run(engine.generate([replace(r, adapter=adapter) for r in requests]))


def test_adapters_are_loaded_after_the_weights_and_named_by_requests(servers, requests, tmp_path):
    engine = connect(servers[:2], adapters=(2, 16))
    engine.load_weights(WEIGHTS)
    engine.load_adapter("tool", tmp_path)
    assert len(generate_with(engine, requests, "tool")) == 30
    sent = []
    for server in servers[:2]:
        load = ("/v1/load_lora_adapter", {"lora_name": "tool", "lora_path": str(tmp_path)})
        assert load in server.calls
        own = [body["model"] for route, body in server.calls if "generate" in route]
        assert own
        sent += own
    assert sent == ["tool"] * 30


def test_a_server_that_has_lost_its_adapters_is_left_out_until_it_gets_all(
    servers, requests, tmp_path
):
    """Started again, it knows no adapter; it must not write with the bare base."""
    engine = connect(servers[:2], adapters=(1, 8))
    engine.load_weights(WEIGHTS)
    engine.load_adapter("tool", tmp_path)
    servers[1].script = {"/inference/v1/generate": (404, "The model `tool` does not exist")}
    assert all(len(group) == 2 for group in generate_with(engine, requests, "tool"))
    assert engine.needs_weights
    num_calls = len(servers[1].calls)
    engine.load_adapter("tool", tmp_path)
    assert len(servers[1].calls) == num_calls, "not without the weights"
    servers[1].script = {}
    engine.load_weights(WEIGHTS)
    engine.load_adapter("tool", tmp_path)
    assert not engine.needs_weights
    assert servers[1].calls[-2][0] == "/v1/load_lora_adapter"
    for server in servers[:2]:
        server.script = {"/v1/load_lora_adapter": (500, "does not fit")}
    with pytest.raises(GenerationError, match=r"has taken what was to be loaded.*does not fit"):
        engine.load_adapter("tool", tmp_path)


@pytest.mark.parametrize(
    ("adapters", "message"),
    [
        ((3, 8), r"room for 4 \(one stays empty\) of rank 8.*--max-loras 4 --max-lora-rank 8"),
        ((2, 33), r"rank up to 16.*UPDATING=1 .*--max-loras 3 --max-lora-rank 64"),
    ],
)
def test_servers_without_room_for_adapters_are_refused_at_the_start(servers, adapters, message):
    with pytest.raises(ConfigError, match=message):
        connect(servers, adapters=adapters)
    servers[0].settings = servers[0].settings | {"max_loras": 0}
    with pytest.raises(ConfigError, match=r"can load 0 LoRA adapters.*--enable-lora"):
        connect(servers, adapters=(1, 8))


def test_weights_are_written_in_parts(tmp_path, monkeypatch):
    monkeypatch.setattr(handover, "_SHARD_BYTES", 12)
    weights = {f"w{index}": torch.full((3,), float(index)) for index in range(5)}
    weights["positions"] = torch.arange(3)
    write_weights([tmp_path], weights.items(), torch.bfloat16)
    files = sorted(tmp_path.iterdir())
    assert len(files) == 3
    found = {name: tensor for file in files for name, tensor in load_file(file).items()}
    assert found.keys() == weights.keys()
    assert {tensor.dtype for tensor in found.values()} == {torch.bfloat16, torch.int64}
    assert all(torch.equal(found[name].to(weights[name].dtype), weights[name]) for name in found)


def test_what_has_no_room_in_memory_goes_to_the_disk(tmp_path, monkeypatch):
    """A container's shared memory is 64 MiB, unless somebody asked for more."""
    memory, disk = tmp_path / "memory", tmp_path / "disk"
    memory.mkdir()
    disk.mkdir()
    monkeypatch.setattr(handover, "_SHARD_BYTES", 12)
    monkeypatch.setattr(handover, "MEMORY_FILES", memory)
    monkeypatch.setattr(handover.tempfile, "gettempdir", lambda: str(disk))
    free = {memory: handover._MARGIN_BYTES + 12, disk: handover._MARGIN_BYTES + 12}

    def usage(folder):
        place = folder.parent
        num_files = sum(not file.is_symlink() for file in folder.iterdir())
        return SimpleNamespace(free=free[place] - 12 * num_files)

    monkeypatch.setattr(handover.shutil, "disk_usage", usage)
    weights = {f"w{index}": torch.full((3,), float(index)) for index in range(2)}
    with weight_files(weights.items(), torch.float32) as folder:
        first, second = sorted(folder.iterdir())
        assert folder.parent == memory
        assert (first.is_symlink(), second.is_symlink()) == (False, True)
        assert second.resolve().parent.parent == disk
        assert torch.equal(load_file(second)["w1"], weights["w1"])
    assert not [*memory.iterdir(), *disk.iterdir()]
    weights["w2"] = torch.zeros(3)
    with (
        pytest.raises(GenerationError, match=r"next file takes 0 MiB.*disk: 16 MiB.*--shm-size"),
        weight_files(weights.items(), torch.float32),
    ):
        pass
    assert not [*memory.iterdir(), *disk.iterdir()]
