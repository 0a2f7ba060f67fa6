"""Options and fixtures of the whole suite, and a chat server that can fail in every way."""

import gc
import json
import os
import random
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

REPOSITORY = Path(__file__).resolve().parents[1]

# How long an example takes says what else the machine does, nothing about the code.
LENIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("day", LENIENT, max_examples=60)
settings.register_profile("night", LENIENT)


def pytest_configure(config):
    settings.load_profile("day" if config.option.markexpr == "not nightly" else "night")


def pytest_addoption(parser):
    parser.addoption(
        "--update-transcripts",
        action="store_true",
        help="write the golden transcripts anew instead of comparing with them",
    )


@pytest.fixture
def repository():
    """The root folder of the checkout."""
    return REPOSITORY


@pytest.fixture
def shared_data():
    """A function from a file name to the path of a real data sample, or skip."""
    default = REPOSITORY.parent / "shared" / "data"
    folder = Path(os.environ.get("PETTINGLLMS_SHARED_DATA", default))

    def path(name):
        found = folder / name
        if not found.exists():
            pytest.skip(f"the data sample {name} is not here; set PETTINGLLMS_SHARED_DATA")
        return found

    return path


@pytest.fixture
def ends():
    """A function that runs a program with arguments in a process of its own, which must end.

    A search that is not linear takes hours on a long text, and no signal interrupts it.
    """

    def ends(program, *arguments):
        environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-c", program, *arguments]
        subprocess.run(command, env=environ, timeout=300, check=True)

    return ends


@pytest.fixture
def golden(request, repository):
    """A function that compares a text with a golden transcript, or writes it."""
    folder = repository / "tests" / "envs" / "transcripts"

    def check(name, text):
        path = folder / f"{name}.txt"
        if request.config.getoption("--update-transcripts"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.exists(), f"{path} is missing; run pytest --update-transcripts"
        assert text == path.read_text(encoding="utf-8")

    return check


# Without `interface`, whose draws another process compares with its own.
SMALL_KIT = {
    "cheap": {"SEARCHED_SEEDS": (200,), "MEASURED_SEEDS": range(300, 304), "FINALISTS": 1},
    "incentives": {"CONTINUATIONS": 1, "LEVEL_SEEDS": (0, 1), "SEARCHED_SEEDS": (0,)},
    "observations": {"SEEDS": (0,), "ANSWER_SEEDS": range(3)},
    "readers": {"DECISIONS": 2},
    "rewards": {"SEEDS": (0, 1)},
    "states": {"SEEDS": (0, 1), "LEVEL_SEEDS": (0, 1), "LENGTH_SEEDS": (0, 1), "HASHED_LEVELS": 12},
}


@pytest.fixture
def small_kit(monkeypatch):
    """The kit draws by day a part of what it draws by default, and at night."""
    for module, sizes in SMALL_KIT.items():
        for name, size in sizes.items():
            monkeypatch.setattr(f"pettingllms.testing.{module}.{name}", size)


@pytest.fixture(autouse=True)
def global_rngs_untouched():
    """No test and nothing under test may touch the global generators."""
    before, numpy_before = random.getstate(), np.random.get_state()[1].tolist()
    yield
    assert random.getstate() == before, "the global `random` state was changed"
    assert np.random.get_state()[1].tolist() == numpy_before, "numpy's global state was changed"


def pytest_collection_modifyitems(items):
    # Here, not in the fixture: filters are read before a test is set up.
    for item in items:
        if "others_program" in getattr(item, "fixturenames", ()):
            for warning in ("ignore::ResourceWarning", "ignore:coroutine .* was never awaited"):
                item.add_marker(pytest.mark.filterwarnings(warning))


@pytest.fixture
def others_program():
    """For tests of programs that are not ours: they close nothing, and end in their own time.

    The Agents SDK wraps a coroutine in one that may be cancelled before it begins.
    """
    before = threading.enumerate()
    gc.freeze()  # what was there before is not looked through: a second for each test
    yield
    for thread in threading.enumerate():
        if thread not in before and thread.name == "pettingllms-workflow":
            thread.join(60)  # of a fork that nobody followed
    gc.collect()
    gc.unfreeze()


@pytest.fixture(autouse=True)
def imports_restored(tmp_path_factory):
    """A test leaves `sys.path` as it was, and no module of a file that it wrote itself.

    A name such as `reward` would otherwise be another test's file for the rest of the run.
    """
    path, places, known = sys.path, [*sys.path], set(sys.modules)
    yield
    sys.path, sys.path[:] = path, places
    written = str(tmp_path_factory.getbasetemp())
    for name in set(sys.modules) - known:
        fields = getattr(sys.modules[name], "__dict__", {})
        files = [fields.get("__file__"), *(fields.get("__path__") or ())]  # a folder has no file
        if any(str(file).startswith(written) for file in files):
            del sys.modules[name]


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
