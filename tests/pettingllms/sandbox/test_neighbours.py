"""A run's verdict depends on the run, not on who runs beside it."""

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pettingllms.callers import ACTING, new_caller
from pettingllms.sandbox import Limits, Sandbox, Status, pool
from pettingllms.sandbox.isolation import open_files_of
from pettingllms.sandbox.jail import protocol
from pettingllms.sandbox.jail.protocol import OUT_OF_TIME
from pettingllms.sandbox.jail.threads import niceness
from pettingllms.sandbox.outcome import ChildReport, judge
from pettingllms.sandbox.pool import Waiting
from pettingllms.sandbox.worker import ExecutionRequest

SCRIPT = Path(__file__).with_name("neighbours.py")
ORDINARY_UID = 61000
SCRIPTS = tomllib.loads(Path(__file__).with_name("scripts.toml").read_text(encoding="utf-8"))
COUNT_THREADS = SCRIPTS["count_threads"]


def load_script():
    spec = importlib.util.spec_from_file_location("neighbours", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def as_ordinary_user(tier, denied=()):
    """Run the script as a user with nothing but the right to read files (Python may lie in /root).

    Returns:
        What it says went wrong.
    """
    if os.geteuid() != 0:
        pytest.skip("this is an ordinary user already")
    if not shutil.which("setpriv"):
        pytest.skip("needs setpriv")
    user = [f"--re{kind}={ORDINARY_UID}" for kind in ("uid", "gid")]
    may_read = ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]
    command = ["setpriv", *user, "--clear-groups", *may_read, sys.executable, str(SCRIPT), tier]
    done = subprocess.run(
        [*command, *([",".join(denied)] if denied else [])],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
        cwd="/",
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("is_whole", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_honest_programs_beside_hostile_ones(jail, sandboxes, is_whole):
    """By day each hostile program is in one of the tiers that there are, at night in all."""
    script = load_script()
    there = [of for of in sandboxes.values() if isinstance(of, Sandbox)]
    first, every = (0, 1) if is_whole else (there.index(jail), len(there))
    tier, hostile = jail.describe()["isolation"], tuple(script.HOSTILE)[first::every]
    assert hostile
    assert script.wrong_verdicts(tier, hostile) == []


@pytest.mark.slow
@pytest.mark.nightly
def test_honest_programs_beside_hostile_ones_of_an_ordinary_user(jail):
    assert as_ordinary_user(jail.describe()["isolation"]) == []


@pytest.mark.slow
@pytest.mark.nightly
def test_honest_programs_beside_hostile_ones_without_namespaces(jail):
    tier = jail.describe()["isolation"]
    if tier == "namespaces":
        pytest.skip("this tier is made of namespaces")
    assert as_ordinary_user(tier, ["unshare"]) == []


class TestThreads:
    def test_each_run_has_its_own(self, jail):
        """Also where servers run several programs each, and all of them take what they can."""
        code = COUNT_THREADS + "import time\ntime.sleep(0.5)"
        patient = Limits(wall_s=120, cpu_s=60)
        with Sandbox(jail.describe()["isolation"], workers=18) as sandbox:
            assert len(sandbox.describe()["server_pids"]) == 16
            counts = {result.stdout for result in sandbox.run_many(code, [""] * 18, patient)}
        assert counts == {"32\n"}

    @pytest.mark.parametrize("most", [0, 1, 7])
    def test_limit_is_exact(self, any_jail, most):
        result = any_jail.run(COUNT_THREADS, limits=Limits(max_processes=most))
        assert (result.status, result.stdout) == (Status.OK, f"{most}\n")

    def test_ended_threads_make_room(self, jail):
        assert jail.run(SCRIPTS["ended_threads"]).stdout == "all\n"

    def test_threads_weigh_as_much_as_one(self, jail):
        before, with_one, with_all = map(int, jail.run(SCRIPTS["weights"]).stdout.split())
        # 19 is the lowest weight there is, which a suite that runs under `nice` reaches earlier.
        assert (with_one, with_all) == (
            min(before + niceness(2), 19),
            min(before + niceness(33), 19),
        )

    def test_other_runs_keep_their_weight(self, any_jail):
        any_jail.run(COUNT_THREADS)
        code = "import os\nprint(os.getpriority(os.PRIO_PROCESS, 0))"
        assert int(any_jail.run(code).stdout) == os.getpriority(os.PRIO_PROCESS, 0)

    def test_a_nice_process_has_a_sandbox(self, any_jail):
        tier = any_jail.describe()["isolation"]
        code = (
            "from pettingllms.sandbox import Sandbox\n"
            f"print(Sandbox(isolation={tier!r}).run({COUNT_THREADS!r}).status.value)"
        )
        nice = ["nice", "-n", "10", sys.executable, "-c", code]
        done = subprocess.run(nice, capture_output=True, text=True, check=True)
        assert done.stdout == "ok\n"

    @given(st.integers(1, 68))
    def test_niceness(self, num_threads):
        weight = 1024 / 1.25 ** niceness(num_threads)
        assert num_threads * weight <= 1024 * 1.01
        assert num_threads == 1 or niceness(num_threads) > 0


class TestPipes:
    @given(st.integers(1, 1024), st.integers(1, 100_000))
    def test_all_workers_stay_below_the_budget_of_the_user(self, workers, pages):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Path, "read_text", lambda self: str(pages))
            pipes = (open_files_of(workers) - 3) // 2
        assert workers * pipes * 16 <= pages

    def test_the_bound_holds_in_the_jail(self, any_jail, tmp_path, monkeypatch, caplog):
        budget = tmp_path / "budget"
        budget.write_text(str(16 * 16))
        monkeypatch.setattr("pettingllms.sandbox.isolation._PIPE_BUDGET", budget)
        code = "import os\ncount = 0\nwhile True: os.pipe(); count += 1; print(count, flush=True)"
        with Sandbox(any_jail.describe()["isolation"], workers=2) as sandbox:
            assert sandbox.describe()["max_open_files"] == 16
            result = sandbox.run(code)
        assert result.stdout.split()[-1] == "6"
        assert "Too many open files" in result.stderr
        assert "fs.pipe-user-pages-soft" in caplog.text


def report(**facts):
    usual = ChildReport(0, 9, 8.0, 0.2, 1 << 20, protocol.RUNNING, OUT_OF_TIME, "", 7.9)
    return judge(usual._replace(**facts), Limits(wall_s=8, cpu_s=2), b"", b"")


class TestStarvation:
    def test_is_told_from_sleep_and_from_work(self):
        assert report().starved
        assert report().status is Status.TIMEOUT
        assert not report(runnable_s=7).starved, "it slept"
        assert not report(cpu_s=1.95).starved, "it had its processor time"
        assert not report(killed_for=0, wait_status=0).starved, "it ended"
        assert not report(cpu_s=2.5).starved

    @pytest.fixture
    def starved_first(self, any_jail, monkeypatch):
        """A sandbox in which the first run with each output looks starved, and its outputs."""
        judged = []

        def starve(report, limits, stdout, stderr):
            is_first = stdout not in judged
            judged.append(stdout)
            if is_first:
                facts = {"killed_for": OUT_OF_TIME, "cpu_s": 0.0, "runnable_s": 10.0}
                report = report._replace(wait_status=9, **facts)
            return judge(report, limits, stdout, stderr)

        with Sandbox(any_jail.describe()["isolation"], workers=2) as sandbox:
            monkeypatch.setattr(pool, "judge", starve)
            yield sandbox, judged

    def test_is_repeated_and_forgotten(self, starved_first):
        sandbox, judged = starved_first
        results = sandbox.run_many("print(input())", ["a", "b", "c", "d"])
        assert [(r.status, r.stdout, r.starved) for r in results] == [
            ("ok", f"{text}\n", False) for text in "abcd"
        ]
        assert len(judged) == 8

    def test_a_caller_pays_for_repeats_in_vain(self, any_jail, monkeypatch):
        monkeypatch.setattr("pettingllms.sandbox.outcome._HARDLY_ASLEEP", 0)
        monkeypatch.setattr("pettingllms.sandbox.pool._CREDIT_S", 0.3)
        # On a busy machine so much time passes that the debt would be forgiven meanwhile.
        monkeypatch.setattr("pettingllms.sandbox.pool._FORGIVEN", 1e-9)
        quick = Limits(wall_s=0.2)
        with Sandbox(any_jail.describe()["isolation"], workers=1) as sandbox:
            (only,) = sandbox._opened()._servers

            def num_runs_of_a_slow_program(number):
                before = only.worker.num_runs
                result = sandbox.run(f"import time\ntime.sleep({number})", limits=quick)
                assert (result.status, result.starved) == (Status.TIMEOUT, True)
                return only.worker.num_runs - before

            assert [num_runs_of_a_slow_program(number) for number in range(50, 54)] == [2, 2, 1, 1]
            token = ACTING.set(new_caller())
            assert num_runs_of_a_slow_program(60) == 2
            ACTING.reset(token)
            assert num_runs_of_a_slow_program(61) == 1

    def test_who_spins_and_then_sleeps_is_not_repeated(self, jail):
        """However many compete for the processors meanwhile."""
        if not pool.counts_waits():
            pytest.skip("this kernel does not say how long a program waited")
        code = "import time\nend = time.monotonic() + 0.7\nwhile time.monotonic() < end: pass\n"
        code += "time.sleep(50)"
        with (
            Sandbox(jail.describe()["isolation"], workers=6) as sandbox,
            ThreadPoolExecutor(6) as threads,
        ):
            fork_servers = sandbox._opened()._servers
            before = sum(server.worker.num_runs for server in fork_servers)
            list(threads.map(lambda n: sandbox.run(code, "", Limits(wall_s=2)), range(6)))
            assert sum(server.worker.num_runs for server in fork_servers) - before == 6

    def test_the_server_ends_what_the_parent_cannot(self, any_jail, monkeypatch):
        def refuse(process, number):
            raise PermissionError

        monkeypatch.setattr(signal, "pidfd_send_signal", refuse)
        result = any_jail.run("import time\ntime.sleep(50)", limits=Limits(wall_s=0.2))
        assert result.status is Status.TIMEOUT

    @pytest.mark.parametrize("threads", [0, 3])
    def test_runs_and_waits_are_counted_and_sleep_is_not(self, threads):
        with subprocess.Popen(
            [sys.executable, "-c", SCRIPTS["waits"], str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            handle = os.pidfd_open(process.pid)

            def use(seconds):
                process.stdin.write(f"{seconds}\n")
                process.stdin.flush()
                process.stdout.readline()

            use(0.2)
            before = pool.runnable_s(handle)
            assert before >= 0.15
            assert pool.runnable_s(handle) - before < 0.1
            use(0.5)
            assert pool.runnable_s(handle) - before >= 0.25
        assert pool.runnable_s(handle) == 0
        os.close(handle)

    def test_many_at_once(self, any_jail, monkeypatch):
        monkeypatch.setattr("pettingllms.sandbox.outcome._HARDLY_ASLEEP", 0)
        quick = Limits(wall_s=0.2)
        with (
            Sandbox(any_jail.describe()["isolation"], workers=3) as sandbox,
            ThreadPoolExecutor(12) as threads,
        ):
            sleepers = [
                threads.submit(sandbox.run, f"import time\ntime.sleep(50 + {n})", "", quick)
                for n in range(6)
            ]
            honest = [threads.submit(sandbox.run, "print(1)") for _ in range(30)]
            assert {run.result(60).stdout for run in honest} == {"1\n"}
            assert {run.result(60).status for run in sleepers} == {Status.TIMEOUT}


class FakeLane:
    is_up = True

    def __init__(self):
        self.in_flight = {}

    @property
    def free(self):
        return 1 - len(self.in_flight)


@given(st.lists(st.sampled_from(["add", "take", "end", "end starved"]), max_size=60))
def test_alone_is_alone_and_nothing_is_lost(steps):
    waiting, fork_servers = Waiting(), [FakeLane(), FakeLane()]
    num_added = num_ended = number = 0

    def take():
        nonlocal number
        taken = waiting.take(fork_servers)
        if taken is None:
            return False
        number += 1
        taken[0].in_flight[number] = taken[1]
        together = [run for server in fork_servers for run in server.in_flight.values()]
        assert len(together) == 1 or not any(run.is_alone for run in together)
        return True

    def end(is_starved):
        nonlocal num_ended
        busy = next((server for server in fork_servers if server.in_flight), None)
        if busy is None:
            return
        run = busy.in_flight.pop(min(busy.in_flight))
        waiting.left(run)
        result = report(runnable_s=7.9 if is_starved else 0)
        num_ended += not waiting.repeats_alone(run, result)

    for step in steps:
        if step == "add":
            num_added += 1
            waiting.add(pool.SandboxRun(ExecutionRequest(str(num_added).encode(), b"", Limits())))
        elif step == "take":
            take()
        else:
            end(is_starved=step == "end starved")
    while take() or any(server.in_flight for server in fork_servers):
        end(is_starved=False)
    assert num_ended == num_added
