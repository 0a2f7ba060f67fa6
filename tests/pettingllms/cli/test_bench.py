"""`pettingllms bench`: how far a team climbs, as a result file and a page."""

import json
import shlex

import pytest

from pettingllms.cli import bench as command
from pettingllms.cli import playing
from pettingllms.evaluation import bench
from pettingllms.evaluation.bench import Suite

SMALL = Suite(bench.QUICK.name, {"queens_v0": (0, 1, 2), "dining_v0": (0, 1)}, 4)


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(command, "QUICK", SMALL)


def result(path):
    return json.loads((path / "result.json").read_text(encoding="utf-8"))


def test_a_team_is_measured_where_it_passes_on_boards_that_did_not_choose(call, small, tmp_path):
    done = call("bench", "-p", "random", "--quick", "--out", tmp_path / "run", "--json")
    assert done.returncode == 0, done.stderr
    found = result(tmp_path / "run")
    assert json.loads(done.stdout) == found
    num_played = 0
    for env_id, game in found["games"].items():
        assert game["passed"] == list(SMALL.levels[env_id][: len(game["passed"])])
        (level, measured), first = *game["levels"].items(), SMALL.levels[env_id][0]
        assert int(level) == (game["passed"] or [first])[-1]
        assert game["success"] == measured["success"]
        num_played += measured["num_boards"]
        for number, tried in game["tried"].items():
            num_played += tried["played"]
            assert 0 <= tried["solved"] <= tried["played"] <= SMALL.num_boards
            assert number not in map(str, game["passed"]) or tried["solved"] > 0
    assert num_played == found["episodes"]["played"]
    shares = [len(game["passed"]) / game["num_levels"] for game in found["games"].values()]
    assert found["score"]["value"] == pytest.approx(sum(shares) / 2)
    page = (tmp_path / "run" / "index.html").read_text(encoding="utf-8")
    assert "philosopher" in page
    assert "<script" not in page
    shown = call("view", tmp_path / "run" / f"{env_id}-{level}")
    assert (shown.returncode, shown.stderr) == (0, "")


def test_a_game_that_cannot_be_played_counts_as_nothing(call, small, tmp_path):
    arguments = ("-p", "program", "--quick", "--name", "<b>fixed</b>", "--out", tmp_path / "run")
    assert call("bench", *arguments).returncode == 0
    found = result(tmp_path / "run")
    assert found["games"]["queens_v0"]["passed"] == [0, 1, 2]
    assert found["games"]["dining_v0"]["skipped"] == "it has no policy 'program'"
    assert found["score"]["value"] == 0.5
    assert "<b>" not in (tmp_path / "run" / "index.html").read_text(encoding="utf-8")


def test_an_interrupt_at_the_end_of_a_cell_ends_the_benchmark(call, small, tmp_path, monkeypatch):
    """The episodes of fast policies may all be over when the interrupt is heard."""
    evaluate = playing.evaluate

    def interrupted(*arguments, **options):
        evaluate(*arguments, **options)
        raise KeyboardInterrupt

    monkeypatch.setattr(playing, "evaluate", interrupted)
    done = call("bench", "-p", "oracle", "--quick", "--out", "run")
    assert done.returncode == 130
    assert "stopped: interrupted" in done.stderr
    assert "bench --resume run" in done.stderr
    assert len([*(tmp_path / "run").glob("*_v0-*")]) == 1


def test_an_interrupted_benchmark_goes_on_where_it_was(call, small, tmp_path):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    for path in (whole, cut):
        assert call("bench", "-p", "oracle", "--quick", "--out", path).returncode == 0
    episodes = cut / "queens_v0-2" / "episodes.jsonl"
    first = episodes.read_bytes().splitlines(keepends=True)[0]
    episodes.write_bytes(first)
    (cut / "result.json").unlink()
    assert "a folder that `pettingllms bench` wrote" in call("bench", "--resume", "no").stderr
    (tmp_path / "bench.json").write_text('{"format": "pettingllms-bench"}', "utf-8")
    assert "a folder that `pettingllms bench` wrote" in call("bench", "--resume", ".").stderr
    assert call("bench", "--resume", cut).returncode == 0
    assert episodes.read_bytes().startswith(first)
    assert result(cut) == result(whole) | {"created": result(cut)["created"]}
    assert call("bench", "-p", "oracle", "--quick", "--out", cut).returncode == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "name a policy"),
        (("-p", "tol=oracle"), "a role of"),
        (("-p", "orakle"), 'did you mean "oracle"'),
    ],
)
def test_wrong_use_is_explained(call, small, arguments, message):
    done = call("bench", *arguments, "--quick")
    assert done.returncode == 2
    assert message in done.stderr.replace("\n", " ")


@pytest.mark.parametrize("changes", [{"policies": 5}, {"prices": [1]}, {"versions": {}}])
def test_a_file_that_was_edited_is_refused(call, small, tmp_path, changes):
    about = {"format": bench.FORMAT, "suite": SMALL.name, "name": "x", "policies": ["oracle"]}
    about |= {"sampling": [], "prices": [], "seed": 0, "versions": {"pettingllms": "0"}}
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "bench.json").write_text(json.dumps(about | changes))
    assert "wrote, of games" in call("bench", "--resume", "run").stderr


def test_the_suites_are_levels_that_exist():
    import pettingllms

    for suite in (bench.FULL, bench.QUICK):
        for env_id, levels in suite.levels.items():
            assert list(levels) == sorted(set(levels))
            assert levels[-1] < len(pettingllms.spec(env_id).load().difficulties)


def test_a_server_that_is_not_there_says_how_to_go_on(call, small, tmp_path):
    server = "openai:x@http://127.0.0.1:9/v1"
    stopped = call("bench", "-p", server, "--quick", "--retries", "0", "--out", tmp_path / "my run")
    assert stopped.returncode == 1
    told = " ".join(stopped.stderr.split())
    assert "cannot be reached" in told
    assert told.count("Continue with: pettingllms") == 1
    assert f"bench --resume {shlex.quote(str(tmp_path / 'my run'))} --trust" in told
