"""`blame` and `crossplay`, from end to end."""

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
    done = call("blame", "run", "-m", 8, "-n", 2, "--out", "out", "--json")
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
    assert "allowed: finished episodes" in call("blame", "run", "--level", 99).stderr


def habit(first):
    """Philosophers eat one after another: `min` or `max` of the hungry says who is first."""

    def choice(prompt):
        table, seat = prompt.env.state().table, int(prompt.agent[-1])
        hungry = [other for other, meals in enumerate(table.hunger) if meals]
        if seat != first(hungry):
            return "#### release" if seat in table.forks else "#### wait"
        return "#### right" if table.forks[seat] == seat else "#### left"

    return choice


def test_planted_conventions_are_found(call, scripted, tmp_path):
    scripted("mine:low", habit(min))
    scripted("mine:high", habit(max))
    task = ("dining_v0", "-e", "philosophers=3", "-e", "meals=2", "-e", "max_turns=16", "-n", 1)
    for name in ("low", "high"):
        done = call("eval", *task, "-p", f"mine:{name}", "--out", name)
        assert "1 solved" in done.stdout, done.stderr
    done = call("crossplay", "low", "high", "-n", 8, "--out", "out", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found == json.loads((tmp_path / "out" / "crossplay.json").read_text())
    assert found["within"]["value"] == 1
    assert found["cross"]["value"] < 0.7
    assert found["conventions"] == [["low", "high"]]
    assert (tmp_path / "out" / "view.html").exists()
    again = " ".join(call("crossplay", "--resume", "out").stdout.split())
    assert "Clearly different conventions: low and high." in again
    assert "philosopher_2 of the row, all others of the column" in again
    # A run beside itself has no conventions of its own.
    call("eval", *task, "-p", "mine:low", "--out", "twin")
    same = json.loads(call("crossplay", "low", "twin", "-n", 4, "--json").stdout)
    assert same["coordination"]["value"] == 0
    assert same["conventions"] == []


def test_what_cannot_be_mixed_is_refused(call, tmp_path):
    for name, size in (("a", 5), ("b", 6)):
        call("eval", "plan_path_v0", "-e", f"size={size}", "-p", "oracle", "-n", 1, "--out", name)
    assert "env.size differs" in call("crossplay", "a", "b").stderr
    assert call("crossplay", "a").returncode == 2
    assert call("crossplay", "a", "a").returncode == 2
    assert call("crossplay", "a:swapped", "b").returncode == 2
    assert call("crossplay").returncode == 2
    assert "not the folder of a cross-play" in call("crossplay", "--resume", "a").stderr
    for names in ("5", '["b"]', "[[1]]", "[" * 100_000):
        (tmp_path / "a" / "runs.json").write_text(names)
        assert "not the folder of a cross-play" in call("crossplay", "--resume", "a").stderr
