"""`pettingllms-train` as a person uses it: clear messages, exit codes, nothing half-written."""

import asyncio
import importlib.metadata
import json
import math
import re
import shlex
import signal
import subprocess
import sys
import threading

import pytest

import pettingllms_trainers.runs.train as train_module
from pettingllms.files import read_lines
from pettingllms_envs.plan_path.env import PlanPathEnv
from pettingllms_trainers import commands
from pettingllms_trainers.backends.hf.engine import TransformersEngine
from pettingllms_trainers.backends.hf.updater import Updater
from pettingllms_trainers.cli import main
from pettingllms_trainers.config import Config
from pettingllms_trainers.config.loading import load_config
from pettingllms_trainers.errors import GenerationError, UpdateError
from pettingllms_trainers.policies.pool import PolicyPool
from pettingllms_trainers.ranks import SERVERS
from pettingllms_trainers.rollout import sampler
from pettingllms_trainers.runs.evaluate import HeldOut
from pettingllms_trainers.runs.report import learning_curve


@pytest.fixture
def run(small_run_file, tmp_path, capsys):
    """A function that takes the small run and gives what was said on both streams."""

    def call(*flags, command=(), out="run", num_steps=2, code=0):
        path = str(small_run_file(num_steps))
        found = main([*command, path, "--output-dir", str(tmp_path / out), *flags])
        captured = capsys.readouterr()
        assert found == code, captured.err
        return captured.out, captured.err

    return call


@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--env.kwargs.size", "1"], "4 to 64"),
        (["--evaluation.scripted", "gredy"], 'did you mean "greedy"'),
        (["--env.evaluation.scripted", "gredy"], " env.evaluation.scripted names the scripted"),
        (["--policies.p.hidden-size", "18"], "hidden_size"),
    ],
)
def test_bad_input_is_one_clear_line_and_writes_nothing(run, tmp_path, dry, flags, message):
    out, err = run(*dry, *flags, code=2)
    assert message in err
    assert err.startswith("pettingllms-train: ")
    assert "Traceback" not in err
    assert not (tmp_path / "run").exists()
    assert out == ""


@pytest.mark.parametrize(
    ("command", "flags", "message"),
    [
        ([], ["--policies.t.max-length", "12"], "prompts of tool begin at .*policies.t.max_length"),
        (
            # They would all be one token, and the run would learn from prompts that tell nothing.
            [],
            ["--policies.t.vocabulary", "0123456789UDLR# :"],
            r"policies\.t\.vocabulary lacks '\S*\.\S*' of the first prompts of tool",
        ),
        (["warm-start"], ["--warm-start.num-steps=0"], "nothing to imitate: warm_start.num_steps"),
        (["warm-start"], ["--warm-start.demonstrators.tool.wizard=1"], "scripted policy 'wizard'"),
        (["warm-start"], ["--resume"], "unknown key 'resume'"),
    ],
)
def test_what_cannot_begin_says_why(run, tmp_path, command, flags, message):
    _, err = run(*flags, command=command, code=2)
    assert re.search(message, err), err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("flag", "package", "message"),
    [
        ("--ray.enabled", "ray", 'pip install "ray<'),
        ("--logging.wandb-project=teams", "wandb", 'pip install "wandb'),
        ("--logging.mlflow-experiment=teams", "mlflow", 'pip install "mlflow'),
        ("--logging.trackio-project=teams", "trackio", 'pip install "trackio'),
        ("--optimizer.state-bits=8", "bitsandbytes", r"state_bits = .*pip install .bitsandbytes<"),
        (
            "--every-policy.lora.base-precision=nf4",
            "bitsandbytes",
            r"base_precision = .* needs the package bitsandbytes.*pip install .bitsandbytes<",
        ),
    ],
)
def test_a_package_that_is_missing_is_told(run, tmp_path, monkeypatch, flag, package, message):
    version = importlib.metadata.version

    def known(name):
        if name == package:
            raise importlib.metadata.PackageNotFoundError(name)
        return version(name)

    monkeypatch.setattr(importlib.metadata, "version", known)
    monkeypatch.setitem(sys.modules, package, None)
    _, err = run("--every-policy.lora.rank=4", flag, code=2)
    assert re.search(message, err), err
    assert not (tmp_path / "run").exists()


def test_usage(capsys):
    assert main([]) == 2
    assert main(["--help"]) == main(["--version"]) == 0
    assert main(["--num-steps", "3"]) == 2
    assert main(["recipe:plan_path", "--gpus", "8"]) == 2
    told = capsys.readouterr()
    assert "what --dry-run plans for" in told.err
    assert told.out.count("usage: pettingllms-train CONFIG") == 2
    assert (
        f"pettingllms-train, version {importlib.metadata.version('pettingllms-trainers')}"
        in told.out
    )
    assert "there is no run file before --num-steps; name one, such as recipe:plan" in told.err


def test_a_run_that_diverges_has_failed(run, monkeypatch):
    monkeypatch.setattr(train_module, "rollout_metrics", lambda *_: {"rollout/success": math.nan})
    _, err = run(code=1)
    assert "rollout/success is nan: training has diverged" in err


def test_a_run_writes_what_it_promises(run, tmp_path, monkeypatch):
    monkeypatch.setattr("pettingllms_trainers.runs.recorder.learning_curve", learning_curve)
    out, _ = run(out="my run")
    assert "policies, greedy" in out
    assert "scripted policy greedy" in out
    directory = tmp_path / "my run"
    told = [shlex.split(line) for line in out.splitlines() if line.startswith("  pettingllms")]
    assert [line[2] for line in told] == [str(directory)] * 3
    assert {path.name for path in directory.iterdir()} == {
        "config.toml",
        "metrics.jsonl",
        "warm_start.jsonl",
        "evaluations.jsonl",
        "rollouts.jsonl",
        "checkpoints",
        "policies",
        "eval.json",
        "learning_curve.png",
    }
    for policy in ("t", "p"):
        assert (directory / "policies" / policy / "model.safetensors").is_file()
        assert (directory / "policies" / policy / "tokenizer.json").is_file()
    assert [line["step"] for line in read_lines(directory / "metrics.jsonl")] == [0, 1, 2]

    _, err = run(out="my run", code=2)
    assert "is not empty" in err
    assert f"pettingllms-train {shlex.quote(str(directory))} --resume" in err

    again, _ = run("--resume", out="my run")
    assert again.split("written")[0] == out.split("written")[0], "a finished run reports again"

    _, err = run("--resume", "--seed", "5", out="my run", code=2)
    assert "differs in seed" in err


@pytest.fixture
def signal_at(monkeypatch):
    """Signals arrive while the second train step learns."""

    def at(moment, *kinds):
        original, calls = getattr(train_module, moment), []

        def signalled(*arguments):
            calls.append(1)
            for kind in kinds if len(calls) == 2 else ():
                signal.raise_signal(kind)
            return original(*arguments)

        monkeypatch.setattr(train_module, moment, signalled)

    # Whatever started the tests may ignore them, as shells and nohup do.
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGHUP: signal.SIG_DFL}
    before = {kind: signal.signal(kind, handler) for kind, handler in usual.items()}
    yield at
    for kind, handler in before.items():
        signal.signal(kind, handler)


@pytest.mark.parametrize(
    ("kind", "moment"), [(signal.SIGHUP, "score_decisions"), (signal.SIGINT, "rollout_metrics")]
)
def test_a_signal_saves_a_checkpoint_and_ends(run, tmp_path, monkeypatch, signal_at, kind, moment):
    signal_at(moment, kind)
    out, _ = run(num_steps=5, code=128 + kind)
    assert "--resume" in out
    directory = tmp_path / "run"
    # The second train step would be evaluated: the resumed run does it, and writes its metrics.
    assert [line["step"] for line in read_lines(directory / "metrics.jsonl")] == [0, 1]
    assert (directory / "checkpoints" / "step-00000002").is_dir()
    assert not (directory / "eval.json").exists()
    monkeypatch.undo()
    run("--resume", num_steps=5)
    steps = [line["step"] for line in read_lines(directory / "metrics.jsonl")]
    assert steps == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("age", [0, 1])
def test_no_environment_is_stepped_after_the_signal_that_ends_rollouts(
    run, tmp_path, monkeypatch, signal_at, age
):
    """Any of them may hang. Rollouts of a later step are lost only if a second signal comes."""
    original, calls = PlanPathEnv._parse, []
    signal_at("rollout_metrics")  # as a terminal has it

    def parse(*arguments):
        if "armed" in calls:
            calls.append("parsed")
            for _ in range(1 + age):
                signal.raise_signal(signal.SIGINT)
        return original(*arguments)

    monkeypatch.setattr(PlanPathEnv, "_parse", parse)
    monkeypatch.setattr(train_module, "phase_metrics", lambda *_: calls.append("armed") or {})
    flags = (f"--rollout.max-staleness={age}", "--checkpoint.every=9", "--evaluation.every=0")
    out, _ = run(*flags, num_steps=5, code=130)
    assert calls == ["armed", "parsed"]
    assert f"stopped; train step {1 - age} is saved" in out


def test_two_signals_end_a_run_in_which_an_environment_hangs_beside_an_update(
    run, monkeypatch, signal_at
):
    original, may_go_on, hanging = PlanPathEnv._parse, threading.Event(), []

    def parse(*arguments):
        if threading.current_thread() is not threading.main_thread() and not may_go_on.is_set():
            hanging.append((threading.current_thread(), asyncio.get_running_loop()))
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGTERM)
            may_go_on.wait(60)
        return original(*arguments)

    monkeypatch.setattr(PlanPathEnv, "_parse", parse)
    monkeypatch.setattr(Config, "plays_beside_updates", True)
    monkeypatch.setattr(sampler, "_CANCEL_S", 0)
    out, _ = run("--rollout.max-staleness=1", code=128 + signal.SIGTERM)
    assert not may_go_on.is_set()
    may_go_on.set()
    ((thread, loop),) = hanging
    thread.join(60)
    with asyncio.Runner(loop_factory=lambda: loop):
        pass  # its tasks are cancelled
    assert "stopped; train step 0 is saved; continue with: pettingllms-train " in out


def test_no_answer_is_learnt_twice_from_after_a_train_step_has_failed(
    run, tmp_path, results, monkeypatch
):
    original, pushes = Updater._step, []

    def second_fails(self, mini_batch, rate, is_first, **named):
        if not is_first and self._num_updates == 1:
            raise UpdateError("out of luck")
        return original(self, mini_batch, rate, is_first, **named)

    def third_fails(self):
        pushes.append(self)
        if len(pushes) == 3:
            raise GenerationError("out of luck")

    flags = ["--checkpoint.every=9"]
    run(*flags, out="whole")
    with monkeypatch.context() as patch:
        patch.setattr(Updater, "_step", second_fails)
        run(*flags, code=1)
    with monkeypatch.context() as patch:
        patch.setattr(PolicyPool, "push_weights", third_fails)
        run(*flags, "--resume", code=1)
    run(*flags, "--resume")
    assert results(tmp_path / "run")["weights"] == results(tmp_path / "whole")["weights"]


@pytest.mark.parametrize(
    ("every", "saved", "kind"), [(1, 1, signal.SIGINT), (3, 0, signal.SIGTERM)]
)
def test_a_second_signal_ends_at_once_and_says_what_is_saved(
    run, tmp_path, monkeypatch, signal_at, every, saved, kind
):
    signal_at("rollout_metrics", kind, kind)
    given = {"out": "my run", "num_steps": 5, "code": 128 + kind}
    out, _ = run("--checkpoint.every", str(every), **given)
    command = f"pettingllms-train {shlex.quote(str(tmp_path / 'my run'))} --resume"
    told = f"stopped; train step {saved} is saved; continue with: {command}\n"
    assert told in out
    monkeypatch.undo()
    with monkeypatch.context() as patch:  # while it loads
        patch.setattr(commands, "open_machines", lambda *_: signal.raise_signal(kind))
        assert run("--resume", **given) == (told, "")
        patch.setenv(SERVERS, "3/2")
        words = "pettingllms-train", "pettingllms-train launch", "--res", "--servers 3/2 --res"
        assert run("--resume", **given)[0] == told.replace(*words[:2]).replace(*words[2:])
    assert main([*shlex.split(command)[1:], "--num-steps", "2"]) == 0


@pytest.mark.parametrize(
    ("command", "moment", "kind"),
    [
        ([], "make_environments", signal.SIGTERM),
        ([], "open_machines", signal.SIGINT),
        (["warm-start"], "open_machines", signal.SIGTERM),
    ],
)
def test_a_signal_while_it_loads_says_that_nothing_is_saved(
    run, monkeypatch, command, moment, kind
):
    monkeypatch.setattr(commands, moment, lambda *_: signal.raise_signal(kind))
    out, err = run(command=command, code=128 + kind)
    assert (out + err).count("stopped; nothing is saved") == 1


def test_a_run_says_that_it_learns_nothing_and_stops_if_it_is_to(run, tmp_path):
    flags = ("--rollout.max-completion-tokens", "1", "--warm-start.num-steps", "0")
    flags += ("--logging.progress", "plain")
    out, err = run(*flags, "--stop-when-stalled", num_steps=5, code=1)
    assert "StuckError: stopped after train step 3" in err
    assert "train steps 1 to 3: the policy t was not updated" in err
    cause = r"\d+ % of the answers of tool cannot be read, and \d+ % are truncated at 1 tokens"
    assert re.search(cause, err)
    assert re.search(f"Likely cause: {cause}. Raise rollout.max_completion_tokens", out)
    (line,) = [line for line in out.splitlines() if line.startswith("step 2/5: ")]
    for part in ("tool unreadable 100%", r"tool truncated \d+%", "tool used 0%", "p entropy "):
        assert re.search(part, line)
    directory = tmp_path / "run"
    assert (directory / "checkpoints" / "step-00000003").is_dir()
    lines = read_lines(directory / "metrics.jsonl")
    assert [line["step"] for line in lines] == [0, 1, 2, 3]
    assert all(line["update/t/skipped"] and "loss/t/loss" not in line for line in lines[1:])
    out, _ = run(*flags, "--resume", num_steps=5)
    table, _, after = out.partition("Held-out success")
    assert "warning" not in table, "it was given before the run was resumed"
    assert "warning: train steps 1 to 5: the policy t was not updated" in after
    (warning, *_) = json.loads((directory / "eval.json").read_text())["warnings"]
    assert re.search(cause, warning)


@pytest.mark.parametrize(("num_steps", "expected"), [(2, 0), (3, 1)])
def test_a_run_that_never_updates_a_policy_fails(run, num_steps, expected):
    flags = ("--rollout.max-completion-tokens=1", "--warm-start.num-steps=0")
    out, _ = run(*flags, "--env.kwargs.reward=outcome", num_steps=num_steps, code=expected)
    told = "nothing was learnt: no train step has updated a policy\n"
    assert out.endswith(told) == bool(expected)


def test_a_frozen_policy_plays_and_is_left_alone(run, tmp_path):
    out, err = run("--policies.p.frozen", "--env.kwargs.reward=outcome", "--logging.progress=plain")
    said = " ".join((out + err).split())
    assert 'policies.p is frozen and has the model "tiny": it plays with random weights' in said
    assert "decisions before the last teach next to nothing" in said
    directory = tmp_path / "run"
    assert [path.name for path in (directory / "policies").iterdir()] == ["t"]
    assert "update/p/num_groups" not in read_lines(directory / "metrics.jsonl")[1]


@pytest.mark.parametrize(
    ("name", "parameters"), [("reinforce", {"grouping": "none", "credit": "step"}), ("vine", {})]
)
def test_episodes_of_a_level_are_compared(run, tmp_path, name, parameters):
    flags = [f"--algorithm.{key}={value}" for key, value in {"name": name, **parameters}.items()]
    run(*flags, num_steps=1)
    line = read_lines(tmp_path / "run" / "metrics.jsonl")[1]
    assert line["rollout/num_trees"] == 12


def test_a_signal_in_the_first_evaluation_ends_at_once(run, tmp_path, monkeypatch):
    asked = []

    def signalled(*arguments):
        asked.append(arguments)
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(TransformersEngine, "generate_now", signalled)
    out, _ = run(num_steps=1, code=128 + signal.SIGTERM)
    assert "stopped; nothing is saved; the same command starts again" in out
    assert len(asked) == 1
    assert not (tmp_path / "run" / "checkpoints").exists()


@pytest.mark.parametrize("num_steps", [2, 3])
def test_a_signal_in_a_later_evaluation_ends_it_at_once(
    run, tmp_path, monkeypatch, results, num_steps
):
    original, played, asked = HeldOut.play, [], []

    def signalled(*arguments):
        asked.append(arguments)
        signal.raise_signal(signal.SIGTERM)

    def play(self, pool):
        played.append(pool)
        if len(played) == 3:  # after: the untouched policies, the warm start
            monkeypatch.setattr(TransformersEngine, "generate_now", signalled)
        return original(self, pool)

    monkeypatch.setattr(HeldOut, "play", play)
    out, _ = run("--logging.progress", "plain", num_steps=num_steps, code=128 + signal.SIGTERM)
    assert "the evaluation after train step 2 was stopped" in out
    assert "train step 2 is saved; continue with" in out
    assert len(asked) == 1
    assert not (tmp_path / "run" / "eval.json").exists()
    monkeypatch.undo()
    run("--resume", num_steps=num_steps)
    run(out="other", num_steps=num_steps)
    assert results(tmp_path / "run") == results(tmp_path / "other")


@pytest.fixture
def signal_in_step_3(monkeypatch):
    """A signal arrives after the fourth supervised step; nothing follows it."""
    original = Updater.imitate

    def signalled(self, demonstrations, imitation):
        for step in original(self, demonstrations, imitation):
            assert step.step <= 3
            if step.step == 3:
                signal.raise_signal(signal.SIGTERM)
            yield step

    with monkeypatch.context() as patch:
        patch.setattr(Updater, "imitate", signalled)
        yield patch


def test_a_signal_during_the_warm_start_ends_at_once(run, tmp_path, signal_in_step_3):
    out, _ = run(num_steps=1, code=128 + signal.SIGTERM)
    assert "stopped; nothing is saved; the same command starts again" in out
    assert not (tmp_path / "run" / "checkpoints").exists()
    signal_in_step_3.undo()
    out, _ = run("--resume", num_steps=1)
    assert "going on" not in out


def test_the_warm_start_alone_is_that_of_a_run(run, tmp_path):
    """Whatever the engine: none is started for supervised steps."""
    flags = ("--engine.kind", "vllm", "--logging.progress", "plain")
    out, _ = run(*flags, command=["warm-start"], out="alone", num_steps=9)
    assert "warm start of t: step 1 of 40, loss" in out
    assert "warm start of p: step 40 of 40, loss" in out
    directory = tmp_path / "alone"
    assert {path.name for path in directory.iterdir()} == {
        "config.toml", "metrics.jsonl", "warm_start.jsonl", "policies",
    }  # fmt: skip
    assert load_config(directory / "config.toml").engine.kind == "vllm"
    steps = read_lines(directory / "warm_start.jsonl")
    assert [line["supervised_step"] for line in steps if line["policy"] == "t"] == [*range(1, 41)]
    assert all(line["loss"] > 0 and line["grad_norm"] > 0 for line in steps)
    (line,) = read_lines(directory / "metrics.jsonl")
    assert set(line) == {"step", "warm_start/t/loss", "warm_start/p/loss"}
    assert f"warm_start/p/loss {line['warm_start/p/loss']:.4f}" in out
    run(num_steps=0)
    (first, *_) = read_lines(tmp_path / "run" / "metrics.jsonl")
    assert {name: first[name] for name in line} == line
    for name in "tp":
        path = f"policies/{name}/model.safetensors"
        assert (directory / path).read_bytes() == (tmp_path / "run" / path).read_bytes()


def test_a_finished_run_is_prolonged(run, tmp_path):
    run("--num-steps", "1")
    out, err = run(
        *("--num-steps", "2", "--checkpoint.every", "1"),
        *("--logging.progress", "plain", "--resume"),
    )
    assert "num_steps = 2, was 1" in out
    assert "the learning rate stays constant" in out
    steps = [line["step"] for line in read_lines(tmp_path / "run" / "metrics.jsonl")]
    assert steps == [0, 1, 2]
    _, err = run("--num-steps", "1", "--resume", code=2)
    assert "has done 2 train steps" in err


@pytest.mark.parametrize(
    ("typed", "shown"),
    [("recipe:plan_path_sh", "recipe:plan_path_shared"), ("plan_path_sh", "plan_path_shared")],
)
def test_names_of_recipes_are_completed(monkeypatch, capsys, typed, shown):
    words = {"COMP_WORDS": f"pettingllms-train {typed}", "COMP_CWORD": "1"}
    for name, value in (words | {"_PETTINGLLMS_TRAIN_COMPLETE": "bash_complete"}).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit):
        main([])
    assert capsys.readouterr().out == f"plain,{shown}\n"


@pytest.mark.parametrize(
    ("module", "command", "kind"),
    [
        ("pettingllms_trainers.start", "pettingllms-train", signal.SIGTERM),
        ("pettingllms.cli", "pettingllms", signal.SIGINT),
    ],
)
def test_a_signal_while_modules_load_ends_a_command_with_one_line(module, command, kind):
    program = f"""
import signal, sys
from {module} import main

class Signal:
    def find_spec(self, *module):
        signal.raise_signal({kind})

sys.meta_path.insert(0, Signal())
main()
"""
    done = subprocess.run([sys.executable, "-c", program], stderr=subprocess.PIPE)
    assert done.returncode == 128 + kind
    assert done.stderr.decode() == f"{command}: stopped before it began\n"
