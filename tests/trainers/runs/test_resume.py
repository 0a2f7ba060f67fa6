"""A run that is killed at any moment and resumed ends bit for bit like one that was not."""

import json
import os
import subprocess
import sys

import pytest
import tomli_w
from run_toys import program

from pettingllms.evaluation.training_run import TrainingRun, replay_rollout
from pettingllms_trainers.cli import main


def play(config, mode, out):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", program("killed"), str(config), mode, str(out)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def config(small_run_file):
    return small_run_file(5)


@pytest.fixture(scope="module")
def whole(config, tmp_path_factory, results):
    out = tmp_path_factory.mktemp("whole") / "run"
    assert main([str(config), "--output-dir", str(out)]) == 0
    found = results(out)
    assert len(found["weights"]) == 2
    assert [line["step"] for line in found["metrics"]] == [0, 1, 2, 3, 4, 5]
    for policy in ("t", "p"):
        assert sum(f"loss/{policy}/loss" in line for line in found["metrics"]) >= 3, "it has learnt"
    return found


@pytest.mark.slow
@pytest.mark.parametrize("k", [0, pytest.param(2, marks=pytest.mark.nightly)])
def test_a_resumed_run_goes_on_with_the_same_curriculum(config, tmp_path, resumes, k):
    """Levels come from the stages by what was solved before the checkpoint."""
    stages = [{"kwargs": {"max_turns": 6, "max_moves": 2}}, {"kwargs": {"max_turns": 1}}]
    (tmp_path / "curriculum.toml").write_text(
        tomli_w.dumps({"env": {"curriculum": stages, "curriculum_decay": 0.7}})
    )
    files = [str(config), str(tmp_path / "curriculum.toml")]
    flags = ["--checkpoint.keep", "9", "--warm-start.num-steps", "20", "--logging.num-rollouts=8"]
    flags += ["--rollout.num-levels", "8", "--num-steps", "4", f"--rollout.max-staleness={k}"]
    out = tmp_path / "run"
    assert main([*files, "--output-dir", str(out), *flags]) == 0
    whole = resumes(out, [*files, *flags], 1)
    shares = {line["curriculum/1/share"] for line in whole["metrics"][1:]}
    assert len(shares) > 1, "what was solved matters"
    trees = [line for line in whole["rollouts"] if line["set"] == "training"]
    of_stages = {tree["env"]["max_turns"]: tree for tree in trees}
    assert set(of_stages) == {6, 1}
    for tree in of_stages.values():
        replay_rollout(TrainingRun.open(out), tree["step"], tree["episode"])


@pytest.fixture(scope="module", params=[1, 3])
def stale(config, tmp_path_factory, results, request):
    """Run file of a run with rollouts in flight, and what it gives when nothing happens."""
    path = tmp_path_factory.mktemp("stale") / "run.toml"
    key = f"max_staleness = {request.param}"
    path.write_text(config.read_text().replace("[rollout]", f"[rollout]\n{key}"))
    out = path.parent / "run"
    assert main([str(path), "--output-dir", str(out)]) == 0
    found = results(out)
    ages = [line["rollout/max_age"] for line in found["metrics"][1:]]
    assert ages == {1: [0, 1, 1, 1, 1], 3: [0, 1, 2, 3, 1]}[request.param]
    return path, found


@pytest.mark.slow
@pytest.mark.nightly
def test_killed_while_rollouts_are_in_flight(stale, whole, results, tmp_path):
    """The checkpoint has them: the weights that drew them are gone."""
    config, expected = stale
    assert expected != whole
    codes = play(config, "writes", tmp_path / "run")
    assert codes.count(-9) >= 5
    assert codes[-1] == 0
    assert results(tmp_path / "run") == expected


@pytest.mark.slow
def test_killed_at_random_moments(config, whole, results, tmp_path):
    codes = play(config, "random", tmp_path / "run")
    assert codes[-1] == 0
    assert -9 in codes
    assert results(tmp_path / "run") == whole


@pytest.mark.slow
@pytest.mark.nightly
def test_killed_before_any_write_is_durable_or_renamed(config, whole, results, tmp_path):
    codes = play(config, "writes", tmp_path / "run")
    assert codes.count(-9) >= 5
    assert codes[-1] == 0
    assert results(tmp_path / "run") == whole
