"""Whatever a server does, an answer or a clear error comes: a server fails as its address says."""

import asyncio
import gzip
import json
import random
import re
import socket
import socketserver
import struct
import threading
import time

import pytest

from pettingllms.policies import (
    PolicyFailure,
    PolicySettings,
    Prompt,
    Sampling,
    Usage,
    load_policy,
)

MESSAGE = {"role": "assistant", "content": "#### []"}
CHOICE = {"index": 0, "finish_reason": "stop", "message": MESSAGE}
USAGE = {"prompt_tokens": 100, "completion_tokens": 7, "total_tokens": 107}
RIGHT = {"id": "1", "object": "chat.completion", "created": 0, "model": "m", "choices": [CHOICE]}
SOON = "Retry-After-Ms: 1"


def answer(body, *headers, status=200, kind="application/json"):
    """Return a whole answer."""
    body = json.dumps(body) if not isinstance(body, str | bytes) else body
    body = body.encode() if isinstance(body, str) else body
    head = [
        f"HTTP/1.1 {status} X",
        "Connection: close",
        f"Content-Type: {kind}",
        f"Content-Length: {len(body)}",
    ]
    return "\r\n".join([*head, *headers, "", ""]).encode() + body


def completion(usage=USAGE, **choice):
    return answer({**RIGHT, "choices": [{**CHOICE, **choice}], "usage": usage})


def refusal(status, *headers, code=None):
    return answer({"error": {"message": "no", "code": code}}, *headers, status=status)


def forever(head, part, pause_s):
    """Yield a part again and again: the client must leave."""
    yield head
    while True:
        yield part
        time.sleep(pause_s)


HEAD = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: application/json\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
BOMB = gzip.compress(bytes(1 << 20))

LATE = {
    "never answers": (b"", b"", 0.02),
    "a slow head": (b"HTTP/1.1 200 OK\r\nX: ", b"x", 0.02),
    "a slow body": (HEAD + b"Content-Length: 9999\r\n\r\n", b"x", 0.02),
    "slow chunks": (CHUNKED, b"1\r\nx\r\n", 0.02),
    "answers before the answer": (b"", b"HTTP/1.1 100 Continue\r\n\r\n", 0.02),
}
"""Faults that only a time-out ends."""

LOST = {
    "resets": None,
    "closes": b"",
    "closes in the head": HEAD[:40],
    "closes in the body": HEAD + b"Content-Length: 99\r\n\r\n{",
    "closes in a chunk": CHUNKED + b"ff\r\n{",
    "a chunk of no length": CHUNKED + b"zz\r\n{}\r\n0\r\n\r\n",
    "two lengths": HEAD + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n{}",
    "a huge head": HEAD + b"X: " + bytes(1 << 20).replace(b"\0", b"x") + b"\r\n\r\n",
    "no head": b"<h1>hello</h1>",
}
"""Faults of the connection."""

REFUSED = {
    "an endless body": (CHUNKED, b"10000\r\n" + b" " * 65536 + b"\r\n", 0),
    "a bomb": answer(BOMB, "Content-Encoding: gzip"),
}
"""Answers that are not read to their end."""

NOT_JSON = {
    "half of JSON": answer('{"choices": ['),
    "bytes": answer(b'{"choices": "\xff"'),
    "a page": answer("<h1>busy</h1>", kind="text/html"),
    "nothing": answer(""),
    "a deep list": answer("[" * 100_000),
}

WITHOUT = {
    "null": answer("null"),
    "a list": answer([]),
    "no choices": answer({**RIGHT, "choices": []}),
    "choices that are a number": answer({**RIGHT, "choices": 5}),
    "a choice that is null": answer({**RIGHT, "choices": [None]}),
    "a message that is a number": completion(message=3),
    "a text that is a number": completion(message={**MESSAGE, "content": 5}),
}
"""JSON of other shapes."""

ENDED = {
    "a filter": completion(finish_reason="content_filter"),
    "an error in an answer": completion(finish_reason="error"),
}

TOO_MANY = {
    "429": refusal(429, SOON),
    "429 and seconds": refusal(429, "Retry-After: 0.001"),
    "429 and a date that has passed": refusal(429, "Retry-After: Wed, 21 Oct 2015 07:28:00 GMT"),
    "429 and less than nothing": refusal(429, "Retry-After: -5"),
}

FAILED = {"503": refusal(503, "Retry-After: x"), "500": refusal(500, SOON)}

AGAIN = {**LOST, **REFUSED, **NOT_JSON, **WITHOUT, **ENDED, **TOO_MANY, **FAILED}
"""What is tried again."""

KEY = {"401": refusal(401), "403": refusal(403)}
OTHER = {"400": refusal(400), "404": answer("no page", status=404)}
REDIRECTED = {
    "goes round": answer("", "Location: chat/completions", status=302),
    "sends on": answer("", "Location: {other}", status=307),
}
POOR = {"an empty account": refusal(429, SOON, code="insufficient_quota")}
ENDLESS = {"429 and 30 years": refusal(429, "Retry-After: 1000000000")}

NUMBERS = ["NaN", "1e999", "1.5", "1" + "0" * 300, "-1", "null"]
COUNTS = {
    f"{at} tokens": answer(json.dumps({**RIGHT, "usage": USAGE}).replace("100", number))
    for at, number in enumerate(NUMBERS)
}
"""Numbers of tokens that nobody can have counted."""

ALL = {
    **LATE,
    **AGAIN,
    **KEY,
    **OTHER,
    **REDIRECTED,
    **POOR,
    **ENDLESS,
    **COUNTS,
    "right": completion(),
}


class FaultServer(socketserver.ThreadingTCPServer):
    """Serves ``/<fault>/once/v1`` and ``/<fault>/always/v1``; `heads` holds those of requests."""

    daemon_threads, block_on_close, request_queue_size = True, False, 128

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.heads, self.port = [], self.server_address[1]
        self.other = "http://127.0.0.1:1/v1"
        """Where the fault that sends on sends to."""
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def policy(self, fault, how):
        return f"openai:m@http://127.0.0.1:{self.port}/{fault.replace(' ', '_')}/{how}/v1"

    def handle_error(self, request, client_address):
        """Clients leave."""


class _Handler(socketserver.StreamRequestHandler):
    def handle(self):
        head = b"".join(iter(self.rfile.readline, b"\r\n")).decode()
        length = next(
            line for line in head.lower().splitlines() if line.startswith("content-length")
        )
        self.rfile.read(int(length.partition(":")[2]))
        _, fault, how, *_ = head.split()[1].split("/")
        is_first = not any(f"/{fault}/{how}/" in seen for seen in self.server.heads)
        self.server.heads.append(head)
        fault = ALL[fault.replace("_", " ")] if is_first or how == "always" else ALL["right"]
        if fault is None:
            linger = struct.pack("ii", 1, 0)
            self.request.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        elif isinstance(fault, tuple):
            for part in forever(*fault):
                self.request.sendall(part)
        else:
            self.request.sendall(fault.replace(b"{other}", self.server.other.encode()))


@pytest.fixture
def faults(monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    # The waits of the client library between its tries draw from the global generator.
    random_state = random.getstate()
    with FaultServer() as server:
        yield server
        server.shutdown()
    random.setstate(random_state)


def outcomes(server, names, how="always", **settings):
    """Return what comes of each fault: its answer, or the error."""
    given = PolicySettings(**{"timeout_s": 60.0, "max_retries": 0, **settings})

    async def outcome(name):
        policy = load_policy(server.policy(name, how), given)
        prompt = Prompt([{"role": "user", "content": "hello"}], "planner_0", 5)
        try:
            (answer,) = await policy.sample([prompt], 1, Sampling())
        except PolicyFailure as error:
            return f"{type(error).__name__}: {error}"
        finally:
            await policy.aclose()
        return answer

    async def run():
        # Far more than any of them may take: none of them goes on.
        async with asyncio.timeout(120):
            return await asyncio.gather(*map(outcome, names))

    return dict(zip(names, asyncio.run(run()), strict=True))


KINDS = {
    r"PolicyFailure: .* did not answer within 0.3 s .*--timeout-s": LATE,
    r"PolicyUnavailable: .* cannot be reached \(\w+Error.*Is the server running": LOST,
    r"PolicyFailure: .* (larger than 67108864 bytes|is encoded)": REFUSED,
    r"PolicyFailure: .* not JSON": NOT_JSON,
    r"PolicyFailure: .* without (completions|a text)": WITHOUT,
    r"PolicyFailure: .* ended a completion itself": ENDED,
    r"PolicyFailure: .* for too many requests .*429.*--concurrency": {**TOO_MANY, **ENDLESS},
    r"PolicyFailure: .* failed after 1 tries .*no": FAILED,
    r"PolicyUnavailable: .* refused the key .*OPENAI_API_KEY": KEY,
    r"PolicyUnavailable: .* has no quota left": POOR,
    r"PolicyUnavailable: .* sends requests on to": REDIRECTED,
    r"PolicyUnavailable: .*usually ends in /v1|PolicyFailure: .* refused a request .*no": OTHER,
}


@pytest.mark.parametrize("told", KINDS)
def test_what_stays_is_a_clear_error(faults, told):
    kind = KINDS[told]
    timeout_s = 0.3 if kind is LATE else 60.0
    for name, error in outcomes(faults, kind, timeout_s=timeout_s).items():
        assert isinstance(error, str), name
        assert re.match(told, error), (name, error)
        assert faults.policy(name, "always") in error


def test_what_may_pass_is_tried_again_and_counted(faults):
    for name, answer in outcomes(faults, AGAIN, "once", max_retries=1).items():
        assert not isinstance(answer, str), (name, answer)
        assert answer.completions[0].text == "#### []"
        assert answer.usage.num_retries == 1, name


def test_what_is_late_is_tried_again(faults):
    (answer,) = outcomes(faults, ["a slow body"], "once", max_retries=1, timeout_s=3.0).values()
    assert answer.usage.num_retries == 1


def test_what_cannot_pass_is_not_tried_again(faults):
    names = [*KEY, *REDIRECTED, *ENDLESS, "400"]
    outcomes(faults, names, max_retries=3)
    assert len(faults.heads) == len(names)


def test_neither_key_nor_prompt_follow_a_redirect(faults, monkeypatch):
    monkeypatch.setenv("MINE", "secret-key")
    with FaultServer() as other:
        faults.other = other.policy("right", "always").partition("@")[2]
        outcomes(faults, ["sends on"], api_keys={"127.0.0.1": "MINE"})
        other.shutdown()
    assert "secret-key" in faults.heads[0]
    assert other.heads == []


def test_numbers_of_tokens_that_cannot_be_are_unknown(faults):
    for name, answer in outcomes(faults, COUNTS).items():
        assert answer.usage == Usage(1, num_unknown=1), name
