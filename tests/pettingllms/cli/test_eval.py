"""`eval`, `compare` and `replay`, against good servers and bad ones."""

import json
import re
import shlex
import signal
import socket
import subprocess
import sys
import time

import pytest

ENV = "plan_path_v0"
SOON = {"retry-after-ms": "1"}
QUICK = ("--retries", "0", "--concurrency", "2")


def relay(body):
    """Do what the tool of the team says: solves every level that the oracle's tool solves."""
    found = re.findall(r"The result: (\[.*\])", body["messages"][-1]["content"])
    return f"#### {found[-1]}" if found else "#### []"


def team(server):
    return ("-e", "tool=call", "-p", "tool=oracle", "-p", f"planner={server.policy}")


def finished(run):
    lines = (run / "episodes.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def test_eval_compare_and_replay_of_scripted_policies(call, tmp_path):
    good = call("eval", ENV, "-p", "oracle", "-n", 30, "--out", "good")
    assert good.returncode == 0, good.stderr
    assert "split='test'" in good.stdout
    assert re.search(r"success +100\.0% \[88\.6%, 100\.0%\], 30 solved", good.stdout)
    bad = call("eval", ENV, "-p", "random", "-n", 30, "--out", "bad", "--json")
    report = json.loads(bad.stdout)
    assert report == json.loads((tmp_path / "bad" / "report.json").read_text())
    manifest = report["variants"]["main"]["manifest"]
    assert manifest in good.stdout, "same seed, same levels"
    assert report["variants"]["main"]["success"]["value"] < 0.5

    both = call("compare", "bad", "good", "--json")
    difference = json.loads(both.stdout)["success"]["difference"]
    assert 0.4 < difference["low"] < difference["value"] < difference["high"] <= 1
    assert "30 common levels" in call("compare", "bad", "good").stdout
    assert "| success |" in call("compare", "bad", "good", "--markdown").stdout

    shown = call("replay", "good", "--level", 3, "--prompts")
    assert shown.returncode == 0
    assert "replayed exactly" in shown.stdout
    assert "The player is at row" in shown.stdout
    assert call("replay", "good", "--level", 99).returncode == 2


def test_swap_plays_both_ways_and_compares(call):
    done = call(
        "eval", ENV, "-p", "tool=random", "-p", "planner=oracle", "--swap", "-n", 20, "-k", 2
    )
    assert done.returncode == 0, done.stderr
    for text in ("main", "swapped", "pass@2", "20 common levels", "kept in runs/eval-plan_path_v0"):
        assert text in done.stdout + done.stderr
    run = done.stderr.split("kept in ")[1].strip()
    assert call("compare", f"{run}:main", f"{run}:swapped").returncode == 0
    wrong = call("compare", f"{run}:main", f"{run}:swaped")
    assert wrong.returncode == 2
    assert 'did you mean "swapped"' in wrong.stderr


def test_a_missing_key_leaves_no_folder(call, tmp_path, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    done = call("eval", ENV, "-n", 1, "-p", "openai:model@https://api.openai.com/v1")
    assert done.returncode == 1
    assert "OPENAI_API_KEY is not set" in done.stderr
    assert not (tmp_path / "runs").exists()


def test_no_key_is_written_anywhere(call, chat_server, tmp_path, monkeypatch):
    chat_server.reply = relay
    monkeypatch.setenv("MY_KEY", "sk-very-secret")
    named = ("--api-key-env", "127.0.0.1=MY_KEY")
    arguments = (ENV, *team(chat_server), "-n", 2, "--out", "run", *named)
    done = call("eval", *arguments)
    assert done.returncode == 0
    assert chat_server.headers[-1]["authorization"] == "Bearer sk-very-secret"
    texts = [path.read_text() for path in (tmp_path / "run").iterdir()]
    assert not any("sk-very-secret" in text for text in [*texts, done.stdout, done.stderr])


@pytest.mark.parametrize(
    ("failure", "message"),
    [
        ((401, {}, {"error": {"message": "bad key"}}), "refused the key"),
        ((500, SOON, {"error": {"message": "boom"}}), "boom"),
    ],
)
def test_a_server_that_fails_in_the_middle_loses_nothing(
    call, chat_server, tmp_path, failure, message
):
    chat_server.reply = relay
    chat_server.script = ["ok"] * 6
    chat_server.then = failure
    run = tmp_path / "my run"
    begun = call(
        "eval", ENV, *team(chat_server), "-n", 12, "--out", run, *QUICK, "--max-failures", 2
    )
    assert begun.returncode == 1
    assert message in begun.stderr
    assert f"pettingllms eval --resume {shlex.quote(str(run))} --trust\n" in begun.stderr
    kept = finished(run)
    assert 1 <= len(kept) < 12
    assert f"incomplete: {len(kept)} of 12" in begun.stderr
    if failure[0] == 500:
        assert "3 failed: PolicyFailure" in begun.stderr
    assert json.loads((run / "report.json").read_text())["is_complete"] is False

    chat_server.then = "ok"
    resumed = call("eval", "--resume", run, "--trust", *QUICK)
    assert resumed.returncode == 0, resumed.stderr
    assert finished(run)[: len(kept)] == kept
    assert sorted(line["level"] for line in finished(run)) == list(range(12))
    assert "12 solved" in resumed.stdout


def test_a_server_that_moves_is_found_again(call, chat_server, tmp_path):
    chat_server.reply = relay
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        dead = f"openai:tiny@http://127.0.0.1:{taken.getsockname()[1]}/v1"
    begun = call(
        *("eval", ENV, "-e", "tool=call", "-p", "tool=oracle", "-p", f"planner={dead}"),
        *("-n", 4, "--out", "run"),
    )
    assert begun.returncode == 1
    assert "Is the server running" in begun.stderr
    other = call("eval", "--resume", "run", "-p", f"planner=openai:big@{chat_server.url}")
    assert other.returncode == 2
    assert "address may differ" in other.stderr
    resumed = call("eval", "--resume", "run", "-p", f"planner={chat_server.policy}")
    assert resumed.returncode == 0, resumed.stderr
    assert "4 solved" in resumed.stdout
    plan = json.loads((tmp_path / "run/run.json").read_text())["plan"]
    assert plan["variants"]["main"]["planner"] == chat_server.policy


@pytest.mark.usefixtures("heard_sigint")
def test_control_c_keeps_what_was_played(call, chat_server, tmp_path):
    chat_server.reply = relay
    chat_server.script = ["ok"] * 6
    chat_server.then = "hang"
    run = tmp_path / "run"
    words = ("eval", ENV, *team(chat_server), "-n", "12", "--out", run, *QUICK)
    process = subprocess.Popen(
        [sys.executable, "-m", "pettingllms.cli", *words], stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 60
    while len(chat_server.requests) < 8 and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=300)
    assert process.returncode == 130, stderr
    assert "stopped: interrupted" in stderr
    assert "Traceback" not in stderr
    kept = finished(run)
    assert kept
    chat_server.then = "ok"
    assert call("eval", "--resume", run, "--trust").returncode == 0
    assert finished(run)[: len(kept)] == kept
    assert len(finished(run)) == 12


def test_a_run_is_never_overwritten_and_its_plan_not_changed(call, tmp_path):
    assert call("eval", ENV, "-p", "oracle", "-n", 2, "--out", "run").returncode == 0
    before = (tmp_path / "run/episodes.jsonl").read_bytes()
    again = call("eval", ENV, "-p", "random", "-n", 2, "--out", "run")
    assert again.returncode == 1
    assert "--resume run" in again.stderr
    assert "continue it with --resume run" in call("eval", "run", "-p", "oracle").stderr
    changed = call("eval", ENV, "--resume", "run", "-n", 3, "--seed", 1)
    assert changed.returncode == 2
    assert "takes no SOURCE, --episodes, --seed" in changed.stderr
    assert call("eval", "--resume", "run").returncode == 0
    assert (tmp_path / "run/episodes.jsonl").read_bytes() == before
    assert call("eval", "--resume", "nothing").returncode == 1
