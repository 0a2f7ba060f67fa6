"""What an evaluation costs: every answer is kept and counted, whatever happens to its episode."""

import json

import pytest

from pettingllms.cli import playing
from pettingllms.files import read_lines

ENV = "plan_path_v0"
BOOM = (500, {"retry-after-ms": "1"}, {"error": {"message": "boom"}})
QUICK = ("--retries", "0", "--concurrency", "2", "--max-failures", "100")


def team(server):
    """A planner that never moves, so that all turns of every episode are played."""
    return (
        *("-e", "tool=call", "-e", "max_turns=4", "-p", "tool=oracle"),
        *("-p", f"planner={server.policy}", "--price", "planner=1,10"),
    )


def report_of(run):
    return json.loads((run / "report.json").read_text())


def planner_of(run):
    return report_of(run)["variants"]["main"]["roles"]["planner"]


def lines_of(run, name):
    return read_lines(run / name)


def episodes_of(run):
    """The episodes in order, without what differs between equal runs."""
    found = lines_of(run, "episodes.jsonl")
    for line in found:
        del line["wall_s"]
    return sorted(found, key=lambda line: line["level"])


def test_failed_episodes_are_on_the_bill_and_resumed_where_they_failed(call, chat_server, tmp_path):
    assert call("eval", ENV, *team(chat_server), "-n", 8, "--out", "calm", *QUICK).returncode == 0
    num_needed = len(chat_server.requests)
    assert num_needed == 32
    assert len({request["seed"] for request in chat_server.requests}) == num_needed

    chat_server.requests.clear()
    chat_server.script = ["ok", "ok", "ok", "ok", BOOM] * 6
    begun = call("eval", ENV, *team(chat_server), "-n", 8, "--out", "run", *QUICK)
    run = tmp_path / "run"
    num_answered = len(chat_server.requests) - len(chat_server.requests) // 5
    num_failed = 8 - len(lines_of(run, "episodes.jsonl"))
    assert num_failed >= 1
    assert begun.returncode == 1
    assert len(chat_server.requests) // 5 == num_failed
    planner = planner_of(run)
    assert planner["spent"]["prompt_tokens"] == 100 * num_answered, "what the server billed"
    assert planner["spent"]["completion_tokens"] == 7 * num_answered
    assert planner["spent_usd"] == pytest.approx(170e-6 * num_answered)
    assert (
        planner["usage"]["prompt_tokens"]
        == 400 * (8 - num_failed)
        < planner["spent"]["prompt_tokens"]
    )
    assert f"tokens spent so far: {100 * num_answered:,} in" in begun.stderr
    assert "of finished episodes" in begun.stdout

    chat_server.script = []
    resumed = call("eval", "--resume", run, "--trust", *QUICK)
    assert resumed.returncode == 0, resumed.stderr
    assert len(chat_server.requests) == num_needed + num_failed, "no prompt was answered twice"
    assert episodes_of(run) == episodes_of(tmp_path / "calm")
    assert planner_of(run)["spent"]["num_requests"] == num_needed
    for level in range(8):
        assert call("replay", run, "--level", level, "--quiet").returncode == 0


def test_an_answer_that_cannot_be_used_again_is_asked_anew_and_counted_twice(
    call, chat_server, tmp_path
):
    chat_server.script = ["ok", "ok", BOOM]
    call("eval", ENV, *team(chat_server), "-n", 1, "--out", "run", *QUICK)
    run = tmp_path / "run"
    path = run / "answers.jsonl"
    first, second = lines_of(run, "answers.jsonl")
    path.write_text(json.dumps(first) + "\n" + json.dumps({**second, "prompt": "other"}) + "\n")
    assert call("eval", "--resume", run, "--trust", *QUICK).returncode == 0
    assert planner_of(run)["spent"]["num_requests"] == 5
    assert planner_of(run)["usage"]["num_requests"] == 4
    path.write_text("{}\n" + path.read_text())
    damaged = call("eval", "--resume", run, "--trust", *QUICK)
    assert damaged.returncode == 1
    assert "answers.jsonl, line 1 is damaged" in damaged.stderr


def test_a_server_that_reports_no_usage_costs_unknown(call, chat_server, tmp_path):
    chat_server.usage = lambda count: None
    done = call("eval", ENV, *team(chat_server), "-n", 2, "--out", "run", *QUICK)
    assert done.returncode == 0, done.stderr
    assert "cost                  unknown" in done.stdout
    assert "unknown: no usage reported for 8 answers" in done.stdout
    planner = planner_of(tmp_path / "run")
    assert (planner["cost_usd"], planner["spent_usd"], planner["usage"]["num_unknown"]) == (
        None,
        None,
        8,
    )


def test_reasoning_and_the_model_that_answered_are_kept(call, chat_server, tmp_path):
    chat_server.message = {"reasoning_content": "left or right?"}
    chat_server.served = "tiny-2026-11-01"
    done = call("eval", ENV, *team(chat_server), "-n", 1, "--out", "run", *QUICK)
    assert "models that answered  tiny-2026-11-01" in done.stdout
    (episode,) = lines_of(tmp_path / "run", "episodes.jsonl")
    own = [step for step in episode["steps"] if step["agent"] == "planner_0"]
    assert {(step["reasoning"], step["model"]) for step in own} == {
        ("left or right?", "tiny-2026-11-01")
    }
    assert "left or right?" not in json.dumps(chat_server.requests), "no agent reads it"


@pytest.mark.parametrize(
    "refused",
    [
        ("-p", "planner=orakle"),
        ("-p", "planner=oracle", "--timeout-s", "0"),
        ("-p", "planner=oracle", "--requests-per-minute", "-1"),
        ("-p", "planner=nokind:x"),
        ("-p", "planner=oracle", "-e", "size=-4"),
    ],
)
def test_a_refused_flag_leaves_no_folder(call, tmp_path, refused):
    done = call("eval", ENV, "-e", "tool=call", "-p", "tool=oracle", *refused, "--out", "run")
    assert done.returncode == 2, done.stderr
    assert not (tmp_path / "run").exists()


def test_progress_without_a_terminal_has_failures_and_time_left(call, chat_server, monkeypatch):
    monkeypatch.setattr(playing, "SECONDS_BETWEEN_LINES", 0.0)
    chat_server.script = [BOOM]
    done = call("eval", ENV, *team(chat_server), "-n", 3, "--out", "run", *QUICK)
    lines = [line for line in done.stderr.splitlines() if "of 3 episodes, " in line]
    assert any("1 failed" in line and " left" in line for line in lines), done.stderr
    assert any("tokens" in line for line in lines)
