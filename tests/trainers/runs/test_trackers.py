"""Trackers: TensorBoard files, and the calls of Weights & Biases, with the package or a double."""

import json
import sqlite3
import sys

import pytest
from run_toys import config_of, program

from pettingllms_trainers.cli import main
from pettingllms_trainers.runs.trackers import Trackers


def logging_of(**logging):
    return config_of(logging={"tensorboard": False, **logging})


@pytest.fixture
def double(tmp_path, monkeypatch):
    """A package wandb that keeps what it is given in the directory of the run."""
    package = tmp_path / "packages" / "wandb"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(program("wandb"))
    (package / "errors.py").write_text(
        "class Error(Exception): ...\nclass UsageError(Error): ...\n"
    )
    for name in [name for name in sys.modules if name.split(".")[0] == "wandb"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(package.parent)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    yield
    for name in [name for name in sys.modules if name.split(".")[0] == "wandb"]:
        del sys.modules[name]


def lines_of(directory):
    return [json.loads(line) for line in (directory / "wandb.jsonl").read_text().splitlines()]


def write(directory, config, first, last):
    directory.mkdir(parents=True, exist_ok=True)
    with Trackers(directory, config) as trackers:
        trackers.start_at(first - 1)
        for step in range(first, last):
            trackers.write(step, {"time/step_s": float(step)})


def fail(directory, config):
    with Trackers(directory, config) as trackers:
        trackers.start_at(-1)
        raise ZeroDivisionError


def test_tensorboard_files(tmp_path):
    pytest.importorskip("tensorboard")
    write(tmp_path / "on", logging_of(tensorboard=True), 0, 2)
    assert list((tmp_path / "on" / "tensorboard").glob("events*"))
    write(tmp_path / "off", logging_of(), 0, 2)
    assert list((tmp_path / "off").iterdir()) == []
    assert "wandb" not in sys.modules, "imported only when it is used"


def test_a_resumed_run_goes_on_where_it_was(tmp_path, double):
    directory = tmp_path / "mine"
    config = logging_of(wandb_project="teams", wandb_entity="us", wandb_mode="offline")
    write(directory, config, 0, 3)
    write(directory, config, 2, 5)
    start, *steps = [line for line in lines_of(directory) if "exit_code" not in line]
    again = steps.pop(3)
    assert start == again
    assert {k: start[k] for k in ("project", "entity", "name", "mode", "seed")} == {
        "project": "teams",
        "entity": "us",
        "name": "mine",
        "mode": "offline",
        "seed": 0,
    }
    assert start["id"] == (directory / "wandb_run_id.txt").read_text().strip()
    assert [line["step"] for line in steps] == [0, 1, 2, 3, 4], "a step is sent once"
    write(tmp_path / "other", config, 0, 1)
    assert lines_of(tmp_path / "other")[0]["id"] != start["id"]


def test_names_and_modes(tmp_path, double, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    write(tmp_path / "a", logging_of(wandb_project="teams", wandb_name="first"), 0, 1)
    start = lines_of(tmp_path / "a")[0]
    assert (start["name"], start["entity"], start["mode"]) == ("first", None, "offline")
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    write(tmp_path / "b", logging_of(wandb_project="teams", wandb_mode="online"), 0, 1)
    assert lines_of(tmp_path / "b")[0]["mode"] == "online"


def test_a_run_that_failed_is_marked(tmp_path, double):
    config = logging_of(wandb_project="teams", wandb_mode="offline")
    with pytest.raises(ZeroDivisionError):
        fail(tmp_path, config)
    assert lines_of(tmp_path)[-1] == {"exit_code": 1}


def test_without_a_login(tmp_path, double, caplog):
    write(tmp_path / "run", logging_of(wandb_project="teams"), 0, 2)
    (told,) = caplog.messages
    assert told.startswith("Weights & Biases gets no metrics, it cannot start (UsageError: No API")
    assert 'wandb_mode = "offline"' in told


def test_a_tracker_that_fails_on_the_way_gets_no_more(tmp_path, double, caplog):
    config = logging_of(wandb_project="teams", wandb_mode="offline")
    steps = []
    with Trackers(tmp_path, config, lambda step, metrics: steps.append(step)) as trackers:
        trackers.start_at(-1)
        trackers.write(1, {"time/step_s": 1.0})
        trackers.write(2, {"time/step_s": object()})
        trackers.write(3, {"time/step_s": 1.0})
    assert [line["step"] for line in lines_of(tmp_path)[1:]] == [1]
    assert steps == [1, 2, 3], "callbacks go on"
    (told,) = caplog.messages
    assert told.startswith("Weights & Biases gets no more metrics, from step 2 on (TypeError: ")


def test_a_whole_run_reaches_the_board(small_run_file, tmp_path, double):
    flags = ["--output-dir", str(tmp_path / "run"), "--logging.wandb-project", "teams"]
    flags += ["--logging.wandb-mode", "offline"]
    assert main([str(small_run_file(1)), *flags]) == 0
    start, *steps, end = lines_of(tmp_path / "run")
    assert start["name"] == "run"
    assert [line["step"] for line in steps] == [0, 1]
    assert "eval/greedy/success" in steps[1]
    assert end == {"exit_code": 0}


def test_mlflow_gets_each_step_once_and_how_it_ended(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "mlruns").as_uri())
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    config = logging_of(mlflow_experiment="teams")
    write(tmp_path / "mine", config, 0, 3)
    write(tmp_path / "mine", config, 2, 5)
    client = mlflow.MlflowClient()
    experiment = client.get_experiment_by_name("teams")
    (run,) = client.search_runs([experiment.experiment_id])
    assert (run.info.run_name, run.info.status) == ("mine", "FINISHED")
    assert run.data.params["policies.p.model"] == "tiny"
    history = client.get_metric_history(run.info.run_id, "time/step_s")
    assert [(metric.step, metric.value) for metric in history] == [(n, n) for n in range(5)]
    with pytest.raises(ZeroDivisionError):
        fail(tmp_path / "mine", config)
    assert client.get_run(run.info.run_id).info.status == "FAILED"


def test_trackio_gets_each_step_once(tmp_path, monkeypatch):
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "boards"))
    pytest.importorskip("trackio")
    config = logging_of(trackio_project="teams")
    write(tmp_path / "mine", config, 0, 3)
    write(tmp_path / "mine", config, 2, 5)
    write(tmp_path / "elsewhere" / "mine", config, 0, 1)
    with sqlite3.connect(tmp_path / "boards" / "teams.db") as database:
        rows = database.execute("select run_name, step from metrics").fetchall()
    steps = {name: [step for run, step in rows if run == name] for name, _ in rows}
    assert sorted(steps.values()) == [[0], [0, 1, 2, 3, 4]], "two runs, though named alike"
    assert all(name.startswith("mine-") for name in steps)
