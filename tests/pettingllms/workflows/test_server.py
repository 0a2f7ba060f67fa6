"""The endpoint against clients that are broken, slow, many, or not the workflow at all."""

import gc
import json
import random
import socket
import threading
import tracemalloc
from concurrent.futures import Future
from contextlib import suppress
from http.client import HTTPConnection
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from openai.types.chat.completion_create_params import CompletionCreateParamsBase
from openai.types.responses.response_create_params import ResponseCreateParamsBase

from pettingllms.types import Action
from pettingllms.workflows.endpoint import Endpoint
from pettingllms.workflows.wire import Answered

PARAMS = {"chat/completions": CompletionCreateParamsBase, "responses": ResponseCreateParamsBase}
"""What clients can send, by route."""
if find_spec("anthropic"):
    from anthropic.types.message_create_params import MessageCreateParamsBase

    PARAMS["messages"] = MessageCreateParamsBase
ALL = json.loads((Path(__file__).parent / "bodies.json").read_text(encoding="utf-8"))
BODIES = {route: ALL[route] for route in PARAMS}
"""A body that is right, with nearly all keys, for each route."""
CHAT = BODIES["chat/completions"]
ODD = [
    None, True, False, 0, 5, -1, 1.5, 10**400, "", "x", "auto", "text", "\ud800", [], [[]], [None],
    {}, {"type": "function"}, {"type": []}, {"$ref": "#"}, {"pattern": "["}, {"type": "object"},
]  # fmt: skip


class Run:
    """Answers at once; `failures` are the endpoint's own."""

    def __init__(self):
        self.models, self.kept, self.failures = {"planner": "planner_0"}, {}, []

    def ask(self, request, *, is_repeated=False):
        answered = Future()
        answered.set_result(Answered(Action('{"a": 1}'), 0))
        return answered

    def agent_of(self, sender):
        return "planner_0"

    def forget(self, answer):
        pass

    def fail(self, error):
        self.failures.append(error)


class Caller:
    """Sends requests to an endpoint on one connection."""

    def __init__(self, **limits):
        self.endpoint, self.run = Endpoint(**limits), Run()
        self.url = self.endpoint.open(self.run)
        self.place = (urlsplit(self.url).hostname, urlsplit(self.url).port)
        self.connection = HTTPConnection(*self.place, timeout=60)

    def sent(self, route, body):
        """Send a request; return the answer, of which the head has come."""
        path = f"{urlsplit(self.url).path}/{route}"
        headers = {"Authorization": f"Bearer {self.endpoint.api_key}"}
        self.connection.request("POST", path, body, headers)
        return self.connection.getresponse()

    def post(self, route, body):
        answer = self.sent(route, body)
        return answer.status, answer.read()

    def is_served(self):
        self.connection.close()  # the next request opens it
        return self.post("chat/completions", json.dumps({**CHAT, "stream": False}))[0] == 200


@pytest.fixture
def caller():
    called = Caller()
    yield called
    called.connection.close()


def mutated(value, rng):
    """Return JSON data with one part that is another one, is missing, or is there twice."""
    if not isinstance(value, dict | list) or not value or rng.random() < 0.15:
        return rng.choice(ODD)
    keys = list(value) if isinstance(value, dict) else list(range(len(value)))
    key, copy = rng.choice(keys), value.copy()
    if (what := rng.random()) < 0.1:
        del copy[key]
    elif what < 0.15 and isinstance(copy, list):
        copy.append(copy[key])
    elif what < 0.2 and isinstance(copy, dict):
        copy[rng.choice(["type", "role", "x", "content"])] = copy[key]
    else:
        copy[key] = mutated(copy[key], rng)
    return copy


def bent(body, rng):
    """Return a body of which a part, or some bytes, are wrong."""
    for _ in range(rng.randint(1, 3)):
        body = mutated(body, rng)
    data = json.dumps(body).encode()
    if rng.random() < 0.1:
        at = rng.randrange(len(data))
        data = data[:at] + rng.randbytes(3) + data[at + rng.randrange(9) :]
    return data


def test_mutated_bodies_are_answered_or_refused(caller):
    statuses = set()
    for seed in range(400):
        rng = random.Random(seed)
        route = rng.choice(list(BODIES))
        status, told = caller.post(route, bent(BODIES[route], rng))
        assert status in (200, 400, 404), (seed, told)
        if status != 200:
            error = json.loads(told)["error"]
            assert set(error) == {"message", "type", "param", "code"}
            assert error["message"], seed
        statuses.add(status)
    assert caller.run.failures == []
    assert statuses == {200, 400, 404}


@pytest.mark.parametrize(
    ("route", "key"),
    [(route, key) for route, kind in PARAMS.items() for key in kind.__annotations__],
)
def test_every_key_that_the_client_can_send_is_read_or_refused(caller, route, key):
    """None is passed over: what nothing can make sense of is refused, and the key is named."""
    plain = {"model": "planner", "messages": [{"role": "user", "content": "go"}]}
    plain |= {"max_tokens": 9} if route == "messages" else {}
    plain = {"model": "planner", "input": "go"} if route == "responses" else plain
    status, told = caller.post(route, json.dumps({**plain, key: [[{"x": [0]}]]}))
    assert (status, json.loads(told)["error"]["param"]) == (400, key)
    assert caller.post(route, json.dumps({**plain, "none": 1}))[0] == 400


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("temperature", 99), ("temperature", -1), ("top_p", 2), ("max_tokens", True), ("seed", "1"),
        ("top_logprobs", 3), ("frequency_penalty", -3), ("parallel_tool_calls", "no"), ("n", 2),
        ("logit_bias", [1]), ("stream", 1), ("audio", {"voice": "x"}), ("stop", [""]),
    ],
)  # fmt: skip
def test_values_out_of_their_ranges_are_refused(caller, key, value):
    status, told = caller.post("chat/completions", json.dumps({**CHAT, key: value}))
    assert (status, json.loads(told)["error"]["param"]) == (400, key)


@pytest.mark.parametrize(("is_streamed", "beat"), [(False, b" "), (True, b":")])
def test_a_client_that_waits_gets_signs_of_life(is_streamed, beat):
    """They come before there is an answer, and mean nothing in either format."""
    caller, answer = Caller(beat_s=0.05), Future()
    caller.run.ask = lambda request, is_repeated=False: answer
    body = {"model": "planner", "messages": CHAT["messages"], "stream": is_streamed}
    response = caller.sent("chat/completions", json.dumps(body))
    assert response.read(1) == beat
    answer.set_result(Answered(Action("late"), 0))
    text = response.read().decode()
    if is_streamed:
        lines = [line for line in text.splitlines() if line.startswith("data: {")]
        choice = json.loads(lines[1].removeprefix("data: "))["choices"][0]["delta"]
    else:
        choice = json.loads(text)["choices"][0]["message"]
    assert choice["content"] == "late"
    caller.connection.close()


def test_a_client_that_leaves_while_it_waits_is_no_error(caplog):
    """It has the first sign of life; nothing asks any more how the answer ended."""
    caller, has_left = Caller(beat_s=0.05), threading.Event()
    answered, caller.run.ask = caller.run.ask, lambda request, is_repeated=False: Future()
    caller.run.forget = lambda answer: has_left.set()
    response = caller.sent("chat/completions", json.dumps({**CHAT, "stream": False}))
    assert response.read(1) == b" "
    response.close()
    caller.connection.close()
    assert has_left.wait(60)
    caller.run.ask = answered
    assert caller.is_served()
    caller.connection.close()
    gc.collect()
    assert not [record for record in caplog.records if record.name == "asyncio"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"seed": 1e999}',
        b'{"n": NaN}',
        b"\xff",
        b"1" * 9999,
    ],
)
def test_bodies_that_are_not_json_are_refused(caller, body):
    assert caller.post("chat/completions", body)[0] == 400


def test_deep_schemas_are_refused_or_used(caller):
    schema = {}
    for _ in range(90):
        schema = {"properties": {"a": schema}, "anyOf": [{"$ref": "#"}]}
    form = {"type": "json_schema", "json_schema": {"schema": schema}}
    status, _ = caller.post("chat/completions", json.dumps({**CHAT, "response_format": form}))
    assert status in (200, 400)
    assert caller.run.failures == []


def test_a_body_that_is_too_long_is_refused(caller):
    assert caller.post("chat/completions", b" " * ((64 << 20) + 1))[0] == 413


def test_without_the_key_nothing_of_a_body_is_kept(caller):
    head = b"POST /x/v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 67108864\r\n\r\n"
    piece = bytes(1 << 20)
    tracemalloc.start()
    senders = [socket.create_connection(caller.place, 60) for _ in range(12)]
    for sender in senders:
        sender.sendall(head)
        assert sender.recv(1 << 16).startswith(b"HTTP/1.1 401"), "before there is a body"
    for _ in range(16):
        for sender in senders:
            sender.sendall(piece)
    assert caller.is_served()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 32 << 20
    for sender in senders:
        sender.close()


@pytest.mark.parametrize("head", [b"", b"POST / HTTP/1.1\r\nX: ", b"POST /", "with a key"])
def test_slow_clients_are_left_and_others_served(head):
    caller = Caller(request_s=2.0)
    if head == "with a key":
        key = f"Authorization: Bearer {caller.endpoint.api_key}"
        path = f"{urlsplit(caller.url).path}/chat/completions"
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\n{key}\r\nContent-Length: 99\r\n\r\n".encode()
    slow = [socket.create_connection(caller.place, 60) for _ in range(200)]
    for sender in slow:
        sender.sendall(head)
    stop = threading.Event()

    def drip():
        while not stop.wait(0.1):
            for sender in slow[:20]:
                with suppress(OSError):
                    sender.sendall(b"x" * bool(head))

    dripping = threading.Thread(target=drip, daemon=True)
    dripping.start()
    assert caller.is_served()
    for sender in slow:
        with suppress(ConnectionResetError):
            assert sender.recv(1) == b"", "it is not answered"
        sender.close()
    stop.set()
    dripping.join()
    assert caller.is_served()
    assert caller.run.failures == []
    caller.connection.close()


def test_ignored_keys_are_reported_once(caller, caplog):
    for _ in range(2):
        caller.post("chat/completions", json.dumps({**CHAT, "top_p": 0.5}))
        asked = {"model": "planner", "input": "go", "text": {"verbosity": "low"}}
        caller.post("responses", json.dumps(asked))
    told = [record.getMessage() for record in caplog.records]
    assert ["temperature, top_p" in told[0], "text.verbosity" in told[1]] == [True, True]
    assert len(told) == 2


def test_runs_have_addresses_of_their_own_on_the_loopback_interface(caller):
    other = caller.endpoint.open(Run())
    assert other.startswith("http://127.0.0.1:")
    assert other != caller.url
    assert caller.post("embeddings", "{}")[0] == 404
    caller.endpoint.close(caller.url)
    assert caller.post("chat/completions", json.dumps(CHAT))[0] == 410


def test_what_is_no_http_is_refused(caller):
    with socket.create_connection(caller.place, 60) as sender:
        sender.sendall(b"\x16\x03\x01 hello\r\n\r\n")
        assert sender.recv(99).startswith(b"HTTP/1.1 400")
