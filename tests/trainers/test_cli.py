"""`pettingllms-train` as a person uses it: clear messages, exit codes, nothing half-written."""

import importlib.metadata
import json
import re
import shlex
import signal
import subprocess
import sys

import pytest
from transformers import AutoModelForCausalLM

import pettingllms_trainers.runs.train as train_module
from pettingllms.files import read_lines
from pettingllms_trainers import commands
from pettingllms_trainers.backends.hf.engine import TransformersEngine
from pettingllms_trainers.backends.hf.updater import Updater
from pettingllms_trainers.cli import main
from pettingllms_trainers.config.loading import load_config
from pettingllms_trainers.runs.evaluate import HeldOut


@pytest.fixture
def run(small_run_file, tmp_path, capsys):
    def call(*flags, command=(), out="run", num_steps=2):
        path = str(small_run_file(num_steps))
        code = main([*command, path, "--output-dir", str(tmp_path / out), *flags])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--env.kwargs.size", "1"], "4 to 64"),
        (["--env.kwargs.team", "referee"], "invalid team"),
        (["--roles.planner", "q"], "names the policy 'q', which is not defined"),
        (["--evaluation.scripted", "gredy"], 'did you mean "greedy"'),
        (["--warm-start.demonstrators.tool.wizard", "1"], "the scripted policy 'wizard'"),
        (["--evaluation.kwargs.split", "tset"], "split"),
        (["--policies.p.hidden-size", "18"], "hidden_size"),
    ],
)
def test_bad_input_is_one_clear_line_and_writes_nothing(run, tmp_path, dry, flags, message):
    code, out, err = run(*dry, *flags)
    assert code == 2
    assert message in err
    assert err.startswith("pettingllms-train: ")
    assert "Traceback" not in err
    assert not (tmp_path / "run").exists()
    assert out == ""


@pytest.mark.parametrize(
    ("command", "flags", "message"),
    [
        ([], ["--policies.t.max-length", "12"], "prompts of t begin at .*policies.t.max_length"),
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
    code, _, err = run(*flags, command=command)
    assert code == 2
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
    code, _, err = run("--every-policy.lora.rank=4", flag)
    assert code == 2
    assert re.search(message, err), err
    assert not (tmp_path / "run").exists()


def test_a_run_does_not_pass_through_the_plan(small_run_file, tmp_path):
    keys = ["--warm-start.num-steps", "2", "--output-dir", str(tmp_path / "run")]
    program = "import sys; from pettingllms_trainers.cli import main; code = main(sys.argv[1:]); "
    program += "print(code, *sorted(sys.modules))"
    command = [sys.executable, "-c", program, str(small_run_file(1)), *keys]
    code, *modules = subprocess.check_output(command, text=True).splitlines()[-1].split()
    assert code == "0"
    assert "pettingllms_trainers.runs.prompts" in modules
    assert not [name for name in modules if name.startswith("pettingllms_trainers.plan")]


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


def test_a_run_writes_what_it_promises(run, tmp_path):
    code, out, _ = run()
    assert code == 0
    assert "policies, greedy" in out
    assert "scripted policy greedy" in out
    directory = tmp_path / "run"
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

    code, _, err = run()
    assert code == 2
    assert "is not empty" in err

    code, again, _ = run("--resume")
    assert code == 0
    assert again.split("written")[0] == out.split("written")[0], "a finished run reports again"

    code, _, err = run("--resume", "--seed", "5")
    assert code == 2
    assert "differs in seed" in err


def test_a_truncated_checkpoint_is_told(run, tmp_path):
    assert run(num_steps=1)[0] == 0
    path = sorted((tmp_path / "run" / "checkpoints").glob("*/policy-0/state.pt"))[-1]
    path.write_bytes(path.read_bytes()[:100])
    code, _, err = run("--resume", num_steps=1)
    assert code == 2
    assert "is damaged: policy-0/state.pt has 100 of" in err


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

    # Whatever started the tests may ignore it, as shells do for what runs in the background.
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield at
    signal.signal(signal.SIGINT, previous)


@pytest.mark.parametrize(
    ("kind", "moment"), [(signal.SIGTERM, "score_decisions"), (signal.SIGINT, "rollout_metrics")]
)
def test_a_signal_saves_a_checkpoint_and_ends(run, tmp_path, monkeypatch, signal_at, kind, moment):
    signal_at(moment, kind)
    code, out, _ = run(num_steps=5)
    assert code == 128 + kind
    assert "--resume" in out
    directory = tmp_path / "run"
    # The second train step would be evaluated: the resumed run does it, and writes its metrics.
    assert [line["step"] for line in read_lines(directory / "metrics.jsonl")] == [0, 1]
    assert (directory / "checkpoints" / "step-00000002").is_dir()
    assert not (directory / "eval.json").exists()
    monkeypatch.undo()
    code, *_ = run("--resume", num_steps=5)
    assert code == 0
    steps = [line["step"] for line in read_lines(directory / "metrics.jsonl")]
    assert steps == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("every", "saved", "kind"), [(1, 1, signal.SIGINT), (3, 0, signal.SIGTERM)]
)
def test_a_second_signal_ends_at_once_and_says_what_is_saved(
    run, tmp_path, monkeypatch, signal_at, every, saved, kind
):
    signal_at("rollout_metrics", kind, kind)
    code, out, _ = run("--checkpoint.every", str(every), num_steps=5)
    assert code == 128 + kind
    command = f"pettingllms-train {tmp_path / 'run'} --resume"
    told = f"stopped; train step {saved} is saved; continue with: {command}\n"
    assert told in out
    monkeypatch.undo()
    with monkeypatch.context() as patch:  # while it loads
        patch.setattr(commands, "open_machines", lambda *_: signal.raise_signal(kind))
        assert run("--resume", num_steps=5) == (128 + kind, told, "")
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
    code, out, err = run(command=command)
    assert code == 128 + kind
    assert (out + err).count("stopped; nothing is saved") == 1


def test_a_run_says_that_it_learns_nothing_and_stops_if_it_is_to(run, tmp_path):
    flags = ("--rollout.max-completion-tokens", "1", "--warm-start.num-steps", "0")
    flags += ("--logging.progress", "plain")
    code, out, err = run(*flags, "--stop-when-stalled", num_steps=5)
    assert code == 1
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
    assert [line["step"] for line in read_lines(directory / "metrics.jsonl")] == [0, 1, 2, 3]
    code, out, _ = run(*flags, "--resume", num_steps=5)
    assert code == 0
    table, _, after = out.partition("Held-out success")
    assert "warning" not in table, "it was given before the run was resumed"
    assert "warning: train steps 1 to 5: the policy t was not updated" in after
    (warning, *_) = json.loads((directory / "eval.json").read_text())["warnings"]
    assert re.search(cause, warning)


@pytest.mark.parametrize(("num_steps", "expected"), [(2, 0), (3, 1)])
def test_a_run_that_never_updates_a_policy_fails(run, num_steps, expected):
    flags = ("--rollout.max-completion-tokens=1", "--warm-start.num-steps=0")
    code, out, _ = run(*flags, "--env.kwargs.reward=outcome", num_steps=num_steps)
    assert code == expected
    told = "nothing was learnt: no train step has updated a policy\n"
    assert out.endswith(told) == bool(expected)


def test_a_role_without_a_policy(small_run_file, tmp_path, capsys):
    path = small_run_file()
    text = path.read_text().replace('\ntool = "t"', '\ntester = "t"')
    path.write_text(text.replace("[warm_start]\nnum_steps = 40", "[warm_start]\nnum_steps = 0"))
    assert main([str(path), "--output-dir", str(tmp_path / "run")]) == 2
    message = capsys.readouterr().err
    assert "the role 'tool' has no policy; 'tester' is not a role of this environment" in message
    assert not (tmp_path / "run").exists()


def test_a_frozen_policy_plays_and_is_left_alone(run, tmp_path):
    code, out, err = run(
        "--policies.p.frozen", "--env.kwargs.reward=outcome", "--logging.progress=plain"
    )
    assert code == 0
    said = " ".join((out + err).split())
    assert 'policies.p is frozen and has the model "tiny": it plays with random weights' in said
    assert "decisions before the last teach next to nothing" in said
    directory = tmp_path / "run"
    assert [path.name for path in (directory / "policies").iterdir()] == ["t"]
    assert "update/p/num_groups" not in read_lines(directory / "metrics.jsonl")[1]


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("reinforce", {}),
        ("grpo", {}),
        ("reinforce", {"grouping": "none", "credit": "step"}),
        ("vine", {}),
        ("reinforce", {"grouping": "turn", "credit": "success"}),
    ],
)
def test_episodes_of_a_level_are_compared(run, tmp_path, name, parameters):
    flags = [f"--algorithm.{key}={value}" for key, value in {"name": name, **parameters}.items()]
    code, _, err = run(*flags, num_steps=1)
    assert code == 0, err
    line = read_lines(tmp_path / "run" / "metrics.jsonl")[1]
    assert line["rollout/num_trees"] == 12


@pytest.mark.parametrize("num_imitated", [40, 0])
def test_a_signal_in_the_first_evaluation_ends_at_once(run, tmp_path, monkeypatch, num_imitated):
    asked = []

    def signalled(*arguments):
        asked.append(arguments)
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(TransformersEngine, "generate_now", signalled)
    code, out, _ = run("--warm-start.num-steps", str(num_imitated), num_steps=1)
    assert code == 128 + signal.SIGTERM
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
    code, out, _ = run("--logging.progress", "plain", num_steps=num_steps)
    assert code == 128 + signal.SIGTERM
    assert "the evaluation after train step 2 was stopped" in out
    assert "train step 2 is saved; continue with" in out
    assert len(asked) == 1
    assert not (tmp_path / "run" / "eval.json").exists()
    monkeypatch.undo()
    assert run("--resume", num_steps=num_steps)[0] == 0
    assert run(out="other", num_steps=num_steps)[0] == 0
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
    code, out, _ = run(num_steps=1)
    assert code == 128 + signal.SIGTERM
    assert "stopped; nothing is saved; the same command starts again" in out
    assert not (tmp_path / "run" / "checkpoints").exists()
    signal_in_step_3.undo()
    code, out, _ = run("--resume", num_steps=1)
    assert code == 0
    assert "going on" not in out


def test_only_the_warm_start(run, tmp_path):
    code, out, _ = run(command=["warm-start"], num_steps=9)
    assert code == 0
    directory = tmp_path / "run"
    assert {path.name for path in directory.iterdir()} == {
        "config.toml",
        "metrics.jsonl",
        "warm_start.jsonl",
        "policies",
    }
    steps = read_lines(directory / "warm_start.jsonl")
    assert [line["supervised_step"] for line in steps if line["policy"] == "t"] == [*range(1, 41)]
    assert all(line["loss"] > 0 and line["grad_norm"] > 0 for line in steps)
    (line,) = read_lines(directory / "metrics.jsonl")
    assert set(line) == {"step", "warm_start/t/loss", "warm_start/p/loss"}
    assert line["warm_start/p/loss"] < 1.5
    assert f"warm_start/p/loss {line['warm_start/p/loss']:.4f}" in out
    for name in ("t", "p"):
        AutoModelForCausalLM.from_pretrained(directory / "policies" / name)
    code, _, err = run(command=["warm-start"])
    assert code == 2
    assert "is not empty" in err


def test_the_warm_start_of_a_run_is_that_of_the_command(run, tmp_path):
    """Whatever the engine: none is started for supervised steps."""
    flags = ("--engine.kind", "vllm", "--logging.progress", "plain")
    code, out, _ = run(*flags, command=["warm-start"], out="alone")
    assert code == 0
    assert "warm start of t: step 1 of 40, loss" in out
    assert "warm start of p: step 40 of 40, loss" in out
    assert load_config(tmp_path / "alone" / "config.toml").engine.kind == "vllm"
    assert run(num_steps=0)[0] == 0
    losses = [
        {name: value for name, value in read_lines(tmp_path / out / "metrics.jsonl")[0].items()}
        for out in ("alone", "run")
    ]
    for name in ("warm_start/t/loss", "warm_start/p/loss"):
        assert losses[0][name] == losses[1][name]
        path = f"policies/{name.split('/')[1]}/model.safetensors"
        assert (tmp_path / "alone" / path).read_bytes() == (tmp_path / "run" / path).read_bytes()


def test_a_warm_start_that_is_stopped_says_so(run, tmp_path, signal_in_step_3):
    code, out, _ = run(command=["warm-start"])
    assert code == 128 + signal.SIGTERM
    assert "stopped; nothing is saved; the same command starts again" in out
    assert not (tmp_path / "run" / "policies").exists()
    signal_in_step_3.undo()
    assert run(command=["warm-start"])[0] == 0


def test_a_warm_start_beside_a_fixed_policy(small_run_file, tmp_path, capsys):
    path = small_run_file()
    friend = '\n[policies.friend]\nfixed = "oracle"\n'
    text = path.read_text().replace('planner = "p"', 'planner = "friend"')
    path.write_text(re.sub(r"\[policies\.p\].*?(?=\[roles\])", friend, text, flags=re.DOTALL))
    assert main(["warm-start", str(path), "--output-dir", str(tmp_path / "run")]) == 0
    assert [path.name for path in (tmp_path / "run" / "policies").iterdir()] == ["t"]
    assert main([str(path), "--output-dir", str(tmp_path / "other"), "--dry-run"]) == 0
    assert "fixed, not trained" in capsys.readouterr().out


def test_a_finished_run_is_prolonged(run, tmp_path):
    assert run("--num-steps", "1")[0] == 0
    code, out, err = run(
        *("--num-steps", "2", "--checkpoint.every", "1"),
        *("--logging.progress", "plain", "--resume"),
    )
    assert code == 0, err
    assert "num_steps = 2, was 1" in out
    assert "the learning rate stays constant" in out
    steps = [line["step"] for line in read_lines(tmp_path / "run" / "metrics.jsonl")]
    assert steps == [0, 1, 2]
    code, _, err = run("--num-steps", "1", "--resume")
    assert code == 2
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


def test_a_signal_while_modules_load_says_that_nothing_is_saved():
    program = """
import signal, sys
from pettingllms_trainers.start import main

class Signal:
    def find_spec(self, *module):
        signal.raise_signal(signal.SIGTERM)

sys.meta_path.insert(0, Signal())
main()
"""
    done = subprocess.run([sys.executable, "-c", program], stderr=subprocess.PIPE)
    assert done.returncode == 128 + signal.SIGTERM
    assert done.stderr == b"pettingllms-train: stopped before it began\n"
