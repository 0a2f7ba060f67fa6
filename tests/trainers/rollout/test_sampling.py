"""Tokens are drawn from the distribution that the settings describe; log-probs are its."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pettingllms.errors import InvalidArgument
from pettingllms_trainers.backends.hf.engine import RowSampling, uniforms
from pettingllms_trainers.policies.pool import check_sampling
from pettingllms_trainers.types import GenerateRequest, SamplingSettings

torch.set_num_threads(1)  # several at once are slower on models this small

LOGITS = torch.tensor([2.0, -1.0, 0.5, 1.5, -torch.inf, 0.0])
NUM_DRAWS = 20000


def draw_many(setting, logits=LOGITS):
    generator = torch.Generator().manual_seed(5)
    draws = torch.rand(NUM_DRAWS, generator=generator)
    sampling = RowSampling([setting] * NUM_DRAWS, torch.device("cpu"))
    return sampling.sample(logits.expand(NUM_DRAWS, -1), draws)


def expected(setting):
    logits = LOGITS / setting.temperature
    if setting.top_k:
        logits[logits < logits.topk(setting.top_k).values[-1]] = -torch.inf
    if setting.top_p < 1:
        order = logits.argsort(descending=True)
        total = logits.softmax(-1)[order].cumsum(-1)
        kept = int((total < setting.top_p).sum()) + 1
        logits[order[kept:]] = -torch.inf
    return logits.log_softmax(-1)


@pytest.mark.parametrize(
    "setting",
    [
        SamplingSettings(),
        SamplingSettings(temperature=0.5),
        SamplingSettings(temperature=2.0, top_k=3),
        SamplingSettings(top_p=0.8),
        SamplingSettings(temperature=1.3, top_k=4, top_p=0.9),
    ],
)
def test_frequencies_and_logprobs_are_those_of_the_distribution(setting):
    sampled, logprobs = draw_many(setting), expected(setting)
    torch.testing.assert_close(sampled.logprobs, logprobs[sampled.token_ids])
    frequencies = torch.bincount(sampled.token_ids, minlength=len(LOGITS)) / NUM_DRAWS
    deviation = (logprobs.exp() * (1 - logprobs.exp()) / NUM_DRAWS).sqrt()
    assert ((frequencies - logprobs.exp()).abs() <= 4 * deviation).all()


def test_the_smallest_and_the_largest_draw_give_possible_tokens():
    logits = torch.tensor([[-torch.inf, 0.0, -200.0, 1.0, -torch.inf]] * 2)
    sampling = RowSampling([SamplingSettings()] * 2, torch.device("cpu"))
    sampled = sampling.sample(logits, torch.tensor([0.0, 1 - 2**-24]))
    assert sampled.token_ids.tolist() == [1, 3]


@pytest.mark.parametrize("size", [64, 65, 1000])
def test_draws_invert_the_running_sum_of_a_large_vocabulary(size):
    logits = torch.randn(NUM_DRAWS // 10, size, generator=torch.Generator().manual_seed(2))
    logits[:, ::7] = -torch.inf
    draws = torch.linspace(0, 1, len(logits) + 1)[:-1]
    sampling = RowSampling([SamplingSettings()] * len(logits), torch.device("cpu"))
    tokens = sampling.sample(logits, draws).token_ids[:, None]
    probabilities = logits.double().softmax(-1)
    above = probabilities.cumsum(-1).gather(1, tokens)
    chosen = probabilities.gather(1, tokens)
    assert (chosen > 0).all()
    assert (above >= draws[:, None] - 1e-6).all()
    assert (above - chosen <= draws[:, None] + 1e-6).all()


def test_rows_of_one_batch_have_their_own_settings():
    settings = [
        SamplingSettings(temperature=0),
        SamplingSettings(top_k=1),
        SamplingSettings(temperature=0.7),
        SamplingSettings(),
    ]
    draws = torch.tensor([0.99, 0.99, 0.2, 0.9])
    together = RowSampling(settings, torch.device("cpu"))
    sampled = together.sample(LOGITS.expand(4, -1), draws)
    for row, setting in enumerate(settings):
        alone = RowSampling([setting], torch.device("cpu"))
        token, logprob, entropy = alone.sample(LOGITS[None], draws[row : row + 1])
        assert (token.item(), logprob.item()) == (
            sampled.token_ids[row].item(),
            pytest.approx(sampled.logprobs[row].item(), abs=1e-6),
        )
        assert entropy.item() == pytest.approx(sampled.entropies[row].item(), abs=1e-6)
    assert sampled.token_ids[:2].tolist() == [0, 0]
    assert sampled.logprobs[1] == 0
    torch.testing.assert_close(sampled.logprobs[0], LOGITS.log_softmax(-1)[0])
    assert sampled.entropies[1] == 0
    warm = torch.distributions.Categorical(logits=LOGITS / 0.7)
    torch.testing.assert_close(sampled.entropies[2], warm.entropy())


@given(seed=st.integers(-(2**70), 2**70), length=st.integers(1, 9), count=st.integers(1, 5))
def test_draws_depend_on_the_seed_alone(seed, length, count):
    sampling = SamplingSettings(max_completion_tokens=length)
    request = GenerateRequest(prompt_ids=(1,), num_candidates=count, sampling=sampling, seed=seed)
    draws = uniforms(request)
    assert draws.shape == (count, length)
    assert ((draws >= 0) & (draws < 1)).all()
    assert torch.equal(draws, uniforms(request))
    longer = SamplingSettings(max_completion_tokens=length + 3)
    more = GenerateRequest(prompt_ids=(2, 3), num_candidates=count, sampling=longer, seed=seed)
    assert torch.equal(draws, uniforms(more)[:, :length])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", -0.1),
        ("top_p", 0.0),
        ("top_p", 1.5),
        ("top_k", -1),
        ("max_completion_tokens", 0),
        ("stop", ("",)),
    ],
)
def test_values_out_of_range_are_refused_by_name(name, value):
    with pytest.raises(InvalidArgument, match=name):
        check_sampling(SamplingSettings(**{name: value}))
