"""`blame` of evaluations, transcripts and workflows, from end to end."""

import json
from pathlib import Path

import pytest

WORKFLOW = Path(__file__).with_name("team.txt").read_text(encoding="utf-8")


def blamed(tmp_path, name="out"):
    return json.loads((tmp_path / name / "blame.json").read_text())


def test_an_evaluation_is_blamed_on_the_role_that_cannot_play(call, tmp_path):
    kwargs = ("-e", "size=5", "-e", "max_turns=2", "-e", "tool=call")
    team = ("-p", "tool=oracle", "-p", "planner=random")
    assert call("eval", "plan_path_v0", *kwargs, *team, "-n", 4, "--out", "run").returncode == 0
    done = call("blame", "run", "-m", 8, "-n", 2, "--out", "out", "--format", "json")
    assert done.returncode == 0, done.stderr
    found = blamed(tmp_path)
    assert json.loads(done.stdout) == found
    assert found["policies"] == {"tool": "oracle", "planner": "random"}
    assert found["instead"] == {"tool": "oracle", "planner": "oracle"}
    assert len(found["episodes"]) == 2
    for episode in found["episodes"]:
        shares = episode["blame"]["shares"]
        assert shares["planner"]["value"] > 0.3
        assert shares["tool"]["low"] <= 0 <= shares["tool"]["high"], "replaced by itself"
        drops = [answer["drop"]["value"] for answer in episode["blame"]["answers"]]
        assert sum(drops) == pytest.approx(episode["blame"]["answers"][0]["before"]["value"])
    assert "view.html" in done.stderr
    shown = call("view", "out")
    assert "2 episodes" in shown.stdout


def test_a_workflow_is_played_until_it_fails(call, tmp_path):
    (tmp_path / "team.py").write_text(WORKFLOW)
    source = "workflow:team.py:workflow"
    policies = ("-p", "first_reader=careful", "-p", "second-reader=careless")
    done = call("blame", source, *policies, "-m", 2, "--out", "out")
    assert done.returncode == 0, done.stderr
    (episode,) = blamed(tmp_path)["episodes"]
    first, second = episode["blame"]["answers"]
    assert (first["missed"]["value"], second["missed"]["value"]) == (0, 1)
    assert "No single answer clearly lost it" in done.stdout
    assert "solve this level in 0.0%" in done.stdout


def test_a_transcript_needs_to_know_who_plays_on(call, tmp_path):
    call("eval", "plan_path_v0", "-e", "size=5", "-p", "noise", "-n", 1, "--out", "run")
    (line,) = (tmp_path / "run" / "episodes.jsonl").read_text().splitlines()
    result, plan = json.loads(line), json.loads((tmp_path / "run" / "run.json").read_text())["plan"]
    header = {"format": "pettingllms-transcript", "version": 1, "id": plan["env_id"]}
    header |= {"kwargs": plan["env_kwargs"], "options": {}, "seed": result["level_seed"]}
    lines = [header | {"state_hash": result["initial_state_hash"]}, *result["steps"]]
    lines.append({"end": len(result["steps"]), "returns": {}})
    (tmp_path / "one.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    refused = call("blame", "one.jsonl")
    assert refused.returncode == 2
    assert "no policy for tool, planner" in refused.stderr
    done = call("blame", "one.jsonl", "-p", "oracle", "-m", 4, "--instead", "noise", "--out", "out")
    assert done.returncode == 0, done.stderr
    assert "Lost by answer" in done.stdout
    assert call("blame", "one.jsonl", "-p", "oracle", "-e", "size=6").returncode == 2
    assert call("blame", "nothing_v0", "-p", "oracle").returncode == 2


def test_an_evaluation_without_failures_has_nobody_to_blame(call):
    call("eval", "plan_path_v0", "-e", "size=5", "-p", "oracle", "-n", 2, "--out", "run")
    done = call("blame", "run", "--out", "out")
    assert done.returncode == 2
    assert "one with an episode that failed" in done.stderr
    assert call("blame", "run", "--level", 0, "-m", 2, "--out", "out").returncode == 0
