"""Generated levels: certified, in range, in their split, the same in every process."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pettingllms.errors import InvalidArgument, UnreachableRequest
from pettingllms.seeding import SPLITS, split_of
from pettingllms_envs.plan_path.env import level_text, parse_level
from pettingllms_envs.plan_path.rules import Request, canonical_form, generate

DEFAULT = Request(10, 10, 0.22, 4, 40, "train")


@given(
    rows=st.integers(4, 14),
    cols=st.integers(4, 14),
    ratio=st.floats(0.0, 0.5),
    low=st.integers(1, 6),
    extra=st.integers(0, 20),
    seed=st.integers(0, 2**32),
)
def test_levels_are_certified_and_in_range(rows, cols, ratio, low, extra, seed):
    request = Request(rows, cols, ratio, low, low + extra, None).checked()
    level = generate(random.Random(seed), request)
    assert (level.rows, level.cols) == (rows, cols)
    assert low <= level.shortest <= low + extra
    # Reading the text searches anew and by another algorithm than the generator's.
    assert parse_level(level_text(level)) == level


@pytest.mark.parametrize("side", [4, 64])
def test_smallest_and_largest_boards(side):
    level = generate(random.Random(0), Request(side, side, 0.22, 4, 40, "train").checked())
    assert parse_level(level_text(level)) == level


def test_walls_have_the_density_asked_for():
    rng = random.Random(0)
    walls = sum(generate(rng, DEFAULT._replace(split=None)).cells.count("#") for _ in range(400))
    # A little below 0.22: boards on which no start is found are left out.
    assert walls / 40_000 == pytest.approx(0.22, abs=0.015)


def test_no_level_is_trivial_by_default():
    rng = random.Random(1)
    lengths = [generate(rng, DEFAULT).shortest for _ in range(300)]
    assert min(lengths) == 4
    assert max(lengths) > 12


@pytest.mark.parametrize("side", [5, 10])
def test_splits_are_disjoint_up_to_symmetry(side):
    request = Request(side, side, 0.3, 3, 40, None)
    forms = {}
    for split in SPLITS:
        # Equal seeds on purpose: the split is a matter of content, not of seeds.
        rng, wanted = random.Random(0), request._replace(split=split).checked()
        forms[split] = {canonical_form(generate(rng, wanted)) for _ in range(400)}
        assert {split_of(form) for form in forms[split]} == {split}
    assert not forms["train"] & forms["validation"]
    assert not forms["train"] & forms["test"]
    assert not forms["validation"] & forms["test"]


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"rows": 3}, "rows"),
        ({"cols": 65}, "cols"),
        ({"rows": "10"}, "rows"),
        ({"rows": True}, "rows"),
        ({"obstacle_ratio": 0.91}, "obstacle_ratio"),
        ({"obstacle_ratio": -0.1}, "obstacle_ratio"),
        ({"obstacle_ratio": float("nan")}, "obstacle_ratio"),
        ({"obstacle_ratio": "many"}, "obstacle_ratio"),
        ({"min_moves": 0}, "min_moves"),
        ({"max_moves": 2.5}, "max_moves"),
        ({"split": "dev"}, "split"),
    ],
)
def test_values_out_of_range_are_named(changes, word):
    with pytest.raises(InvalidArgument, match=word):
        DEFAULT._replace(**changes).checked()


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"min_moves": 9, "max_moves": 8}, "min_moves=9"),
        ({"rows": 4, "cols": 4, "min_moves": 16}, "min_moves=16"),
    ],
)
def test_contradictions_are_told_before_generating(changes, word):
    with pytest.raises(UnreachableRequest, match=word):
        DEFAULT._replace(**changes).checked()


@pytest.mark.parametrize(
    "changes",
    [
        {"min_moves": 60, "max_moves": 99},
        {"obstacle_ratio": 0.9, "min_moves": 30},
        {"rows": 12, "cols": 12, "obstacle_ratio": 0.0, "min_moves": 23},
    ],
)
def test_what_cannot_be_found_is_told_with_the_request(changes):
    request = DEFAULT._replace(**changes).checked()
    with pytest.raises(UnreachableRequest) as caught:
        generate(random.Random(0), request)
    for name, value in request._asdict().items():
        assert f"{name}={value!r}" in str(caught.value)
