"""Batches hold exactly the sampled tokens; packing and cutting change nothing."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pettingllms.errors import InvalidArgument
from pettingllms_trainers.learning.batch import (
    PackedTokens,
    WeightedGroup,
    check_groups,
    fitting_parts,
    joined_by_prompt,
    micro_batches,
    parts_of,
    shares,
    unweighted,
    weighted_groups,
)
from pettingllms_trainers.types import TrainingCompletion, TrainingGroup

torch.set_num_threads(1)  # several at once are slower on models this small

token = st.integers(0, 30)
sampled = st.lists(token, min_size=1, max_size=6).flatmap(
    lambda ids: st.builds(
        TrainingCompletion,
        st.just(tuple(ids)),
        st.just(tuple(-0.1 * (i + 1) for i in range(len(ids)))),
        st.floats(-3, 3),
    )
)
groups_of_any_shape = st.lists(
    st.builds(
        TrainingGroup,
        role=st.just("planner"),
        prompt_ids=st.lists(token, min_size=1, max_size=8).map(tuple),
        completions=st.lists(sampled, min_size=1, max_size=4).map(tuple),
        temperature=st.sampled_from([1.0, 0.7]),
    ),
    min_size=1,
    max_size=5,
)
cut = {"max_tokens": st.integers(1, 60), "is_packed": st.booleans()}


def cut_up(groups, max_tokens, is_packed, aggregation="token_mean"):
    weighted = weighted_groups(groups, aggregation, 10)
    return list(micro_batches(weighted, max_tokens=max_tokens, is_packed=is_packed))


def all_completions(groups):
    return [(group, completion) for group in groups for completion in group.completions]


@given(groups=groups_of_any_shape, **cut)
def test_targets_are_the_sampled_tokens_in_order_and_nothing_else(groups, max_tokens, is_packed):
    targets = [batch.targets[0] for batch in cut_up(groups, max_tokens, is_packed)]
    pairs = all_completions(groups)
    assert torch.cat([t.token_ids for t in targets]).tolist() == [
        token for _, completion in pairs for token in completion.token_ids
    ]
    assert torch.cat([t.logprobs for t in targets]).tolist() == pytest.approx(
        [value for _, completion in pairs for value in completion.logprobs]
    )
    assert torch.cat([t.advantages for t in targets]).tolist() == pytest.approx(
        [completion.advantage for _, completion in pairs for _ in completion.token_ids]
    )


@given(groups=groups_of_any_shape, **cut)
def test_inputs_are_the_tokens_that_come_before_each_target(groups, max_tokens, is_packed):
    """Rebuild every target's context from the tensors alone."""
    contexts = []
    for batch in cut_up(groups, max_tokens, is_packed):
        contexts += packed_contexts(batch) if is_packed else padded_contexts(batch)
    assert contexts == [
        group.prompt_ids + completion.token_ids[:index]
        for group, completion in all_completions(groups)
        for index in range(len(completion.token_ids))
    ]


def padded_contexts(batch):
    inputs = batch.inputs
    assert (inputs.mask.cumsum(1)[inputs.rows, inputs.columns] == inputs.columns + 1).all()
    assert not inputs.token_ids[inputs.mask == 0].any()
    return [
        tuple(inputs.token_ids[row, : column + 1].tolist())
        for row, column in zip(inputs.rows.tolist(), inputs.columns.tolist(), strict=True)
    ]


def packed_contexts(batch):
    """Return, for each target, the tokens its input position sees under the block mask."""
    visible = block_mask(batch.inputs)
    inputs = batch.inputs
    contexts = []
    for index in inputs.kept.tolist():
        seen = visible[index].nonzero().squeeze(1)
        assert inputs.positions[seen].tolist() == list(range(len(seen)))
        contexts.append(tuple(inputs.token_ids[seen].tolist()))
    return contexts


def block_mask(inputs: PackedTokens):
    """Which of the N tokens sees which ``[N, N]``: the definition of packing."""
    prompts = [i for i, length in enumerate(inputs.prompt_lengths) for _ in range(length)]
    blocks = [i for i, length in enumerate(inputs.completion_lengths) for _ in range(length)]
    owner = torch.tensor(prompts + [inputs.owners[block] for block in blocks])
    block = torch.tensor([-1] * len(prompts) + blocks)
    order = torch.arange(len(owner))
    same_sequence = (block[:, None] == block) | (block == -1)
    return (owner[:, None] == owner) & same_sequence & (order[:, None] >= order)


@given(groups=groups_of_any_shape, **cut)
def test_micro_batches_keep_to_the_token_budget(groups, max_tokens, is_packed):
    longest = max(len(g.prompt_ids) + len(c.token_ids) - 1 for g, c in all_completions(groups))
    for batch in cut_up(groups, max_tokens, is_packed):
        inputs = batch.inputs
        used = len(inputs.token_ids) if is_packed else int(inputs.mask.sum())
        assert used <= max(max_tokens, longest)


@given(groups=groups_of_any_shape, max_tokens=st.integers(1, 60))
def test_prompts_at_most_double_when_they_are_padded(groups, max_tokens):
    for batch in cut_up(groups, max_tokens, is_packed=True):
        lengths = batch.inputs.prompt_lengths
        assert len(lengths) * max(lengths) <= 2 * sum(lengths)


def of_prompts(*lengths, temperatures=()):
    completion = TrainingCompletion((1, 2, 3), (-1.0,) * 3, 1.0)
    groups = [
        TrainingGroup(role="r", prompt_ids=(9,) * length, completions=(completion,))
        for length in lengths
    ]
    pairs = zip(groups, temperatures, strict=False)
    return [replace(each, temperature=one) for each, one in pairs] or groups


@pytest.mark.parametrize(
    ("lengths", "max_tokens", "expected"),
    [
        ((4, 4), 12, [(4, 4)]),
        ((4, 4), 11, [(4,), (4,)]),
        ((1, 1, 4), 99, [(1, 1, 4)]),
        ((1, 1, 5), 99, [(1, 1), (5,)]),
        # The counts of a second micro-batch begin anew.
        ((4, 4, 4, 4), 12, [(4, 4), (4, 4)]),
        ((4, 4, 4, 4), 11, [(4,), (4,), (4,), (4,)]),
        ((30, 1, 1, 1, 4), 999, [(30, 1), (1, 1, 4)]),
        ((30, 1, 1, 1, 5), 999, [(30, 1), (1, 1), (5,)]),
        ((4, 5, 6, 6, 6, 60, 70), 10**6, [(4, 5, 6, 6, 6), (60, 70)]),
    ],
)
def test_a_micro_batch_is_full_at_its_tokens_or_when_prompts_double(lengths, max_tokens, expected):
    batches = cut_up(of_prompts(*lengths), max_tokens, is_packed=True)
    assert [batch.inputs.prompt_lengths for batch in batches] == expected


def test_targets_have_temperatures_and_scores_where_there_are_some():
    plain, mixed = (
        weighted_groups(of_prompts(1, 1, temperatures=both), "token_mean", 10)
        for both in ((1.0, 1.0), (0.5, 1.0))
    )
    scored = [replace(each, old_logprobs=((-0.5, -1.0, -2.0),)) for each in mixed]
    (plain,), (scored,) = (
        list(micro_batches(groups, max_tokens=99, is_packed=True)) for groups in (plain, scored)
    )
    assert plain.targets[0].temperatures is None
    assert plain.targets[0].old_logprobs is None
    assert scored.targets[0].temperatures.tolist() == [0.5] * 3 + [1.0] * 3
    assert scored.targets[0].old_logprobs.tolist() == [-0.5, -1.0, -2.0] * 2
    assert scored.targets[0].reference_logprobs is None


@settings(max_examples=50)
@given(
    groups=groups_of_any_shape,
    aggregation=st.sampled_from(["token_mean", "sequence_mean", "length_free"]),
    **cut,
)
def test_weights_do_not_depend_on_the_cut(groups, aggregation, max_tokens, is_packed):
    weights, others = (
        torch.cat([b.targets[0].weights for b in cut_up(groups, size, is_packed, aggregation)])
        for size in (max_tokens, 10**6)
    )
    assert torch.equal(weights, others)
    num_tokens = sum(len(c.token_ids) for _, c in all_completions(groups))
    num_completions = len(all_completions(groups))
    expected = {
        "token_mean": 1.0,
        "sequence_mean": 1.0,
        "length_free": num_tokens / (10 * num_completions),
    }
    assert weights.sum().item() == pytest.approx(expected[aggregation], rel=1e-5)


def test_aggregations_weigh_long_and_short_completions_as_their_names_say():
    completions = tuple(TrainingCompletion((1,) * n, (-1.0,) * n, 1.0) for n in (1, 3))
    group = TrainingGroup(role="r", prompt_ids=(1,), completions=completions)
    weights = {
        name: weighted_groups([group], name, 6)[0].weights
        for name in ("token_mean", "sequence_mean", "length_free")
    }
    assert weights["token_mean"] == (1 / 4, 1 / 4)
    assert weights["sequence_mean"] == (1 / 2, 1 / 6)
    assert weights["length_free"] == (1 / 12, 1 / 12)


GOOD = TrainingGroup(
    role="planner", prompt_ids=(1,), completions=(TrainingCompletion((2,), (-1.0,), 0.5),)
)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"prompt_ids": ()}, "without prompt"),
        ({"completions": ()}, "without prompt or completions"),
        ({"temperature": 0.0}, "temperature 0"),
        ({"completions": (TrainingCompletion((), (), 1.0),)}, "0 tokens"),
        ({"completions": (TrainingCompletion((1, 2), (-1.0,), 1.0),)}, "2 tokens with 1"),
        ({"completions": (TrainingCompletion((1,), (-1.0,), math.nan),)}, "advantage nan"),
        ({"completions": (TrainingCompletion((1,), (-math.inf,), 1.0),)}, "not finite"),
    ],
)
def test_groups_that_cannot_be_trained_on_are_refused(changes, message):
    with pytest.raises(InvalidArgument, match=rf"{message}.*group 1, role 'planner'"):
        check_groups([GOOD, replace(GOOD, **changes)])


@given(
    prompts=st.lists(st.tuples(st.sampled_from([(1, 2), (1, 3)]), st.sampled_from([0.7, 1.0]))),
    is_scored=st.booleans(),
    data=st.data(),
)
def test_prompts_that_groups_have_in_common_are_joined_and_nothing_else_changes(
    prompts, is_scored, data
):
    def group(prompt, temperature):
        completions = (data.draw(sampled),)
        return TrainingGroup(
            role="planner", prompt_ids=prompt, completions=completions, temperature=temperature
        )

    apart = weighted_groups([group(*each) for each in prompts], "sequence_mean", 10)
    if is_scored:
        scores = [((float(index),),) for index in range(len(apart))]
        apart = [
            replace(each, old_logprobs=score, reference_logprobs=score)
            for each, score in zip(apart, scores, strict=True)
        ]

    def rows(groups):
        found = []
        for each in groups:
            one = each.group
            size = range(len(one.completions))
            old = each.old_logprobs or [None for _ in size]
            reference = each.reference_logprobs or [None for _ in size]
            prompt = (one.prompt_ids, one.temperature)
            parts = zip(one.completions, each.weights, old, reference, strict=True)
            found += [(prompt, *part) for part in parts]
        return found

    joined = joined_by_prompt(apart)
    assert sorted(rows(joined), key=repr) == sorted(rows(apart), key=repr)
    assert len(joined) == sum(-(-prompts.count(each) // 16) for each in set(prompts))


def group(prompt_length, *lengths):
    """A group with completions of these lengths; their index is their weight and score."""
    completions = tuple(TrainingCompletion((1,) * n, (-0.5,) * n, 1.0) for n in lengths)
    scores = tuple((float(index),) * n for index, n in enumerate(lengths))
    return WeightedGroup(
        group=TrainingGroup(role="r", prompt_ids=(9,) * prompt_length, completions=completions),
        weights=tuple(map(float, range(len(lengths)))),
        old_logprobs=scores,
        reference_logprobs=scores,
    )


@pytest.mark.parametrize(
    ("is_packed", "max_tokens", "parts"),
    [
        (True, 10, [4]),  # a prompt of 4, then 2, 2, 2 and 0 tokens: the last predicts nothing
        (True, 9, [2, 2]),
        (True, 6, [1, 1, 2]),
        (True, 1, [1, 1, 1, 1]),
        (False, 22, [4]),
        (False, 21, [3, 1]),
        (False, 12, [2, 2]),
        (False, 11, [1, 1, 2]),
    ],
)
def test_a_group_is_cut_where_the_next_completion_does_not_fit(is_packed, max_tokens, parts):
    whole = group(4, 3, 3, 3, 1)
    assert whole.num_tokens(is_packed) == (10 if is_packed else 22)
    found = list(fitting_parts(whole, max_tokens, is_packed))
    assert [len(part.weights) for part in found] == parts
    for name in ("weights", "old_logprobs", "reference_logprobs"):
        assert sum((getattr(part, name) for part in found), ()) == getattr(whole, name)
    assert sum((part.group.completions for part in found), ()) == whole.group.completions


@pytest.mark.parametrize(("number", "sizes"), [(16, [16]), (17, [16, 1])])
def test_at_most_16_completions_are_joined(number, sizes):
    joined = joined_by_prompt([group(4, 3)] * (number - 1) + [unweighted([group(4, 3).group])[0]])
    assert [len(one.weights) for one in joined] == sizes
    assert [one.old_logprobs is None for one in joined] == [number == 16] + [True] * (number - 16)


def test_completions_are_parts_of_their_own_where_steps_may_divide_a_group():
    groups = [group(4, 3, 2).group, group(5, 1).group]
    scores = [group(4, 3, 2).old_logprobs, group(5, 1).old_logprobs]
    for old, reference in ((None, scores), (scores, None)):
        whole = parts_of(groups, old, reference, by_completion=False)
        assert [one.old_logprobs for one in whole] == (old or [None, None])
        assert [one.reference_logprobs for one in whole] == (reference or [None, None])
        parts = parts_of(groups, old, reference, by_completion=True)
        assert [(one.source, len(one.group.completions)) for one in parts] == [
            (0, 1),
            (0, 1),
            (1, 1),
        ]
        assert [one.old_logprobs for one in parts] == (
            [((0.0, 0.0, 0.0),), ((1.0, 1.0),), ((0.0,),)] if old else [None] * 3
        )


def test_padded_rows_are_as_long_as_the_longest_input():
    (batch,) = micro_batches([group(4, 3, 2)], max_tokens=99, is_packed=False)
    assert batch.inputs.token_ids.shape == (2, 6)
    assert batch.targets[0].grammars is None
    guided = replace(group(4, 3), group=replace(group(4, 3).group, grammar="root"))
    (batch,) = micro_batches([guided], max_tokens=99, is_packed=False)
    assert batch.targets[0].grammars == ("root",)


def test_parts_without_scores_have_none():
    for part in fitting_parts(unweighted([group(4, 3, 3).group])[0], 1, True):
        assert part.weights == (0.0,)
        assert part.old_logprobs is None
        assert part.reference_logprobs is None


def test_the_longest_groups_go_first_to_the_lightest_share():
    groups = [group(length, 1) for length in (3, 5, 3, 4, 3)]
    assert shares(groups, 2, is_packed=True) == [[1, 2], [0, 3, 4]]
    assert shares(groups[:1], 2, is_packed=True) == [[0], []]


@given(st.lists(st.integers(1, 30), max_size=12), st.integers(1, 4))
def test_shares_are_all_groups_once_and_even(lengths, num_shares):
    found = shares([group(length, 1) for length in lengths], num_shares, is_packed=True)
    assert len(found) == num_shares
    assert sorted(index for share in found for index in share) == list(range(len(lengths)))
    assert all(share == sorted(share) for share in found)
    loads = [sum(lengths[index] for index in share) for share in found]
    assert max(loads) - min(loads) <= max(lengths, default=0)
