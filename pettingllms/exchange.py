"""HTTP with limits of the whole answer: every client of this project asks by `WholeClient`.

A time-out of HTTP libraries is that of one read: a server that sends a byte now and then, or 400 MB
in one small compressed piece, holds its client for as long as it likes.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from typing import TYPE_CHECKING, Any

import openai

if TYPE_CHECKING:
    import httpx2 as http
else:  # what the client of OpenAI is made of, whose errors it knows: httpx before version 3
    http = sys.modules[openai.DefaultAsyncHttpxClient.__base__.__module__.partition(".")[0]]


class AnswerRefused(http.RemoteProtocolError):
    """An answer is larger than allowed, or encoded."""


class WholeClient(openai.DefaultAsyncHttpxClient):
    """A client that gives an answer when it is whole, or an error in time.

    It follows no redirect: the prompt and the key are for the server that was named.

    Args:
        max_bytes: Maximum length of the body of an answer.
        max_requests: Maximum number of requests at a time; others wait, and their time-outs have
            not begun. None: any number.
        **more: As for the `AsyncClient` of the library. The time-out of reading is the deadline of
            the whole answer, from the connection to its last byte.
    """

    def __init__(
        self, *, max_bytes: int = 64 << 20, max_requests: int | None = None, **more: Any
    ) -> None:
        # Compressed answers would have to be unpacked before anybody knows how large they are.
        headers = {"Accept-Encoding": "identity"}
        limits = http.Limits(max_connections=None, max_keepalive_connections=100)
        super().__init__(follow_redirects=False, headers=headers, limits=limits, **more)
        self._max_bytes = max_bytes
        self._slots = asyncio.Semaphore(max_requests) if max_requests else contextlib.nullcontext()

    async def send(self, request: http.Request, **more: Any) -> http.Response:
        """Send a request, as the library does, and read its answer whole.

        Raises:
            http.TimeoutException: There is no whole answer in time.
            AnswerRefused: It is larger than allowed, or encoded.
            http.TransportError: The connection cannot be made, or breaks.
        """
        more["stream"] = True
        limit_s = request.extensions.get("timeout", {}).get("read")
        async with self._slots:
            try:
                async with asyncio.timeout(limit_s):
                    response = await super().send(request, **more)
                    body = await self._body(response)
            except TimeoutError as error:
                raise http.ReadTimeout(f"no whole answer within {limit_s:g} s") from error
        return http.Response(
            response.status_code,
            headers=response.headers,
            content=body,
            request=request,
            extensions=response.extensions,
        )

    async def _body(self, response: http.Response) -> bytes:
        body = bytearray()
        async with contextlib.aclosing(response):
            encoding = response.headers.get("Content-Encoding", "identity")
            if encoding.lower() != "identity":
                raise AnswerRefused(f"the answer is encoded ({encoding!r}), which it must not be")
            async for part in response.aiter_raw():
                body += part
                if len(body) > self._max_bytes:
                    raise AnswerRefused(f"the answer is larger than {self._max_bytes} bytes")
        return bytes(body)
