"""The local OpenAI-compatible endpoint that workflows ask: loopback only, behind a random key."""

from __future__ import annotations

import functools
import hmac
import json
import logging
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol, cast
from urllib.parse import unquote, urlsplit

from openai import BaseModel

from pettingllms.workflows.completions import WireAnswer, chunks, completion, models
from pettingllms.workflows.tools import FREE
from pettingllms.workflows.wire import (
    IGNORED,
    Answered,
    ChatRequest,
    RequestError,
    model_of,
    read_request,
)

logger = logging.getLogger(__name__)

_MAX_BODY = 64 << 20
_MAX_LINE = 1 << 16


class Asked(Protocol):
    """Somebody who answers the requests of one run of a workflow, in threads of the endpoint."""

    kept: dict[str, Sequence[Any]]
    """Ids of responses to the chats up to them."""

    @property
    def models(self) -> Mapping[str, str]:
        """Names of models to agents."""
        ...

    def ask(self, request: ChatRequest) -> Answered:
        """The answer, once there is one.

        Raises:
            RequestError: There will be none.
        """
        ...

    def fail(self, error: Exception) -> None:
        """Take note that the endpoint itself failed on a request."""
        ...


_Written = tuple[BaseModel, Callable[[], Iterator[str]]]
"""An answer whole, and as the lines of a stream."""
_Write = Callable[[Asked, Mapping[str, Any]], _Written]


class Endpoint:
    """A server on the loopback interface; each run of a workflow has a path of its own."""

    def __init__(self) -> None:
        self.api_key = secrets.token_urlsafe(24)
        """Whoever has another key is refused with status 401."""
        self._runs: dict[str, Asked] = {}
        self._warned: set[str] = set()
        self._server = _Server(self)
        threading.Thread(
            target=self._server.serve_forever, name="pettingllms-endpoint", daemon=True
        ).start()

    def open(self, run: Asked) -> str:
        """The address, up to and including ``/v1``, at which a run asks."""
        path = secrets.token_urlsafe(9)
        self._runs[path] = run
        return f"http://127.0.0.1:{self._server.server_port}/{path}/v1"

    def close(self, base_url: str) -> None:
        """Forget a run; requests that it still sends are refused."""
        self._runs.pop(base_url.split("/")[3], None)

    def respond(self, path: str, key: str, body: bytes | None) -> tuple[str, bytes]:
        """The content type and the body of a response.

        Args:
            path: As it was asked for.
            key: The header Authorization.
            body: Of a POST; None for a GET.

        Raises:
            RequestError: The request cannot be answered.
        """
        if not hmac.compare_digest(key.encode(), f"Bearer {self.api_key}".encode()):
            raise RequestError("wrong API key; use the one that the workflow was given", 401)
        place, _, route = unquote(urlsplit(path).path).strip("/").partition("/")
        run = self._runs.get(place)
        if run is None:
            raise RequestError("this run of the workflow has ended: nothing answers any more", 410)
        if body is None and (route == "v1/models" or route.startswith("v1/models/")):
            return "application/json", _models(run, route.partition("v1/models/")[2])
        write = {"v1/chat/completions": _completion, "v1/responses": _response}.get(route)
        if body is None or write is None:
            raise RequestError(
                f"there is no {route!r} here; use chat completions, or responses", 404
            )
        return self._complete(run, write, body)

    def _complete(self, run: Asked, write: _Write, body: bytes) -> tuple[str, bytes]:
        try:
            data: Any = json.loads(body)
        except ValueError as error:
            raise RequestError(f"the body is not JSON: {error}") from error
        if not isinstance(data, Mapping):
            raise RequestError("the body is not a JSON object")
        data = cast("Mapping[str, Any]", data)
        self._warn(key for key in IGNORED if data.get(key) is not None)
        try:
            whole, lines = write(run, data)
            if data.get("stream"):
                return "text/event-stream", "".join(lines()).encode()
            return "application/json", whole.to_json(indent=None).encode()
        except RequestError:
            raise
        except Exception as error:
            run.fail(error)
            raise

    def _warn(self, keys: Any) -> None:
        new = [key for key in keys if key not in self._warned]
        self._warned.update(new)
        if new:
            logger.warning(
                "requests of the workflow set %s, which is ignored: the run decides how every "
                "role is sampled",
                ", ".join(new),
            )


def _completion(run: Asked, data: Mapping[str, Any]) -> _Written:
    """Answer a request for a chat completion."""
    request = read_request(data, run.models)
    answer = _answer(run.ask(request), request, data["model"])
    with_usage = bool((data.get("stream_options") or {}).get("include_usage"))

    def lines() -> Iterator[str]:
        for chunk in chunks(answer, with_usage=with_usage):
            yield f"data: {chunk.to_json(indent=None)}\n\n"
        yield "data: [DONE]\n\n"

    return completion(answer), lines


def _response(run: Asked, data: Mapping[str, Any]) -> _Written:
    """Answer a request for a response."""
    from pettingllms.workflows import responses  # its types take half a second

    body = responses.chat_request(data, run.kept)
    request = read_request(body, run.models)
    answer = _answer(run.ask(request), request, data["model"])
    whole = responses.response(answer, data)
    has_told = bool(data.get("instructions"))
    run.kept[whole.id] = responses.chat_after(body, answer, has_told=has_told)

    def lines() -> Iterator[str]:
        for event in responses.events(answer, data):
            yield f"event: {event.type}\ndata: {event.to_json(indent=None)}\n\n"

    return whole, lines


def _models(run: Asked, name: str) -> bytes:
    """A model, or the list of all of them for no name."""
    known = [one.to_dict() for one in models(list(run.models))]
    if not name:
        return json.dumps({"object": "list", "data": known}).encode()
    return json.dumps(
        next(one for one in known if one["id"] == model_of(name, run.models))
    ).encode()


def _answer(answered: Answered, request: ChatRequest, model: str) -> WireAnswer:
    action, text = answered.action, request.text_of(answered.action)
    # What has the wanted form is complete: a server that enforces it would have ended there.
    is_open = request.form == FREE and len(text) == len(action)
    is_cut = action.finish_reason == "length" and is_open
    # Lone surrogates, which no client could send on, become U+FFFD.
    text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    reply = request.form.reply(text, request.tools)
    return WireAnswer(reply, is_cut, action.tokens, model, answered.number)


@functools.cache
def shared_endpoint() -> Endpoint:
    """The endpoint of this process, started at the first call."""
    return Endpoint()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 1024

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.endpoint = endpoint

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report what a connection failed with, where it is more than that the client has left."""
        logger.debug("a connection to the endpoint failed", exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server  # pyright: ignore[reportIncompatibleVariableOverride]

    def do_GET(self) -> None:
        """Answer for the list of models."""
        self._serve(None)

    def do_POST(self) -> None:
        """Answer a chat completion."""
        try:
            body = self._body()
        except RequestError as error:
            self.close_connection = True
            self._send(error.status, "application/json", _as_json(error))
            return
        self._serve(body)

    def _body(self) -> bytes:
        """The body, sent whole or in chunks (RFC 9112, section 7.1).

        Raises:
            RequestError: It is too long or ill-formed.
        """
        is_chunked = "chunked" in self.headers.get("Transfer-Encoding", "").lower()
        sizes = self._chunk_sizes() if is_chunked else [self.headers.get("Content-Length") or "0"]
        body = bytearray()
        for written in sizes:
            try:
                size = int(written, 16 if is_chunked else 10)
            except ValueError:
                raise RequestError(f"the body has an ill-formed length: {written!r}") from None
            if not 0 <= len(body) + size <= _MAX_BODY:
                raise RequestError("the body is too long", 413)
            body += self.rfile.read(size)
        return bytes(body)

    def _chunk_sizes(self) -> Iterator[str]:
        """Yield the size of every chunk before its data; what follows the last one is skipped."""
        while True:
            size = self.rfile.readline(_MAX_LINE).partition(b";")[0].strip().decode("latin-1")
            if not size.strip("0"):
                break
            yield size
            self.rfile.readline(_MAX_LINE)  # the end of the chunk's data
        while self.rfile.readline(_MAX_LINE).strip():
            pass

    def _serve(self, body: bytes | None) -> None:
        key = self.headers.get("Authorization", "")
        try:
            kind, found = self.server.endpoint.respond(self.path, key, body)
            status = 200
        except RequestError as error:
            status, kind, found = error.status, "application/json", _as_json(error)
        except Exception as error:
            logger.exception("the endpoint failed")
            text = f"the endpoint failed: {type(error).__name__}: {error}"
            status, kind, found = 500, "application/json", _as_json(RequestError(text, 500))
        self._send(status, kind, found)

    def _send(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        if status != 200:
            self.send_header("x-should-retry", "false")  # clients of OpenAI heed it
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Keep requests out of the standard error stream."""


def _as_json(error: RequestError) -> bytes:
    return json.dumps(error.body()).encode()
