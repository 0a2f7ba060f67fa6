"""A real headless Chromium, driven through its debugging pipe, and runs to look at."""

import base64
import itertools
import json
import os
import select
import shutil
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from pettingllms.viewer import write_view

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))),
    None,
)
# Chromium reads commands from descriptor 3 and answers on 4; a process of its own puts them there.
_LAUNCHER = (
    "import fcntl, os, sys\n"
    "reads, writes = (fcntl.fcntl(int(fd), fcntl.F_DUPFD, 20) for fd in sys.argv[1:3])\n"
    "os.dup2(reads, 3)\n"
    "os.dup2(writes, 4)\n"
    "os.execv(sys.argv[3], sys.argv[3:])\n"
)
_TIMEOUT_S = 30.0
_KEYS = {"ArrowRight": 39, "ArrowLeft": 37, "ArrowDown": 40, "ArrowUp": 38, "Enter": 13}
_KEYS |= {"Home": 36, "End": 35, "Escape": 27}


class Browser:
    """One tab of a browser."""

    def __init__(self, profile):
        commands_read, self._commands = os.pipe()
        self._answers, answers_write = os.pipe()
        options = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run")
        options += ("--remote-debugging-pipe", "--disable-dev-shm-usage", "--hide-scrollbars")
        launcher = (sys.executable, "-c", _LAUNCHER, str(commands_read), str(answers_write))
        self.process = subprocess.Popen(
            [*launcher, CHROMIUM, *options, f"--user-data-dir={profile}", "about:blank"],
            pass_fds=(commands_read, answers_write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(commands_read)
        os.close(answers_write)
        self._numbers = itertools.count(1)
        self._buffer = b""
        self._session = None
        self.events = []
        targets = self.call("Target.getTargets")["targetInfos"]
        target = next(t["targetId"] for t in targets if t["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method, **params):
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._message()
            if answer.get("id") == number:
                assert "error" not in answer, answer
                return answer["result"]
            self.events.append(answer)

    def _message(self):
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._answers], [], [], _TIMEOUT_S)
            assert ready, "the browser does not answer"
            part = os.read(self._answers, 1 << 16)
            assert part, f"the browser ended: {self.process.poll()}"
            self._buffer += part
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    def size(self, width, height=900):
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 700,
        )

    def scheme(self, name):
        features = [{"name": "prefers-color-scheme", "value": name}]
        self.call("Emulation.setEmulatedMedia", features=features)

    def open(self, path, fragment=""):
        """Open a page afresh and wait until it is drawn."""
        self.call("Page.navigate", url="about:blank")
        self.events.clear()
        self.call("Page.navigate", url=path.resolve().as_uri() + fragment)
        self.until("document.body && document.body.dataset.ready === 'yes'")

    def js(self, expression):
        done = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in done, done["exceptionDetails"]
        return done["result"].get("value")

    def until(self, condition):
        """Wait until an expression is true."""
        end = time.monotonic() + _TIMEOUT_S
        while not self.js(f"Boolean({condition})"):
            assert time.monotonic() < end, (condition, self.problems())
            time.sleep(0.01)

    def press(self, *keys):
        for key in keys:
            known = {"key": key, "windowsVirtualKeyCode": _KEYS.get(key, ord(key[0].upper()))}
            text = {"text": "\r"} if key == "Enter" else {} if key in _KEYS else {"text": key}
            self.call("Input.dispatchKeyEvent", type="keyDown", **known, **text)
            self.call("Input.dispatchKeyEvent", type="keyUp", **known)
            self.js("new Promise((done) => setTimeout(done, 20))")

    def click(self, selector):
        self.js("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        x, y = self.js(
            f"(() => {{ const b = document.querySelector({json.dumps(selector)})"
            ".getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def text(self, selector):
        return self.js(f"document.querySelector({json.dumps(selector)}).textContent")

    def count(self, selector):
        return self.js(f"document.querySelectorAll({json.dumps(selector)}).length")

    def requests(self):
        """Return the addresses that the page asked for, itself included."""
        sent = (e for e in self.events if e.get("method") == "Network.requestWillBeSent")
        return [event["params"]["request"]["url"] for event in sent]

    def problems(self):
        """Return what went wrong in the page: exceptions and what its policy forbade."""
        bad = ("Runtime.exceptionThrown", "Log.entryAdded")
        return [e["params"] for e in self.events if e.get("method") in bad]

    def screenshot(self):
        return base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])

    def close(self):
        self._session = None
        self.call("Browser.close")
        self.process.wait(_TIMEOUT_S)
        os.close(self._commands)
        os.close(self._answers)


@pytest.fixture(scope="session")
def _chromium(tmp_path_factory):
    if CHROMIUM is None:
        pytest.skip("no chromium on this machine (Debian: apt-get install chromium)")
    browser = Browser(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()


@pytest.fixture
def browser(_chromium):
    """The browser, at desk size and in light colours; a page must cause no problem in it."""
    _chromium.size(1280)
    _chromium.scheme("light")
    yield _chromium
    assert _chromium.problems() == []


def candidate(text, reward=0.0, advantage=None, **other):
    """Return a candidate as the trainer writes it."""
    values = {"num_tokens": 3, "finish_reason": "stop", "team": reward, "local": 0.0}
    values |= {"parse_error": None, "success": False, **other}
    return {"text": text, "reward": reward, "advantage": advantage, **values}


def node(agent, turn, candidates, chosen=0, observation="a prompt"):
    """Return a decision as the trainer writes it."""
    policy = agent.partition("_")[0]
    values = {"agent": agent, "turn": turn, "policy": policy, "observation": observation}
    return {**values, "chosen": chosen, "candidates": candidates}


def tree(step, episode, nodes, success=False, returns=None):
    """Return a rollout tree as the trainer writes it."""
    outcome = {"success": success, "terminated": success, "truncated": not success}
    outcome |= {"returns": returns or {"tool_0": 0.0}, "num_turns": 1}
    return {
        "step": step,
        "episode": episode,
        "env_seed": episode,
        "initial_state_hash": "0" * 32,
        "status": "ok",
        "cause": None,
        "outcome": outcome,
        "nodes": nodes,
    }


@pytest.fixture
def write():
    """Functions that write parts of rollout trees: `candidate`, `node` and `tree`."""
    return SimpleNamespace(candidate=candidate, node=node, tree=tree)


@pytest.fixture
def training(tmp_path):
    """Return a function that writes a training run of given rollout trees."""

    def training(trees, metrics=(), name="run"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "config.toml").write_text('[env]\nid = "plan_path_v0"\n[env.kwargs]\n')
        for file, lines in (("rollouts", trees), ("metrics", metrics)):
            text = "".join(json.dumps(line) + "\n" for line in lines)
            (folder / f"{file}.jsonl").write_text(text)
        return folder

    return training


@pytest.fixture
def page(tmp_path):
    """Return a function that writes the page of a run and returns its path."""

    def page(run, max_replays=0):
        return write_view(run, tmp_path / "view.html", max_replays=max_replays).path

    return page
