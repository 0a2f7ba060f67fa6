"""A server that speaks vLLM's routes; imports neither torch nor the trainer."""

import contextlib
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def choice_of(token_ids, logprobs, finish_reason="stop"):
    """A completion in the words of a server."""
    content = [{"logprob": value} for value in logprobs]
    return {
        "token_ids": list(token_ids),
        "logprobs": {"content": content},
        "finish_reason": finish_reason,
    }


class FakeServer(ThreadingHTTPServer):
    """Answers every request by `complete`, unless its `script` says more.

    Args:
        complete: From the body of a request to its choices.
        port: Where it listens; 0: anywhere.
        settings: Over what it says of itself.
    """

    daemon_threads = True

    def __init__(self, complete, vocab_size, context, port=0, **settings):
        super().__init__(("127.0.0.1", port), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.complete, self.calls, self.script, self.version = complete, [], {}, "default"
        self.settings = {
            "logprobs_mode": "processed_logprobs",
            "max_model_len": context,
            "vocab_size": vocab_size,
            "max_loras": 3,
            "max_lora_rank": 16,
        } | settings

    def handle_error(self, request, client_address):
        """Say nothing: clients go away when a request is refused."""

    def answer(self, route, body):
        """Status and content; a script's value may be a list of one answer after another."""
        scripted = self.script.get(route)
        if isinstance(scripted, list):
            scripted = scripted.pop(0) if scripted else None
        if scripted is not None:
            return scripted
        if route == "/collective_rpc" and body["method"] == "describe_for_trainer":
            return 200, {"results": [self.settings]}
        if route == "/update_weight_version":
            self.version = body["new_version"]
        if route == "/inference/v1/generate":
            spans = {"weight_versions": [{"version": self.version, "start": 0}]}
            return 200, {"choices": [one | spans for one in self.complete(body)]}
        return 200, {"success": True}

    @contextlib.contextmanager
    def running(self):
        """Answer for as long as the context lasts."""
        thread = threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self.shutdown()
            self.server_close()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    server: FakeServer

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"] or 0)) or "null")
        self.server.calls.append((self.path, body))
        self._send(*self.server.answer(self.path, body))

    def do_GET(self):
        self._send(*self.server.answer(self.path, None))

    def _send(self, status, content):
        if status == 0:  # break the connection off
            self.close_connection = True
            return
        while status < 0:  # a byte now and then, until the client leaves
            self.wfile.write(b"x")
            time.sleep(0.05)
        data = content.encode() if isinstance(content, str) else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *arguments):
        """Say nothing."""
