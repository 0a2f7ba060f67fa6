"""Tests of backends that are not in every environment: `make test-backends` has them all.

Each module skips when its component is missing. With PETTINGLLMS_REQUIRE_BACKENDS=1 a skip is a
failure, so that a broken installation cannot pass for a green run.
"""

import contextlib
import os
from functools import cache

import pytest

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

REQUIRED = os.environ.get("PETTINGLLMS_REQUIRE_BACKENDS") == "1"


def pytest_configure(config):
    # vLLM leaves the sockets' context of an engine process to the garbage collector.
    config.addinivalue_line("filterwarnings", "ignore:Unclosed context:ResourceWarning")


def _failed_if_skipped(report):
    if REQUIRED and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"PETTINGLLMS_REQUIRE_BACKENDS=1 allows no skips: {report.longrepr}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    return _failed_if_skipped((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    return _failed_if_skipped((yield))


@pytest.fixture(scope="session")
def model_directory(tmp_path_factory):
    """A function from a seed to the directory of a tiny Qwen3 that is sure of itself.

    Random weights of the usual size give nearly uniform distributions, in which wrong weights would
    not be noticed.
    """
    from pettingllms_trainers.backends.hf.tiny import build_tiny

    @cache
    def build(seed=0):
        directory = tmp_path_factory.mktemp(f"model-{seed}")
        return build_tiny(
            directory,
            hidden_size=128,
            num_layers=2,
            num_heads=4,
            max_length=256,
            init_std=0.2,
            seed=seed,
        )

    return build


@pytest.fixture(scope="module")
def policy(model_directory):
    """The trainer's model."""
    from pettingllms_trainers.backends.hf.policy import TransformersPolicy
    from pettingllms_trainers.config import EngineConfig

    return TransformersPolicy.from_pretrained(model_directory(0), engine=EngineConfig())


@pytest.fixture(scope="module")
def saved_adapter(model_directory, tmp_path_factory):
    """A function from a seed to a directory of a LoRA adapter and the model with it."""
    peft = pytest.importorskip("peft", reason="the package peft is not installed")
    import torch
    from transformers import AutoModelForCausalLM

    def build(seed):
        directory = tmp_path_factory.mktemp(f"adapter-{seed}")
        settings = peft.LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "down_proj"])
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            base = AutoModelForCausalLM.from_pretrained(model_directory(0))
            model = peft.get_peft_model(base, settings)
            for name, parameter in model.named_parameters():
                if "lora_" in name:
                    torch.nn.init.normal_(parameter, std=0.2)
        model.save_pretrained(directory)
        return directory, model.eval()

    return build


@pytest.fixture(scope="module")
def closing():
    """A stack of what is to be closed after the module."""
    with contextlib.ExitStack() as stack:
        yield stack
