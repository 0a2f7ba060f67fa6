"""Supervised warm start: learns the demonstrations, and only their completions."""

import random

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from pettingllms.errors import InvalidArgument
from pettingllms_trainers.backends.hf.attention import use_layouts
from pettingllms_trainers.backends.hf.engine import TransformersEngine
from pettingllms_trainers.backends.hf.learner import Learner
from pettingllms_trainers.backends.hf.model import LoadedModel
from pettingllms_trainers.backends.hf.tiny import build_tiny
from pettingllms_trainers.backends.hf.updater import imitate
from pettingllms_trainers.config import EngineConfig, OptimizerConfig
from pettingllms_trainers.types import Demonstration, GenerateRequest, Imitation, SamplingSettings

torch.set_num_threads(1)  # several at once are slower on models this small

EOS = 2
LETTERS = range(4, 10)


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "tiny"
    return build_tiny(path, vocabulary=tuple("abcdef"), hidden_size=32, num_layers=2, max_length=32)


def load(directory):
    model = AutoModelForCausalLM.from_pretrained(directory)
    use_layouts(model)
    return model


def demonstrations(count=64):
    """Repeat the last letter of the prompt, then the first."""
    rng = random.Random(0)
    prompts = [tuple(rng.choices(LETTERS, k=rng.randint(2, 3))) for _ in range(count)]
    return [Demonstration(prompt, (prompt[-1], prompt[0], EOS)) for prompt in prompts]


def fit(model, data, *, packing=True, **imitation):
    learner = Learner.plain(model, OptimizerConfig(packing=packing), "float32")
    settings = {"num_steps": 60, "batch_size": 16, "learning_rate": 1e-2, "seed": 0} | imitation
    return list(imitate(learner, data, Imitation(**settings)))


def run(model, **options):
    return fit(model, demonstrations(), **options)


@pytest.mark.nightly
def test_demonstrations_are_learned(directory):
    model = load(directory)
    history = run(model, num_steps=150)
    assert history[-1].loss < history[0].loss / 5
    tokenizer = AutoTokenizer.from_pretrained(directory)
    engine = TransformersEngine(LoadedModel(model, tokenizer), EngineConfig(), shares_prompts=False)
    sampling = SamplingSettings(temperature=0, max_completion_tokens=4)
    asked = demonstrations(20)
    requests = [
        GenerateRequest(prompt_ids=d.prompt_ids, num_candidates=1, sampling=sampling, seed=0)
        for d in asked
    ]
    answers = [group[0].token_ids for group in engine.generate_now(requests)]
    right = sum(answer == d.completion_ids for answer, d in zip(answers, asked, strict=True))
    assert right >= 16


def test_the_loss_is_that_of_transformers_with_masked_labels(directory):
    model = load(directory)
    chosen = demonstrations(5)
    first = fit(model, chosen, num_steps=1, batch_size=5, learning_rate=1e-9)
    total = 0.0
    for prompt, completion in chosen:
        ids = torch.tensor([prompt + completion])
        labels = ids.clone()
        labels[0, : len(prompt)] = -100
        total += model(ids, labels=labels).loss.item() * len(completion)
    assert first[0].loss == pytest.approx(total / (5 * 3), rel=1e-4)


def test_equal_seeds_give_equal_weights_and_progress_is_told(directory):
    weights = []
    for seed in (0, 0, 1):
        model = load(directory)
        history = run(model, num_steps=8, seed=seed)
        weights.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
        assert [step.step for step in history] == list(range(8))
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_batches_larger_than_the_demonstrations_go_round(directory):
    history = fit(load(directory), demonstrations(3), num_steps=2, batch_size=8, packing=False)
    assert len(history) == 2


def test_missing_and_empty_demonstrations_are_refused(directory):
    model = load(directory)
    with pytest.raises(InvalidArgument, match="demonstrations"):
        fit(model, [])
    with pytest.raises(InvalidArgument, match="empty prompt or completion"):
        fit(model, [Demonstration((4,), ())])
