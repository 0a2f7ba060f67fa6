"""Stages that levels come from: by what has been solved, and never none of one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pettingllms_trainers.rollout.curriculum import StageRecord, stage_shares, with_episodes
from pettingllms_trainers.types import RolloutTree, TreeOutcome

records = st.tuples(st.floats(0, 1e6), st.floats(0, 1)).map(
    lambda r: StageRecord(r[0] * r[1], r[0])
)


def tree(stage, success):
    """An episode that was solved, was not, or failed (None)."""
    outcome = None
    if success is not None:
        outcome = TreeOutcome(success=success, terminated=success, truncated=not success)
    return RolloutTree(
        episode=0,
        env_seed=0,
        initial_state_hash="",
        decisions=(),
        outcome=outcome,
        stage=stage,
    )


@given(st.lists(records, min_size=1, max_size=6), st.floats(0.01, 1))
def test_no_stage_is_below_the_floor_and_the_rest_follows_the_variance_of_success(stages, floor):
    shares = stage_shares(stages, floor)
    assert sum(shares) == pytest.approx(1)
    equal = floor / len(stages)
    assert min(shares) >= equal
    variances = [record.success * (1 - record.success) for record in stages]
    for one, own in zip(shares, variances, strict=True):
        assert (one - equal) * sum(variances) == pytest.approx((1 - floor) * own, abs=1e-9)


def test_with_a_floor_of_1_all_are_played_alike():
    shares = stage_shares([StageRecord(), StageRecord(90, 100), StageRecord(0, 100)], 1.0)
    assert shares == pytest.approx([1 / 3] * 3)


def test_counts_are_of_the_own_stage_and_fade():
    played = [tree(0, True), tree(0, False), tree(1, True), tree(0, None)]
    before = [StageRecord(8, 10), StageRecord(0, 4), StageRecord(2, 2)]
    assert with_episodes(before, played, 0.5) == [
        StageRecord(5, 7),
        StageRecord(1, 3),
        StageRecord(1, 1),
    ]
    assert StageRecord(5, 7).success == 6 / 9
    assert StageRecord().success == 1 / 2


def test_the_curriculum_moves_on_when_a_stage_is_mastered():
    """Whoever has mastered a stage solves half of the next one, and nothing of those after it."""
    stages, favourites = [StageRecord()] * 3, []
    for step in range(60):
        level = step // 20
        solved = [1.0 if stage < level else 0.5 if stage == level else 0.0 for stage in range(3)]
        shares = stage_shares(stages, 0.2)
        favourites.append(shares.index(max(shares)))
        played = [
            tree(stage, number < solved[stage] * round(40 * share))
            for stage, share in enumerate(shares)
            for number in range(round(40 * share))
        ]
        stages = with_episodes(stages, played, 0.9)
    assert [favourites[step] for step in (19, 39, 59)] == [0, 1, 2]
