"""A headless Chromium, driven through its debugging pipe: for tests, pictures, measurements."""

from __future__ import annotations

import base64
import functools
import itertools
import json
import os
import select
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Any

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


AXE = "axe-core@4.14.1"


@functools.cache
def axe() -> str | None:
    """The source of axe-core, which npm fetches; None where it cannot."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["npm", "pack", "--silent", "--pack-destination", folder, AXE]
        if shutil.which("npm") is None or subprocess.run(command, capture_output=True).returncode:
            return None
        with tarfile.open(next(Path(folder).glob("*.tgz"))) as packed:
            found = packed.extractfile("package/axe.min.js")
            assert found is not None
            return found.read().decode()


class Browser:
    """One tab of a browser.

    Args:
        profile: Folder for its profile.
    """

    def __init__(self, profile: Path) -> None:
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
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        targets = self.call("Target.getTargets")["targetInfos"]
        target = next(t["targetId"] for t in targets if t["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a method of the browser's debugging protocol."""
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

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._answers], [], [], _TIMEOUT_S)
            assert ready, "the browser does not answer"
            part = os.read(self._answers, 1 << 16)
            assert part, f"the browser ended: {self.process.poll()}"
            self._buffer += part
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    def size(self, width: int, height: int = 900, scale: float = 1) -> None:
        """Set the size of the page, in CSS pixels, and of the screen's pixels."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=scale,
            mobile=width < 700,
        )

    def scheme(self, name: str) -> None:
        """Prefer a colour scheme: light or dark."""
        features = [{"name": "prefers-color-scheme", "value": name}]
        self.call("Emulation.setEmulatedMedia", features=features)

    def open(self, path: Path | str, fragment: str = "") -> None:
        """Open a page afresh and wait until it is drawn."""
        self.call("Page.navigate", url="about:blank")
        self.events.clear()
        address = path.resolve().as_uri() if isinstance(path, Path) else path
        self.call("Page.navigate", url=address + fragment)
        self.until("document.body && document.body.dataset.ready === 'yes'")

    def js(self, expression: str) -> Any:
        done = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in done, done["exceptionDetails"]
        return done["result"].get("value")

    def until(self, condition: str) -> None:
        """Wait until an expression is true."""
        end = time.monotonic() + _TIMEOUT_S
        while not self._holds(condition):
            assert time.monotonic() < end, (condition, self.problems())
            time.sleep(0.01)

    def _holds(self, condition: str) -> bool:
        """Whether an expression is true; on a page that is just being left, none is."""
        try:
            return bool(self.js(f"Boolean({condition})"))
        except AssertionError as error:
            if "navigated or closed" in str(error):
                return False
            raise

    def press(self, *keys: str) -> None:
        for key in keys:
            known = {"key": key, "windowsVirtualKeyCode": _KEYS.get(key, ord(key[0].upper()))}
            text = {"text": "\r"} if key == "Enter" else {} if key in _KEYS else {"text": key}
            self.call("Input.dispatchKeyEvent", type="keyDown", **known, **text)
            self.call("Input.dispatchKeyEvent", type="keyUp", **known)
            self.js("new Promise((done) => setTimeout(done, 20))")

    def click(self, selector: str) -> None:
        """Click on the middle of an element."""
        self.js("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        x, y = self.js(
            f"(() => {{ const b = document.querySelector({json.dumps(selector)})"
            ".getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def text(self, selector: str) -> str:
        return self.js(f"document.querySelector({json.dumps(selector)}).textContent")

    def texts(self, selector: str) -> list[str]:
        elements = f"[...document.querySelectorAll({json.dumps(selector)})]"
        return self.js(f"{elements}.map((e) => e.textContent)")

    def count(self, selector: str) -> int:
        return self.js(f"document.querySelectorAll({json.dumps(selector)}).length")

    def barriers(self) -> list[str]:
        """What axe-core finds in the page that keeps people out: serious and critical findings."""
        self.js(f"{axe()}; 0")
        return self.js(
            "axe.run().then((r) => r.violations.filter((v) => /serious|critical/.test(v.impact))"
            ".map((v) => v.id + ': ' + v.nodes[0].html))"
        )

    def requests(self) -> list[str]:
        """The addresses that the page asked for, itself included."""
        sent = (e for e in self.events if e.get("method") == "Network.requestWillBeSent")
        return [event["params"]["request"]["url"] for event in sent]

    def problems(self) -> list[dict[str, Any]]:
        """What went wrong in the page: exceptions and what its policy forbade."""
        bad = ("Runtime.exceptionThrown", "Log.entryAdded")
        return [e["params"] for e in self.events if e.get("method") in bad]

    def screenshot(self) -> bytes:
        return base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])

    def close(self) -> None:
        self._session = None
        self.call("Browser.close")
        self.process.wait(_TIMEOUT_S)
        os.close(self._commands)
        os.close(self._answers)
