"""Tests of backends that are not in every environment: `make test-backends` has them all.

Each module skips when its component is missing. With PETTINGLLMS_REQUIRE_BACKENDS=1 a skip is a
failure, so that a broken installation cannot pass for a green run.
"""

import os
import random

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
    """Return a function from a seed to the directory of a tiny Qwen3 that is sure of itself.

    Random weights of the usual size give nearly uniform distributions, in which wrong weights would
    not be noticed.
    """
    from pettingllms_trainers.backends.hf.tiny import build_tiny

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


@pytest.fixture(scope="session")
def make_requests():
    """Return a function that makes requests of random prompts."""
    from pettingllms_trainers.types import GenerateRequest, SamplingSettings

    def build(count, *, seed=0, lengths=(3, 80), candidates=(1, 2, 5), **sampling):
        rng = random.Random(seed)
        settings = SamplingSettings(**{"max_completion_tokens": 16} | sampling)
        return [
            GenerateRequest(
                prompt_ids=tuple(rng.randrange(4, 100) for _ in range(rng.randint(*lengths))),
                num_candidates=rng.choice(candidates),
                sampling=settings,
                seed=rng.randrange(2**53),
            )
            for _ in range(count)
        ]

    return build


@pytest.fixture(scope="session")
def largest_gap():
    """Return a function: greatest distance of sampled log-probabilities from the trainer's."""
    import torch

    @torch.no_grad()
    def distance(model, requests, completions):
        greatest = 0.0
        for request, group in zip(requests, completions, strict=True):
            assert len(group) == request.num_candidates
            for completion in group:
                ids = torch.tensor([request.prompt_ids + completion.token_ids])
                logits = model(ids, use_cache=False).logits[0, len(request.prompt_ids) - 1 : -1]
                logprobs = (logits.float() / (request.sampling.temperature or 1)).log_softmax(-1)
                own = logprobs.gather(1, torch.tensor(completion.token_ids)[:, None]).squeeze(1)
                gap = (own - torch.tensor(completion.logprobs)).abs().max().item()
                greatest = max(greatest, gap)
        return greatest

    return distance
