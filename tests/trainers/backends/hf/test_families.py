"""Every causal family of transformers: right, right in the plain way, or refused; and recorded."""

import json
import logging

import pytest
import torch
import transformers
from families import RESULTS, all_outcomes, tiny_model

from pettingllms.errors import InvalidArgument
from pettingllms_trainers.backends.hf.model import LoadedModel
from pettingllms_trainers.backends.hf.policy import TransformersPolicy
from pettingllms_trainers.backends.hf.self_check import check_model
from pettingllms_trainers.backends.hf.tiny import CHARACTERS, build_tokenizer
from pettingllms_trainers.backends.hf.updating import TrainingSettings
from pettingllms_trainers.config import EngineConfig, LossConfig, OptimizerConfig
from pettingllms_trainers.types import (
    GenerateRequest,
    SamplingSettings,
    TrainingCompletion,
    TrainingGroup,
)

torch.set_num_threads(1)

TOKENIZER = build_tokenizer(CHARACTERS)


def test_the_table_of_families_is_what_the_check_says(caplog):
    recorded = json.loads(RESULTS.read_text())
    if recorded["transformers"] != transformers.__version__:
        pytest.skip(f"recorded with transformers {recorded['transformers']}")
    caplog.set_level(logging.ERROR)
    found = all_outcomes()["families"]
    assert found == recorded["families"], "run families.py to record it again"


@pytest.mark.parametrize("family", ["qwen3", "qwen3_next", "qwen3_5_text", "gpt_oss", "gemma2"])
def test_a_family_learns_from_what_it_sampled(family):
    """Sampled tokens have the log-probabilities that the update computes: the first ratio is 1."""
    policy = TransformersPolicy(
        LoadedModel(tiny_model(family), TOKENIZER),
        engine=EngineConfig(),
        training=TrainingSettings(
            loss=LossConfig(),
            optimizer=OptimizerConfig(learning_rate=1e-3),
            num_steps=2,
            max_completion_tokens=8,
            seed=0,
        ),
    )
    requests = [
        GenerateRequest(
            prompt_ids=tuple(range(5, 5 + length)),
            num_candidates=3,
            sampling=SamplingSettings(max_completion_tokens=8),
            seed=length,
        )
        for length in (3, 11, 6)
    ]
    groups = [
        TrainingGroup(
            role="r",
            prompt_ids=request.prompt_ids,
            completions=tuple(
                TrainingCompletion(c.token_ids, c.logprobs, advantage)
                for c, advantage in zip(written, (1.0, -1.0, 0.5), strict=True)
            ),
        )
        for request, written in zip(requests, policy.engine.generate_now(requests), strict=True)
    ]
    stats = policy.updater.update(groups)
    assert stats.first_ratio_error < 1e-3
    assert stats.grad_norm > 0


def test_a_leak_between_packed_sequences_is_found():
    """Nemotron mixes neighbouring tokens outside its attention."""
    loaded = LoadedModel(tiny_model("nemotron"), TOKENIZER)
    own_attention = loaded.model.config._attn_implementation
    assert "packed log-probabilities are" in check_model(loaded, "float32")
    assert loaded.model.config._attn_implementation == own_attention
    learner = TransformersPolicy(
        loaded,
        engine=EngineConfig(),
        training=TrainingSettings(
            loss=LossConfig(),
            optimizer=OptimizerConfig(),
            num_steps=1,
            max_completion_tokens=8,
            seed=0,
        ),
    ).updater._learner
    assert not learner.is_packed


def test_a_model_that_keeps_its_past_elsewhere_is_refused():
    loaded = LoadedModel(tiny_model("recurrent_gemma"), TOKENIZER)
    with pytest.raises(InvalidArgument, match=r"past_key_values.*another family"):
        check_model(loaded, "float32")
