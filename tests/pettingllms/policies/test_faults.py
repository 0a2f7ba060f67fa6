"""Whatever a server does, an answer or a clear error comes: a server fails as its address says."""

import asyncio
import gzip
import json
import re
import socket
import struct
import time

import pytest

from pettingllms.policies import PolicyFailure, PolicySettings, Prompt, Sampling, Usage, load_policy

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


def forever(head, part, pause_s=0.0):
    """Return what sends a part again and again: the client must leave."""

    def act(handler):
        handler.wfile.write(head)
        while True:
            handler.wfile.write(part)
            time.sleep(pause_s)

    return act


def reset(handler):
    linger = struct.pack("ii", 1, 0)
    handler.request.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    handler.close_connection = True


HEAD = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: application/json\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
BOMB = gzip.compress(bytes(1 << 20))

LATE = {
    "never-answers": forever(b"", b"", 0.02),
    "slow-head": forever(b"HTTP/1.1 200 OK\r\nX: ", b"x", 0.02),
    "slow-body": forever(HEAD + b"Content-Length: 9999\r\n\r\n", b"x", 0.02),
    "slow-chunks": forever(CHUNKED, b"1\r\nx\r\n", 0.02),
    "answers-before-the-answer": forever(b"", b"HTTP/1.1 100 Continue\r\n\r\n", 0.02),
}
"""Faults that only a time-out ends."""

LOST = {
    "resets": reset,
    "closes": b"",
    "closes-in-the-head": HEAD[:40],
    "closes-in-the-body": HEAD + b"Content-Length: 99\r\n\r\n{",
    "closes-in-a-chunk": CHUNKED + b"ff\r\n{",
    "a-chunk-of-no-length": CHUNKED + b"zz\r\n{}\r\n0\r\n\r\n",
    "two-lengths": HEAD + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n{}",
    "a-huge-head": HEAD + b"X: " + bytes(1 << 20).replace(b"\0", b"x") + b"\r\n\r\n",
    "no-head": b"<h1>hello</h1>",
}
"""Faults of the connection."""

REFUSED = {
    "an-endless-body": forever(CHUNKED, b"10000\r\n" + b" " * 65536 + b"\r\n"),
    "a-bomb": answer(BOMB, "Content-Encoding: gzip"),
}
"""Answers that are not read to their end."""

NOT_JSON = {
    "half-of-JSON": answer('{"choices": ['),
    "bytes": answer(b'{"choices": "\xff"'),
    "a-page": answer("<h1>busy</h1>", kind="text/html"),
    "nothing": answer(""),
    "a-deep-list": answer("[" * 100_000),
}

WITHOUT = {
    "null": answer("null"),
    "a-list": answer([]),
    "no-choices": answer({**RIGHT, "choices": []}),
    "choices-that-are-a-number": answer({**RIGHT, "choices": 5}),
    "a-choice-that-is-null": answer({**RIGHT, "choices": [None]}),
    "a-message-that-is-a-number": completion(message=3),
    "a-text-that-is-a-number": completion(message={**MESSAGE, "content": 5}),
}
"""JSON of other shapes."""

ENDED = {
    "a-filter": completion(finish_reason="content_filter"),
    "an-error-in-an-answer": completion(finish_reason="error"),
}

TOO_MANY = {
    "429": refusal(429, SOON),
    "429-and-seconds": refusal(429, "Retry-After: 0.001"),
    "429-and-a-date-that-has-passed": refusal(429, "Retry-After: Wed, 21 Oct 2015 07:28:00 GMT"),
    "429-and-less-than-nothing": refusal(429, "Retry-After: -5"),
}

FAILED = {"503": refusal(503, "Retry-After: x"), "500": refusal(500, SOON)}

AGAIN = {**LOST, **REFUSED, **NOT_JSON, **WITHOUT, **ENDED, **TOO_MANY, **FAILED}
"""What is tried again."""

KEY = {"401": refusal(401), "403": refusal(403)}
OTHER = {"400": refusal(400), "404": answer("no page", status=404)}
REDIRECTED = {
    "goes-round": answer("", "Location: chat/completions", status=302),
    "sends-on": answer("", "Location: http://127.0.0.1:1/v1", status=307),
}
POOR = {"an-empty-account": refusal(429, SOON, code="insufficient_quota")}
ENDLESS = {"429-and-30-years": refusal(429, "Retry-After: 1000000000")}

NUMBERS = ["NaN", "1e999", "1.5", "1" + "0" * 300, "-1", "null"]
COUNTS = {
    f"{at}-tokens": answer(json.dumps({**RIGHT, "usage": USAGE}).replace("100", number))
    for at, number in enumerate(NUMBERS)
}
COUNTS["no-usage"] = answer(RIGHT)
"""Numbers of tokens that nobody can have counted."""


def address(server, name, how):
    return server.policy.replace("/v1", f"/{name}/{how}/v1")


def outcomes(server, faults, how="always", **settings):
    """Return what comes of each fault: its answer, or the error."""
    server.faults = {**faults}
    given = PolicySettings(**{"timeout_s": 60.0, "max_retries": 0, **settings})

    async def outcome(name):
        policy = load_policy(address(server, name, how), given)
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
            return await asyncio.gather(*map(outcome, faults))

    return dict(zip(faults, asyncio.run(run()), strict=True))


KINDS = {
    r"PolicyFailure: .* did not answer within 0.3 s .*timeout_s": LATE,
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
def test_what_stays_is_a_clear_error(chat_server, told):
    kind = KINDS[told]
    timeout_s = 0.3 if kind is LATE else 60.0
    for name, error in outcomes(chat_server, kind, timeout_s=timeout_s).items():
        assert isinstance(error, str), name
        assert re.match(told, error), (name, error)
        assert address(chat_server, name, "always") in error


def test_what_may_pass_is_tried_again_and_counted(chat_server):
    for name, answer in outcomes(chat_server, AGAIN, "once", max_retries=1).items():
        assert not isinstance(answer, str), (name, answer)
        assert answer.completions[0].text == "#### []"
        assert answer.usage.num_retries == 1, name


def test_what_is_late_is_tried_again(chat_server):
    late = {"slow-body": LATE["slow-body"]}
    (answer,) = outcomes(chat_server, late, "once", max_retries=1, timeout_s=3.0).values()
    assert answer.usage.num_retries == 1


def test_what_cannot_pass_is_not_tried_again(chat_server):
    final = {**KEY, **REDIRECTED, **ENDLESS, "400": OTHER["400"]}
    outcomes(chat_server, final, max_retries=3)
    assert len(chat_server.requests) == len(final)


def test_neither_key_nor_prompt_follow_a_redirect(chat_server, monkeypatch):
    monkeypatch.setenv("MINE", "secret-key")
    other = type(chat_server)()
    other.start()
    redirect = {"sends-on": answer("", f"Location: {other.url}/chat/completions", status=307)}
    outcomes(chat_server, redirect, api_keys={"127.0.0.1": "MINE"})
    other.stop()
    assert "secret-key" in chat_server.headers[0]["authorization"]
    assert other.requests == []


def test_numbers_of_tokens_that_cannot_be_are_unknown(chat_server):
    for name, answer in outcomes(chat_server, COUNTS).items():
        assert answer.usage == Usage(1, num_unknown=1), name
