"""The workflows in `examples/workflows` play and train; those of absent packages are skipped."""

import importlib.util
import random
import sys
from pathlib import Path

import pytest

import pettingllms
from pettingllms.files import read_lines
from pettingllms_trainers.cli import main

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


@pytest.fixture(autouse=True)
def in_the_folder(monkeypatch, others_program):
    monkeypatch.chdir(FOLDER)
    monkeypatch.setenv("OPENAI_AGENTS_DISABLE_TRACING", "1")
    yield
    for name in {*NEEDS} & {*sys.modules}:
        del sys.modules[name]


def test_it_plays_and_forks(example):
    env, rng = pettingllms.make(f"workflow:{example}:workflow", checks=False), random.Random(0)
    for seed in range(3):
        env.reset(seed=seed)
        agent = env.agent_selection
        while not env.terminations[agent]:
            fork = env.fork()
            fork.step(env.scripted_action(agent, "any", rng))
            env.step(env.scripted_action(agent, "right", rng))
            agent = env.agent_selection
        assert env.infos[agent]["success"], env.state()


PRETRAINED = "langgraph_writer_editor"


@pytest.mark.slow
@pytest.mark.parametrize(
    "example",
    [pytest.param(n, marks=[pytest.mark.nightly] * (n == PRETRAINED)) for n in sorted(NEEDS)],
    indirect=True,
)
def test_it_trains(example, tmp_path, capsys):
    if example == PRETRAINED:
        assert main(["fetch-model", "smollm2"]) == 0
    flags = ["--num-steps=1", "--warm-start.num-steps=4", "--rollout.num-levels=4"]
    flags += ["--logging.progress=off", "--logging.no-tensorboard", "--evaluation.num-episodes=4"]
    command = [f"{example}.toml", "--trust", "--output-dir", str(tmp_path / "run"), *flags]
    assert main(command) == 0, capsys.readouterr().err
    last = read_lines(tmp_path / "run" / "metrics.jsonl")[-1]
    assert (last["step"], last["rollout/num_failed_trees"]) == (1, 0)
