"""Training from Python: as from the command line, in a notebook too, and interrupted."""

import asyncio
import json
import os
import shutil
import signal
import threading
import tomllib

import pytest

import pettingllms
from pettingllms.errors import InvalidArgument
from pettingllms.evaluation import RunFolderError
from pettingllms_trainers import Run, load_run, train
from pettingllms_trainers.cli import main
from pettingllms_trainers.config.loading import load_config
from pettingllms_trainers.errors import ConfigError, OutputDirError
from pettingllms_trainers.runs.metrics import is_timing


def in_a_cell(call):
    """Call a function as a notebook does: inside a running event loop."""

    async def cell():
        return call()

    return asyncio.run(cell())


@pytest.fixture(scope="module")
def trained(small_run_file, tmp_path_factory):
    """A run of two train steps from a cell, and the steps that it reported."""
    directory = tmp_path_factory.mktemp("api") / "run"
    told = []
    run = in_a_cell(
        lambda: train(
            small_run_file(4),
            num_steps=2,
            output_dir=str(directory),
            on_step=lambda step, metrics: told.append((step, dict(metrics))),
        )
    )
    return run, told


def test_a_cell_trains_as_the_command_line_does(trained, small_run_file, tmp_path):
    run, told = trained
    arguments = ["--num-steps=2", "--output-dir", str(tmp_path / "cli")]
    assert main([str(small_run_file(4)), *arguments]) == 0
    found, expected = run.metrics, load_run(tmp_path / "cli").metrics
    names = [name for name in expected.columns if not is_timing(name)]
    assert found[names].equals(expected[names])
    assert found.index.tolist() == [0, 1, 2]
    assert [step for step, _ in told] == [1, 2]
    assert all(told[step - 1][1][n] == found[n][step] for step in (1, 2) for n in told[0][1])


def test_a_run_shows_itself(trained):
    run, _ = trained
    table = run.evaluations
    after = json.loads((run.directory / "eval.json").read_text())["after"]["variants"]
    assert {*table["variant"][table["step"] == 2]} == {*after} == {"greedy", "sampled", "swapped"}
    assert table["success"].between(table["success_low"], table["success_high"]).all()
    assert "data:image/png;base64," in run._repr_html_()
    assert run.plot().axes
    page = run.view()
    assert page.path.is_file()
    assert page._repr_html_().startswith("<iframe srcdoc=")
    assert "2 of 2 train steps" in repr(run)


def test_a_run_that_has_just_begun_has_no_metrics(trained, tmp_path):
    shutil.copytree(
        trained[0].directory, tmp_path / "run", ignore=shutil.ignore_patterns("metrics.jsonl")
    )
    assert load_run(tmp_path / "run").metrics.empty


def test_its_policies_are_evaluated_in_a_cell(trained):
    run, _ = trained
    report = in_a_cell(lambda: run.evaluate(num_levels=3))
    assert report.is_complete
    scripted = dict.fromkeys(run.config.roles, "oracle")
    assert run.evaluate(num_levels=2, policies=scripted).variants["main"].num_success == 2
    role = next(iter(run.config.roles))
    assert run.policy(role).name.startswith(f"hf:{run.directory}/policies/")
    with pytest.raises(InvalidArgument, match="num_levels"):
        run.evaluate(num_levels=0)
    with pytest.raises(RunFolderError, match="it has: "):
        run.policy("nobody")
    with pytest.raises(InvalidArgument, match="train step with a checkpoint"):
        run.policy(role, step=77)


def test_a_policy_is_asked(trained):
    run, _ = trained
    role = next(iter(run.config.roles))
    policy = run.policy(role)
    drawn = policy.ask("abc", num_answers=5, seed=1)
    assert drawn == policy.ask([{"role": "user", "content": "abc"}], num_answers=5, seed=1)
    assert drawn != policy.ask("abc", num_answers=5, seed=2)
    greedy = in_a_cell(lambda: policy.ask("abc", num_answers=3, temperature=0))
    assert len(set(greedy)) == 1
    assert max(map(len, policy.ask("abc", num_answers=5, max_completion_tokens=1))) <= 1
    env = pettingllms.make(run.config.env[0].id, **run.config.env[0].kwargs)
    env.reset(seed=3)
    messages = env.messages(env.agent_selection)
    assert policy.ask(env, temperature=0) == policy.ask(messages, temperature=0)
    with pytest.raises(InvalidArgument, match="num_answers"):
        policy.ask("abc", num_answers=0)


@pytest.mark.parametrize("is_hanging", [False, True])
def test_an_interrupted_run_has_saved_and_is_resumed(small_run_file, tmp_path, is_hanging):
    may_go_on, running = threading.Event(), []

    def interrupt(step, metrics):
        running.append(threading.current_thread())
        if step == 1:
            os.kill(os.getpid(), signal.SIGINT)
        if step == 1 and is_hanging:
            while signal.getsignal(signal.SIGINT) is not before and not may_go_on.wait(0.1):
                pass  # it is not heard yet
            os.kill(os.getpid(), signal.SIGINT)
            may_go_on.wait(60)

    def cell():
        signal.signal(signal.SIGINT, before)  # as a notebook has it
        train(config, on_step=interrupt)

    before = signal.default_int_handler
    config = load_config(small_run_file(3), ["--output-dir", str(tmp_path / "run")])
    with pytest.raises(KeyboardInterrupt, match="resume=True"):
        in_a_cell(cell)
    assert signal.getsignal(signal.SIGINT) is before
    assert not may_go_on.is_set()
    may_go_on.set()
    running[-1].join(60)
    assert load_run(tmp_path / "run").metrics.index.max() < 3
    run = train(config, resume=True)
    assert run.metrics.index.tolist() == [0, 1, 2, 3]


def test_bad_input_says_what_to_do(trained, small_run_file, tmp_path):
    run, _ = trained
    table = tomllib.loads(small_run_file(2).read_text())
    with pytest.raises(ConfigError, match=r"the arguments: unknown key 'num_stesp'.*num_steps"):
        train(table, num_stesp=3)
    with pytest.raises(OutputDirError):
        train(table, output_dir=str(run.directory))
    with pytest.raises(RunFolderError, match="not a training run"):
        Run(tmp_path)
