"""Runs of two processes with FSDP2 are those of one process without, up to rounding."""

import json
import os
import shutil
import subprocess
import sys

import pytest
import torch
import torch.distributed
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from pettingllms.files import read_lines
from pettingllms_trainers.backends.fsdp import fsdp_learner
from pettingllms_trainers.backends.hf.attention import use_layouts
from pettingllms_trainers.backends.hf.learner import Learner
from pettingllms_trainers.config import OptimizerConfig
from pettingllms_trainers.learning.weighted import WeightedGroup
from pettingllms_trainers.ranks import Ranks
from pettingllms_trainers.runs.metrics import is_timing
from pettingllms_trainers.types import TrainingCompletion, TrainingGroup

NUM_STEPS = 2
TWO = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


def python(*arguments):
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done


@pytest.fixture(scope="module")
def train(small_run_file, tmp_path_factory):
    """Return a function that trains, once for each way, and gives the directory."""
    found, config = {}, small_run_file(NUM_STEPS)

    def call(launcher, *flags, directory=None):
        key = (*launcher, *flags, directory)
        if key not in found:
            found[key] = directory or tmp_path_factory.mktemp("fsdp") / "run"
            keep = ("--checkpoint.keep=9", "--loss.kl-coefficient=0.1")
            line = (config, "--output-dir", found[key], *keep, *flags)
            python(*launcher, "-m", "pettingllms_trainers.cli", *line)
        return found[key]

    return call


def weights_of(directory):
    return {
        f"{path.parent.name}/{name}": weight
        for path in sorted(directory.glob("policies/*/model.safetensors"))
        for name, weight in load_file(path).items()
    }


def assert_same_run(directory, other, tolerance):
    """Also the distance from the reference, which is another one after every step."""
    lines, others = read_lines(directory / "metrics.jsonl"), read_lines(other / "metrics.jsonl")
    assert len(lines) == len(others) == NUM_STEPS + 1
    assert lines[-1]["loss/t/kl"] > 0
    for line, its in zip(lines, others, strict=True):
        assert set(line) == set(its)
        for name in line:
            if not is_timing(name):
                assert its[name] == pytest.approx(line[name], rel=tolerance, abs=tolerance), name
    weights, its = weights_of(directory), weights_of(other)
    assert set(weights) == set(its)
    for name in weights:
        torch.testing.assert_close(weights[name], its[name], rtol=tolerance, atol=tolerance)


def resumed(train, launcher, directory):
    """Go on from the first step of a run of two processes."""
    shutil.copytree(train(TWO, "--fsdp.enabled"), directory)
    shutil.rmtree(directory / "checkpoints" / "step-00000002")
    return train(launcher, "--fsdp.enabled", "--resume", directory=directory)


@pytest.fixture
def alone():
    """Take the group apart that FSDP makes where a process is the only one."""
    yield
    torch.distributed.destroy_process_group()


def test_one_process_learns_with_shards_as_without(model_directory, alone):
    """Also from a state that was read back."""
    directory, config = model_directory(), OptimizerConfig(weight_decay=0.1, max_grad_norm=0.5)
    completion = TrainingCompletion((3, 4), (-1.0, -1.0), 1.0)
    group = TrainingGroup(role="r", prompt_ids=(1, 2), completions=(completion,))
    mini_batch = [WeightedGroup(group=group, weights=(1.0,))]

    def new(make):
        model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
        use_layouts(model)
        return make(model, config, "float32", Ranks())

    def step(learner):
        return learner.step(mini_batch, lambda found, _: found.logprobs.sum(), 1e-2)

    plain, sharded, other = new(Learner.plain), new(fsdp_learner), new(fsdp_learner)
    assert step(sharded) == pytest.approx(step(plain), rel=1e-5)
    other.optimizer.load_state_dict(sharded.optimizer.state_dict())
    for learner in (plain, sharded, other):
        step(learner)
    expected = dict(plain.weights.named())
    own = dict(other.weights.named())
    assert own.keys() == expected.keys()
    for name, weight in sharded.weights.named():
        torch.testing.assert_close(weight, expected[name], rtol=1e-4, atol=1e-5)
        assert torch.equal(own[name], weight)


@pytest.mark.nightly
def test_two_processes_train_as_one_without(train):
    whole, sharded = train([]), train(TWO, "--fsdp.enabled")
    assert_same_run(whole, sharded, 1e-4)
    model = AutoModelForCausalLM.from_pretrained(sharded / "policies" / "t")
    saved = load_file(sharded / "policies" / "t" / "model.safetensors")
    assert all(torch.equal(weight, saved[name]) for name, weight in model.named_parameters())


@pytest.mark.nightly
@pytest.mark.parametrize(("launcher", "tolerance"), [(TWO, 0), ([], 1e-4)])
def test_a_resumed_run_ends_alike_with_any_number_of_processes(
    train, tmp_path, launcher, tolerance
):
    again = resumed(train, launcher, tmp_path / "run")
    assert_same_run(train(TWO, "--fsdp.enabled"), again, tolerance)


SHARDS = """
import json
import sys
import torch
from pettingllms_trainers.backends.fsdp import fsdp_learner
from pettingllms_trainers.backends.hf.model import LoadedModel
from pettingllms_trainers.backends.hf.policy import TransformersPolicy
from pettingllms_trainers.backends.hf.updater import TrainingSettings
from pettingllms_trainers.config import EngineConfig, LossConfig, OptimizerConfig
from pettingllms_trainers.errors import UpdateError
from pettingllms_trainers.learning.weighted import WeightedGroup
from pettingllms_trainers.ranks import joined_ranks
from pettingllms_trainers.types import TrainingCompletion, TrainingGroup

directory, precision = sys.argv[1:]
settings = TrainingSettings(
    loss=LossConfig(), optimizer=OptimizerConfig(gradient_checkpointing=True), num_steps=1,
    max_completion_tokens=8, seed=0,
)
group = WeightedGroup(
    group=TrainingGroup(
        role="r",
        prompt_ids=(1, 2),
        completions=(TrainingCompletion((3, 4), (-1.0, -1.0), 1.0),),
    ),
    weights=(1.0,),
)
with joined_ranks() as ranks:
    def load(device):
        return LoadedModel.from_pretrained(
            directory, precision=precision, is_trained=True, device=device
        )

    loaded = load(None if ranks.is_main else "meta")
    read = sum(p.numel() for p in loaded.model.parameters() if p.device.type != "meta")
    policy = TransformersPolicy(
        loaded, engine=EngineConfig(kind="vllm", precision=precision), training=settings,
        ranks=ranks, new_learner=fsdp_learner,
    )
    learner = policy.updater.learner
    own = dict(load("cpu").model.named_parameters())

    def is_same():
        found = [torch.equal(w, own[name]) for name, w in policy.exporter.named_weights()]
        return all(found) and len(found) == len(own)

    same = [is_same()]
    try:
        learner.step([group], lambda found, _: (found.logprobs.sum() * 0).sqrt(), 1e-2)
    except UpdateError as error:
        assert "gradient is " in str(error), error
        same.append(is_same())
    copy = learner.weights.copy()
    learner.step([group], lambda found, _: found.logprobs.sum(), 1e-2)
    same.append(is_same())
    with learner.weights.holding(copy):
        same.append(is_same())
    same.append(is_same())
    found = {
        "read": read,
        "held": sum(p.to_local().numel() for p in learner.weights.trained.values()),
        "all": sum(p.numel() for p in own.values()),
        "same": same,
        "is_packed": learner.is_packed,
    }
    print("\\n" + json.dumps(found), flush=True)
"""


@pytest.mark.nightly
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_ranks_hold_shards_that_the_main_one_has_read(model_directory, tmp_path, precision):
    """The file's weights; a gradient that is not finite leaves them, a step does not."""
    script = tmp_path / "shards.py"
    script.write_text(SHARDS)
    done = python(*TWO, script, model_directory(), precision)
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert sorted(line["read"] for line in found) == [0, found[0]["all"]]
    for line in found:
        assert line["held"] == pytest.approx(line["all"] / 2, rel=0.01)
        assert line["same"] == [True, True, False, True, False]
        assert line["is_packed"]
