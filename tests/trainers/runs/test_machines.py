"""Where a run computes, without a cluster: what is refused before one is needed."""

import sys

import pytest

from pettingllms_trainers.cli import main
from pettingllms_trainers.config.loading import load_config
from pettingllms_trainers.errors import ConfigError


def test_without_ray_the_message_says_how_to_get_it(small_run_file, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "ray", None)
    out = tmp_path / "run"
    code = main([str(small_run_file()), "--output-dir", str(out), "--ray.enabled"])
    assert code == 2
    assert 'pip install "ray<' in capsys.readouterr().err
    assert not out.exists()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--ray.address", "ray://10.0.0.1:10001"], "address"),
        (["--ray.gpus-per-worker", "1.5"], "only full GPUs"),
        (["--ray.gpus-per-worker", "0.5", "--ray.workers-per-policy", "2"], "cannot share a GPU"),
    ],
)
def test_settings_that_cannot_work(small_run_file, flags, message):
    with pytest.raises(ConfigError, match=message):
        load_config(small_run_file(), flags)
