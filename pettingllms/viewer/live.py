"""A run that is still running, as a page that takes over what is new: served on this machine only.

```
files of the run change ──► LivePage builds the page again ──► its version changes
browser asks for /version ──► another one ──► fetches the page, keeps what is open
```
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import IO, Any, cast

from pettingllms.viewer.overview import Overview
from pettingllms.viewer.page import fill_overview, fill_view
from pettingllms.viewer.runs import ViewerError, open_run

HOST = "127.0.0.1"
# After a page was built it is not built again for so many times the seconds that it took.
_REST = 5.0


class LiveServer:
    """Serves the pages of runs to browsers of this machine, and to nobody else.

    Args:
        runs: One run, or several: then the first page compares them.
        port: Port of the loopback address; 0: any that is free.
        max_replays: As for `write_view`.

    Raises:
        ViewerError: A path is not a run, or the port is taken.
    """

    def __init__(self, runs: Sequence[Path], *, port: int = 0, max_replays: int = 200) -> None:
        pages = _pages(runs, max_replays)
        for page in pages.values():
            page.latest()  # what is not a run is refused before anything is served
        try:
            self._server = ThreadingHTTPServer((HOST, port), partial(_PageHandler, pages))
        except OSError as error:
            raise ViewerError(
                f"port {port} of {HOST} cannot be served ({error}). Name another port."
            ) from error
        # Browsers keep connections open, for which Ctrl+C must not wait.
        self._server.daemon_threads = True
        self.url = f"http://{HOST}:{self._server.server_port}/"

    def serve(self) -> None:
        """Serve until `close` is called, or an exception such as `KeyboardInterrupt` comes."""
        self._server.serve_forever()

    def close(self) -> None:
        """End `serve`, and free the port."""
        self._server.shutdown()
        self._server.server_close()


class _LivePage:
    """A page that is built again when files have changed."""

    def __init__(self, fill: Callable[[IO[str], str], object], folders: Sequence[Path]) -> None:
        self._fill, self._folders = fill, folders
        self._lock = threading.Lock()
        self._version, self._content = "", b""
        self._rests_until = 0.0

    def latest(self) -> tuple[str, bytes]:
        """Version and content of the page."""
        # Several tabs ask at once; the page is built once for all of them.
        with self._lock:
            version = self._version_now()
            started = time.monotonic()
            if not self._content or (version != self._version and started > self._rests_until):
                self._build(version)
                now = time.monotonic()
                self._rests_until = now + _REST * (now - started)
            return self._version, self._content

    def _build(self, version: str) -> None:
        file = io.StringIO()
        try:
            self._fill(file, version)
        except ViewerError:
            if not self._content:
                raise
            return  # a file is being replaced: the page stays until it is there again
        self._version, self._content = version, file.getvalue().encode()

    def _version_now(self) -> str:
        found: list[tuple[str, int, int]] = []
        for folder in self._folders:
            for path in sorted(folder.glob("*.json*")) if folder.is_dir() else [folder]:
                with contextlib.suppress(FileNotFoundError):  # it is being replaced
                    status = os.stat(path)
                    found.append((str(path), status.st_mtime_ns, status.st_size))
        return hashlib.sha256(repr(found).encode()).hexdigest()[:16]


def _pages(runs: Sequence[Path], max_replays: int) -> dict[str, _LivePage]:
    """Address -> page."""

    def fill_run(run: Path, file: IO[str], version: str) -> None:
        fill_view(file, run=open_run(run), max_replays=max_replays, version=version)

    def fill_all(file: IO[str], version: str) -> None:
        links = [f"run/{number}/" for number in range(len(runs))]
        fill_overview(file, overview=Overview(list(map(open_run, runs)), links), version=version)

    if len(runs) == 1:
        return {"/": _LivePage(partial(fill_run, runs[0]), runs)}
    single = {
        f"/run/{number}/": _LivePage(partial(fill_run, run), [run])
        for number, run in enumerate(runs)
    }
    return {"/": _LivePage(fill_all, runs), **single}


class _PageHandler(BaseHTTPRequestHandler):
    """Answers a browser of this machine."""

    timeout = 30.0  # seconds: a connection without a request holds its thread no longer

    def __init__(self, pages: Mapping[str, _LivePage], *arguments: Any) -> None:
        self._pages = pages
        super().__init__(*arguments)

    def do_GET(self) -> None:
        """Answer with a page, or with its version."""
        # Another site may have its name point to this address: its pages must not read the run.
        port = cast(ThreadingHTTPServer, self.server).server_port
        if self.headers.get("Host") not in (f"{HOST}:{port}", f"localhost:{port}"):
            self.send_error(HTTPStatus.FORBIDDEN)
            return
        path, _, last = self.path.partition("?")[0].rpartition("/")
        page = self._pages.get(f"{path}/")
        if page is None or last not in ("", "version"):
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        try:
            version, content = page.latest()
        except (ViewerError, OSError) as error:
            self.send_error(HTTPStatus.INTERNAL_SERVER_ERROR, explain=str(error))
            return
        kind = "text/plain" if last else "text/html"
        self._send(kind, version.encode() if last else content)

    def _send(self, kind: str, content: bytes) -> None:
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        # The same address has another page every few seconds.
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Write no line per request."""
