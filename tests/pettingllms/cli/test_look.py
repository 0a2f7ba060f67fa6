"""`list`, `info`, `doctor`, `data`, and what the command does when something is missing."""

import io
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete
from rich.console import Console

import pettingllms
from pettingllms.cli import app, check
from pettingllms.plugins import installed
from pettingllms.tables import TextTable, print_blocks
from pettingllms.testing import CHECKS

ENV = "plan_path_v0"
WRONG_USE = json.loads(Path(__file__).with_name("wrong_use.json").read_text("utf-8"))
"""Words behind `pettingllms`, and what is said of them."""


def test_list_names_the_environments(call):
    done = call("list")
    assert done.returncode == 0
    assert ENV in done.stdout
    assert "tool, planner" in done.stdout


@pytest.fixture
def install(distribution, monkeypatch):
    """A function that installs a made-up distribution: its group, entry points and modules."""

    def install(group, points, **modules):
        monkeypatch.syspath_prepend(distribution("other", group, points, **modules))
        installed.cache_clear()

    yield install
    installed.cache_clear()


def test_list_shows_an_environment_that_cannot_be_loaded(call, install):
    install("pettingllms.envs", {"broken_v0": "other_package:Nothing"})
    done = call("list", "--json")
    entries = {entry["id"]: entry for entry in json.loads(done.stdout)}
    assert done.returncode == 1
    assert "other_package" in entries["broken_v0"]["error"]
    assert entries[ENV]["roles"] == ["tool", "planner"]


def test_info_shows_page_arguments_and_prompts(call):
    done = call("info", ENV, "-e", "size=6", "-e", "team=single", "--seed", "7")
    assert done.returncode == 0
    for text in (
        "Reward",
        "0 (easy): size=6, max_moves=8",
        "obstacle_ratio",
        "planner_0",
        "at most 4 turns",
        "seed 7",
        "Turn 1",
    ):
        assert text in done.stdout
    assert "tool_0  then" not in done.stdout


def test_an_environment_without_sections_or_splits_is_shown_and_evaluated(call, guess_id):
    shown = call("info", guess_id, "-o", "secret=42")
    assert shown.returncode == 0
    assert "Hint at 42" in shown.stdout
    assert "registered by a call" in shown.stdout
    assert "1 solved" in call("eval", guess_id, "-p", "oracle", "-n", 1).stdout


def test_defaults_that_are_no_json_are_shown_as_they_are_written(call, guess_env, monkeypatch):
    class Bounded(guess_env):
        def __init__(self, *, most=float("inf"), kind=int, **shell):
            super().__init__(**shell)

    monkeypatch.setattr("pettingllms.registry._registered", {})
    pettingllms.register("bounded_v0", Bounded)
    arguments = json.loads(call("info", "bounded_v0", "--json").stdout)["arguments"]
    assert arguments["most"] == "inf"
    assert arguments["kind"] == "<class 'int'>"


def test_info_as_json(call):
    page = json.loads(call("info", ENV, "--json").stdout)
    assert page["stages"] == [["tool_0"], ["planner_0"]]
    assert page["arguments"]["size"] == 10
    assert page["difficulties"][page["difficulty_names"]["easy"]] == {"size": 6, "max_moves": 8}
    assert page["messages"]["planner_0"][0]["role"] == "system"


@pytest.mark.parametrize(("arguments", "message"), WRONG_USE)
def test_wrong_use_ends_with_2_and_says_what_to_do(call, arguments, message):
    done = call(*arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stdout == ""


@pytest.mark.nightly
def test_doctor_reports_packages_plug_ins_and_the_sandbox(call):
    done = call("doctor", "--json")
    findings = json.loads(done.stdout)
    assert done.returncode == (0 if findings["is_well"] else 1)
    assert findings["packages"]["pettingzoo"]
    assert findings["environments"][ENV] is None
    assert findings["plug_ins"]["pettingllms.algorithms"]["at_grpo"] is None
    assert {tier["isolation"] for tier in findings["sandbox"]} >= {"namespaces", "sealed"}
    assert all(tier["is_available"] or tier["reason"] for tier in findings["sandbox"])


def test_no_interval_of_a_table_is_cut_in_two():
    part = TextTable(
        ("role", "reward", "errors"), [("planner" * 5, "0.1 [0.05, 0.15]", "0% [0%, 1%]")]
    )
    for width, line in ((80, "0.1 [0.05, 0.15]"), (60, "[0.05, 0.15]")):
        console = Console(file=io.StringIO(), width=width)
        print_blocks(console, [part])
        assert line in console.file.getvalue()
        assert ("0.1 [0.05" in console.file.getvalue()) == (width == 80)


def test_an_absent_extra_is_a_state_and_no_defect(call, monkeypatch):
    lacks = "pettingllms.errors.MissingDependency: mathematics needs the package 'math-verify'"
    monkeypatch.setattr(check, "problem_of", lambda *_: lacks)
    done = call("doctor")
    assert done.returncode == 0
    assert "needs an extra" in done.stdout
    assert "does not work  mathematics" not in done.stdout
    monkeypatch.setattr(check, "problem_of", lambda *_: "ValueError: no")
    assert call("doctor").returncode == 1


def test_a_shell_completes_environments():
    completion = ShellComplete(app.cli, {}, "pettingllms", "_X")
    found = completion.get_completions(["info"], "so")
    assert [item.value for item in found] == ["sokoban_v0"]


def test_doctor_names_what_is_broken(call, install, monkeypatch):
    install("pettingllms.policies", {"mine": "other_package:x", "yours": "quits:x"})
    broken = {"mine": "RuntimeError: broken on purpose", "yours": "SystemExit"}

    def problem_of(code, *names):
        return next((broken[name] for name in names if name in broken), None)

    monkeypatch.setattr(check, "problem_of", problem_of)
    done = call("doctor")
    assert done.returncode == 1
    for line in (
        rf"environment {ENV} +works",
        "algorithms at_grpo +works",
        "policies mine +does not work.*broken on purpose",
        "policies yours +does not work",
        "(namespaces|sealed) +works",
    ):
        assert re.search(line, done.stdout)


def test_what_is_loaded_in_a_process_of_its_own_works_or_says_how_it_ended():
    assert check.problem_of("print('+')") is None
    assert check.problem_of("raise RuntimeError('broken')") == "RuntimeError: broken"
    assert check.problem_of("raise SystemExit")


def test_data_check_reports_rows_and_overlap(call, tmp_path):
    question = "How many legs do {} spiders have if every spider has eight legs and none is hurt?"
    rows = [{"question": question.format(n), "answer": f"#### {8 * n}"} for n in (3, 4)]
    rows.append({"question": "", "answer": "#### 1"})
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "test.jsonl").write_text(json.dumps(rows[0]) + "\n")
    done = call("data", "check", "train.jsonl", "--against", "test.jsonl")
    assert done.returncode == 0
    assert "3 rows, 2 usable, 1 skipped" in done.stdout
    assert "1 of 1 problems of test.jsonl have a near-duplicate" in done.stdout
    found = json.loads(call("data", "check", "test.jsonl", "--json").stdout)
    assert found["data"]["num_usable"] == 1


@pytest.mark.parametrize(
    ("missing", "arguments"),
    [
        ("click", ["list"]),
        ("rich", ["list"]),
        ("scipy", ["eval", ENV, "-p", "oracle"]),
        ("openai", ["eval", ENV, "-p", "openai:m@http://127.0.0.1:9/v1"]),
        ("aiolimiter", ["eval", ENV, "-p", "openai:m@http://127.0.0.1:9/v1"]),
    ],
)
def test_a_missing_package_ends_with_2_and_the_pip_command(missing, arguments, tmp_path):
    code = (
        f"import sys; sys.modules[{missing!r}] = None; sys.argv[1:] = {arguments!r}; "
        "from pettingllms.cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, cwd=tmp_path
    )
    assert done.returncode == 2
    (command,) = re.findall(r'pip install( ".*")', done.stderr)
    assert f' "{missing}>=' in command
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_check_lists_what_holds_and_what_was_measured(call):
    done = call("check", ENV, "-e", "tool=call", "-e", "size=6")
    assert done.returncode == 0
    assert "not promised" in done.stdout
    assert "mean return of the oracle" in done.stdout
    # No agents act at the same moment, nothing is private, and all of a state counts.
    assert f"{len(CHECKS)} checks: {len(CHECKS) - 4} kept, 4 not promised" in done.stdout


def test_check_names_broken_promises(call, guess_env, monkeypatch):
    class Faulty(guess_env):
        def _act(self, state, agent, action):
            return super()._act(state, agent, action)._replace(local=float("inf"))

    monkeypatch.setattr("pettingllms.registry._registered", {})
    pettingllms.register("faulty_v0", Faulty)
    assert "got inf" in call("check", "faulty_v0").stdout
    done = call("check", "faulty_v0", "--json")
    assert done.returncode == 1
    statuses = {f["check"]: f["status"] for f in json.loads(done.stdout)["findings"]}
    assert statuses["any_text"] == "broken"
    assert statuses["names_and_spaces"] == "kept"
