"""The directory of a run: never overwritten by accident, lines cut back to a checkpoint."""

import json

import pytest

from pettingllms_trainers.config import Config
from pettingllms_trainers.errors import CheckpointError, OutputDirError
from pettingllms_trainers.files import read_lines, whole_directory, write_atomically
from pettingllms_trainers.runs.folder import RunDirectory


def config(**values):
    return Config.model_validate(
        {
            "env": {"id": "toy_echo_v0"},
            "policies": {"p": {"model": "tiny"}},
            "roles": {"caller": "p", "echo": "p"},
            **values,
        }
    )


def open_run(directory, run_config=None):
    files = RunDirectory(directory)
    files.open(run_config or config())
    return files


def test_a_new_directory_gets_the_resolved_configuration(tmp_path):
    files = RunDirectory(tmp_path / "a" / "b")
    files.check(config(), is_resumed=False)
    assert not files.directory.exists(), "a check writes nothing"
    files.open(config())
    assert [path.name for path in files.directory.iterdir()] == ["config.toml"]


def test_a_directory_with_content_is_refused_without_resume(tmp_path):
    (tmp_path / "precious.txt").write_text("x")
    with pytest.raises(OutputDirError, match=r"not empty.*--resume"):
        RunDirectory(tmp_path).check(config(), is_resumed=False)
    with pytest.raises(OutputDirError, match="holds no run"):
        RunDirectory(tmp_path).check(config(), is_resumed=True)


def test_a_file_is_no_directory(tmp_path):
    path = tmp_path / "file"
    path.write_text("x")
    with pytest.raises(OutputDirError, match="is a file"):
        RunDirectory(path).check(config(), is_resumed=False)
    with pytest.raises(OutputDirError, match="cannot be created"):
        RunDirectory(path / "run").open(config())


def test_resume_wants_the_same_configuration(tmp_path):
    files = open_run(tmp_path / "run")
    files.check(config(), is_resumed=True)
    files.check(config(logging={"progress": "off"}, output_dir="elsewhere"), is_resumed=True)
    with pytest.raises(CheckpointError, match=r"differs in optimizer\.learning_rate, seed\."):
        files.check(config(seed=3, optimizer={"learning_rate": 1}), is_resumed=True)


def test_resume_of_a_run_that_has_written_nothing_starts_it(tmp_path):
    RunDirectory(tmp_path / "new").check(config(), is_resumed=True)
    (tmp_path / ".config.toml.partial").write_text("half")
    RunDirectory(tmp_path).check(config(), is_resumed=True)
    RunDirectory(tmp_path).check(config(), is_resumed=False)


def test_lines_after_the_checkpoint_are_forgotten(tmp_path):
    files = open_run(tmp_path / "run")
    for step in range(5):
        files.append(files.metrics, step, {"x": step / 3})
        files.append(files.rollouts, step, {"y": "text"})
    with files.metrics.open("a") as file:
        file.write('{"step": 5, "x": 0.3')
    before = files.metrics.read_text().splitlines()
    files.forget_after(2)
    assert files.metrics.read_text().splitlines() == before[:3]
    assert [line["step"] for line in read_lines(files.rollouts)] == [0, 1, 2]
    files.forget_after(-1)
    assert read_lines(files.metrics) == []


def test_a_last_line_that_was_cut_off_is_left_out(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text('{"step": 0}\n{"step"')
    assert read_lines(path) == [{"step": 0}]
    assert read_lines(tmp_path / "none") == []


def test_numbers_that_are_not_finite_are_never_written(tmp_path):
    files = open_run(tmp_path / "run")
    with pytest.raises(ValueError, match="not JSON compliant"):
        files.append(files.metrics, 0, {"x": float("nan")})
    assert not files.metrics.exists()


def test_atomic_writes_leave_no_partial_file(tmp_path):
    write_atomically(tmp_path / "a.json", json.dumps({}))
    write_atomically(tmp_path / "a.json", "new")
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]
    assert (tmp_path / "a.json").read_text() == "new"


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
