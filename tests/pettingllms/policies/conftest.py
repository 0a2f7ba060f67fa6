"""A chat server on the loopback interface that can fail in every way."""

import json
import random
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest


class ChatServer:
    """Answers like an OpenAI-compatible server; `script` holds what it does with the next requests.

    An entry of the script is "ok", "bad json", "no choices", "no text", "drop", "hang" (until the
    test ends), (status, headers, body), bytes, or a function that gets the handler. Requests to
    ``/<name>/<how>/v1`` find theirs in `faults`; those to ``/<name>/once/v1`` once.
    """

    def __init__(self):
        self.script, self.faults = [], {}
        self.models = ["tiny"]
        self.requests = []
        self.headers, self.model_headers = [], []
        self.reply = lambda body: "#### []"
        self.honours_n = True
        self.finish_reason = "stop"
        self.message = {}
        """Further fields of a message."""
        self.served = None
        """Name of the model that answers; None: the one that is asked for."""
        self.usage = lambda count: {
            "prompt_tokens": 100, "completion_tokens": 7 * count, "total_tokens": 0
        }  # fmt: skip
        self.lock = threading.Lock()
        self.closing = threading.Event()
        self.then = "ok"
        """What it does when the script is over."""

    def start(self):
        self.http = _Server(("127.0.0.1", 0), _Handler)
        self.http.chat = self
        self.thread = threading.Thread(target=self.http.serve_forever, args=(0.01,))
        self.thread.start()
        self.port = self.http.server_port

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def policy(self):
        return f"openai:tiny@{self.url}"

    def stop(self):
        self.closing.set()
        self.http.shutdown()
        self.http.server_close()
        self.thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads, request_queue_size = True, 128

    def handle_error(self, request, client_address):
        """Clients leave."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def do_GET(self):
        chat = self.server.chat
        chat.model_headers.append(dict(self.headers))
        if chat.models is None:
            self.send(404, {}, {"error": {"message": "no such page"}})
        elif isinstance(chat.models, tuple):
            self.send(*chat.models)
        else:
            self.send(200, {}, {"object": "list", "data": [{"id": m} for m in chat.models]})

    def do_POST(self):
        chat = self.server.chat
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        with chat.lock:
            chat.requests.append(body)
            chat.headers.append({name.lower(): value for name, value in self.headers.items()})
            act = self.next_act()
        if isinstance(act, tuple):
            self.send(*act)
        elif isinstance(act, bytes):
            self.wfile.write(act)
            self.close_connection = True
        elif callable(act):
            act(self)
        elif act == "bad json":
            self.send(200, {}, '{"choices": [')
        elif act == "no choices":
            self.send(200, {}, {**self.completion(body, ""), "choices": []})
        elif act == "drop":
            self.close_connection = True
        elif act == "hang":
            chat.closing.wait(60)
            self.close_connection = True
        else:
            text = None if act == "no text" else chat.reply(body)
            self.send(200, {}, self.completion(body, text))

    def next_act(self):
        chat, place = self.server.chat, self.path.rpartition("/v1/")[0]
        if not place:
            return chat.script.pop(0) if chat.script else chat.then
        _, name, how = place.split("/")
        return chat.faults.get(name, "ok") if how == "always" else chat.faults.pop(name, "ok")

    def completion(self, body, text):
        chat = self.server.chat
        count = body.get("n", 1) if chat.honours_n else 1
        message = {"role": "assistant", **chat.message}
        choice = {"finish_reason": chat.finish_reason, "message": message}
        choice["message"]["content"] = text
        return {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 0,
            "model": chat.served or body["model"],
            "choices": [{"index": index, **choice} for index in range(count)],
            "usage": chat.usage(count),
        }

    def send(self, status, headers, body):
        data = (body if isinstance(body, str) else json.dumps(body)).encode()
        self.send_response(status)
        for name, value in {"content-type": "application/json", **headers}.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@pytest.fixture
def chat_server(monkeypatch):
    """A running `ChatServer`."""
    for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    server = ChatServer()
    server.start()
    # The waits of the client library between its tries draw from the global generator.
    random_state = random.getstate()
    yield server
    random.setstate(random_state)
    server.stop()
