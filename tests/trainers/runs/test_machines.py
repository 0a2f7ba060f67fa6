"""Where a run computes, without a cluster: what is refused before one is needed."""

import sys

from pettingllms_trainers.cli import main


def test_without_ray_the_message_says_how_to_get_it(small_run_file, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "ray", None)
    out = tmp_path / "run"
    code = main([str(small_run_file()), "--output-dir", str(out), "--ray.enabled"])
    assert code == 2
    assert 'pip install "ray<' in capsys.readouterr().err
    assert not out.exists()
