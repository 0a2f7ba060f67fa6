"""The update: packing, accumulation, first ratio, schedule, guards, exact resume."""

import itertools
import math
import random
from dataclasses import replace

import pytest
import torch
from backend_toys import (
    CONFIGS,
    SIZES,
    TOKENIZER,
    V,
    engine_logprobs,
    flat,
    make_model,
    make_policy,
    sample_groups,
    shifted,
    training,
    weights_of,
)
from transformers import AutoModelForCausalLM, Gemma2Config, LlamaConfig

from pettingllms.errors import InvalidArgument
from pettingllms_trainers.backends.hf import attention, layouts
from pettingllms_trainers.backends.hf import learner as learner_module
from pettingllms_trainers.backends.hf import model as head
from pettingllms_trainers.backends.hf.learner import Learner, Together
from pettingllms_trainers.backends.hf.optimizer import Optimizer
from pettingllms_trainers.backends.hf.policy import TransformersPolicy
from pettingllms_trainers.backends.hf.updater import learning_rate
from pettingllms_trainers.config import EngineConfig, OptimizerConfig
from pettingllms_trainers.errors import UpdateError
from pettingllms_trainers.learning.batch import weighted_groups
from pettingllms_trainers.types import Demonstration, Imitation


def gradient_of(model, groups, **optimizer):
    """The gradient of the mean log-likelihood, by the way the update computes it."""
    return gradient_with(Learner.plain(model, OptimizerConfig(**optimizer), "float32"), groups)


def gradient_with(learner, groups):
    seen = []

    def step(self):
        seen.extend(p.grad.flatten() for p in learner.model.parameters())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.optim.AdamW, "step", step)
        Together([learner]).step(
            [weighted_groups(groups, "token_mean", 12)],
            [lambda statistics, targets: (statistics.logprobs * targets.weights).sum()],
            [1e-3],
        )
    return torch.cat(seen)


@pytest.fixture(params=[0, 16])
def split_length(request, monkeypatch):
    """Both ways of packed attention: keys of prompts copied, and prompts attended apart."""
    monkeypatch.setattr(layouts, "_SPLIT_LENGTH", request.param)


@pytest.mark.parametrize("packing", [True, False])
@pytest.mark.parametrize("family", CONFIGS)
@pytest.mark.usefixtures("split_length")
def test_trainer_and_engine_logprobs_agree(family, packing):
    policy = make_policy(family, packing=packing)
    groups = sample_groups(policy, temperature=0.7)
    gap = flat(policy.updater.score(groups)) - engine_logprobs(groups)
    assert gap.abs().max() < 1e-4


@pytest.mark.parametrize("family", CONFIGS)
@pytest.mark.usefixtures("split_length")
def test_the_gradient_does_not_depend_on_packing_and_the_cut(family):
    """One micro-batch of everything equals many small ones: accumulation 1 x 8 = 8 x 1."""
    policy = make_policy(family)
    groups = sample_groups(policy)
    padded = {"packing": False, "max_grad_norm": 1e9}
    whole = gradient_of(policy.loaded.model, groups, tokens_per_microbatch=10**6, **padded)
    assert whole.abs().max() > 0.1
    for cut in (
        {"tokens_per_microbatch": 1},
        {"tokens_per_microbatch": 50, "packing": True},
        {"tokens_per_microbatch": 10**6, "packing": True},
        {"gradient_checkpointing": True, "packing": True},
    ):
        found = gradient_of(policy.loaded.model, groups, **padded | cut)
        torch.testing.assert_close(found, whole, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("loss", [{}, {"kl_coefficient": 0.1, "old_logprobs": "recompute"}])
def test_equal_prompts_of_an_optimizer_step_are_computed_once(monkeypatch, loss):
    """As in whole episodes of one level: every decision has one completion."""
    together = make_policy(loss=loss, completions_per_minibatch=0)
    apart = make_policy(loss=loss, completions_per_minibatch=0)
    groups = sample_groups(together)
    alone = [replace(group, completions=(c,)) for group in groups for c in group.completions]
    num_prompts = []
    original = learner_module.micro_batches

    def watched(weighted, **settings):
        num_prompts.append(len(weighted))
        return original(weighted, **settings)

    monkeypatch.setattr(learner_module, "micro_batches", watched)
    together.updater.update(groups)
    apart.updater.update(alone)
    step, _ = num_prompts[-2:]  # then a probe of the new weights
    assert step == len(groups) < len(alone)
    torch.testing.assert_close(weights_of(apart), weights_of(together), rtol=1e-3, atol=1e-4)
    assert not torch.allclose(weights_of(apart), weights_of(make_policy()), atol=1e-3)


def test_repeated_key_heads_as_on_a_gpu_give_the_same_gradient(monkeypatch):
    policy = make_policy()
    groups = sample_groups(policy)
    shared = gradient_of(policy.loaded.model, groups, packing=True, max_grad_norm=1e9)
    monkeypatch.setattr(attention, "_needs_equal_heads", lambda query, mask: True)
    repeated = gradient_of(policy.loaded.model, groups, packing=True, max_grad_norm=1e9)
    torch.testing.assert_close(shared, repeated, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("old_logprobs", ["engine", "recompute"])
def test_the_first_ratio_is_one(old_logprobs):
    """Also after an update: what is sampled then is of the new weights."""
    policy = make_policy(loss={"old_logprobs": old_logprobs})
    for seed in range(2):
        stats = policy.updater.update(sample_groups(policy, seed=seed))
        assert stats.first_ratio_error < 1e-4
        assert stats.ratio_mean == pytest.approx(1, abs=1e-4)
        assert stats.clip_fraction == 0


@pytest.mark.parametrize(("size", "num_scored"), [(0, 2 * 4), (24, 12 + 4)])
def test_one_optimizer_step_computes_its_denominators_itself(monkeypatch, size, num_scored):
    """All groups are scored before several steps; a few are, to measure how far one step moved."""
    policy = make_policy(loss={"old_logprobs": "recompute"}, completions_per_minibatch=size)
    groups, scored = shifted(sample_groups(policy, count=12), 0.05), []
    original = Together.score

    def recorded(self, data, *arguments):
        scored.extend(data[0])
        return original(self, data, *arguments)

    monkeypatch.setattr(Together, "score", recorded)
    stats = policy.updater.update(groups)
    assert (stats.num_optimizer_steps == 1) == (size == 0)
    assert len(scored) == num_scored
    assert stats.first_ratio_error < 1e-4
    assert stats.engine_gap_mean == pytest.approx(0.05, abs=1e-4)
    assert stats.engine_gap_max == pytest.approx(0.05, abs=1e-4)


def test_an_update_ends_where_the_policy_has_moved_too_far():
    steps = {"num_epochs": 8, "completions_per_minibatch": 9}
    free = make_policy(**steps).updater.update(sample_groups(make_policy()))
    bounds = [free.approx_kl / 4, free.approx_kl, 100.0]
    policies = [make_policy(loss={"target_kl": bound}, **steps) for bound in bounds]
    found = [policy.updater.update(sample_groups(policy)) for policy in policies]
    assert 1 < found[0].num_optimizer_steps < found[1].num_optimizer_steps < 16
    assert found[0].approx_kl < found[1].approx_kl < free.approx_kl
    assert found[2] == free
    tight = make_policy(loss={"target_kl": 1e-9}, **{**steps, "completions_per_minibatch": 6})
    stats = tight.updater.update(sample_groups(tight))
    assert stats.num_optimizer_steps == 2, "the first is on policy"
    assert 0 < stats.num_groups < len(sample_groups(tight)), "what was not used does not count"


def test_the_distance_of_an_update_is_measured_after_its_last_step():
    """The only step of an update sees a policy that has not moved yet."""
    gentle, harsh = (make_policy(learning_rate=rate) for rate in (1e-4, 1.0))
    near, far = (policy.updater.update(sample_groups(policy)) for policy in (gentle, harsh))
    assert near.num_optimizer_steps == far.num_optimizer_steps == 1
    assert near.approx_kl == pytest.approx(0, abs=1e-5)
    assert far.approx_kl == pytest.approx(0, abs=1e-5)
    assert 0 < near.update_kl < 0.01
    assert far.update_kl > 1


@pytest.fixture
def stepped(monkeypatch):
    """The mini-batches of all optimizer steps."""
    steps, original = [], Together.forward_backward

    def recorded(self, data, *arguments):
        steps.append(data[0])
        return original(self, data, *arguments)

    monkeypatch.setattr(Together, "forward_backward", recorded)
    return steps


def test_optimizer_steps_are_of_as_many_completions_whatever_their_prompts():
    """A tree has several completions of a prompt, whole episodes one: the steps are alike."""
    policy = make_policy(completions_per_minibatch=6)
    groups = sample_groups(policy, count=12)
    alone = [replace(group, completions=(c,)) for group in groups for c in group.completions]
    assert len(alone) > 2 * len(groups)
    stats = [policy.updater.update(found) for found in (groups, alone)]
    assert [s.num_optimizer_steps for s in stats] == [math.ceil(len(alone) / 6)] * 2
    one = make_policy(completions_per_minibatch=1).updater.update(groups)
    assert one.num_optimizer_steps == one.num_groups == 12, "a prompt is one step at least"


@pytest.mark.parametrize("loss", [{}, {"kl_coefficient": 0.1, "old_logprobs": "recompute"}])
def test_completions_of_a_prompt_can_be_spread_over_optimizer_steps(stepped, loss):
    policy = make_policy(loss=loss, completions_per_minibatch=4, shuffle=True)
    groups = sample_groups(policy, count=8)
    stats = policy.updater.update(groups)
    steps = [
        [(each.group.prompt_ids, c) for each in step for c in each.group.completions]
        for step in stepped
    ]
    pairs = [(group.prompt_ids, c) for group in groups for c in group.completions]
    assert sorted(map(repr, itertools.chain(*steps))) == sorted(map(repr, pairs))
    assert {len(pairs) // len(steps), -(-len(pairs) // len(steps))} >= set(map(len, steps))
    assert any(len({prompt for prompt, _ in step}) == len(step) > 2 for step in steps)
    assert stats.num_groups == 8
    assert stats.num_completions == len(pairs)
    assert stats.num_optimizer_steps == len(steps) == math.ceil(len(pairs) / 4)

    # In one step with all others they are what they were, recomputed scores included.
    together = make_policy(loss=loss)
    spread = make_policy(loss=loss, shuffle=True)
    for each in (together, spread):
        each.updater.update(groups)
    torch.testing.assert_close(weights_of(spread), weights_of(together), rtol=1e-3, atol=1e-4)


def test_the_schedule_warms_up_and_decays_linearly():
    config = OptimizerConfig(learning_rate=1.0, num_warmup_steps=2, final_fraction=0.1)
    rates = [learning_rate(config, step, 13) for step in range(15)]
    assert rates[:3] == [0.5, 1.0, 1.0]
    assert rates[12] == pytest.approx(0.1)
    assert rates[13:] == [rates[12]] * 2
    steps = [a - b for a, b in itertools.pairwise(rates[2:13])]
    assert steps == pytest.approx([0.09] * 10)
    constant = OptimizerConfig(learning_rate=2.0)
    assert {learning_rate(constant, step, 5) for step in range(5)} == {2.0}


def test_the_gradient_is_clipped():
    groups = sample_groups(make_policy())
    policy = make_policy()
    gradient = gradient_of(policy.loaded.model, groups, max_grad_norm=0.01)
    assert gradient.norm() == pytest.approx(0.01, rel=1e-3)


def test_memory_that_does_not_suffice_is_told_and_changes_nothing(monkeypatch):
    """A device that is full in the second backward pass; the next update goes on as if new."""
    policy, other = (make_policy(num_warmup_steps=4) for _ in range(2))
    groups = sample_groups(policy)
    before = weights_of(policy)
    calls = iter(range(100))

    def backward(self, part, *, is_last):
        if next(calls) == 1:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB\nmore")
        part.backward()

    with monkeypatch.context() as patch:
        patch.setattr(Optimizer, "backward", backward)
        with pytest.raises(UpdateError) as caught:
            policy.updater.update(groups)
    for part in (
        "memory does not suffice (CUDA out of memory. Tried to allocate 2 GiB)",
        "optimizer.tokens_per_microbatch (now 200)",
        "optimizer.gradient_checkpointing = true (now false)",
    ):
        assert part in str(caught.value)
    assert torch.equal(before, weights_of(policy))
    stats, expected = policy.updater.update(groups), other.updater.update(groups)
    assert stats.learning_rate == expected.learning_rate
    assert stats.grad_norm == pytest.approx(expected.grad_norm, rel=1e-4)


def test_tokens_of_several_versions_are_weighted_by_the_weights_that_wrote_each():
    """As after a swap within an episode: the ratio of the newest to the own sampling policy."""
    policy = make_policy(loss={"old_logprobs": "recompute", "importance_cap": 1.2})
    groups = []
    for version in range(3):
        groups += sample_groups(policy, 2, seed=version)
        policy.updater.update(groups[-2:])
    written = flat([[c.logprobs for c in group.completions] for group in groups])
    advantages = flat([[[c.advantage] * len(c.token_ids) for c in g.completions] for g in groups])
    ratios = (flat(policy.updater.score(groups)) - written).exp()
    assert (ratios > 1.2).any()
    assert ((ratios < 1.2) & ((ratios - 1).abs() > 0.01)).any()
    stats = policy.updater.update(groups)
    expected = -(ratios.clamp(max=1.2) * advantages).mean()
    assert stats.policy_loss == pytest.approx(float(expected), rel=1e-3)


@pytest.mark.parametrize(("mix", "is_start"), [(1.0, False), (0.5, False), (None, True)])
def test_a_reference_moves_to_the_policy(mix, is_start):
    """Where it has moved all the way, the distance to it is 0 again."""
    moving = {} if mix is None else {"reference_every": 2, "reference_mix": mix}
    policy = make_policy(loss={"kl_coefficient": 1e-6, **moving})
    kls = [policy.updater.update(sample_groups(policy)).kl for _ in range(3)]
    assert kls[0] == pytest.approx(0, abs=1e-6)
    assert kls[1] > 0
    if mix == 1.0:
        assert kls[2] == pytest.approx(0, abs=1e-6)
    else:
        assert (kls[2] > kls[1]) == is_start


def test_dropout_is_off_while_learning_and_kept_in_the_saved_configuration(tmp_path):
    config = LlamaConfig(**SIZES, attention_dropout=0.5)
    policy = make_policy(config, gradient_checkpointing=True)
    assert policy.updater.update(sample_groups(policy)).first_ratio_error < 1e-4
    policy.save_pretrained(tmp_path)
    assert AutoModelForCausalLM.from_pretrained(tmp_path).config.attention_dropout == 0.5


@pytest.mark.parametrize("packing", [True, False])
def test_chunks_of_logits_give_the_gradient_of_all_at_once(monkeypatch, packing):
    policy = make_policy(packing=packing)
    groups = sample_groups(policy, temperature=0.7)
    learner = policy.updater.learner
    found = {}
    for size in (10**9, 5 * V, 1):
        monkeypatch.setattr(head, "MAX_LOGITS", size)
        for is_chunked in (True, False):
            learner.is_chunked = is_chunked
            scores = flat(policy.updater.score(groups))
            gradient = gradient_with(learner, groups)
            found[size, is_chunked] = scores, gradient
    expected = found[1, False]
    for scores, gradient in found.values():
        torch.testing.assert_close(scores, expected[0], rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(gradient, expected[1], rtol=1e-4, atol=1e-7)


def test_a_head_whose_logits_are_changed_afterwards_is_not_chunked():
    config = Gemma2Config(**SIZES, head_dim=8)
    config.final_logit_softcapping = 1.0
    model = make_model(config).eval()
    assert not head.is_head_last(model)
    assert head.is_head_last(make_model())


def test_bfloat16_arithmetic_has_logits_and_weights_in_float32():
    policy = make_policy(precision="bfloat16")
    model = policy.loaded.model
    with learner_module.arithmetic(model, "bfloat16"):
        assert model(torch.tensor([[5, 6]])).logits.dtype == torch.float32
    groups = sample_groups(policy)
    gap = flat(policy.updater.score(groups)) - engine_logprobs(groups)
    assert gap.abs().mean() < 0.02
    assert policy.updater.update(groups).first_ratio_error < 0.5
    assert model.dtype == torch.float32


def test_a_rounded_engine_is_not_the_denominator_of_ratios():
    """In bfloat16 the trainer computes them itself, once the engine is too far from it."""
    policy = make_policy(precision="bfloat16")
    groups = sample_groups(policy)
    rough = shifted(groups, 0.05)
    stats = policy.updater.update(rough)
    assert stats.first_ratio_error < 0.03, "the engine is 0.05 off; what is left is rounding"
    assert stats.engine_gap_mean == pytest.approx(0.05, abs=0.03)
    plain = make_policy().updater.update(sample_groups(make_policy()))
    assert plain.engine_gap_mean == 0, "not needed in float32"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_the_same_on_a_gpu(precision, tmp_path):
    make_policy().save_pretrained(tmp_path)
    policy = TransformersPolicy.from_pretrained(
        tmp_path, engine=EngineConfig(precision=precision), training=training(), device="cuda"
    )
    stats = policy.updater.update(sample_groups(policy))
    assert stats.first_ratio_error < (1e-3 if precision == "float32" else 0.5)
    assert policy.updater.update(sample_groups(policy, seed=1)).num_optimizer_steps == 1
    again = make_policy()
    policy.updater.save_state(tmp_path)
    again.updater.load_state(tmp_path)


def demonstrations(count):
    """Repeat the last letter of the prompt, then the first."""
    rng = random.Random(0)
    prompts = [tuple(rng.choices(range(4, 10), k=rng.randint(2, 3))) for _ in range(count)]
    return [Demonstration(p, (p[-1], p[0], TOKENIZER.eos_token_id)) for p in prompts]


def fit(policy, data, **imitation):
    settings = {"num_steps": 1, "batch_size": 5, "learning_rate": 1e-9, "seed": 0} | imitation
    return list(policy.updater.imitate(data, Imitation(**settings)))


@pytest.mark.parametrize("packing", [True, False])
def test_the_loss_of_imitation_is_that_of_transformers_with_masked_labels(packing):
    policy, total = make_policy(packing=packing), 0.0
    (first,) = fit(policy, demonstrations(5))
    for prompt, completion in demonstrations(5):
        ids = torch.tensor([prompt + completion])
        labels = ids.clone()
        labels[0, : len(prompt)] = -100
        total += policy.loaded.model(ids, labels=labels).loss.item() * len(completion)
    assert first.loss == pytest.approx(total / (5 * 3), rel=1e-4)


def test_the_seed_decides_the_order_of_demonstrations_and_batches_go_round():
    ends = []
    for seed in (0, 0, 1):
        policy = make_policy()
        steps = fit(policy, demonstrations(7), num_steps=3, learning_rate=1e-2, seed=seed)
        ends.append((steps, weights_of(policy)))
    assert ends[0][0] == ends[1][0] != ends[2][0]
    assert torch.equal(ends[0][1], ends[1][1])


def test_missing_and_empty_demonstrations_are_refused():
    with pytest.raises(InvalidArgument, match="demonstrations"):
        fit(make_policy(), [])
    with pytest.raises(InvalidArgument, match="empty prompt or completion"):
        fit(make_policy(), [Demonstration((4,), ())])
