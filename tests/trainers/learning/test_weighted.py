"""What a rank gets, and where a group is cut that does not fit into memory."""

import pytest

from pettingllms_trainers.learning.batch import (
    WeightedGroup,
    fitting_parts,
    shares,
    unweighted,
)
from pettingllms_trainers.types import TrainingCompletion, TrainingGroup


def group(prompt_length, *lengths):
    """Return a group with completions of these lengths; their index is their weight and score."""
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


def test_parts_without_scores_have_none():
    for part in fitting_parts(unweighted([group(4, 3, 3).group])[0], 1, True):
        assert part.weights == (0.0,)
        assert part.old_logprobs is None
        assert part.reference_logprobs is None


def test_the_longest_groups_go_first_to_the_lightest_share():
    groups = [group(length, 1) for length in (3, 5, 3, 4, 3)]
    assert shares(groups, 2, is_packed=True) == [[1, 2], [0, 3, 4]]
    assert shares(groups[:1], 2, is_packed=True) == [[0], []]
