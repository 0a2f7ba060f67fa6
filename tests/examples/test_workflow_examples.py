"""The workflows in `examples/workflows` play and train; those of absent packages are skipped."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "examples" / "workflows"
NEEDS = {
    "largest_digit": (),
    "langgraph_coder_tester": ("langgraph", "langchain_openai"),
    "langgraph_writer_editor": ("langgraph", "langchain_openai"),
    "agents_reasoner_judge": ("agents",),
}
"""Example -> the packages that it imports."""


def test_every_example_is_tested():
    assert {path.stem for path in FOLDER.glob("*.py")} == set(NEEDS)
    assert {path.stem for path in FOLDER.glob("*.toml")} == set(NEEDS)


@pytest.fixture(params=sorted(NEEDS))
def example(request):
    """The name of an example whose packages are installed."""
    for package in NEEDS[request.param]:
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed; make test installs it")
    return request.param


def called(*arguments, **variables):
    """Run Python in the folder of the examples."""
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=FOLDER,
        env={**os.environ, "OPENAI_AGENTS_DISABLE_TRACING": "1", **variables},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


PLAY = Path(__file__).with_name("play_workflow.txt").read_text(encoding="utf-8")


def test_it_plays_and_forks(example):
    assert "solved" in called("-c", PLAY, example)


PRETRAINED = "langgraph_writer_editor"


@pytest.mark.slow
@pytest.mark.parametrize(
    "example",
    [pytest.param(n, marks=[pytest.mark.nightly] * (n == PRETRAINED)) for n in sorted(NEEDS)],
    indirect=True,
)
def test_it_trains(example, tmp_path):
    if example == PRETRAINED:
        called("-m", "pettingllms_trainers.cli", "fetch-model", "smollm2")
    flags = ["--num-steps=1", "--warm-start.num-steps=4", "--rollout.num-levels=4"]
    flags += [
        "--logging.progress=off",
        "--logging.tensorboard=false",
        "--evaluation.num-episodes=4",
    ]
    module = "pettingllms_trainers.cli"
    called("-m", module, f"{example}.toml", "--trust", "--output-dir", tmp_path / "run", *flags)
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert json.loads(lines[-1])["step"] == 1
    assert json.loads(lines[-1])["rollout/num_failed_trees"] == 0
