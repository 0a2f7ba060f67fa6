"""A flipped bit in a file of lines: said, left out, and no reason to lose the run."""

import json
import random
import shutil

import pytest

from pettingllms.evaluation.training_run import TrainingRun
from pettingllms.files import json_line, read_lines
from pettingllms.viewer.runs import open_run
from pettingllms_trainers.cli import main
from pettingllms_trainers.config.loading import load_config
from pettingllms_trainers.runs.folder import RunDirectory
from pettingllms_trainers.runs.metrics import is_timing
from pettingllms_trainers.runs.recorder import ProgressView, Recorder
from pettingllms_trainers.runs.trackers import Trackers

FILES = ("warm_start", "rollouts", "evaluations", "metrics")


@pytest.fixture(scope="module")
def run(small_run_file, tmp_path_factory):
    """A run of three train steps, without the checkpoint of the last one."""
    out = tmp_path_factory.mktemp("damaged") / "run"
    flags = ["--output-dir", str(out), "--checkpoint.keep", "9", "--warm-start.num-steps", "9"]
    assert main([str(small_run_file(3)), *flags]) == 0
    shutil.rmtree(out / "checkpoints" / "step-00000003")
    return out


def flip(path, rng):
    data = bytearray(path.read_bytes())
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


@pytest.mark.parametrize("name", FILES)
def test_a_flipped_bit_is_never_taken_as_data(run, tmp_path, name, caplog):
    config, rng = load_config(run / "config.toml"), random.Random(name)
    files = RunDirectory(tmp_path)
    path = tmp_path / f"{name}.jsonl"
    whole = read_lines(run / f"{name}.jsonl")
    for _ in range(12):
        for other in FILES:
            shutil.copy(run / f"{other}.jsonl", tmp_path)
        flip(path, rng)
        caplog.clear()
        seen = read_lines(path, "step")
        assert 0 < len(whole) - len(seen) <= 2, "the flip may have joined two lines"
        assert all(line in whole for line in seen)
        is_last = len(seen) == len(whole) - 1 and seen == whole[:-1]
        assert "damaged and left out" in caplog.text or is_last
        page = open_run(run if name == "warm_start" else _page_folder(run, tmp_path))
        list(page.episodes())
        shown = page.curves["metrics"]["rollout/success"][1]
        assert set(shown) <= {
            line.get("rollout/success") for line in read_lines(run / "metrics.jsonl")
        }
        Recorder(files, config, ProgressView(), Trackers(tmp_path, config)).start_at(2)
        assert read_lines(path) == [line for line in seen if line["step"] <= 2]


def _page_folder(run, folder):
    shutil.copy(run / "config.toml", folder)
    return folder


def test_a_run_resumes_over_damaged_lines(run, tmp_path, small_run_file, capsys):
    out, rng = tmp_path / "run", random.Random(0)
    shutil.copytree(run, out)
    for name in FILES:
        flip(out / f"{name}.jsonl", rng)
    flags = ["--output-dir", str(out), "--checkpoint.keep", "9", "--warm-start.num-steps", "9"]
    assert main([str(small_run_file(3)), *flags, "--resume"]) == 0
    assert "Traceback" not in capsys.readouterr().err
    ours, theirs = (
        {name: value for name, value in found[-1].items() if not is_timing(name)}
        for found in (read_lines(folder / "metrics.jsonl") for folder in (out, run))
    )
    assert ours == theirs
    assert TrainingRun.open(out).checkpoints()[-1] == 3


def test_lines_of_other_writers_need_no_checksum(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_bytes(json_line({"step": 1}) + b'{"step": 2, "crc": "other"}\n[3]\n{"x": 4}\n')
    assert read_lines(path, "step") == [{"step": 1}, {"step": 2, "crc": "other"}]
    assert json.loads(path.read_text().splitlines()[0])["crc"], "it is JSON for everybody"
