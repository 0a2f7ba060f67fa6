import pytest

from pettingllms.errors import InvalidArgument
from pettingllms.seeding import SPLITS, check_split, derive_seed, next_seed, split_of


def test_derived_seeds_never_change():
    """Results of a seed are compared across versions."""
    assert [next_seed(seed) for seed in (0, 7)] == [4761921975702974394, 8333924190356522945]
    assert derive_seed(0) == 7041760261490241
    assert [derive_seed(7, "a", part) for part in (1, "1")] == [4368318173860997, 4038612231355703]


def test_an_unseeded_start_is_any_of_63_bits():
    seeds = [next_seed(None) for _ in range(200)]
    assert len(set(seeds)) == 200
    assert (1 << 62) <= max(seeds) < 1 << 63


def test_shares_are_80_10_10():
    names = [split_of(str(number).encode()) for number in range(20_000)]
    shares = [names.count(split) / len(names) for split in SPLITS]
    assert shares == pytest.approx([0.8, 0.1, 0.1], abs=0.01)


def test_the_split_of_a_content_never_changes():
    """Levels that were held out when a policy was trained must be held out when it is evaluated."""
    splits = [split_of(str(number).encode()) for number in range(20)]
    assert [number for number in range(20) if splits[number] == "test"] == [0, 15]
    assert [number for number in range(20) if splits[number] == "validation"] == [8, 11, 16, 19]
    assert splits.count("train") == 14


def test_unknown_split():
    with pytest.raises(InvalidArgument, match="one of train, validation, test"):
        check_split("dev")
