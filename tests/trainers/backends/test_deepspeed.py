"""Runs of two processes with DeepSpeed are those of one process without, up to rounding."""

import importlib.metadata
import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

pytest.importorskip("deepspeed", reason="the package deepspeed is not installed")

import torch
from safetensors.torch import load_file
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    NemotronConfig,
    NemotronForCausalLM,
)

from pettingllms.files import read_lines
from pettingllms_trainers.backends.deepspeed import check_deepspeed
from pettingllms_trainers.errors import ConfigError
from pettingllms_trainers.runs.metrics import is_timing

# It calls torch by old names.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]
NUM_STEPS = 4
CREDITS = {
    "value": ["--algorithm.name=value"],
    "vine": ["--algorithm.name=vine"],
    "lockstep": ["--algorithm.name=lockstep", "--algorithm.free_share=0"],  # so that they move
}
FLAGS = ["--checkpoint.keep=9"]
LEAKING = {
    "vocab_size": 100,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 64,
    "initializer_range": 0.5,
}


def start(num_processes, *arguments):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", str(num_processes), "-m", "pettingllms_trainers.cli"]
    return subprocess.Popen(
        [*command, *map(str, arguments), *FLAGS],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(process):
    output, _ = process.communicate(timeout=500)
    return process.returncode, output


@pytest.fixture(scope="module")
def config(small_run_file):
    return small_run_file(NUM_STEPS)


@pytest.fixture(scope="module")
def train(config, tmp_path_factory):
    """Return a function that trains, once for each way, and gives the directory."""
    found = {}

    def call(num_processes, *flags):
        key = (num_processes, *flags)
        if key not in found:
            found[key] = tmp_path_factory.mktemp("deepspeed") / "run"
            code, output = finish(start(num_processes, config, "--output-dir", found[key], *flags))
            assert code == 0, output[-3000:]
        return found[key]

    return call


def weights_of(directory):
    return {
        f"{path.parent.name}/{name}": weight
        for path in sorted(directory.glob("policies/*/model.safetensors"))
        for name, weight in load_file(path).items()
    }


def assert_same_run(directory, other, tolerance):
    lines, others = read_lines(directory / "metrics.jsonl"), read_lines(other / "metrics.jsonl")
    assert len(lines) == len(others) == NUM_STEPS + 1
    for line, its in zip(lines, others, strict=True):
        assert set(line) == set(its)
        for name in line:
            if not is_timing(name):
                assert its[name] == pytest.approx(line[name], rel=tolerance, abs=tolerance), name
    weights, its = weights_of(directory), weights_of(other)
    assert set(weights) == set(its)
    for name in weights:
        torch.testing.assert_close(weights[name], its[name], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    "stage", [1, pytest.param(2, marks=pytest.mark.smoke), pytest.param(3, marks=pytest.mark.smoke)]
)
def test_two_processes_train_as_one_without(train, stage):
    assert_same_run(train(1), train(2, f"--deepspeed.stage={stage}"), 1e-4)


@pytest.mark.parametrize("credit", CREDITS)
def test_every_credit_is_that_of_one_process(train, credit):
    one, two = train(1, *CREDITS[credit]), train(2, *CREDITS[credit], "--deepspeed.stage=2")
    assert_same_run(one, two, 1e-4)


@pytest.mark.parametrize(("stage", "offload"), [(2, "optimizer"), (3, "all")])
def test_offload_changes_nothing(train, stage, offload):
    flags = [f"--deepspeed.stage={stage}", f"--deepspeed.offload={offload}"]
    assert_same_run(train(1), train(2, *flags), 1e-4)


def test_weights_in_bfloat16_are_learnt_beside_those_in_float32(train):
    directory = train(2, "--deepspeed.stage=3", "--engine.precision=bfloat16")
    for line in read_lines(directory / "metrics.jsonl")[1:]:
        for policy in "tp":
            assert line[f"loss/{policy}/grad_norm"] > 0
            assert line[f"loss/{policy}/first_ratio_error"] < 0.5
    assert {weight.dtype for weight in weights_of(directory).values()} == {torch.bfloat16}


def test_policies_are_ordinary_models(train):
    directory = train(2, "--deepspeed.stage=3")
    for policy in "tp":
        model = AutoModelForCausalLM.from_pretrained(directory / "policies" / policy)
        saved = load_file(directory / "policies" / policy / "model.safetensors")
        for name, parameter in model.named_parameters():
            assert torch.equal(parameter, saved[name]), name


@pytest.mark.parametrize("stage", [2, 3])
def test_a_resumed_run_ends_bit_for_bit_like_one_that_was_not(config, train, tmp_path, stage):
    whole = train(2, f"--deepspeed.stage={stage}")
    shutil.copytree(whole, tmp_path / "run")
    for step in range(2, NUM_STEPS + 1):
        shutil.rmtree(tmp_path / "run" / "checkpoints" / f"step-{step:08d}")
    flags = [config, "--output-dir", tmp_path / "run", f"--deepspeed.stage={stage}", "--resume"]
    code, output = finish(start(2, *flags))
    assert code == 0, output[-3000:]
    assert_same_run(whole, tmp_path / "run", 0)


def test_another_number_of_processes_may_resume(config, train, tmp_path):
    whole = train(2, "--deepspeed.stage=3")
    shutil.copytree(whole, tmp_path / "run")
    for step in range(2, NUM_STEPS + 1):
        shutil.rmtree(tmp_path / "run" / "checkpoints" / f"step-{step:08d}")
    flags = [config, "--output-dir", tmp_path / "run", "--deepspeed.stage=3", "--resume"]
    code, output = finish(start(1, *flags))
    assert code == 0, output[-3000:]
    assert_same_run(whole, tmp_path / "run", 1e-4)


def test_a_signal_to_the_launcher_saves_and_ends_all(config, train, tmp_path):
    flags = [config, "--output-dir", tmp_path / "run", "--deepspeed.stage=2"]
    process = start(2, *flags)
    try:
        deadline = time.monotonic() + 300
        while not (tmp_path / "run" / "checkpoints" / "step-00000001").exists():
            assert process.poll() is None, process.communicate()[0][-3000:]
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        code, output = finish(process)
    finally:
        process.kill()
    assert code != 0
    assert "continue with --resume" in output
    saved = sorted((tmp_path / "run" / "checkpoints").iterdir())
    assert len(saved) == len(read_lines(tmp_path / "run" / "metrics.jsonl")) < NUM_STEPS + 1
    code, output = finish(start(2, *flags, "--resume"))
    assert code == 0, output[-3000:]
    assert_same_run(train(2, "--deepspeed.stage=2"), tmp_path / "run", 0)


def test_a_version_that_takes_wrong_steps_is_refused(monkeypatch):
    check_deepspeed()
    monkeypatch.setattr(importlib.metadata, "version", lambda _: "0.19.7")
    with pytest.raises(ConfigError, match=r"deepspeed>=0\.19\.8 is required.*found.*Install it"):
        check_deepspeed()


WRONG_STEPS = """
import contextlib
import sys
import torch
from transformers import AutoModelForCausalLM
from pettingllms_trainers.backends.deepspeed import loading_shards, zero_learner
from pettingllms_trainers.config import DeepSpeedConfig, OptimizerConfig
from pettingllms_trainers.errors import UpdateError
from pettingllms_trainers.learning.weighted import WeightedGroup
from pettingllms_trainers.ranks import Ranks
from pettingllms_trainers.types import TrainingCompletion, TrainingGroup

directory, *ways = sys.argv[1:]
group = WeightedGroup(
    group=TrainingGroup(
        role="r",
        prompt_ids=(1, 2),
        completions=(TrainingCompletion((3, 4), (-1.0, -1.0), 1.0),),
    ),
    weights=(1.0,),
)
for way in ways:
    stage, offload, precision = way.split(",")
    config = OptimizerConfig(learning_rate=1e-2)
    deepspeed = DeepSpeedConfig(stage=int(stage), offload=offload)
    with loading_shards(config, precision, deepspeed) if stage == "3" else contextlib.nullcontext():
        model = AutoModelForCausalLM.from_pretrained(directory)
    learner = zero_learner(model, config, precision, Ranks(), deepspeed)
    before = {name: weight.clone() for name, weight in learner.weights.named()}
    try:
        learner.step([group], lambda found, _: (found.logprobs.sum() * 0).sqrt(), 1e-2)
        print(way, "no error")
    except UpdateError as error:
        assert "gradient is " in str(error) and "weights were not changed" in str(error), error
    same = [torch.equal(weight, before[name]) for name, weight in learner.weights.named()]
    state = learner.optimizer.state_dict()
    moments = [*state["exp_avg"].values(), *state["exp_avg_sq"].values()]
    learner.step([group], lambda found, _: found.logprobs.sum(), 1e-2)
    learnt = [torch.equal(weight, before[name]) for name, weight in learner.weights.named()]
    print(way, all(same), any(map(torch.count_nonzero, moments)), all(learnt))
"""


def test_a_gradient_that_is_not_finite_changes_nothing(model_directory):
    """The loss is finite, so that only the gradient's norm tells."""
    ways = ["1,none,float32", "2,optimizer,float32", "3,none,float32", "2,none,bfloat16"]
    done = subprocess.run(
        [sys.executable, "-c", WRONG_STEPS, str(model_directory()), *ways],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines() == [f"{way} True False False" for way in ways]


SHARDS = """
import functools
import json
import sys
import torch
from pettingllms_trainers.backends.deepspeed import loading_shards, zero_learner
from pettingllms_trainers.backends.hf.model import LoadedModel
from pettingllms_trainers.backends.hf.policy import TransformersPolicy
from pettingllms_trainers.backends.hf.updater import TrainingSettings
from pettingllms_trainers.config import DeepSpeedConfig, EngineConfig, LossConfig, OptimizerConfig
from pettingllms_trainers.ranks import joined_ranks

config, deepspeed = OptimizerConfig(), DeepSpeedConfig(stage=3)
settings = TrainingSettings(
    loss=LossConfig(), optimizer=config, num_steps=1, max_completion_tokens=8, seed=0
)
with joined_ranks() as ranks:
    for directory in sys.argv[1:]:
        with loading_shards(config, "float32", deepspeed):
            loaded = LoadedModel.from_pretrained(
                directory, precision="float32", is_trained=True, device=None
            )
        parameters = dict(loaded.model.named_parameters())
        held = sum(p.numel() for p in parameters.values()), sum(
            p.ds_tensor.numel() for p in parameters.values()
        )
        policy = TransformersPolicy(
            loaded,
            engine=EngineConfig(kind="vllm"),
            training=settings,
            ranks=ranks,
            new_learner=functools.partial(zero_learner, deepspeed=deepspeed),
        )
        whole = LoadedModel.from_pretrained(directory, precision="float32", is_trained=True).model
        own = dict(whole.named_parameters())
        same = [torch.equal(w, own[name]) for name, w in policy.exporter.named_weights()]
        found = {
            "full": held[0],
            "shards": held[1],
            "all": whole.num_parameters(),
            "is_same": all(same) and len(same) == len(own),
            "is_packed": policy.updater.learner.is_packed,
        }
        print("\\n" + json.dumps(found), flush=True)
"""


@pytest.mark.smoke
def test_no_process_loads_all_weights_and_the_model_is_checked_in_shards(model_directory, tmp_path):
    leaking = tmp_path / "nemotron"  # mixes neighbouring tokens outside its attention
    NemotronForCausalLM(NemotronConfig(**LEAKING)).save_pretrained(leaking)
    AutoTokenizer.from_pretrained(model_directory()).save_pretrained(leaking)
    script = tmp_path / "shards.py"
    script.write_text(SHARDS)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", "2", str(script), str(model_directory()), str(leaking)]
    done = subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(found) == 4, "two models on two ranks"
    for line in found:
        assert line["full"] == 0
        assert line["shards"] == pytest.approx(line["all"] / 2, rel=0.01)
        assert line["is_same"]
    assert [line["is_packed"] for line in found] == [True, True, False, False]
    assert "packed log-probabilities are" in done.stderr
