"""Training runs in which each role is an adapter on one base, through the command line."""

import json

import pytest
import torch
from safetensors.torch import load_file

from pettingllms.files import read_lines
from pettingllms_trainers.backends.build import build_policies
from pettingllms_trainers.backends.hf.adapters import AdapterBase
from pettingllms_trainers.backends.hf.tiny import build_tiny
from pettingllms_trainers.cli import main
from pettingllms_trainers.config import Config
from pettingllms_trainers.config.loading import load_config

LORA = [f"--policies.{name}.lora.rank=4" for name in "tp"]


@pytest.fixture(scope="module")
def run(small_run_file, tmp_path_factory):
    """A finished run of four train steps."""
    directory = tmp_path_factory.mktemp("lora") / "run"
    flags = ["--output-dir", str(directory), "--checkpoint.keep=9", *LORA]
    assert main([str(small_run_file(4)), *flags]) == 0
    return directory


def test_both_roles_learn(run):
    lines = read_lines(run / "metrics.jsonl")
    for policy in ("t", "p"):
        trained = [line for line in lines if f"loss/{policy}/loss" in line]
        assert len(trained) >= 3
        for line in trained:
            assert line[f"loss/{policy}/first_ratio_error"] < 1e-4
            assert line[f"loss/{policy}/grad_norm"] > 0
        assert trained[0][f"loss/{policy}/kl"] < trained[-1][f"loss/{policy}/kl"], "from the start"
    variants = json.loads((run / "eval.json").read_text())["after"]["variants"]
    assert {"greedy", "swapped"} <= set(variants)


def test_adapters_are_trained_further(run, small_run_file, tmp_path):
    """Each policy's model is the directory of its adapter; the sizes of tiny models are unused."""
    flags = [f"--policies.{name}.model={run / 'policies' / name}" for name in "tp"]
    flags += ["--output-dir", str(tmp_path / "run"), "--warm-start.num-steps=0"]
    assert main([str(small_run_file(1)), *flags]) == 0
    first = read_lines(tmp_path / "run" / "evaluations.jsonl")[0]
    last = read_lines(run / "evaluations.jsonl")[-1]
    assert first["variants"]["greedy"] == last["variants"]["greedy"]
    for name in "tp":
        before, after = (
            load_file(directory / "policies" / name / "adapter_model.safetensors")
            for directory in (run, tmp_path / "run")
        )
        assert any(not torch.equal(before[key], after[key]) for key in before)


@pytest.fixture
def config(small_run_file, tmp_path):
    """A function from flags to a configuration of two policies on one model."""
    model = build_tiny(tmp_path / "model", hidden_size=16, num_layers=1, num_heads=2)

    def build(*flags):
        paths = [f"--policies.{name}.model={model}" for name in "tp"]
        return load_config(small_run_file(), [*paths, *flags])

    return build


def test_policies_share_their_base(config):
    lora = build_policies(config(*LORA))
    assert lora["t"].loaded.model is lora["p"].loaded.model
    assert lora["t"].loaded.adapter.base is lora["p"].loaded.adapter.base
    full = build_policies(config())
    assert full["t"].loaded.model is not full["p"].loaded.model
    mixed = build_policies(config(LORA[0], "--policies.p.frozen"))
    assert mixed["t"].loaded.model is mixed["p"].loaded.model
    assert mixed["p"].loaded.adapter.name is None
    apart = build_policies(config(LORA[0]))
    assert apart["t"].loaded.model is not apart["p"].loaded.model, "all weights of one are trained"


def test_mistakes_are_named(config, tmp_path):
    known = config(*LORA)
    with pytest.raises(ValueError, match=r"leave it out, or deepspeed\.stage and fsdp\.enabled"):
        Config.model_validate(known.model_dump() | {"deepspeed": {"stage": 2}})
    base = AdapterBase.from_pretrained(str(tmp_path / "model"), precision="float32", device="cpu")
    base.add("a", known.policies["t"].lora, 0).save(tmp_path / "adapter")
    for change, message in (
        ({"frozen": True}, r"policies\.t is frozen.*leave policies\.t\.lora out"),
        ({"model": str(tmp_path / "adapter")}, r"policies\.t: .* holds a LoRA adapter"),
    ):
        table = known.model_dump()
        table["policies"]["t"] |= change
        with pytest.raises(ValueError, match=message):
            Config.model_validate(table)
