"""Sandboxes of every tier that this machine offers, and a host to be attacked."""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import pytest

from pettingllms.errors import SandboxError
from pettingllms.sandbox import Limits, Sandbox, Tier, unsafe

SECRET = "do-not-tell-17364"
JAILS = (Tier.NAMESPACES, Tier.LANDLOCK, Tier.SEALED)


@pytest.fixture(scope="session")
def sandboxes():
    """One sandbox per tier for the whole session, or the reason why there is none."""
    os.environ["SANDBOX_TEST_SECRET"] = SECRET
    opened = {}
    for tier in JAILS:
        sandbox = Sandbox(isolation=str(tier), workers=2, limits=Limits(wall_s=20, cpu_s=10))
        try:
            sandbox.describe()
        except SandboxError as error:
            opened[tier] = str(error)
        else:
            opened[tier] = sandbox
    yield opened
    for sandbox in opened.values():
        if isinstance(sandbox, Sandbox):
            sandbox.close()
    del os.environ["SANDBOX_TEST_SECRET"]


@pytest.fixture(params=JAILS, ids=str)
def jail(request, sandboxes):
    """A sandbox, once per tier of jail."""
    sandbox = sandboxes[request.param]
    if isinstance(sandbox, str):
        pytest.skip(sandbox)
    return sandbox


@pytest.fixture
def any_jail(sandboxes):
    """The strongest sandbox that there is."""
    for sandbox in sandboxes.values():
        if isinstance(sandbox, Sandbox):
            return sandbox
    pytest.skip("; ".join(sandboxes.values()))


@pytest.fixture(scope="session")
def unsafe_sandbox():
    """The tier that is not a jail."""
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        patch.setenv(unsafe.SWITCH, "1")
        warnings.simplefilter("ignore")
        with Sandbox(isolation="unsafe", workers=2) as sandbox:
            yield sandbox


@pytest.fixture(params=[*JAILS, Tier.UNSAFE], ids=str)
def tier(request, sandboxes):
    """A sandbox, once per tier, the unsafe one too."""
    if request.param is Tier.UNSAFE:
        return request.getfixturevalue("unsafe_sandbox")
    sandbox = sandboxes[request.param]
    if isinstance(sandbox, str):
        pytest.skip(sandbox)
    return sandbox


class Host:
    """What an attack could reach outside, and whether it did."""

    def __init__(self):
        # Open to everybody: only the jail keeps a program away from it.
        self.folder = Path(tempfile.mkdtemp(prefix="attacked-"))
        self.folder.chmod(0o777)
        self.secret_file = self.folder / "secret"
        self.secret_file.write_text(SECRET)
        self.file = self.folder / "file"
        self.file.write_text("untouched")
        for path in (self.secret_file, self.file):
            path.chmod(0o666)
        self.mark = f"mark-{os.getpid()}"
        self.secret_fd = os.open(self.secret_file, os.O_RDONLY)
        os.set_inheritable(self.secret_fd, True)
        self.listeners = []
        self.tcp = self._listen(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0))
        self.udp = self._listen(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0))
        self.unix = str(self.folder / "socket")
        self._listen(socket.AF_UNIX, socket.SOCK_STREAM, self.unix)
        os.chmod(self.unix, 0o777)
        self.abstract = f"attacked-{os.getpid()}"
        self._listen(socket.AF_UNIX, socket.SOCK_STREAM, "\0" + self.abstract)
        self.victims = {}
        self.before = self._folder_state()

    def _listen(self, family, kind, address):
        listener = socket.socket(family, kind)
        listener.bind(address)
        if kind == socket.SOCK_STREAM:
            listener.listen()
        listener.setblocking(False)
        self.listeners.append(listener)
        return listener.getsockname()[1] if family == socket.AF_INET else 0

    def _folder_state(self):
        return {
            path.name: (path.lstat().st_mode, path.lstat().st_uid, path.lstat().st_mtime_ns)
            for path in (self.folder, *self.folder.iterdir())
        }

    def victim_of(self, sandbox):
        """A process of the very user that the jail runs as."""
        uid = sandbox.describe()["uid"]
        if uid not in self.victims:
            user = {"user": uid, "group": uid, "extra_groups": []} if os.geteuid() == 0 else {}
            self.victims[uid] = subprocess.Popen(["sleep", "1000"], **user)
        return self.victims[uid]

    def names(self, sandbox):
        """What the texts of the attacks name."""
        return {
            "SECRET_FILE": str(self.secret_file),
            "SECRET_FD": str(self.secret_fd),
            "FOLDER": str(self.folder),
            "MARK": self.mark,
            "PARENT": str(os.getpid()),
            "TCP": str(self.tcp),
            "UDP": str(self.udp),
            "UNIX": self.unix,
            "ABSTRACT": self.abstract,
            "PROJECT": str(Path(__file__).parents[3]),
            "SITE": str(Path(pytest.__file__).parents[1]),
            "VICTIM": str(self.victim_of(sandbox).pid) if sandbox else "999999999",
            "SERVER": str(sandbox.describe()["server_pids"][0]) if sandbox else "999999999",
            "MAX_THREADS": "400",
        }

    def check(self, sandbox):
        """Nothing on the host is different from before.

        Raises:
            AssertionError: Something is.
        """
        victim = self.victim_of(sandbox)
        assert victim.poll() is None, "the victim was killed"
        assert _state(victim.pid) not in "TtZX", "the victim was stopped"
        description = sandbox.describe()
        assert description["num_restarts"] == 0, "a server was killed"
        for pid in description["server_pids"]:
            assert _state(pid) in "SR", "a server was stopped"
        assert self._folder_state() == self.before
        assert self.file.read_text() == "untouched"
        for listener in self.listeners:
            with pytest.raises(BlockingIOError):
                listener.accept() if listener.type == socket.SOCK_STREAM else listener.recv(1)
        for folder in ("/tmp", "/var/tmp", "/dev/shm", Path(os.__file__).parent):
            assert not list(Path(folder).glob(self.mark + "*"))
        for kind in ("shm", "msg", "sem"):
            assert str(0x5AFE) not in _read(f"/proc/sysvipc/{kind}").split()
        self._check_processes(description)

    def _check_processes(self, description):
        """Only the servers and, where there is a pid namespace, their inner halves are left."""
        deadline_s = time.monotonic() + 60
        inner = description["isolation"] == Tier.NAMESPACES
        while True:
            children = _children(description["server_pids"])
            left = [pid for pid in children if _children([pid])]
            if len(children) == inner * len(description["server_pids"]) and not left:
                return
            assert time.monotonic() < deadline_s, f"processes are left: {children} {left}"
            time.sleep(0.01)

    def close(self):
        """Take down what was put up."""
        for victim in self.victims.values():
            victim.kill()
            victim.wait()
        for listener in self.listeners:
            listener.close()
        os.close(self.secret_fd)
        shutil.rmtree(self.folder)


def _read(path):
    with contextlib.suppress(OSError):
        return Path(path).read_text()
    return ""


def _state(pid):
    return _read(f"/proc/{pid}/stat").rpartition(")")[2].split()[0]


def _children(pids):
    found = []
    for pid in pids:
        found += _read(f"/proc/{pid}/task/{pid}/children").split()
    return [int(pid) for pid in found]


@pytest.fixture(scope="session")
def host(sandboxes):
    """A host that attacks are let loose on."""
    made = Host()
    yield made
    made.close()


@pytest.fixture
def bare_python():
    """Run a program as a plain process, without any jail."""

    def run(code):
        return subprocess.run(
            [sys.executable, "-I", "-c", code],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    return run
