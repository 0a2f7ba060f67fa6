"""Servers die, are replaced, shared, and go in the end; the best tier that is left is taken."""

import gc
import json
import multiprocessing
import os
import platform
import signal
import subprocess
import sys
import threading
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import Mock

import pytest

import pettingllms.sandbox
from pettingllms.errors import SandboxError
from pettingllms.sandbox import (
    Limits,
    Sandbox,
    Status,
    default_sandbox,
    isolation,
    pool,
    probe,
    worker,
)
from pettingllms.sandbox.filter import syscall_numbers

SCRIPTS = tomllib.loads(Path(__file__).with_name("scripts.toml").read_text(encoding="utf-8"))
DOUBLE = "print(int(input()) * 2)"
LONG = Limits(wall_s=60, cpu_s=30)


@pytest.fixture
def best(any_jail):
    """The name of the strongest tier that there is."""
    return any_jail.describe()["isolation"]


@pytest.fixture
def sandbox(best):
    """A sandbox of this test's own, with two servers."""
    with Sandbox(isolation=best, workers=2, limits=LONG) as made:
        yield made


def wait_until(condition, timeout_s=60):
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, "it did not come about"
        time.sleep(0.01)


def is_running(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def children_of(pid):
    return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def leaves_of(pid):
    children = children_of(pid)
    return [leaf for child in children for leaf in leaves_of(child)] if children else [pid]


def num_descriptors():
    return len(os.listdir("/proc/self/fd"))


def kill_servers_now_and_then(sandbox, stop):
    killed = 0
    while not stop.wait(0.15):
        pid = sandbox.describe()["server_pids"][killed % 2]
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
        killed += 1
        stop.wait(1)


@pytest.mark.filterwarnings("ignore")
def test_dead_servers_lose_and_repeat_nothing(sandbox):
    stop = threading.Event()
    killer = threading.Thread(target=kill_servers_now_and_then, args=(sandbox, stop))
    killer.start()
    try:
        results = sandbox.run_many(DOUBLE, [str(n) for n in range(600)])
    finally:
        stop.set()
        killer.join()
    for n, result in enumerate(results):
        assert result.status in (Status.OK, Status.SANDBOX_ERROR), result
        assert result.status is Status.SANDBOX_ERROR or int(result.stdout) == 2 * n
    assert sum(result.status is Status.OK for result in results) >= 590
    assert sandbox.describe()["num_restarts"] >= 1
    assert sandbox.run(DOUBLE, "4").stdout == "8\n"


def test_a_run_whose_servers_die_twice_is_not_the_programs_fault(sandbox):
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(sandbox.run, "import time\ntime.sleep(50)")
        for _ in range(2):
            pids = sandbox.describe()["server_pids"]
            busy = []
            wait_until(
                lambda pids=pids, busy=busy: busy.extend(_busy(sandbox, pids)) or len(busy) > 0
            )
            os.kill(busy[0], signal.SIGKILL)
            wait_until(lambda pids=pids: sandbox.describe()["server_pids"] != pids)
        result = running.result(60)
    assert result.status is Status.SANDBOX_ERROR
    assert "it failed twice" in result.stderr
    assert sandbox.run(DOUBLE, "4").stdout == "8\n"


def _busy(sandbox, pids):
    depth = 2 if sandbox.describe()["isolation"] == "namespaces" else 1
    found = []
    for pid in pids:
        level = [pid]
        for _ in range(depth):
            try:
                level = [child for parent in level for child in children_of(parent)]
            except OSError:
                level = []
        if level:
            found.append(pid)
    return found


def test_without_its_last_server_a_sandbox_raises_its_own_error(sandbox, monkeypatch):
    def fail():
        raise SandboxError("no room")

    servers = sandbox._opened()
    monkeypatch.setattr(servers, "_start", fail)
    for pid in servers.server_pids:
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not servers.server_pids)
    with pytest.raises(SandboxError, match="Make a new one"):
        sandbox.run_many(DOUBLE, ["4"])
    with pytest.raises(SandboxError, match="Make a new one"):
        sandbox.run_calls("def f(n): return n", "f", [[4]])


def test_a_child_killed_from_outside_is_run_again(sandbox, tmp_path):
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(sandbox.run, "import time\ntime.sleep(2)\nprint('done')")
        pids = sandbox.describe()["server_pids"]
        wait_until(lambda: _busy(sandbox, pids))
        os.kill(leaves_of(_busy(sandbox, pids)[0])[0], signal.SIGKILL)
        result = running.result(60)
    assert (result.status, result.stdout) == (Status.OK, "done\n")
    assert sandbox.describe()["num_restarts"] == 0


def test_a_stopped_server_is_replaced(best, monkeypatch):
    monkeypatch.setattr(pool, "_GRACE_S", 0.3)
    monkeypatch.setattr(pool, "_TICK_S", 0.1)
    monkeypatch.setattr(worker, "_STOP_TIMEOUT_S", 0.5)
    with Sandbox(isolation=best, workers=2) as sandbox:
        for pid in sandbox.describe()["server_pids"]:
            for process in {pid, *leaves_of(pid)}:
                os.kill(process, signal.SIGSTOP)
        result = sandbox.run(DOUBLE, "4", Limits(wall_s=0.3))
        assert result.status in (Status.OK, Status.SANDBOX_ERROR)
        assert sandbox.describe()["num_restarts"] >= 1
        assert sandbox.run(DOUBLE, "4").stdout == "8\n"


def test_servers_are_recycled(best, monkeypatch):
    monkeypatch.setattr(pool, "_RUNS_PER_SERVER", 20)
    with Sandbox(isolation=best, workers=2) as sandbox:
        results = sandbox.run_many(DOUBLE, [str(n) for n in range(120)])
        assert [int(result.stdout) for result in results] == [2 * n for n in range(120)]
        assert sandbox.describe()["num_restarts"] >= 3


def test_threads_share_a_sandbox(sandbox):
    def work(n):
        return [sandbox.run(DOUBLE, str(m)).stdout for m in range(n, n + 10)]

    with ThreadPoolExecutor(16) as threads:
        for n, outputs in enumerate(threads.map(work, range(16))):
            assert outputs == [f"{2 * m}\n" for m in range(n, n + 10)]


def test_inputs_are_taken_as_they_are_needed(sandbox):
    ahead = []
    finished = 0
    window = sandbox._opened().window

    def stdins():
        for n in range(100):
            ahead.append(n - finished)
            yield str(n)

    request = (sandbox._request(DOUBLE, stdin, None) for stdin in stdins())
    for _ in sandbox._stream(request):
        finished += 1
    assert max(ahead) <= window + 1
    assert finished == 100


def test_results_of_many_runs_do_not_pile_up_descriptors(sandbox):
    sandbox.run_many(DOUBLE, ["1"] * 20)
    before = num_descriptors()
    sandbox.run_many(DOUBLE, ["1"] * 100)
    assert num_descriptors() <= before


class TestEnd:
    def test_close_leaves_nothing(self, best):
        before = num_descriptors(), threading.active_count()
        sandbox = Sandbox(isolation=best, workers=2)
        sandbox.run("1")
        pids = sandbox.describe()["server_pids"]
        inner = [leaf for pid in pids for leaf in leaves_of(pid)]
        sandbox.close()
        sandbox.close()
        assert not any(map(is_running, [*pids, *inner]))
        assert (num_descriptors(), threading.active_count()) == before
        with pytest.raises(SandboxError, match="closed"):
            sandbox.run("1")

    def test_close_while_a_program_runs(self, best):
        sandbox = Sandbox(isolation=best, workers=1, limits=LONG)
        sandbox.describe()
        with ThreadPoolExecutor(5) as threads:
            running = [threads.submit(sandbox.run, "while True: pass") for _ in range(5)]
            time.sleep(0.3)
            sandbox.close()
            for run in running:
                with pytest.raises(SandboxError, match="closed"):
                    run.result(60)

    @pytest.mark.parametrize(
        ("where", "what"), [(worker.Worker, "wait_until_ready"), (isolation, "_check_canary")]
    )
    def test_a_start_that_is_interrupted_leaves_nothing(self, best, monkeypatch, where, what):
        before = num_descriptors(), threading.active_count()
        monkeypatch.setattr(where, what, Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            Sandbox(isolation=best, workers=1).run("1")
        assert (num_descriptors(), threading.active_count()) == before

    def test_a_collection_ends_it_while_its_locks_are_held(self, best):
        sandbox = Sandbox(isolation=best, workers=1)
        pids = sandbox.describe()["server_pids"]
        own = sandbox._pool
        sandbox.itself = sandbox
        del sandbox

        def collect():
            with own._servers[0].lock, own._lock:
                gc.collect()

        collecting = threading.Thread(target=collect, daemon=True)
        collecting.start()
        collecting.join(60)
        assert not collecting.is_alive()
        wait_until(lambda: not any(map(is_running, pids)))

    @pytest.mark.parametrize("ending", ["exit", "exception", "SIGINT", "SIGTERM", "SIGKILL"])
    def test_the_process_ends(self, best, ending):
        done = subprocess.run(
            [sys.executable, "-c", SCRIPTS["ending"], best, ending],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=300,
            check=False,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        pids = json.loads(done.stdout)
        assert len(pids) >= 3
        wait_until(lambda: not any(map(is_running, pids)))

    def test_the_shared_sandbox(self):
        assert default_sandbox() is default_sandbox()
        assert default_sandbox("science") is not default_sandbox()


def _in_another_process(sandbox, connection):
    connection.send((sandbox.run(DOUBLE, "4").stdout, default_sandbox().run(DOUBLE, "5").stdout))
    sandbox.close()


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_other_processes_have_servers_of_their_own(sandbox, method):
    sandbox.run("1")
    context = multiprocessing.get_context(method)
    ours, theirs = context.Pipe()
    process = context.Process(target=_in_another_process, args=(sandbox, theirs), daemon=True)
    process.start()
    assert ours.poll(60)
    assert ours.recv() == ("8\n", "10\n")
    process.join(60)
    assert process.exitcode == 0
    assert sandbox.run(DOUBLE, "6").stdout == "12\n"
    assert sandbox.describe()["num_restarts"] == 0


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_process_does_not_keep_our_servers_alive(best):
    sandbox = Sandbox(isolation=best, workers=1)
    (server,) = sandbox.describe()["server_pids"]
    child = os.fork()
    if child == 0:
        time.sleep(1000)
        os._exit(0)
    try:
        sandbox.close()
        assert not is_running(server)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_one_server_runs_several_programs_at_once(best, monkeypatch):
    monkeypatch.setattr(isolation, "_MAX_SERVERS", 1)
    with Sandbox(isolation=best, workers=4) as sandbox:
        assert len(sandbox.describe()["server_pids"]) == 1
        (server,) = sandbox.describe()["server_pids"]
        code = "import time\nn = int(input())\ntime.sleep(2)\nprint(n)"
        with ThreadPoolExecutor(1) as threads:
            running = threads.submit(sandbox.run_many, code, [str(n) for n in range(4)])
            wait_until(lambda: len(leaves_of(server)) == 4)
            assert [result.stdout for result in running.result()] == ["0\n", "1\n", "2\n", "3\n"]
        statuses = [
            result.status
            for result in sandbox.run_many(
                "n = int(input())\nif n % 2: 1 / 0", [str(n) for n in range(24)]
            )
        ]
        assert statuses == [Status.OK, Status.ERROR] * 12


def test_many_programs_at_once_on_one_server(best, monkeypatch):
    """More than a program may have open files, all of which its child begins with."""
    monkeypatch.setattr(isolation, "_MAX_SERVERS", 1)
    code = "import time\ntime.sleep(0.5)\nprint(input())"
    with Sandbox(best, workers=80, limits=LONG) as sandbox:
        results = sandbox.run_many(code, [str(n) for n in range(160)])
        assert [result.stdout for result in results] == [f"{n}\n" for n in range(160)]


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, 8),
        ({"cpu.max": "max 100000"}, 8),
        ({"cpu.max": "350000 100000"}, 3),
        ({"cpu.max": "20000 100000"}, 1),
        ({"cpu.max": "1600000 100000"}, 8),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 8),
        ({"cpu/cpu.cfs_quota_us": "200000", "cpu/cpu.cfs_period_us": "100000"}, 2),
        ({"cpu.max": ""}, 8),
    ],
)
def test_quota_of_a_container(monkeypatch, tmp_path, files, expected):
    monkeypatch.setattr(pool, "CGROUPS", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert pool.num_processors() == expected
    assert Sandbox().workers == expected


def test_libraries_take_fewer_mappings_and_none_is_both_writable_and_executable():
    folder = pettingllms.sandbox.__path__[0]
    command = [sys.executable, "-c", SCRIPTS["mappings"], folder]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    before, after, rights, values = json.loads(printed)
    assert before.keys() == after.keys()
    assert sum(after.values()) < 0.7 * sum(before.values())
    assert not any("w" in right and "x" in right for right in rights)
    assert "0.333" in values


NUMBERS = syscall_numbers() | {"landlock": 444}
NUMBERS["memfd_create"] = {"x86_64": 319, "aarch64": 279}[platform.machine()]
TIERS = ("namespaces", "landlock", "sealed")


def ran(code, *arguments):
    """Run a script in a process of its own that finds this package and these tests."""
    paths = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "PYTHONPATH": paths},
    )


def on_a_machine(denied, isolation="auto"):
    """Run a sandbox where some system calls are denied, as in a container."""
    numbers = [NUMBERS[name] for name in denied]
    done = ran(SCRIPTS["denied"], json.dumps([numbers, NUMBERS["seccomp"], isolation]))
    return json.loads(done.stdout)


@pytest.mark.parametrize("lacks", [("unshare",), ("unshare", "landlock")])
def test_the_best_tier_that_is_left_is_taken(any_jail, lacks):
    isolation, reasons, output = on_a_machine(lacks)
    if isolation == "sealed" and len(lacks) == 1:
        pytest.skip("this machine has no Landlock")
    assert (isolation, output) == (TIERS[len(lacks)], "42\n")
    assert list(reasons) == list(TIERS[: len(lacks)])
    assert "unshare" in reasons["namespaces"]


@pytest.mark.parametrize(
    ("lacks", "isolation", "told"),
    [
        (
            ("unshare", "landlock", "seccomp"),
            "auto",
            [*(f"{tier}: " for tier in TIERS), "pettingllms doctor"],
        ),
        (("memfd_create",), "auto", ["no memfd_create here", "seccomp profile"]),
        (("unshare", "landlock"), "namespaces", ["isolation='namespaces'"]),
        (("unshare", "landlock"), "landlock", ["isolation='landlock'"]),
    ],
)
def test_nothing_is_lowered_in_silence(any_jail, lacks, isolation, told):
    found, _, message = on_a_machine(lacks, isolation)
    assert found is None
    assert all(text in message for text in told), message


def test_a_python_without_memory_files(monkeypatch):
    monkeypatch.delattr(os, "memfd_create")
    with pytest.raises(SandboxError, match=r"no memfd_create here.*Use Linux 3\.17"):
        Sandbox(workers=1).run("print(1)")
    assert all("no memfd_create here" in report.reason for report in probe())


@pytest.mark.parametrize(
    ("when", "said"),
    [("late", ["timeout", "7"]), ("dead", ["this sandbox is closed. Make a new one."])],
)
def test_nobody_waits_for_ever_where_no_descriptor_is_free(best, when, said):
    done = ran(SCRIPTS["full"], best, when)
    assert done.stdout.splitlines() == said, done.stderr


def test_a_root_that_is_alone_in_its_namespace():
    done = ran(SCRIPTS["alone"])
    if "no user namespace" in done.stderr:
        pytest.skip(done.stderr)
    assert "the root of this user namespace can become none of" in done.stdout, done.stderr
    assert "Run as an ordinary user" in done.stdout


@pytest.mark.parametrize(
    ("text", "is_covered"),
    [
        ("0 0 4294967295", True),
        ("0 1000 1\n1 100000 65536\n", True),  # rootless docker and podman
        ("", True),  # a kernel without user namespaces
        ("0 1000 1", False),
        ("0 1000 1\n1 100000 1000\n", False),
    ],
)
def test_which_ids_of_a_container_are_enough(monkeypatch, tmp_path, text, is_covered):
    for name, written in (("uid_map", text), ("gid_map", "0 0 65536"), ("setgroups", "allow")):
        (tmp_path / name).write_text(written)
    monkeypatch.setattr(isolation, "_PROCESS", tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    if is_covered:
        isolation.check_platform()
    else:
        with pytest.raises(SandboxError, match="65,536 ids"):
            isolation.check_platform()
