"""The local endpoint that workflows ask, in three formats: loopback only, behind a random key."""

from __future__ import annotations

import asyncio
import atexit
import functools
import hmac
import logging
import secrets
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from types import ModuleType
from typing import Any, Protocol
from urllib.parse import unquote

import h11
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send
from uvicorn import Config, Server
from uvicorn.protocols.http.h11_impl import H11Protocol

from pettingllms.errors import MissingDependency
from pettingllms.workflows.bodies import IGNORED
from pettingllms.workflows.chat import (
    CHAT,
    Body,
    chat_request,
    chunks,
    completion,
    models,
    system_of,
)
from pettingllms.workflows.isolation import AGENT, PLACE, in_forked
from pettingllms.workflows.tools import read_json
from pettingllms.workflows.wire import (
    Answered,
    ChatRequest,
    RequestError,
    Sender,
    unknown_model,
    wire_answer,
)

logger = logging.getLogger(__name__)

_MAX_BODY = 64 << 20
_MAX_HEAD = 16 << 10
_EVENTS = "text/event-stream"
_KEEP_ALIVE_S = 600
"""Much longer than clients keep connections: what they send on one must not meet its end."""


class Answerer(Protocol):
    """Somebody who answers the requests of one run of a workflow, at once or later."""

    kept: dict[str, Any]
    """Id of a response -> the chat up to it."""

    @property
    def models(self) -> Mapping[str, str]:
        """Names of models to agents."""
        ...

    def agent_of(self, sender: Sender) -> str:
        """The agent that is asked; a `RequestError` if it is none of the team."""
        ...

    def ask(self, request: ChatRequest, *, is_repeated: bool = False) -> Future[Answered]:
        """The answer, once there is one; a `RequestError` if there will be none.

        Args:
            request: What is asked.
            is_repeated: Whether its client has sent it before, and received no answer.
        """
        ...

    def forget(self, answer: Future[Answered]) -> None:
        """Take note that whoever asked has left, and receives no answer."""
        ...

    def fail(self, error: Exception) -> None:
        """Take note that the endpoint itself failed on a request."""
        ...


_Ask = Callable[[Body], Awaitable[tuple[ChatRequest, Answered]]]
_Write = Callable[[Answerer, Any, _Ask], Awaitable[Response]]


class Endpoint:
    """A server on the loopback interface; each run of a workflow has a path of its own.

    Args:
        request_s: Longest time in seconds from the first byte of a request, or from the
            connection, to its last byte; answers may take any time.
        beat_s: Seconds between signs of life for a client that waits; shorter than clients wait.
        max_connections: Maximum number of connections; further ones are refused with status 503.
    """

    def __init__(
        self, *, request_s: float = 30.0, beat_s: float = 2.0, max_connections: int = 2048
    ) -> None:
        self._beat_s = beat_s
        self.api_key = secrets.token_urlsafe(24)
        """Whoever has another key is refused with status 401."""
        self._runs: dict[str, Answerer] = {}
        self._warned: set[str] = set()
        answered = {
            "chat/completions": _completion,
            "responses": _response,
            "messages": _message,
            "messages/count_tokens": _count,
        }
        posts = [
            Route(f"/{{run}}/v1/{name}", functools.partial(self._answer, write), methods=["POST"])
            for name, write in answered.items()
        ]
        handlers = {RequestError: _refused, HTTPException: _unknown, ClientDisconnect: _left}
        self._app = Starlette(
            routes=[*posts, Route("/{run}/v1/models{name:path}", self._models)],
            exception_handlers=handlers,  # pyright: ignore[reportArgumentType]
        )
        # Of a named protocol: for any other, asyncio does not turn Nagle's algorithm off (40 ms).
        self._listener = socket.socket(proto=socket.IPPROTO_TCP)
        self._listener.bind(("127.0.0.1", 0))
        self._listener.listen(1024)
        config = Config(
            self._check,
            http=_bounded(request_s),
            interface="asgi3",
            lifespan="off",
            ws="none",
            log_config=None,
            log_level=logging.CRITICAL,  # what goes wrong here is told to the client, or logged
            access_log=False,
            proxy_headers=False,
            backlog=1024,
            limit_concurrency=max_connections,
            timeout_keep_alive=_KEEP_ALIVE_S,
            h11_max_incomplete_event_size=_MAX_HEAD,
        )
        # In another thread than the main one it leaves signals alone.
        serve = functools.partial(Server(config).run, sockets=[self._listener])
        threading.Thread(target=serve, name="pettingllms-endpoint", daemon=True).start()

    def open(self, run: Answerer) -> str:
        """The address, up to and including ``/v1``, at which a run asks."""
        path = secrets.token_urlsafe(9)
        self._runs[path] = run
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}/{path}/v1"

    def close(self, base_url: str) -> None:
        """Forget a run; requests that it still sends are refused."""
        self._runs.pop(base_url.split("/")[3], None)

    def end(self) -> None:
        """End all runs: what they wait for is refused."""
        for run in [*self._runs.values()]:
            run.fail(RequestError("the process ends: nothing answers any more", 410))

    async def _check(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse whoever has another key, before anything of the body is read."""
        headers = dict(scope["headers"])
        # Clients of Anthropic have a header of their own for it.
        key = headers.get(b"authorization") or b"Bearer " + headers.get(b"x-api-key", b"")
        if hmac.compare_digest(key, f"Bearer {self.api_key}".encode()):
            await self._app(scope, receive, send)
        else:
            told = "wrong API key; use the one that the workflow was given"
            await _error(RequestError(told, 401))(scope, receive, send)

    def _run(self, request: Request) -> Answerer:
        run = self._runs.get(request.path_params["run"])
        if run is None:
            raise RequestError("this run of the workflow has ended: nothing answers any more", 410)
        return run

    async def _models(self, request: Request) -> Response:
        """A model, or the list of all of them for no name."""
        run, name = self._run(request), request.path_params["name"].strip("/")
        known = {one.id: one.to_dict() for one in models(list(run.models))}
        if name and name not in known:
            raise unknown_model(name, known)
        return JSONResponse(known[name] if name else {"object": "list", "data": [*known.values()]})

    async def _answer(self, write: _Write, request: Request) -> Response:
        run = self._run(request)
        try:
            data = read_json(await _body(request))
        except ValueError as error:
            raise RequestError(f"the body is not JSON: {error}") from error
        answer = asyncio.ensure_future(self._written(write, run, data, request))
        # Where the client leaves between two beats, nobody else asks how it ended.
        answer.add_done_callback(lambda done: done.cancelled() or done.exception())
        if (await asyncio.wait([answer], timeout=self._beat_s))[0]:
            return answer.result()
        # Clients wait for bytes, not for answers: while a batch computes they get some that mean
        # nothing. Sent after a while only, because no status can follow them.
        beat, kind = (b" ", "application/json")
        if data.get("stream"):
            beat, kind = (b": waiting\n\n", _EVENTS)
        return StreamingResponse(self._beats(answer, beat), media_type=kind)

    async def _beats(self, answer: asyncio.Future[Response], beat: bytes) -> AsyncIterator[bytes]:
        while not answer.done():
            yield beat
            await asyncio.wait([answer], timeout=self._beat_s)
        try:
            yield bytes(answer.result().body)
        except RequestError as error:
            # Where no status can follow, an event can tell; else the end of the connection does.
            if not beat.strip():
                raise
            yield b"event: error\ndata: %b\n\n" % bytes(_error(error).body)
        except ClientDisconnect:
            pass

    async def _written(self, write: _Write, run: Answerer, data: Any, request: Request) -> Response:
        try:
            response = await write(run, data, functools.partial(_received, run, request))
            parts = [(key, data[key]) for key in data if isinstance(data[key], dict)]
            inner = {f"{key}.{part}": given[part] for key, given in parts for part in given}
            self._warn(key for key in IGNORED if {**inner, **data}.get(key) is not None)
            return response
        except (RequestError, ClientDisconnect):
            raise
        except Exception as error:
            logger.exception("the endpoint failed")
            run.fail(error)
            told = f"the endpoint failed: {type(error).__name__}: {error}"
            raise RequestError(told, 500) from error

    def _warn(self, keys: Iterable[str]) -> None:
        new = [key for key in keys if key not in self._warned]
        self._warned.update(new)
        if new:
            logger.warning(
                "requests of the workflow set %s, which is ignored: the run decides how every "
                "role is sampled",
                ", ".join(new),
            )


async def _body(request: Request) -> bytes:
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > _MAX_BODY:
            raise RequestError("the body is too long", 413)
    return bytes(body)


async def _received(run: Answerer, http: Request, body: Body) -> tuple[ChatRequest, Answered]:
    """A request and the answer to it, as long as whoever has sent it is there.

    Raises:
        ClientDisconnect: It has left.
    """
    sender = Sender(body["model"], system_of(body), unquote(http.headers.get(AGENT, "")))
    place = http.headers.get(PLACE, "")
    request = chat_request(body, run.agent_of(sender), run.models, place)
    # OpenAI's clients count so how often they have sent a request, of which no answer came.
    is_repeated = http.headers.get("x-stainless-retry-count", "0") != "0"
    answer = run.ask(request, is_repeated=is_repeated)
    answered, left = asyncio.wrap_future(answer), asyncio.ensure_future(_has_left(http))
    await asyncio.wait([answered, left], return_when=asyncio.FIRST_COMPLETED)
    if left.done():
        run.forget(answer)
        answered.cancel()  # an error that it gets yet, nobody would hear
        raise ClientDisconnect
    left.cancel()
    return request, answered.result()


async def _has_left(http: Request) -> None:
    """Wait until a connection is gone."""
    while (await http.receive())["type"] != "http.disconnect":
        pass


async def _completion(run: Answerer, data: Any, ask: _Ask) -> Response:
    body = CHAT.check(data)
    answer = wire_answer(body["model"], *await ask(body))
    if not body.get("stream"):
        return _whole(completion(answer))
    with_usage = body.get("stream_options", {}).get("include_usage", False)
    sent = chunks(answer, with_usage=with_usage)
    return _stream([*(f"data: {one.to_json(indent=None)}" for one in sent), "data: [DONE]"])


async def _response(run: Answerer, data: Any, ask: _Ask) -> Response:
    from pettingllms.workflows import responses  # its types take half a second

    body = responses.RESPONSES.check(data)
    chat = responses.chat_body(body, run.kept)
    answer = wire_answer(body["model"], *await ask(chat))
    whole = responses.response(answer, body)
    has_told = bool(body.get("instructions"))
    run.kept[whole.id] = responses.chat_after(chat, answer, has_told=has_told)
    if not body.get("stream"):
        return _whole(whole)
    sent = responses.events(answer, body)
    return _stream([f"event: {one.type}\ndata: {one.to_json(indent=None)}" for one in sent])


def _messages() -> ModuleType:
    try:
        from pettingllms.workflows import messages  # its types take a second
    except ModuleNotFoundError as error:
        missing = MissingDependency("Anthropic's messages", error.name or "", "anthropic")
        raise RequestError(str(missing), 404) from error
    return messages


async def _message(run: Answerer, data: Any, ask: _Ask) -> Response:
    messages = _messages()
    body = messages.MESSAGES.check(data)
    request, answered = await ask(messages.chat_body(body))
    answer = wire_answer(body["model"], request, answered)
    if not body.get("stream"):
        return _whole(messages.message(answer, request))
    sent = messages.events(answer, request)
    return _stream([f"event: {one.type}\ndata: {one.to_json(indent=None)}" for one in sent])


async def _count(run: Answerer, data: Any, ask: _Ask) -> Response:
    messages = _messages()
    chat = messages.chat_body(messages.COUNTED.check(data))
    agent = run.agent_of(Sender(chat["model"], system_of(chat)))
    return _whole(messages.counted(chat_request(chat, agent, run.models)))


def _whole(answer: Any) -> Response:
    return Response(answer.to_json(indent=None), media_type="application/json")


def _stream(events: Sequence[str]) -> Response:
    # In one piece: the answer is complete before there is anything to send.
    text = "".join(f"{event}\n\n" for event in events)
    return Response(text, media_type=_EVENTS)


def _error(error: RequestError) -> Response:
    """An error as clients expect it."""
    kinds = {401: "authentication_error", 404: "not_found_error", 500: "server_error"}
    told = {
        "message": str(error),
        "type": kinds.get(error.status, "invalid_request_error"),
        "param": error.param,
        "code": "model_not_found" if error.param == "model" else None,
    }
    # Clients of OpenAI heed it: nothing that is refused here passes by waiting.
    body = {"type": "error", "error": told}  # the type is for Anthropic's clients
    return JSONResponse(body, error.status, {"x-should-retry": "false"})


async def _refused(request: Request, error: RequestError) -> Response:
    return _error(error)


async def _unknown(request: Request, error: HTTPException) -> Response:
    told = f"there is no {request.url.path!r} here; use chat completions, responses or messages"
    return _error(RequestError(told, error.status_code))


async def _left(request: Request, error: ClientDisconnect) -> Response:
    return Response()  # to nobody


def _bounded(request_s: float) -> type[H11Protocol]:
    """The protocol of connections that end where no whole request comes in time.

    Before the key is read, too: whoever has none must not hold connections.
    """

    class Bounded(H11Protocol):
        """A connection that is closed unless a request comes whole in time."""

        _timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
            super().connection_made(transport)
            self._start()

        def data_received(self, data: bytes) -> None:
            self._start()
            super().data_received(data)
            if self.conn.their_state is not h11.IDLE and self.conn.their_state is not h11.SEND_BODY:
                self._stop()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop()
            super().connection_lost(exc)

        def _start(self) -> None:
            self._timer = self._timer or self.loop.call_later(request_s, self.transport.abort)

        def _stop(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = None

    return Bounded


@functools.cache
def shared_endpoint() -> Endpoint:
    """The endpoint of this process, started at the first call."""
    endpoint = Endpoint()
    # Python waits for threads at its end, and they for answers, for as long as their client does.
    # `atexit` comes after that, and what pools of threads use before; it is not public.
    getattr(threading, "_register_atexit", atexit.register)(endpoint.end)
    in_forked(endpoint._runs.clear)
    return endpoint


in_forked(shared_endpoint.cache_clear)
