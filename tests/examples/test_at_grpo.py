"""AT-GRPO in one file: short enough to be read, and it learns."""

import argparse
import importlib.util
from pathlib import Path

import pytest

from pettingllms_trainers.own_loop import OpenPolicy

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "at_grpo.py"
SHORT = {"num_steps": 2, "num_warm_steps": 1, "num_levels": 3, "num_held_out": 2}


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("at_grpo", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def options(script, out, **others):
    defaults = {name.replace("-", "_"): number for name, number in script.OPTIONS.items()}
    return argparse.Namespace(out=str(out), **(defaults | others))


def test_it_is_read_in_one_go():
    assert len(SCRIPT.read_text(encoding="utf-8").splitlines()) <= 150


def test_both_roles_take_steps_and_are_saved(script, tmp_path, monkeypatch, capsys):
    norms, step = [], OpenPolicy.optim_step
    monkeypatch.setattr(
        OpenPolicy, "optim_step", lambda self, rate: norms.append((self.name, step(self, rate)))
    )
    script.main(options(script, tmp_path, **SHORT))
    learnt = norms[2:]  # the others are of the warm start
    assert {name for name, _ in learnt} == {"tool", "planner"}
    assert all(norm > 0 for _, norm in learnt)
    assert capsys.readouterr().out.count("of the training levels solved") == 2
    assert all((tmp_path / role / "model.safetensors").is_file() for role in ("tool", "planner"))


@pytest.mark.nightly
def test_it_learns_plan_path(script, tmp_path, capsys):
    script.main(options(script, tmp_path))
    told = [line for line in capsys.readouterr().out.splitlines() if line.startswith("held-out")]
    before, after = (float(line.rpartition(" ")[2]) for line in told)
    assert before < 0.4
    assert after > 0.7
