"""What becomes of runs on their way to the page; no browser needed."""

import base64
import gzip
import json
import random
import re
import webbrowser

import pytest

import pettingllms
from pettingllms.cli.app import run as command
from pettingllms.transcript import RecordTranscripts
from pettingllms.viewer import ViewerError, write_view

ENV = {"size": 5, "team": "single"}


def block(path, name):
    """Return the content of a block of a page."""
    found = re.search(f'id="{name}">([^<]*)<', path.read_text(encoding="utf-8"))
    return gzip.decompress(base64.b64decode(found[1])).decode("ascii")


def head(path):
    return json.loads(block(path, "head"))


def episodes(path):
    return [json.loads(line) for line in block(path, "block-0").split("\n")]


@pytest.fixture
def recorded(tmp_path):
    """A folder of three recorded episodes of Plan-Path."""
    folder = tmp_path / "recorded"
    env = RecordTranscripts(pettingllms.make("plan_path_v0", **ENV), folder)
    for seed in range(3):
        env.reset(seed=seed)
        raw = env.unwrapped
        while not any(raw.terminations.values()) and not any(raw.truncations.values()):
            env.step(raw.scripted_action(raw.agent_selection, "oracle", random.Random(seed)))
    return folder


@pytest.fixture
def evaluation(tmp_path):
    """The folder of a finished evaluation with two variants."""
    folder = tmp_path / "evaluation"
    policies = ("-p", "tool=oracle", "-p", "planner=random", "--swap")
    arguments = ("eval", "plan_path_v0", *policies, "-e", "tool=call", "-n", "4", "-k", "2")
    assert command([*arguments, "--out", str(folder)]) == 0
    return folder


def test_recorded_episodes(recorded, tmp_path):
    target = tmp_path / "deep" / "page.html"
    summary = write_view(recorded, target)
    assert summary.path == target
    assert summary.num_episodes == 3
    assert summary.notices == ()
    assert [path.name for path in target.parent.iterdir()] == ["page.html"]
    index = json.loads(block(target, "index"))
    assert index["endings"] == ["solved"] * 3
    assert index["keys"] == [[f"plan_path_v0_{seed}.jsonl" for seed in range(3)]]
    assert episodes(target)[0]["final_board"].count("*") == 1
    assert head(target)["env_id"] == "plan_path_v0"
    one = write_view(recorded / "plan_path_v0_1.jsonl", tmp_path / "one.html")
    assert one.num_episodes == 1


def test_recorded_episodes_of_several_environments(recorded, tmp_path):
    env = RecordTranscripts(pettingllms.make("plan_path_v0", size=7, team="single"), recorded)
    env.reset(seed=9)
    raw = env.unwrapped
    while not any(raw.terminations.values()):
        env.step(raw.scripted_action(raw.agent_selection, "oracle", random.Random(9)))
    summary = write_view(recorded, tmp_path / "view.html")
    sizes = [len(e["final_board"].splitlines()) for e in episodes(summary.path)]
    assert sizes == [5, 5, 5, 7]


def test_evaluation(evaluation):
    summary = write_view(evaluation, evaluation / "view.html")
    index = json.loads(block(summary.path, "index"))
    assert summary.num_episodes == 16
    assert index["labels"] == ["variant", "level", "sample"]
    assert set(index["keys"][0]) == {"main", "swapped"}
    assert set(index["rewards"]) == {"tool", "planner"}
    report = json.loads((evaluation / "report.json").read_text())
    assert head(summary.path)["figures"]["main"] == report["variants"]["main"] | {"failures": {}}
    lines = [json.loads(line) for line in (evaluation / "episodes.jsonl").read_text().splitlines()]
    for line, episode in zip(lines, episodes(summary.path), strict=True):
        actions = [step["action"] for step in line["steps"]]
        assert [d["candidates"][0]["text"] for d in episode["decisions"]] == actions
        assert [d["policy"] for d in episode["decisions"][:2]] == (
            ["oracle", "random"] if line["variant"] == "main" else ["random", "oracle"]
        )
        assert episode["seed"] == str(line["level_seed"])
    for position, line in enumerate(lines):
        for role in ("tool", "planner"):
            reward = line["roles"][role]["reward"]
            assert index["rewards"][role][position] == pytest.approx(reward, abs=1e-6)


def test_an_evaluation_that_still_goes_on(evaluation):
    (evaluation / "report.json").unlink()
    lines = (evaluation / "episodes.jsonl").read_bytes().splitlines(keepends=True)
    again = lines[0]  # a resumed run may play an episode twice
    deep = b"[" * 100_000 + b"\n"
    kept = [*lines[:3], b'{"variant": "main"}\n', b"\xff\n", deep, again, lines[4][:200]]
    (evaluation / "episodes.jsonl").write_bytes(b"".join(kept))
    summary = write_view(evaluation, evaluation / "view.html")
    assert summary.num_episodes == 3
    report, cut_off, damaged = sorted(summary.notices, key=lambda text: "lines could" in text)
    assert "not finished" in report
    assert "1 line is truncated" in cut_off
    assert "3 lines could not be read" in damaged
    assert "line 4 (it has no key 'level': another version" in damaged
    assert head(summary.path)["notices"] == list(summary.notices)


@pytest.mark.parametrize(
    ("changes", "told"),
    [({"success": 0.5}, "TypeError"), ({"success": {"value": 0.5}}, "no key 'low'")],
)
def test_a_report_whose_figures_are_damaged_is_told(evaluation, changes, told):
    path = evaluation / "report.json"
    report = json.loads(path.read_text())
    report["variants"]["main"] |= changes
    path.write_text(json.dumps(report))
    summary = write_view(evaluation, evaluation / "view.html")
    assert summary.num_episodes == 16
    assert re.search(f"report.json: cannot be read .*{told}", summary.notices[0])
    assert head(summary.path)["figures"] is None


def test_numbers_that_are_not_finite_are_shown(training, write, tmp_path):
    decisions = [write.decision("tool_0", 0, [write.candidate("x", float("nan"), float("inf"))])]
    metrics = [
        {"step": 1, "loss/tool/loss": float("nan"), "time/step_s": float("nan")},
        {"step": 2, "time/step_s": 1.5},
    ]
    run = training([write.tree(1, 0, decisions)], metrics)
    text = (run / "rollouts.jsonl").read_text()
    (run / "rollouts.jsonl").write_text(text.replace("Infinity", "1e999"))
    path = write_view(run, tmp_path / "view.html", max_replays=0).path
    shown = episodes(path)[0]["decisions"][0]["candidates"][0]
    assert (shown["reward"], shown["advantage"]) == ("NaN", "1e999")
    assert json.loads(block(path, "index"))["rewards"] == {"tool": [None]}
    curves = json.loads(block(path, "curves"))
    assert curves["metrics"]["loss/tool/loss"] == [[1], ["NaN"]]
    assert curves["axes"]["time"] == [[1, 2], [0, 1.5]]


def test_answers_that_do_not_say_whether_they_solved_are_compared(training, write, tmp_path):
    decisions = [
        write.decision(agent, turn, [write.candidate("x", reward, reward, success=success)])
        for turn, agent, reward, success in (
            (0, "tool_0", -1.0, False),
            (0, "planner_0", 1.0, None),
            (1, "tool_0", -1.0, False),
            (1, "planner_0", 1.0, True),
        )
    ]
    run = training([write.tree(1, 0, decisions, success=True)])
    summary = write_view(run, tmp_path / "view.html", max_replays=0)
    (episode,) = episodes(summary.path)
    shown = [decision["candidates"][0]["success"] for decision in episode["decisions"]]
    assert shown == [False, False, False, True]


def test_a_training_run_without_rollouts(training, tmp_path):
    run = training([])
    (run / "rollouts.jsonl").unlink()
    summary = write_view(run, tmp_path / "view.html")
    assert summary.num_episodes == 0
    assert "logging.rollouts_every" in summary.notices[0]


def compact(training, write, recorded, change=lambda steps: None, stage=None):
    """Return a training run of the recorded episodes with prompts that show no board."""
    trees = []
    for number, path in enumerate(sorted(recorded.iterdir())):
        first, *steps, _ = map(json.loads, path.read_text().splitlines())
        change(steps)
        decisions = [
            write.decision(
                step["agent"],
                step["turn"],
                [
                    write.candidate("?"),
                    write.candidate(step["action"], step["rewards"]["planner_0"]),
                ],
                1,
                "####.P.G",
            )
            for step in steps
        ]
        tree = write.tree(1, number, decisions, success=True)
        tree |= {"env_seed": first["seed"], "initial_state_hash": first["state_hash"]}
        trees.append(tree | {"env": ENV})
    run = training(trees)
    env = ENV | (stage or {})
    kwargs = "".join(f"{name} = {json.dumps(value)}\n" for name, value in env.items())
    (run / "config.toml").write_text(f'[env]\nid = "plan_path_v0"\n[env.kwargs]\n{kwargs}')
    return run


@pytest.mark.parametrize("stage", [None, {"size": 7}], ids=["no curriculum", "a stage"])
def test_boards_that_prompts_do_not_show_are_drawn(training, write, recorded, tmp_path, stage):
    run = compact(training, write, recorded, stage=stage)
    summary = write_view(run, tmp_path / "view.html")
    assert summary.notices == ()
    shown = write_view(recorded, tmp_path / "recorded.html")
    boards = [[d["board"] for d in e["decisions"]] for e in episodes(summary.path)]
    assert all(board.count("P") == 1 for episode in boards for board in episode)
    expected = [e["final_board"] for e in episodes(shown.path)]
    assert [e["final_board"] for e in episodes(summary.path)] == expected


def test_episodes_that_are_not_played_again_are_counted(training, write, recorded, tmp_path):
    run = compact(training, write, recorded)
    summary = write_view(run, tmp_path / "view.html", max_replays=1)
    assert [e["final_board"] is None for e in episodes(summary.path)] == [False, True, True]
    assert "2 episodes without a board" in summary.notices[0]
    assert "--replays" in summary.notices[0]


def with_other_rewards(steps):
    for step in steps:
        step["rewards"]["planner_0"] += 0.25


def with_a_program(steps):
    steps[0]["action"] = "```python\nprint(1)\n```\n" + steps[0]["action"]


@pytest.mark.parametrize(
    ("change", "env_id", "told"),
    [
        (with_other_rewards, "plan_path_v0", "3 episodes without a board.*went another way"),
        (with_a_program, "plan_path_v0", "^$"),
        (lambda steps: None, "gone_v0", "UnknownEnvironment: no environment.*gone_v0"),
    ],
    ids=["another course", "a program", "not installed"],
)
def test_what_cannot_be_played_again_has_no_board(
    training, write, recorded, tmp_path, change, env_id, told
):
    run = compact(training, write, recorded, change)
    config = (run / "config.toml").read_text().replace("plan_path_v0", env_id)
    (run / "config.toml").write_text(config)
    summary = write_view(run, tmp_path / "view.html")
    assert [e["final_board"] for e in episodes(summary.path)] == [None] * 3
    assert re.search(told, " ".join(summary.notices))


def test_what_is_no_run_is_refused(tmp_path, recorded, evaluation):
    target = tmp_path / "view.html"

    def refused(path, pattern):
        with pytest.raises(ViewerError, match=pattern):
            write_view(path, target)
        assert not target.exists()

    refused(tmp_path / "nothing", "does not exist")
    (tmp_path / "empty").mkdir()
    refused(tmp_path / "empty", "is not a run: there is neither config.toml")
    for text in ("hello", "[" * 100_000):
        (tmp_path / "text.jsonl").write_text(f"{text}\n")
        refused(tmp_path / "text.jsonl", "is not a run")
    (tmp_path / "empty" / "config.toml").write_text("[env")
    refused(tmp_path / "empty", "config.toml cannot be read as the configuration")
    (tmp_path / "empty" / "config.toml").write_text("[env]\n")
    refused(tmp_path / "empty", "it has no key 'id'")
    plan = (evaluation / "run.json").read_text()
    (evaluation / "run.json").write_text(plan.replace('"version": 1', '"version": 2'))
    refused(evaluation, "version 2; this viewer reads")
    (evaluation / "run.json").write_text(plan[:100])
    refused(evaluation, "cannot be read as the plan of an evaluation")
    for changes in ({"env_kwargs": [1]}, {"env_kwargs": {"checks": True}}, {"options": [1]}):
        data = json.loads(plan)
        data["plan"] |= changes
        (evaluation / "run.json").write_text(json.dumps(data))
        refused(evaluation, "cannot be read as the plan of an evaluation")


def test_a_damaged_transcript_is_told(recorded, tmp_path):
    path = recorded / "plan_path_v0_1.jsonl"
    path.write_text(path.read_text().rsplit("\n", 2)[0])
    summary = write_view(recorded, tmp_path / "view.html")
    assert summary.num_episodes == 2
    assert "plan_path_v0_1.jsonl: cannot be shown" in summary.notices[0]


def test_a_page_that_cannot_be_written(recorded, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ViewerError, match="cannot be written"):
        write_view(recorded, tmp_path / "file" / "view.html")


def test_command(recorded, tmp_path, capsys, monkeypatch):
    opened = []
    monkeypatch.setattr(webbrowser, "open", lambda url: opened.append(url) or True)
    assert command(["view", str(recorded)]) == 0
    assert opened == []
    assert "view.html: 3 episodes" in capsys.readouterr().out
    out = tmp_path / "other.html"
    assert command(["view", str(recorded), "--out", str(out), "--open"]) == 0
    assert opened == [out.as_uri()]
    assert (recorded / "view.html").read_bytes() == out.read_bytes()
    assert command(["view", str(tmp_path / "nothing")]) == 1
    error = capsys.readouterr().err
    assert "error:" in error
    assert "does not exist" in error
