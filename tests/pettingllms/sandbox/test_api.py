"""Arguments, results, calls of functions, descriptions."""

import dataclasses
import functools
import json
import pickle
import re
import sys
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pettingllms.sandbox
from pettingllms.errors import InvalidArgument, MissingDependency, SandboxError
from pettingllms.sandbox import ExecutionResult, Limits, Sandbox, Status, isolation, unsafe, worker
from pettingllms.sandbox.jail import protocol
from pettingllms.sandbox.library import archive
from pettingllms.sandbox.outcome import ChildReport, clean, judge

PROGRAMS = tomllib.loads(Path(__file__).with_name("programs.toml").read_text(encoding="utf-8"))


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
    "arguments",
    [
        {"isolation": "strong"},
        {"flavour": "fat"},
        *({"workers": workers} for workers in (0, 5000, 2.5, "3", True)),
    ],
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
    @pytest.mark.parametrize("case", PROGRAMS["call"], ids=lambda case: case["name"])
    def test_what_comes_back(self, tier, case):
        arguments = case.get("arguments", [])
        (call,) = tier.run_calls(case["code"], case.get("function", "f"), [arguments])
        assert call.execution.status == case.get("status", "ok")
        assert (call.has_value, call.value) == ("value" in case, case.get("value"))
        assert call.repr == case.get("repr", call.repr if "value" in case else None)
        assert call.execution.stdout == case.get("stdout", "")
        assert all(part in call.execution.stderr for part in case.get("stderr", []))

    def test_none_is_a_value(self, any_jail):
        (none,) = any_jail.run_calls("def f(): pass", "f", [()])
        assert (none.has_value, none.value, none.repr) == (True, None, "None")

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

    def test_warns(self, monkeypatch):
        monkeypatch.setenv(unsafe.SWITCH, "1")
        sandbox = Sandbox(isolation="unsafe", workers=2)
        with pytest.warns(unsafe.UnsafeSandboxWarning, match="can read and write your files"):
            sandbox.describe()
        with sandbox:
            assert not sandbox.describe()["is_jail"]
            assert sandbox.run("print(input())", "x").stdout == "x\n"


def test_a_sandbox_failure_is_not_the_programs_fault():
    def status(**facts):
        usual = ChildReport(0, 0, 0.1, 0.1, 1 << 20, protocol.RUNNING, killed_for=0, reason="")
        return judge(usual._replace(**facts), Limits(), b"", b"").status

    assert status() is Status.OK
    assert status(stage=protocol.SETTING_UP, wait_status=70 << 8) is Status.SANDBOX_ERROR
    assert status(stage=protocol.SETTING_UP, wait_status=-1) is Status.SANDBOX_ERROR
    assert status(stage=protocol.SETTING_UP, killed_for=1, wait_status=9) is Status.SANDBOX_ERROR
    assert status(wait_status=9) is Status.SANDBOX_ERROR
    assert status(wait_status=9, killed_for=2) is Status.CPU_LIMIT
    assert status(wait_status=9, max_rss_bytes=400 << 20) is Status.MEMORY_LIMIT
    assert status(wait_status=9, killed_for=1) is Status.TIMEOUT
    assert status(wait_status=31) is Status.VIOLATION
    assert status(wait_status=70 << 8) is Status.ERROR
