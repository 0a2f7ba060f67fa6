"""Who gets which GPU of a machine, and servers that are kept alive."""

import os
import subprocess
import sys
import time
import urllib.request
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from run_toys import program

from pettingllms_trainers import launch
from pettingllms_trainers.child import bound
from pettingllms_trainers.config import Config
from pettingllms_trainers.errors import ConfigError, WorkerLost
from pettingllms_trainers.launch import WatchedServer, divided, served


def config_of(names="ab", model="some/model", lora=0, shards=1, kind="vllm", **vllm):
    policies = {name: {"model": model, "lora": {"rank": lora}} for name in names}
    for number, name in enumerate(names if kind == "vllm_server" else ""):
        policies[name]["endpoints"] = [f"http://127.0.0.1:{number + 1}"]
    return Config.model_validate(
        {
            "env": {"id": "toy_echo_v0"},
            "policies": policies,
            "roles": {"caller": names[0], "echo": names[-1]},
            "engine": {"kind": kind, "vllm": {"tensor_parallel_size": shards, **vllm}},
        }
    )


@given(st.integers(1, 16), st.sampled_from(["a", "ab"]), st.sampled_from([0, 8]), st.integers(1, 4))
def test_every_gpu_is_given_once_and_servers_get_at_most_half_or_one_set(number, names, lora, size):
    gpus, config = list(map(str, range(number))), config_of(names, lora=lora, shards=size)
    num_models = 1 if lora or names == "a" else 2
    if number <= num_models * size:
        with pytest.raises(ConfigError, match="too few"):
            divided(config, gpus, servers="half")
        return
    found = divided(config, gpus, servers="half")
    given_to = [gpu for _, own in found.servers for gpu in own]
    assert sorted([*found.gpus, *given_to], key=int) == gpus
    assert found.num_ranks == len(found.gpus) >= 1
    assert {len(own) for _, own in found.servers} == {size}
    assert len(given_to) <= max(number // 2, num_models * size)
    of_each = [sum(name in who for who, _ in found.servers) for name in names]
    assert len(set(of_each)) == 1, "each policy has as many servers"


def test_servers_are_those_of_the_plan():
    gpus = list(map(str, range(8)))
    found = divided(config_of(shards=2), gpus, servers="1/2")
    assert found.gpus == ("0", "1")
    assert [names for names, _ in found.servers] == [("a",), ("b",), ("b",)]
    for wrong in ("2", "2/0", "2/x", "1/1/1"):
        with pytest.raises(ConfigError, match=r"each base model, such as 1/1$"):
            divided(config_of(shards=2), gpus, servers=wrong)
    with pytest.raises(ConfigError, match="take 8, and one GPU is left"):
        divided(config_of(shards=2), gpus, servers="2/2")


def test_without_servers_every_gpu_has_a_rank_or_one_has_all():
    assert divided(config_of(), ["3", "5"], servers="") == (2, ("3", "5"), ())
    assert divided(config_of("a", shards=2), ["3", "5"], servers="") == (1, ("3", "5"), ())


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"model": "tiny"}, 'no server can load the model "tiny"'),
        ({"kind": "vllm_server"}, "remove policies.NAME.endpoints"),
        ({"sleep": True}, "Set engine.vllm.sleep = false"),
    ],
)
def test_what_no_server_can_do_is_refused(changes, told):
    with pytest.raises(ConfigError, match=told):
        served(config_of(**changes), is_resumed=False)


def test_the_servers_of_a_resumed_run_are_those_of_a_new_one():
    """Its folder says "vllm_server", with the addresses of those that ended with it."""
    one, other = (config_of(kind=kind, shards=2, max_model_len=64) for kind in KINDS)
    assert served(other, is_resumed=True).engine == served(one, is_resumed=False).engine


KINDS = ("vllm", "vllm_server")


def test_servers_are_told_what_the_file_says_of_engines(monkeypatch, tmp_path):
    monkeypatch.setattr(launch, "WatchedServer", lambda command, *_: command)
    monkeypatch.chdir(tmp_path)
    keys = {"max_num_seqs": 7, "kv_cache_bytes": 9, "gpu_memory_utilization": 0.5}
    told = launch._server(config_of(**keys, enforce_eager=True, max_model_len=11), ["a"], ["0"])
    for option, value in (
        ("max-num-seqs", "7"),
        ("kv-cache-memory-bytes", "9"),
        ("gpu-memory-utilization", "0.5"),
        ("max-model-len", "11"),
    ):
        assert told[told.index(f"--{option}") + 1] == value
    assert "--enforce-eager" in told
    # vLLM's own defaults are for a whole GPU; those of this package for one that is shared.
    plain = " ".join(launch._server(config_of(), ["a"], ["0"]))
    assert not [one for one in ("utilization", "cache", "model-len", "eager") if one in plain]


def until(condition):
    for _ in range(1200):
        if condition():
            return True
        time.sleep(0.05)
    return False


def test_a_server_that_ends_is_started_again_until_it_was_too_often(tmp_path, monkeypatch):
    """Each one ends after some answers."""
    monkeypatch.setattr(launch, "_MAX_RESTARTS", 1)
    server = WatchedServer([sys.executable, "-c", program("answers"), "3"], {}, tmp_path / "log")
    try:
        assert until(server.is_healthy)
        server.keep()
        server.keep()
        assert server.num_restarts == 0
        server.process.wait(60)
        server.keep()
        assert server.num_restarts == 1
        assert until(server.is_healthy)
        server.process.kill()
        server.process.wait()
        with pytest.raises(WorkerLost, match="after 1 restarts"):
            server.keep()
    finally:
        server.end()


def test_a_server_that_does_not_answer_any_more_is_started_again(tmp_path, monkeypatch):
    monkeypatch.setattr(launch, "_GRACE_S", 1.0)
    server = WatchedServer(
        [sys.executable, "-c", "import time; time.sleep(1000)"], {}, tmp_path / "log"
    )
    try:
        first = server.process.pid
        server.keep()
        assert server.process.pid == first, "it may still be starting"
        server._deadline = 0
        server.keep()
        assert server.process.pid != first
        assert server.num_restarts == 1
    finally:
        server.end()


def answers(url):
    with suppress(OSError), urllib.request.urlopen(url, timeout=60):
        return True
    return False


def test_a_launcher_that_is_killed_leaves_no_server(tmp_path):
    launcher = subprocess.Popen(
        [sys.executable, "-c", program("launcher"), str(tmp_path / "log"), program("answers")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    with launcher:
        url = launcher.stdout.readline().strip()
        assert until(lambda: answers(url)), (tmp_path / "log").read_text()
        launcher.kill()
        launcher.wait()
        assert until(lambda: not answers(url))


def test_a_child_whose_launcher_is_gone_already_does_not_begin():
    command = [sys.executable, "-c", "print('begun')"]
    orphan = ["1" if word == str(os.getpid()) else word for word in bound(command)]
    shown = subprocess.run(orphan, capture_output=True, check=True)
    assert shown.stdout == b""
    assert subprocess.run(bound(command), capture_output=True, check=True).stdout == b"begun\n"
