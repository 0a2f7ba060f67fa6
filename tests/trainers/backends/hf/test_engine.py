"""The engine samples what the model says: log-probs, greedy, batching, stopping, limits."""

import dataclasses
import re

import pytest
import torch
import transformers
from backend_toys import (
    CONFIGS,
    CONTEXT,
    SIZES,
    TOKENIZER,
    V,
    largest_gap,
    make_model,
    make_requests,
    token_ids,
)
from transformers.models.auto.modeling_auto import AutoModelForCausalLM

from pettingllms_trainers.backends.hf import engine as decoding
from pettingllms_trainers.backends.hf.layouts import DecodeLayout
from pettingllms_trainers.backends.hf.model import LoadedModel
from pettingllms_trainers.backends.hf.policy import TransformersPolicy
from pettingllms_trainers.config import EngineConfig
from pettingllms_trainers.errors import GenerationError
from pettingllms_trainers.types import GenerateRequest, SamplingSettings

EOS = TOKENIZER.eos_token_id

FAMILIES = CONFIGS | {
    "qwen2": lambda: transformers.Qwen2Config(**SIZES | {"tie_word_embeddings": False}),
    "gpt2": lambda: transformers.GPT2Config(
        vocab_size=V, n_positions=CONTEXT, n_embd=32, n_layer=2, n_head=4, initializer_range=0.2,
        bos_token_id=1, eos_token_id=EOS,
    ),
    "gpt_neox": lambda: transformers.GPTNeoXConfig(**SIZES),
    "phi3": lambda: transformers.Phi3Config(**SIZES),
    "olmoe": lambda: transformers.OlmoeConfig(**SIZES, num_experts=4, num_experts_per_tok=2),
}  # fmt: skip


@pytest.fixture(scope="module")
def policy():
    """A function from a family name and engine settings to a policy; models are cached."""
    models = {}

    def build(family="qwen3", **engine):
        if family not in models:
            models[family] = make_model(FAMILIES[family]())
        return TransformersPolicy(
            LoadedModel(models[family], TOKENIZER), engine=EngineConfig(**engine)
        )

    return build


@pytest.mark.parametrize("family", FAMILIES)
def test_both_ways_write_the_same_with_the_logprobs_of_a_full_forward_pass(policy, family):
    requests = make_requests(6) + make_requests(3, seed=1, temperature=0.6, candidates=(3,))
    written = []
    for attention in ("shared_prefix", "expanded"):
        completions = policy(family, attention=attention).engine.generate_now(requests)
        assert largest_gap(policy(family).loaded.model, requests, completions) < 1e-4
        written.append(token_ids(completions))
    assert written[0] == written[1]
    assert len({ids for group in written[0] for ids in group}) > 5


@pytest.fixture
def added(monkeypatch):
    """What was added to decoding layouts: rows there already, prompts, completions of each."""
    found, add = [], DecodeLayout.add

    def spy(layout, prefill, counts):
        found.append((layout.num_rows, prefill.rows.num_rows, list(counts)))
        add(layout, prefill, counts)

    monkeypatch.setattr(DecodeLayout, "add", spy)
    return found


@pytest.mark.parametrize("family", ["qwen3", "gpt2", "window"])
def test_requests_join_while_others_are_being_written(policy, family, added):
    short = make_requests(12, candidates=(2,), max_completion_tokens=3)
    long = make_requests(1, seed=8, lengths=(2, 2), candidates=(2,), max_completion_tokens=45)
    requests = long + short
    completions = policy(family, tokens_per_batch=200).engine.generate_now(requests)
    assert any(num_rows for num_rows, *_ in added), (
        "no request joined a running batch: the test shows nothing"
    )
    assert largest_gap(policy(family).loaded.model, requests, completions) < 1e-4
    assert token_ids(completions) == token_ids(policy(family).engine.generate_now(requests))


@pytest.mark.parametrize("attention", ["shared_prefix", "expanded"])
def test_no_more_is_held_at_once_than_the_token_budget(policy, attention, monkeypatch):
    held = []
    compact = decoding._Batch._compact

    def spy(batch):
        compact(batch)
        held.append(sum(batch._size(index) for index in {row.request for row in batch._rows}))

    monkeypatch.setattr(decoding._Batch, "_compact", spy)
    requests = make_requests(30, candidates=(2, 3), max_completion_tokens=10)
    policy(attention=attention, tokens_per_batch=160).engine.generate_now(requests)
    assert 100 < max(held) <= 160


def test_equal_prompts_are_computed_once(policy, added):
    engine = policy().engine
    added.clear()  # of the check of the model
    first, second = make_requests(2, candidates=(2,))
    again = dataclasses.replace(first, seed=99, num_candidates=3)
    completions = engine.generate_now([first, second, again])
    assert added in ([(0, 2, [5, 2])], [(0, 2, [2, 5])])
    alone = [engine.generate_now([request])[0] for request in (first, second, again)]
    assert token_ids(completions) == token_ids(alone)


def biased(policy, token, amount=50.0):
    """An engine whose model always writes one token."""
    model = AutoModelForCausalLM.from_config(transformers.GPT2Config(
        vocab_size=V, n_positions=CONTEXT, n_embd=32, n_layer=1, n_head=2,
        tie_word_embeddings=False, bos_token_id=1, eos_token_id=EOS,
    ))  # fmt: skip
    with torch.no_grad():
        model.transformer.ln_f.bias.fill_(1.0)
        model.transformer.ln_f.weight.zero_()
        model.lm_head.weight.zero_()
        model.lm_head.weight[token] = amount
    return TransformersPolicy(LoadedModel(model, TOKENIZER), engine=EngineConfig())


def test_an_end_token_first_is_a_completion_of_one_token(policy):
    completions = biased(policy, EOS).engine.generate_now(make_requests(3))
    for completion in (c for group in completions for c in group):
        assert completion.token_ids == (EOS,)
        assert completion.text == ""
        assert completion.finish_reason == "stop"
        assert completion.logprobs == (pytest.approx(0.0, abs=1e-5),)


def test_a_completion_may_fill_the_context_to_the_last_token(policy):
    letter = TOKENIZER.convert_tokens_to_ids("a")
    prompts = [(5,) * (CONTEXT - 20), (5,) * 10]
    requests = [
        GenerateRequest(
            prompt_ids=prompt,
            num_candidates=6,
            sampling=SamplingSettings(max_completion_tokens=limit),
            seed=0,
        )
        for prompt, limit in zip(prompts, (20, 60), strict=True)
    ]
    lengths = [
        [len(c.token_ids) for c in g] for g in biased(policy, letter).engine.generate_now(requests)
    ]
    assert lengths == [[20] * 6, [60] * 6]


def test_broken_weights_are_an_error_and_not_a_completion(policy):
    engine = biased(policy, EOS)
    with torch.no_grad():
        engine.loaded.model.lm_head.weight[7] = torch.nan
    with pytest.raises(GenerationError, match="NaN"):
        engine.engine.generate_now(make_requests(1))


def test_models_whose_scores_are_changed_share_no_prompts(caplog):
    config = transformers.Gemma2Config(**SIZES, head_dim=8)
    model = make_model(config)
    requests = make_requests(3)
    own_attention = model.config._attn_implementation
    plain = TransformersPolicy(LoadedModel(model, TOKENIZER), engine=EngineConfig())
    assert re.search(r"neither shared nor packed.*its attention has soft-capped", caplog.text)
    assert model.config._attn_implementation == own_attention
    completions = plain.engine.generate_now(requests)
    assert largest_gap(plain.loaded.model, requests, completions) < 1e-4
