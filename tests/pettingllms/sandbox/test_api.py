"""Arguments, results, calls of functions, descriptions."""

import dataclasses
import functools
import json
import pickle
import re
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pettingllms.sandbox
from pettingllms.errors import InvalidArgument, MissingDependency, SandboxError
from pettingllms.sandbox import (
    ExecutionResult,
    Limits,
    Sandbox,
    Status,
    isolation,
    unsafe,
    worker,
)
from pettingllms.sandbox.jail import child
from pettingllms.sandbox.library import archive
from pettingllms.sandbox.outcome import ChildReport, clean, judge


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("wall_s", 0),
        ("wall_s", float("nan")),
        ("cpu_s", -1),
        ("cpu_s", 10**9),
        ("memory_bytes", 1),
        ("memory_bytes", 1e9),
        ("output_bytes", -1),
        ("max_processes", -1),
        ("max_processes", True),
        ("max_open_files", 3),
    ],
)
def test_limits_out_of_range(name, value):
    with pytest.raises(InvalidArgument, match=name):
        Limits(**{name: value})


@pytest.mark.parametrize(
    "arguments", [{"isolation": "strong"}, {"flavour": "fat"}, {"workers": 0}, {"workers": 5000}]
)
def test_arguments_out_of_range(arguments):
    with pytest.raises(InvalidArgument, match=next(iter(arguments))):
        Sandbox(**arguments)


def test_missing_package(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingDependency, match="science"):
        Sandbox(flavour="science")


def test_result_is_a_value(any_jail):
    result = any_jail.run("print(1)")
    with pytest.raises(dataclasses.FrozenInstanceError):
        result.status = Status.ERROR
    assert pickle.loads(pickle.dumps(result)) == result
    assert result.status == "ok"
    assert result.wall_s > 0
    assert result.cpu_s > 0
    assert result.max_rss_bytes > 1 << 20


def test_limits_are_told_apart(any_jail):
    def status(code, **limits):
        return any_jail.run(code, limits=Limits(**limits)).status

    assert status("while True: pass", wall_s=0.2) is Status.TIMEOUT
    assert status("while True: pass", wall_s=30, cpu_s=0.3) is Status.CPU_LIMIT
    assert status("import time\nt = time.process_time\nwhile t() < 0.3: pass", cpu_s=0.1) == (
        Status.CPU_LIMIT
    )
    assert status("bytearray(10**9)") is Status.MEMORY_LIMIT
    assert status("print('x' * 100)", output_bytes=100) is Status.OUTPUT_LIMIT
    assert status("print('x' * 99)", output_bytes=100) is Status.OK
    assert status("print()", output_bytes=0) is Status.OUTPUT_LIMIT


def test_output_is_cut_at_the_limit(any_jail):
    result = any_jail.run("print('x' * 5000)", limits=Limits(output_bytes=1000))
    assert result.truncated
    assert result.stdout == "x" * 1000


@given(st.one_of(st.binary(), st.text().map(lambda text: text.encode("utf-8", "replace"))))
def test_cleaning(data):
    """Character by character, the slow way: U+FFFD for what is not safe to show."""
    controls = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
    assert clean(data) == controls.sub("\ufffd", data.decode("utf-8", "replace"))


def test_excerpt_is_bounded():
    result = ExecutionResult(Status.ERROR, "a" * 10_000, "", 1, 0, 0, 0, truncated=False)
    text = result.excerpt(100)
    assert text.startswith("status: error\nstdout:\naaa")
    assert "9900 characters left out" in text
    assert len(text) < 200


def test_inputs_of_one_program_do_not_meet(any_jail):
    code = "import builtins\nprint(hasattr(builtins, 'seen'))\nbuiltins.seen = 1"
    assert {r.stdout for r in any_jail.run_many(code, [""] * 10)} == {"False\n"}


class TestCalls:
    def test_function(self, jail):
        code = "def add(a, b):\n    print('noise')\n    return a + b"
        calls = jail.run_calls(code, "add", [(1, 2), ("x", "y"), ([1], [2])])
        assert [call.value for call in calls] == [3, "xy", [1, 2]]
        assert all(call.has_value for call in calls)
        assert calls[0].execution.stdout == "noise\n"

    @pytest.mark.parametrize("name", ["Solution.twice", "twice"])
    def test_method(self, any_jail, name):
        code = "class Solution:\n    def twice(self, x):\n        return 2 * x"
        assert any_jail.run_calls(code, name, [(4,)])[0].value == 8

    def test_what_json_cannot_say(self, any_jail):
        call = any_jail.run_calls("def f(): return {1, 2}", "f", [()])[0]
        assert (call.has_value, call.value, call.repr) == (False, None, "{1, 2}")

    def test_tuples_and_none(self, any_jail):
        code = "def f(x): return None if x else (1, (2,))"
        none, pair = any_jail.run_calls(code, "f", [(1,), (0,)])
        assert (none.has_value, none.value, none.repr) == (True, None, "None")
        assert (pair.value, pair.repr) == ([1, [2]], "(1, (2,))")

    def test_errors(self, any_jail):
        wrong, missing, late = (
            any_jail.run_calls(code, "f", [(1,)])[0]
            for code in ("def f(x): return 1 / 0", "x = 1", "def f(x): exit(0)")
        )
        assert wrong.execution.status is Status.ERROR
        assert "ZeroDivisionError" in wrong.execution.stderr
        assert "defines no 'f'" in missing.execution.stderr
        assert not late.has_value
        assert late.repr is None

    def test_forged_report(self, any_jail):
        for report in (b"{}", b"[" * 100_000, b"\xff"):
            code = f"import os\nos.write(3, {report!r}) and os._exit(0)"
            call = any_jail.run_calls(code, "f", [()])[0]
            assert not call.has_value

    def test_a_value_is_shown_without_escapes_whoever_writes_its_repr(self, any_jail):
        code = "class Shown:\n    def __repr__(self): return '\\x1b[2J\\u202e\\x9b\\ud800'\n"
        call = any_jail.run_calls(code + "def f(): return Shown()", "f", [()])[0]
        assert call.repr == "\ufffd[2J\ufffd\ufffd?"

    def test_its_own_reading_sees_no_request(self, any_jail):
        code = "import sys\nseen = sys.stdin.read()\ndef f(): return seen"
        assert any_jail.run_calls(code, "f", [()])[0].value == ""

    def test_arguments_that_json_cannot_say(self, any_jail):
        with pytest.raises(InvalidArgument, match="args_list"):
            any_jail.run_calls("def f(x): pass", "f", [({1},)])

    def test_deep_arguments(self, any_jail):
        nested = functools.reduce(lambda inner, _: [inner], range(500), [])
        (call,) = any_jail.run_calls("def f(x): return 1", "f", [(nested,)])
        assert call.value == 1

    @pytest.mark.parametrize("depth", [2_000, 100_000])
    def test_arguments_deeper_than_json_goes(self, any_jail, depth):
        nested = functools.reduce(lambda inner, _: [inner], range(depth), [])
        with pytest.raises(InvalidArgument, match=r"args_list\[1\]") as raised:
            any_jail.run_calls("def f(x): return 1", "f", [(1,), (nested,)])
        assert len(str(raised.value)) < 1000


def test_describe(jail):
    facts = jail.describe()
    assert facts["is_jail"]
    assert facts["isolation"] in ("namespaces", "landlock", "sealed")
    assert facts["uid"] != 0
    assert (facts["landlock"] > 0) == (facts["isolation"] != "sealed")
    assert any("kernel" in text for text in facts["not_covered"])
    json.dumps(facts)


def test_namespaces_hide_the_hosts_name(jail):
    if jail.describe()["isolation"] != "namespaces":
        pytest.skip("this tier has no namespace of its own for the host's name")
    assert jail.run("import os\nprint(os.uname().nodename)").stdout == "jail\n"


def test_probe():
    reports = pettingllms.sandbox.probe()
    assert [report.isolation for report in reports] == ["namespaces", "landlock", "sealed"]
    for report in reports:
        assert report.is_available == (not report.reason)


def test_auto_takes_the_strongest(sandboxes):
    offered = [tier for tier, sandbox in sandboxes.items() if isinstance(sandbox, Sandbox)]
    if not offered:
        pytest.skip("this machine offers no jail")
    with Sandbox(workers=1) as sandbox:
        assert sandbox.describe()["isolation"] == offered[0]


def test_no_jail_is_a_refusal_with_reasons(monkeypatch):
    monkeypatch.setattr(
        "pettingllms.sandbox.isolation.CANARY", "print('read a file')\nprint('end')"
    )
    with pytest.raises(SandboxError, match="does not hold; in it one can read a file"):
        Sandbox(workers=1).run("1")


def test_other_systems_are_refused(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(SandboxError, match=r"Linux only.*WSL 2"):
        Sandbox(workers=1).run("1")


def test_a_server_that_cannot_start_says_why(monkeypatch):
    sandbox = Sandbox(isolation="sealed", workers=1)
    monkeypatch.setitem(isolation.FLAVOURS, "lean", ("nothing_there",))
    monkeypatch.setattr(isolation, "archive", lambda flavour: archive("science"))
    with pytest.raises(SandboxError, match="nothing_there"):
        sandbox.run("1")


def test_files_that_cannot_be_hidden_are_reported(any_jail, monkeypatch):
    def opened(hides_files):
        def wait(worker, original=worker.Worker.wait_until_ready):
            return {**original(worker), "hides_files": hides_files}

        monkeypatch.setattr(worker.Worker, "wait_until_ready", wait)
        return Sandbox(isolation="sealed", workers=1)

    seen = f"print({isolation.LOOKS_UP_FILES!r})\nprint('end')"
    monkeypatch.setattr(isolation, "CANARY", seen)
    with pytest.raises(SandboxError, match="does not hold; in it one can look files up"):
        opened(hides_files=True).run("1")
    with opened(hides_files=False) as sandbox:
        assert any("existence" in text for text in sandbox.describe()["not_covered"])
    assert not any("existence" in text for text in any_jail.describe()["not_covered"])


class TestUnsafe:
    def test_is_refused_without_the_switch(self, monkeypatch):
        monkeypatch.delenv(unsafe.SWITCH, raising=False)
        with pytest.raises(SandboxError, match=unsafe.SWITCH):
            Sandbox(isolation="unsafe").run("1")

    def test_warns_and_behaves_alike(self, monkeypatch):
        monkeypatch.setenv(unsafe.SWITCH, "1")
        sandbox = Sandbox(isolation="unsafe", workers=2)
        with pytest.warns(unsafe.UnsafeSandboxWarning, match="can read and write your files"):
            sandbox.describe()
        with sandbox:
            assert not sandbox.describe()["is_jail"]
            assert sandbox.run("print(input())", "x").stdout == "x\n"
            statuses = {
                "1/0": Status.ERROR,
                "(": Status.SYNTAX_ERROR,
                "while True: pass": Status.TIMEOUT,
                "print('x' * 10**6)": Status.OUTPUT_LIMIT,
                "import os; os.kill(os.getpid(), 11)": Status.SIGNAL,
            }
            limits = Limits(wall_s=1, output_bytes=1000)
            for code, status in statuses.items():
                assert sandbox.run(code, limits=limits).status is status
            call = sandbox.run_calls("def f(x): return [x]", "f", [(1,)])[0]
            assert call.value == [1]


def test_a_sandbox_failure_is_not_the_programs_fault():
    def status(**facts):
        usual = ChildReport(0, 0, 0.1, 0.1, 1 << 20, child.RUNNING, killed_for=0, reason="")
        return judge(usual._replace(**facts), Limits(), b"", b"").status

    assert status() is Status.OK
    assert status(stage=child.SETTING_UP, wait_status=70 << 8) is Status.SANDBOX_ERROR
    assert status(stage=child.SETTING_UP, wait_status=-1) is Status.SANDBOX_ERROR
    assert status(stage=child.SETTING_UP, killed_for=1, wait_status=9) is Status.SANDBOX_ERROR
    assert status(wait_status=9) is Status.SANDBOX_ERROR
    assert status(wait_status=9, killed_for=2) is Status.CPU_LIMIT
    assert status(wait_status=9, max_rss_bytes=400 << 20) is Status.MEMORY_LIMIT
    assert status(wait_status=9, killed_for=1) is Status.TIMEOUT
    assert status(wait_status=31) is Status.VIOLATION
    assert status(wait_status=70 << 8) is Status.ERROR
