"""A run of two environments with different teams, through the command line."""

import json
import re
import tomllib

import pytest
import tomli_w
from run_toys import SOLO

from pettingllms.cli.app import run as core
from pettingllms.evaluation.training_run import TrainingRun, replay_rollout
from pettingllms.files import read_lines
from pettingllms.viewer.episodes import LineFile
from pettingllms.viewer.runs import variant_columns
from pettingllms_trainers.cli import main
from pettingllms_trainers.runs.metrics import METRICS, template_of

STAGES = [{"kwargs": {"max_turns": 1}}, {"kwargs": {"max_turns": 2}}]
FLAGS = ["--checkpoint.keep=9", "--warm-start.num-steps=20", "--rollout.num-levels=4"]


@pytest.fixture(scope="module")
def run_file(small_run_file, tmp_path_factory):
    """The small run, a team of two, with an environment of a single planner beside it."""
    table = tomllib.loads(small_run_file(4).read_text())
    team = {**table["env"], "name": "team", "weight": 3.0}
    own = {"curriculum": STAGES, "evaluation": {"num_episodes": 4, "scripted": ["oracle"]}}
    table["env"] = [team, SOLO | own]
    path = tmp_path_factory.mktemp("many") / "run.toml"
    path.write_text(tomli_w.dumps(table))
    return path


@pytest.fixture(scope="module")
def run(run_file, tmp_path_factory):
    directory = tmp_path_factory.mktemp("many-run") / "run"
    assert main([str(run_file), "--output-dir", str(directory), *FLAGS]) == 0
    return directory


def test_every_documented_metric_of_several_environments_is_logged(run):
    logged = {template_of(name) for line in read_lines(run / "metrics.jsonl") for name in line}
    documented = {name for name in METRICS if "<env>" in name}
    assert documented == {name for name in logged if name and "<env>" in name}


def test_levels_are_in_the_ratio_of_the_weights(run):
    lines = read_lines(run / "metrics.jsonl")[1:]
    assert [line["env/team/num_trees"] for line in lines] == [3] * 4
    assert [line["env/solo/num_trees"] for line in lines] == [1] * 4
    stages = [{n: line[f"curriculum/solo.{n}/share"] for n in (1, 2)} for line in lines]
    assert all(sorted(shares.values()) == [0, 1] for shares in stages), "one level, of one stage"
    assert {line["rollout/num_trees"] for line in lines} == {4}
    assert not any(name.startswith("curriculum/team") for name in lines[0]), "it has no stages"


def test_roles_and_held_out_figures_are_of_each_environment(run):
    lines = read_lines(run / "metrics.jsonl")
    for role in ("team.tool", "team.planner", "solo.planner"):
        assert f"role/{role}/reward" in lines[1]
        assert f"eval/greedy/{role}/reward" in lines[0]
    assert "role/planner/reward" not in lines[1]
    line = read_lines(run / "evaluations.jsonl")[-1]
    greedy = line["variants"]["greedy"]
    own = greedy["environments"]
    assert (line["num_episodes"], greedy["num_episodes"]) == (10, 10)
    assert (own["team"]["num_episodes"], own["solo"]["num_episodes"]) == (6, 4)
    assert sum(part["num_success"] for part in own.values()) == greedy["num_success"]
    for env in ("team", "solo"):
        assert lines[-1][f"eval/greedy/{env}/success"] == own[env]["success"]
    scripted = read_lines(run / "evaluations.jsonl")[0]["variants"]
    assert set(scripted["scripted:greedy"]["environments"]) == {"team"}
    assert scripted["scripted:oracle"]["environments"]["solo"]["success"] == 1


def test_both_policies_learn_from_all_environments(run):
    """The planner imitates and is trained in both; the tool agent is in one only."""
    for line in read_lines(run / "metrics.jsonl")[1:]:
        used = {
            role: line[f"role/{role}/decisions_used"] * line[f"role/{role}/num_decisions"]
            for role in ("team.tool", "team.planner", "solo.planner")
        }
        assert line["update/t/num_groups"] == pytest.approx(used["team.tool"])
        both = used["team.planner"] + used["solo.planner"]
        assert line["update/p/num_groups"] == pytest.approx(both)
    assert set(read_lines(run / "metrics.jsonl")[0]) >= {"warm_start/t/loss", "warm_start/p/loss"}


def test_recorded_trees_of_both_are_played_again(run):
    trees = [t for t in read_lines(run / "rollouts.jsonl") if t["set"] == "training"]
    assert {tree["environment"] for tree in trees} == {"team", "solo"}
    assert len({(tree["step"], tree["episode"]) for tree in trees}) == len(trees)
    opened = TrainingRun.open(run)
    for tree in trees:
        replay_rollout(opened, tree["step"], tree["episode"])


def test_a_resumed_run_is_bit_for_bit_the_same(run, run_file, resumes):
    resumes(run, [str(run_file), *FLAGS], 3, 1)


def test_one_environment_of_the_run_is_evaluated_again(run, tmp_path, capsys):
    assert core(["eval", str(run), "--out", str(tmp_path / "x")]) == 2
    assert "--environment team or --environment solo" in capsys.readouterr().err
    flags = ["--environment", "solo", "--out", str(tmp_path / "solo")]
    assert core(["eval", str(run), *flags]) == 0
    plan = json.loads((tmp_path / "solo" / "run.json").read_text())["plan"]
    assert (plan["num_levels"], plan["env_kwargs"]["team"]) == (4, "single")
    (assignment,) = plan["variants"].values()
    assert list(assignment) == ["planner"]


def test_the_viewer_shows_both(run, tmp_path):
    assert core(["view", str(run), "--out", str(tmp_path / "page.html")]) == 0
    assert (tmp_path / "page.html").stat().st_size > 10_000
    curves = variant_columns(LineFile(run / "evaluations.jsonl"))
    final = read_lines(run / "evaluations.jsonl")[-1]["variants"]["greedy"]["environments"]
    for env in ("team", "solo"):
        assert curves[f"greedy, {env}"]["success"][-1] == final[env]["success"]


def test_the_plan_is_the_maximum_over_environments(run_file, tmp_path, capsys):
    assert main([str(run_file), "--dry-run", "--output-dir", str(tmp_path / "new"), *FLAGS]) == 0
    shown = capsys.readouterr().out
    assert "A train step, at most in any of the environments" in shown
    assert "2 turns x 2 agents (tool_0, planner_0)" in shown


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--roles.team.judge=p"], "'team.judge' is a role of none of the environments"),
        (["--roles.solo.tool=t"], "'solo.tool' is a role of none of the environments"),
        (["--env.solo.kwargs.team=tool-planner", "--env.solo.kwargs.tool=no"], "env.solo.*tool"),
        (["--env.solo.evaluation.scripted=orcle"], 'did you mean "oracle".*solo has'),
    ],
)
def test_mistakes_name_the_environment(run_file, tmp_path, capsys, flags, message):
    assert main([str(run_file), "--output-dir", str(tmp_path / "new"), *flags]) == 2
    error = capsys.readouterr().err
    assert re.search(message, error), error


def test_a_role_without_a_policy_is_named(run_file, tmp_path, capsys):
    table = tomllib.loads(run_file.read_text())
    table["roles"] = {"team.tool": "t", "team.planner": "p"}
    (tmp_path / "run.toml").write_text(tomli_w.dumps(table))
    assert main([str(tmp_path / "run.toml"), "--output-dir", str(tmp_path / "new")]) == 2
    assert "the role 'solo.planner' has no policy" in capsys.readouterr().err
