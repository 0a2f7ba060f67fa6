"""A run whose answers are judged behind a local server, through the command line."""

import re
import tomllib
from pathlib import Path

import pytest
from run_toys import program

from pettingllms.cli.app import run as core
from pettingllms.evaluation.training_run import TrainingRun, replay_rollout
from pettingllms.files import read_lines
from pettingllms_trainers import train
from pettingllms_trainers.cli import main

JUDGED = """
[policies.grader]
fixed = "{policy}"

[rewards.brief]
judge = "grader"
rubric = "10 for one letter, 5 for two."
weights = {{ planner = 0.5 }}
judged_twice = 0.8
dollars_per_million = [10.0, 0.0]

[rewards.upward]
function = "{function}:count_of_u"
weights = {{ planner = 0.1 }}
"""
FLAGS = ["--num-steps=2", "--checkpoint.keep=9", "--warm-start.num-steps=10"]
# One episode at a time: with several, the time that judges take decides who shares an engine call.
FLAGS += ["--rollout.num-levels=1", "--evaluation.num-episodes=2", "--evaluation.every=0"]


def grade(body):
    """Grade by the length of the answer, as the rubric says."""
    text = body["messages"][0]["content"]
    answer = re.search(r"<answer-(\w+)>\n(.*)\n</answer-\1>", text, re.DOTALL)[2]
    return f"It has {len(answer)} letters.\nGrade: {10 / max(len(answer), 1):.1f}"


@pytest.fixture
def files(small_run_file, tmp_path, chat_server):
    """The run files of a judged run."""
    chat_server.reply = grade
    function = tmp_path / f"scores_of_{tmp_path.name}.py"  # modules have one name in a process
    function.write_text("def count_of_u(messages, answer):\n    return answer.count('U')\n")
    judged = tmp_path / "judged.toml"
    judged.write_text(JUDGED.format(policy=chat_server.policy, function=function))
    return [str(small_run_file()), str(judged)]


def test_answers_are_judged_recorded_and_never_judged_again(
    files, tmp_path, chat_server, resumes, capsys
):
    out = tmp_path / "run"
    assert main([*files, "--trust", "--output-dir", str(out), *FLAGS]) == 0
    lines = read_lines(out / "metrics.jsonl")
    assert not any(name.startswith("judged/") for name in lines[0])
    assert all(0 < line["judged/brief/score"] <= 1 for line in lines[1:])
    noise = "judged/brief/noise"  # of a step in which an answer was judged twice: chance says which
    assert {line[noise] for line in lines if noise in line} == {0}, "it says the same twice"
    trees = [line for line in read_lines(out / "rollouts.jsonl") if line["set"] == "training"]
    for decision in (d for tree in trees for d in tree["decisions"]):
        for candidate in decision["candidates"]:
            is_planner = decision["agent"] == "planner_0"
            text = candidate["text"]
            assert ("judged brief" in candidate) == ("judged upward" in candidate) == is_planner
            if is_planner:
                brief = round(10 / max(len(text), 1), 1) / 10
                assert candidate["judged brief"] == pytest.approx(brief)
                extra = brief / 2 + 0.1 * text.count("U")
                assert candidate["local"] - extra <= 1e-9, "the game's own part is a cost"
    for tree in trees:
        replay_rollout(TrainingRun.open(out), tree["step"], tree["episode"])
    capsys.readouterr()
    assert core(["view", str(out), "--out", str(tmp_path / "page.html")]) == 0
    assert "could not be played again" not in capsys.readouterr().err
    verdicts = [v for v in read_lines(out / "verdicts" / "0.jsonl") if v["reward"] == "brief"]
    assert len(verdicts) == len(chat_server.requests) == lines[-1]["cost/brief/num_verdicts"]
    assert len({verdict["key"] for verdict in verdicts}) == len(verdicts)
    assert lines[-1]["cost/brief/dollars"] == pytest.approx(len(verdicts) * 100 * 10 / 1e6)

    chat_server.reply = lambda body: "Grade: 0"  # it would now say something else
    resumes(out, [*files, "--trust", *FLAGS], 1)
    assert len(chat_server.requests) == len(verdicts)


def test_a_run_that_ends_by_its_budget_has_a_checkpoint_of_all_that_it_learnt(
    files, tmp_path, results
):
    whole, out = tmp_path / "whole", tmp_path / "run"
    flags = [*files, "--trust", *FLAGS, "--checkpoint.every=100"]
    assert main([*flags, "--output-dir", str(whole)]) == 0
    cost = read_lines(whole / "metrics.jsonl")[1]["cost/brief/dollars"]
    poor = f"--rewards.brief.max_dollars={cost * 1.5}"
    assert main([*flags, "--output-dir", str(out), poor]) == 1
    assert sorted(path.name for path in (out / "checkpoints").iterdir())[-1] == "step-00000001"
    assert main([*flags, "--output-dir", str(out), "--resume"]) == 0
    assert results(out)["metrics"] == results(whole)["metrics"]


@pytest.fixture(scope="module")
def metrics(tmp_path_factory):
    place = tmp_path_factory.mktemp("cut off")
    (place / "chat_that_grows.py").write_text(program("growing_chat"))
    env = {"id": f"workflow:{place / 'chat_that_grows.py'}:workflow"}
    table = tomllib.loads(Path(__file__).with_name("cut_off.toml").read_text()) | {"env": env}
    run = train(table, trust=True, output_dir=str(place / "run"))
    return read_lines(Path(run.directory) / "metrics.jsonl")


def test_a_policy_that_outgrows_the_context_learns_to_be_brief(metrics):
    steps = [line for line in metrics if "rollout/num_trees" in line]
    assert {line["rollout/num_failed_trees"] for line in steps} == {0}
    assert {line["rollout/num_trees"] for line in steps} == {72}
    first, last = steps[0]["rollout/ends_limit"], steps[-1]["rollout/ends_limit"]
    assert steps[0]["rollout/end/context"] == first > 0.8, "it is cut off from the start"
    assert last < first / 2
    assert steps[-1]["role/talker/num_tokens"] < steps[0]["role/talker/num_tokens"] / 2


def test_held_out_episodes_that_are_cut_off_are_counted_and_not_solved(metrics):
    before = next(line for line in metrics if "eval/sampled/success" in line)
    assert before["eval/sampled/end/context"] > 0.5
    assert (before["eval/sampled/num_failed"], before["eval/sampled/success"]) == (0, 0)
