"""The local OpenAI-compatible endpoint that workflows ask: loopback only, behind a random key."""

from __future__ import annotations

import asyncio
import functools
import hmac
import logging
import secrets
import socket
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Protocol

import h11
from openai import BaseModel
from pydantic import ValidationError
from pydantic_core import from_json
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send
from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from pettingllms.workflows.chat import (
    IGNORED,
    ChatBody,
    chat_request,
    chunks,
    completion,
    model_of,
    models,
    refusal,
)
from pettingllms.workflows.wire import Answered, ChatRequest, RequestError, wire_answer

logger = logging.getLogger(__name__)

_MAX_BODY = 64 << 20
_MAX_HEAD = 16 << 10
_KEEP_ALIVE_S = 600
"""Much longer than clients keep connections: what they send on one must not meet its end."""


class Asked(Protocol):
    """Somebody who answers the requests of one run of a workflow, at once or later."""

    kept: dict[str, Any]
    """Ids of responses to the chats up to them."""

    @property
    def models(self) -> Mapping[str, str]:
        """Names of models to agents."""
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


_Ask = Callable[[ChatRequest], Awaitable[Answered]]
_Write = Callable[[Asked, Any, _Ask], Awaitable[Response]]


class Endpoint:
    """A server on the loopback interface; each run of a workflow has a path of its own.

    Args:
        request_s: Within which a request must come whole, after its first byte, or after the
            connection; answers may take any time. In seconds.
        max_connections: Those beyond it are closed at once.
    """

    def __init__(self, *, request_s: float = 30.0, max_connections: int = 2048) -> None:
        self._request_s, self._max_connections = request_s, max_connections
        self.api_key = secrets.token_urlsafe(24)
        """Whoever has another key is refused with status 401."""
        self._runs: dict[str, Asked] = {}
        self._warned: set[str] = set()
        answered = {"chat/completions": _completion, "responses": _response}
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
        self._listener.listen()
        main = threading.Thread(
            target=lambda: asyncio.run(self._serve()), name="pettingllms-endpoint", daemon=True
        )
        main.start()

    def open(self, run: Asked) -> str:
        """The address, up to and including ``/v1``, at which a run asks."""
        path = secrets.token_urlsafe(9)
        self._runs[path] = run
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}/{path}/v1"

    def close(self, base_url: str) -> None:
        """Forget a run; requests that it still sends are refused."""
        self._runs.pop(base_url.split("/")[3], None)

    async def _serve(self) -> None:
        # Not uvicorn's own server: it takes over signals and logging of the process.
        config = Config(
            self._check,
            interface="asgi3",
            lifespan="off",
            ws="none",
            log_config=None,
            proxy_headers=False,
            timeout_keep_alive=_KEEP_ALIVE_S,
            h11_max_incomplete_event_size=_MAX_HEAD,
        )
        state, loop = ServerState(), asyncio.get_running_loop()
        server = await loop.create_server(
            lambda: _Connection(self._request_s, self._max_connections, config, state, {}),
            sock=self._listener,
            backlog=1024,
        )
        await server.serve_forever()

    async def _check(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse whoever has another key, before anything of the body is read."""
        key = dict(scope["headers"]).get(b"authorization", b"")
        if hmac.compare_digest(key, f"Bearer {self.api_key}".encode()):
            await self._app(scope, receive, send)
        else:
            told = "wrong API key; use the one that the workflow was given"
            await _error(RequestError(told, 401))(scope, receive, send)

    def _run(self, request: Request) -> Asked:
        run = self._runs.get(request.path_params["run"])
        if run is None:
            raise RequestError("this run of the workflow has ended: nothing answers any more", 410)
        return run

    async def _models(self, request: Request) -> Response:
        """A model, or the list of all of them for no name."""
        run, name = self._run(request), request.path_params["name"].strip("/")
        known = {one.id: one.to_dict() for one in models(list(run.models))}
        if name:
            return JSONResponse(known[model_of(name, run.models)])
        return JSONResponse({"object": "list", "data": list(known.values())})

    async def _answer(self, write: _Write, request: Request) -> Response:
        run = self._run(request)
        try:
            data = from_json(await _body(request), allow_inf_nan=False)
        except ValueError as error:
            raise RequestError(f"the body is not JSON: {error}") from error
        try:
            response = await write(run, data, functools.partial(_received, run, request))
            self._warn(key for key in IGNORED if data.get(key) is not None)
            return response
        except ValidationError as error:
            raise refusal(error) from error
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


async def _received(run: Asked, http: Request, request: ChatRequest) -> Answered:
    """The answer to a request, as long as whoever has sent it is there.

    Raises:
        ClientDisconnect: It has left.
    """
    # OpenAI's clients count so how often they have sent a request, of which no answer came.
    is_repeated = http.headers.get("x-stainless-retry-count", "0") != "0"
    answer = run.ask(request, is_repeated=is_repeated)
    answered, left = asyncio.wrap_future(answer), asyncio.ensure_future(_has_left(http))
    await asyncio.wait([answered, left], return_when=asyncio.FIRST_COMPLETED)
    if left.done():
        run.forget(answer)
        raise ClientDisconnect
    left.cancel()
    return answered.result()


async def _has_left(http: Request) -> None:
    """Wait until a connection is gone."""
    while (await http.receive())["type"] != "http.disconnect":
        pass


async def _completion(run: Asked, data: Any, ask: _Ask) -> Response:
    body = ChatBody.model_validate(data)
    request = chat_request(body, run.models)
    answer = wire_answer(request, body.model, await ask(request))
    if not body.stream:
        return _whole(completion(answer))
    sent = chunks(answer, with_usage=body.stream_options.include_usage)
    return _stream([*(f"data: {one.to_json(indent=None)}" for one in sent), "data: [DONE]"])


async def _response(run: Asked, data: Any, ask: _Ask) -> Response:
    from pettingllms.workflows import responses  # its types take half a second

    body = responses.ResponsesBody.model_validate(data)
    chat = responses.chat_body(body, run.kept)
    request = chat_request(chat, run.models)
    answer = wire_answer(request, body.model, await ask(request))
    whole = responses.response(answer, body)
    run.kept[whole.id] = responses.chat_after(chat, answer, has_told=bool(body.instructions))
    if not body.stream:
        return _whole(whole)
    sent = responses.events(answer, body)
    return _stream([f"event: {one.type}\ndata: {one.to_json(indent=None)}" for one in sent])


def _whole(answer: BaseModel) -> Response:
    return Response(answer.to_json(indent=None), media_type="application/json")


def _stream(events: Sequence[str]) -> Response:
    # In one piece: the answer is complete before there is anything to send.
    text = "".join(f"{event}\n\n" for event in events)
    return Response(text, media_type="text/event-stream")


def _error(error: RequestError) -> Response:
    """An error as OpenAI's clients expect it."""
    kinds = {401: "authentication_error", 404: "not_found_error", 500: "server_error"}
    told = {
        "message": str(error),
        "type": kinds.get(error.status, "invalid_request_error"),
        "param": error.param,
        "code": "model_not_found" if error.param == "model" else None,
    }
    # Clients of OpenAI heed it: nothing that is refused here passes by waiting.
    return JSONResponse({"error": told}, error.status, {"x-should-retry": "false"})


async def _refused(request: Request, error: RequestError) -> Response:
    return _error(error)


async def _unknown(request: Request, error: HTTPException) -> Response:
    told = f"there is no {request.url.path!r} here; use chat completions, or responses"
    return _error(RequestError(told, error.status_code))


async def _left(request: Request, error: ClientDisconnect) -> Response:
    return Response()  # to nobody


class _Connection(H11Protocol):
    """Closes a connection on which no whole request comes in time, and all beyond a number.

    What else of a refused body comes is read and forgotten, so that its sender gets to the refusal.
    """

    def __init__(self, request_s: float, max_connections: int, *more: Any) -> None:
        super().__init__(*more)
        self.access_log = False
        self._request_s, self._max_connections = request_s, max_connections
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        super().connection_made(transport)
        self._start()
        if len(self.connections) > self._max_connections:
            transport.abort()

    def data_received(self, data: bytes) -> None:
        self._start()
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE and self.conn.their_state is not h11.SEND_BODY:
            self._stop()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        super().connection_lost(exc)

    def _start(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(self._request_s, self.transport.abort)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None


@functools.cache
def shared_endpoint() -> Endpoint:
    """The endpoint of this process, started at the first call."""
    return Endpoint()
