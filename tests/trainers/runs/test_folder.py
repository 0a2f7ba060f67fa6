"""The directory of a run: never overwritten by accident, lines cut back to a checkpoint."""

import json
import os
import re
from pathlib import Path

import pytest
import torch
from run_toys import config_of
from safetensors import SafetensorError

from pettingllms.files import write_whole
from pettingllms_trainers.config.loading import dump_config, load_config
from pettingllms_trainers.errors import CheckpointError, OutputDirError
from pettingllms_trainers.files import whole_directory
from pettingllms_trainers.runs.folder import RunDirectory


def open_run(directory, run_config=None):
    files = RunDirectory(directory)
    directory.mkdir(exist_ok=True)
    files.open(run_config or config_of())
    return files


def test_a_resumed_run_keeps_the_precision_that_was_chosen(tmp_path):
    files = open_run(
        tmp_path, config_of(engine={"precision": "bfloat16"}, output_dir=str(tmp_path))
    )
    (files.checkpoints / "step-00000000").mkdir(parents=True)
    probing = config_of(engine={"precision": "auto"})
    files.check(probing, is_resumed=True)
    assert files.settled(probing).engine.precision == "bfloat16"
    assert files.settled(config_of()).engine.precision == "float32"
    with pytest.raises(CheckpointError, match=r"engine\.precision"):
        files.check(config_of(), is_resumed=True)


def test_a_directory_with_content_is_refused_without_resume(tmp_path):
    (tmp_path / "precious.txt").write_text("x")
    with pytest.raises(OutputDirError, match=r"not empty.*--resume"):
        RunDirectory(tmp_path).check(config_of(), is_resumed=False)
    with pytest.raises(OutputDirError, match="holds no run"):
        RunDirectory(tmp_path).check(config_of(), is_resumed=True)


def test_a_file_is_no_directory(tmp_path):
    path = tmp_path / "file"
    path.write_text("x")
    with pytest.raises(OutputDirError, match="is a file"):
        RunDirectory(path).check(config_of(), is_resumed=False)
    with pytest.raises(OutputDirError, match="cannot be created"), RunDirectory(path / "r").owned():
        pass


def test_resume_wants_the_same_configuration(tmp_path):
    files = open_run(tmp_path / "run")
    (files.checkpoints / "step-00000000").mkdir(parents=True)
    files.check(config_of(), is_resumed=True)
    files.check(config_of(logging={"progress": "off"}, output_dir="elsewhere"), is_resumed=True)
    with pytest.raises(CheckpointError, match=r"differs in optimizer\.learning_rate, seed\."):
        files.check(config_of(seed=3, optimizer={"learning_rate": 1}), is_resumed=True)


def test_resume_of_a_run_that_has_written_nothing_starts_it(tmp_path):
    RunDirectory(tmp_path / "new").check(config_of(), is_resumed=True)
    (tmp_path / ".config.toml.partial").write_text("half")
    RunDirectory(tmp_path).check(config_of(), is_resumed=True)
    RunDirectory(tmp_path).check(config_of(), is_resumed=False)


def test_a_run_without_a_checkpoint_starts_again(tmp_path):
    path = str(tmp_path / "run")
    files = open_run(tmp_path / "run", config_of(output_dir=path))
    files.append(files.metrics, 0, {"x": 1})
    other = config_of(seed=3, output_dir=path)
    for is_resumed in (False, True):
        files.check(other, is_resumed=is_resumed)
    files.open(other)
    assert load_config(files.config) == other
    (files.directory / "notes.txt").write_text("mine")
    with pytest.raises(OutputDirError, match="not empty"):
        files.check(other, is_resumed=False)
    (files.directory / "notes.txt").unlink()
    (files.checkpoints / "step-00000001").mkdir(parents=True)
    with pytest.raises(OutputDirError, match="not empty"):
        files.check(other, is_resumed=False)


def test_a_run_file_of_a_person_is_not_overwritten(tmp_path):
    files = RunDirectory(tmp_path)
    files.config.write_text(dump_config(config_of()))
    with pytest.raises(OutputDirError, match="not empty"):
        files.check(config_of(output_dir=str(tmp_path)), is_resumed=False)


def test_a_resumed_run_may_be_longer_and_evaluate_and_save_otherwise(tmp_path):
    files = open_run(tmp_path / "run", config_of(num_steps=4, optimizer={"final_fraction": 0.1}))
    (files.checkpoints / "step-00000004").mkdir(parents=True)
    longer = config_of(
        num_steps=9,
        optimizer={"final_fraction": 0.1},
        evaluation={"every": 3},
        checkpoint={"every": 2, "keep": 5},
        logging={"rollouts_every": 1},
    )
    files.check(longer, is_resumed=True)
    steps, every, saves, keep, schedule = files.changes(longer)
    assert (steps, every) == ("num_steps = 9, was 4", "evaluation.every = 3, was 0")
    assert (saves, keep) == ("checkpoint.every = 2, was 10", "checkpoint.keep = 5, was 2")
    assert "falls to 0.1 of 0.001 at train step 9 instead of 4" in schedule
    assert files.changes(longer.model_copy(update={"num_steps": 4}))[:1] == [every]
    with pytest.raises(CheckpointError, match=r"has done 4 train steps.*num_steps = 3"):
        files.check(config_of(num_steps=3, optimizer={"final_fraction": 0.1}), is_resumed=True)
    files.open(longer)
    assert load_config(files.config) == longer


def test_numbers_that_are_not_finite_are_never_written(tmp_path):
    files = open_run(tmp_path / "run")
    with pytest.raises(ValueError, match="not JSON compliant"):
        files.append(files.metrics, 0, {"x": float("nan")})
    assert not files.metrics.exists()


def test_atomic_writes_leave_no_partial_file(tmp_path):
    write_whole(tmp_path / "a.json", json.dumps({}))
    write_whole(tmp_path / "a.json", "new")
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]
    assert (tmp_path / "a.json").read_text() == "new"


@pytest.mark.parametrize(
    ("error", "kind", "number"),
    [
        (
            SafetensorError("I/O error: No space (os error 28)"),
            OSError,
            28,
        ),
        (
            SafetensorError("I/O error: Read-only (os error 30)"),
            OSError,
            30,
        ),
        (RuntimeError("CUDA out of memory"), RuntimeError, None),
    ],
)
def test_a_write_of_a_library_that_fails_is_an_error_of_the_system(tmp_path, error, kind, number):
    def write():
        with whole_directory(tmp_path / "run"):
            raise error

    told = os.strerror(number) if number else "CUDA out of memory"
    with pytest.raises(kind, match=re.escape(told)) as caught:
        write()
    assert getattr(caught.value, "errno", None) == number
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="no /dev/full")
def test_torch_on_a_full_disk(tmp_path):
    def write():
        with whole_directory(tmp_path / "run") as partial:
            (partial / "state.pt").symlink_to("/dev/full")
            torch.save({"weights": torch.zeros(100_000)}, partial / "state.pt")

    with pytest.raises(OSError, match="No space left"):
        write()


def write_half(final, content):
    with whole_directory(final) as partial:
        (partial / "sub").mkdir()
        (partial / "sub" / "file").write_text(content)
        yield partial


@pytest.mark.parametrize("before", [None, "old"])
def test_a_directory_is_there_whole_or_as_it_was(tmp_path, before):
    final = tmp_path / "new" / "policy"
    if before is not None:
        (final / "sub").mkdir(parents=True)
        (final / "sub" / "file").write_text(before)
        (final / "gone").touch()
    killed = write_half(final, "half")
    assert next(killed).parent == final.parent, "a rename needs one file system"
    leftover = final.with_name(".policy.partial")
    assert leftover.is_dir()
    assert final.exists() == (before is not None)
    killed.close()
    assert not leftover.exists(), "an error leaves nothing behind"
    assert final.exists() == (before is not None)
    leftover.mkdir(parents=True)
    (leftover / "of-a-killed-run").touch()
    for _ in write_half(final, "whole"):
        assert before is None or (final / "sub" / "file").read_text() == before
    assert [path.name for path in final.parent.iterdir()] == ["policy"]
    assert [path.name for path in final.iterdir()] == ["sub"]
    assert (final / "sub" / "file").read_text() == "whole"
