"""Small models, samples of them and runs in several processes, for the tests of all backends."""

import os
import random
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, LlamaConfig, MistralConfig, Qwen3Config

from pettingllms.files import read_lines
from pettingllms_trainers.backends.hf.adapters import AdapterBase
from pettingllms_trainers.backends.hf.model import LoadedModel
from pettingllms_trainers.backends.hf.policy import TransformersPolicy
from pettingllms_trainers.backends.hf.tiny import CHARACTERS, build_tokenizer
from pettingllms_trainers.backends.hf.updater import TrainingSettings
from pettingllms_trainers.config import EngineConfig, LossConfig, OptimizerConfig
from pettingllms_trainers.config.sections import LoraConfig
from pettingllms_trainers.runs.metrics import is_timing
from pettingllms_trainers.types import (
    GenerateRequest,
    SamplingSettings,
    TrainingCompletion,
    TrainingGroup,
)

torch.set_num_threads(1)  # several at once are slower on models this small

TOKENIZER = build_tokenizer(CHARACTERS)
V, CONTEXT = len(TOKENIZER), 96
SIZES = {
    "vocab_size": V,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": CONTEXT,
    "initializer_range": 0.2,
    "tie_word_embeddings": True,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": TOKENIZER.eos_token_id,
}
"""Far from uniform: wrong weights would be noticed."""
CONFIGS = {
    "qwen3": lambda: Qwen3Config(**SIZES, head_dim=8),
    "llama": lambda: LlamaConfig(**SIZES),
    "window": lambda: MistralConfig(**SIZES, sliding_window=7),
}
OLD_NAMES = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]
"""For tests of vLLM and DeepSpeed, which use what is deprecated elsewhere."""
VLLM_FLAGS = ["--engine.kind=vllm", f"--engine.vllm.kv-cache-bytes={32 << 20}"]
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node")
ALONE_ON_A_CORE = {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}


def make_model(config="qwen3", seed=3):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return AutoModelForCausalLM.from_config(
            CONFIGS[config]() if isinstance(config, str) else config
        )


def training(*, loss=None, num_steps=10, max_logprob_gap=float("inf"), **optimizer):
    """Settings of updates; keywords are of the optimizer."""
    optimizer = {"learning_rate": 1e-2, "tokens_per_microbatch": 200} | optimizer
    return TrainingSettings(
        loss=LossConfig(**(loss or {})),
        optimizer=OptimizerConfig(**optimizer),
        num_steps=num_steps,
        max_completion_tokens=12,
        seed=0,
        max_logprob_gap=max_logprob_gap,
    )


def make_policy(model="qwen3", *, precision="float32", **settings):
    """A policy that learns, of a model, a family or a configuration."""
    model = model if isinstance(model, torch.nn.Module) else make_model(model)
    return TransformersPolicy(
        LoadedModel(model, TOKENIZER),
        engine=EngineConfig(precision=precision),
        training=training(**settings),
    )


def base_of(directory, precision="float32", **options):
    return AdapterBase.from_pretrained(str(directory), precision=precision, device="cpu", **options)


def add_adapter(base, name="tool", seed=0, lora=None):
    """The model of a new adapter whose part in it is not zero."""
    adapter = base.add(name, LoraConfig(**{"rank": 4, "alpha": 8} | (lora or {})), seed)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for key, parameter in base.model.named_parameters():
            if f"lora_B.{adapter.name}." in key:
                parameter.normal_(std=0.2, generator=generator)
    return LoadedModel.of_adapter(adapter)


def make_requests(count, *, seed=0, lengths=(3, 20), candidates=(1, 2, 5), vocab=V, **sampling):
    rng = random.Random(seed)
    settings = SamplingSettings(**{"max_completion_tokens": 12} | sampling)
    return [
        GenerateRequest(
            prompt_ids=tuple(rng.randrange(4, vocab) for _ in range(rng.randint(*lengths))),
            num_candidates=rng.choice(candidates),
            sampling=settings,
            seed=rng.randrange(2**40),
        )
        for _ in range(count)
    ]


def groups_of(requests, answers, roles=("planner",), seed=0):
    """Groups of answers with random advantages; roles take turns."""
    rng = random.Random(seed)
    return [
        TrainingGroup(
            role=roles[index % len(roles)],
            prompt_ids=request.prompt_ids,
            completions=tuple(
                TrainingCompletion(c.token_ids, c.logprobs, rng.gauss(0, 1)) for c in completions
            ),
            temperature=request.sampling.temperature,
        )
        for index, (request, completions) in enumerate(zip(requests, answers, strict=True))
    ]


def sample_groups(policy, count=6, seed=0, roles=("planner",), **sampling):
    """Groups that a policy has sampled by itself."""
    vocab = policy.engine.limits.vocab_size
    sampling = {"lengths": (2, 20), "candidates": (2, 4), "vocab": vocab} | sampling
    requests = make_requests(count, seed=seed, **sampling)
    return groups_of(requests, policy.engine.generate_now(requests), roles, seed)


def shifted(groups, nats):
    """Groups as from an engine whose log-probabilities are off."""
    return [
        replace(
            group,
            completions=tuple(
                c._replace(logprobs=tuple(v + nats for v in c.logprobs)) for c in group.completions
            ),
        )
        for group in groups
    ]


def flat(scores):
    """The numbers of scores by group, completion and token, in order."""
    return torch.tensor([value for group in scores for part in group for value in part])


def engine_logprobs(groups):
    """What the engine said of all sampled tokens."""
    return flat([[c.logprobs for c in group.completions] for group in groups])


def weights_of(policy):
    return torch.cat([p.detach().flatten() for p in policy.loaded.model.parameters()])


def token_ids(answers):
    return [[completion.token_ids for completion in group] for group in answers]


@torch.no_grad()
def largest_gap(model, requests, answers):
    """The greatest distance of log-probabilities from those of a full forward pass."""
    greatest = 0.0
    for request, group in zip(requests, answers, strict=True):
        assert len(group) == request.num_candidates
        for completion in group:
            ids = torch.tensor([request.prompt_ids + completion.token_ids], device=model.device)
            logits = model(ids, use_cache=False).logits[0, len(request.prompt_ids) - 1 : -1]
            logprobs = (logits.float() / (request.sampling.temperature or 1)).log_softmax(-1)
            own = logprobs.gather(1, ids[0, len(request.prompt_ids) :, None]).squeeze(1)
            gap = (own - torch.tensor(completion.logprobs)).abs().max().item()
            greatest = max(greatest, gap)
    return greatest


def run_python(*arguments, fails=False, **variables):
    """Run a Python process to its end, which must be a success unless it is to fail."""
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        env={**os.environ, **ALONE_ON_A_CORE, **variables},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert (done.returncode != 0) == fails, done.stdout[-3000:] + done.stderr[-3000:]
    return done


def figures(directory):
    """What a run has measured and is not a timing, by step and name."""
    return {
        (line["step"], name): value
        for line in read_lines(directory / "metrics.jsonl")
        for name, value in line.items()
        if not is_timing(name)
    }


def assert_same_run(directory, other, tolerance):
    """Compare what two runs have measured, and the weights at their ends."""
    assert figures(other) == pytest.approx(figures(directory), rel=tolerance, abs=tolerance)
    weights, its = saved_weights(directory), saved_weights(other)
    assert set(weights) == set(its)
    for name in weights:
        torch.testing.assert_close(weights[name], its[name], rtol=tolerance, atol=tolerance)


def saved_weights(directory):
    return {
        f"{path.parent.name}/{name}": weight
        for path in sorted(directory.glob("policies/*/*model.safetensors"))  # or of an adapter
        for name, weight in load_file(path).items()
    }
