"""`play`: a person at the other end of stdin, recordings, and hostile team-mates."""

import json
import os
import subprocess
import sys

import pytest

ENV = ("plan_path_v0", "-r", "planner", "--seed", "3", "-e", "size=6", "-e", "tool=call")
SOLUTION = '#### ["U","U","U","U","L"]'


def test_a_person_solves_a_level_with_hints_and_second_thoughts(call, tmp_path):
    wishes = ["/help", "/hint", "hello", "/undo", "/prompt", "/nonsense", SOLUTION]
    done = call("play", *ENV, "--record", "game.jsonl", stdin="\n".join(wishes) + "\n")
    assert done.returncode == 0, done.stderr
    for text in (
        "tool_0 (oracle) says",
        "take back your last answer",
        f"oracle would say: {SOLUTION}",
        "not understood: no #### and no list",
        "taken back",
        "no command '/nonsense'",
        "solved after turn 1",
        "planner_0 +1.100",
    ):
        assert text in done.stdout, text
    steps = [json.loads(line) for line in (tmp_path / "game.jsonl").read_text().splitlines()]
    assert [step["action"] for step in steps[1:-1]] == ["#### path(1, 1)", SOLUTION]

    assert call("replay", "game.jsonl").returncode == 0
    text = (tmp_path / "game.jsonl").read_text()
    (tmp_path / "game.jsonl").write_text(text.replace('\\"U\\",', "", 1))
    tampered = call("replay", "game.jsonl")
    assert tampered.returncode == 1
    assert "diverged at step 1" in tampered.stderr
    (tmp_path / "game.jsonl").write_text(text[:300])
    assert call("replay", "game.jsonl").returncode == 1


def test_a_person_plays_alone_unless_a_team_is_named(call):
    done = call("play", "plan_path_v0", "--seed", "3", stdin="")
    assert "planner_0 (you) reads" in done.stdout
    assert "says" not in done.stdout
    assert (done.returncode, "stopped before the end" in done.stdout) == (0, True)
    team = call("play", "plan_path_v0", "--seed", "3", "-e", "team=tool-planner", stdin="")
    assert "tool_0 (oracle) says" in team.stdout
    panel = call("play", "panel_v0", "--seed", "3", stdin="")
    assert panel.returncode == 0, "an environment without a team of one"


def test_answers_that_begin_like_a_command_are_typed_with_two_marks(call, tmp_path):
    call("play", *ENV, "--record", "game.jsonl", stdin="//help\n:hint\n/quit\n")
    steps = [json.loads(line) for line in (tmp_path / "game.jsonl").read_text().splitlines()]
    own = [s["action"] for s in steps[1:-1] if s["agent"] == "planner_0"]
    assert own == ["/help", ":hint"]
    refused = call("play", *ENV, "--record", "game.jsonl/in-a-file.jsonl", stdin="/quit\n")
    assert "game.jsonl" in refused.stderr
    assert "reads" not in refused.stdout, "the game is lost"


def test_a_person_plays_every_role_in_several_lines(call):
    answer = f'"""\nI think\n{SOLUTION}\n"""\n'
    done = call("play", *ENV, "--role", "all", stdin=f"path(1, 1)\n{answer}")
    assert "tool_0 (you) reads" in done.stdout
    assert "solved after turn 1" in done.stdout


def test_other_policies_and_a_hostile_model(call, chat_server):
    chat_server.reply = lambda body: "\x1b]0;owned\x07 [bold]#### path(1, 1)"
    done = call("play", *ENV, "-p", f"tool={chat_server.policy}", stdin=SOLUTION + "\n")
    assert "solved after turn 1" in done.stdout
    assert "\x1b" not in done.stdout
    assert "\x07" not in done.stdout
    assert r"\x1b]0;owned\x07 [bold]#### path(1, 1)" in done.stdout


def test_a_dead_team_mate_is_told(call, chat_server):
    chat_server.models = (401, {}, {"error": {"message": "bad key"}})
    done = call("play", *ENV, "-p", f"tool={chat_server.policy}", stdin=SOLUTION + "\n")
    assert done.returncode == 1
    assert "refused the key" in done.stderr


def test_a_game_that_a_team_mate_leaves_is_recorded(call, chat_server, tmp_path):
    chat_server.reply = lambda body: "#### path(1, 1)"
    chat_server.script = ["ok", (401, {}, {"error": {"message": "bad key"}})]
    more = ("-p", f"tool={chat_server.policy}", "--record", "game.jsonl")
    assert call("play", *ENV, *more, stdin='#### ["U"]\n').returncode == 1
    steps = [json.loads(line) for line in (tmp_path / "game.jsonl").read_text().splitlines()]
    assert [step["action"] for step in steps[1:-1]] == ["#### path(1, 1)", '#### ["U"]']


def test_with_delta_prompts_a_model_reads_its_chat_without_what_was_taken_back(call, chat_server):
    asked = []
    chat_server.reply = lambda body: asked.append(body["messages"]) or f"#### path({len(asked)}, 1)"
    wishes = ('#### ["U"]', "/undo", '#### ["D"]', "/quit")
    delta = ("-e", "observation_mode=delta", "-p", f"tool={chat_server.policy}")
    call("play", *ENV, *delta, stdin="\n".join(wishes) + "\n")
    said = [[one["content"] for one in chat if one["role"] == "assistant"] for chat in asked]
    assert said == [[], ["#### path(1, 1)"], ["#### path(1, 1)"]]


@pytest.mark.parametrize("words", [("play", *ENV), ("info", "plan_path_v0")])
def test_texts_need_not_fit_the_encoding_of_the_terminal(words):
    environ = {**os.environ, "PYTHONIOENCODING": "ascii:strict"}
    command = [sys.executable, "-m", "pettingllms.cli", *words]
    done = subprocess.run(command, input=b"caf\xe9\n", env=environ, capture_output=True)
    assert done.returncode == 0, done.stderr


def test_streams_may_be_closed():
    command = 'exec "$0" -m pettingllms.cli play "$@" <&- >&- 2>&-'
    assert subprocess.run(["sh", "-c", command, sys.executable, *ENV]).returncode == 0
