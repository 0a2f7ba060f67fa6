"""Plans: JSON, ranges, levels and chance, assignments, splits."""

import json
from pathlib import Path

import pytest

import pettingllms
from pettingllms.errors import InvalidArgument, UnknownEnvironment
from pettingllms.evaluation import EvaluationPlan, level_seed
from pettingllms.evaluation.plan import held_out_kwargs, manifest_of, swapped
from pettingllms.policies import Sampling
from pettingllms.seeding import derive_seed

FILE = Path("run.json")


def plan(**changes):
    values = {"env_id": "guess_v0", "variants": {"main": {"teller": "oracle", "guesser": "random"}}}
    return EvaluationPlan(**{**values, **changes})


def loaded(given):
    return EvaluationPlan.from_json(json.loads(json.dumps(given.to_json())), FILE)


def test_json_loads_back_equal():
    given = plan(
        env_kwargs={"max_turns": 5, "prompts": {"teller": {"user": "x"}}},
        options={"secret": 3},
        sampling={"teller": Sampling(temperature=0.5, stop=("a", "b"), extra={"top_k": 3})},
        seed=-4,
        num_levels=7,
        num_samples=2,
        prices={"oracle": (0.5, 2.0)},
    )
    assert loaded(given).to_json() == given.to_json()


@pytest.mark.parametrize(
    "changes",
    [
        {"num_levels": 0},
        {"num_samples": True},
        {"seed": 0.5},
        {"variants": {}},
        {"level_numbers": (0, 1), "num_levels": 3},
        {"level_numbers": (1, 1), "num_levels": 2},
        {"prices": {"oracle": (float("nan"), 1.0)}},
    ],
)
def test_out_of_range_is_refused(changes):
    with pytest.raises(InvalidArgument, match=next(iter(changes))):
        plan(**changes)


def test_every_variant_plays_the_same_levels_with_the_same_chance():
    given = plan(
        variants={"main": {"teller": "a"}, "swapped": {"teller": "b"}}, num_levels=5, num_samples=3
    )
    episodes = list(given.episodes())
    assert len(episodes) == given.num_episodes == 30
    assert len({spec[:3] for spec in episodes}) == 30
    main = [spec[1:] for spec in episodes if spec.variant == "main"]
    assert main == [spec[1:] for spec in episodes if spec.variant == "swapped"]
    assert len({spec.level_seed for spec in episodes}) == 5
    assert len({spec.seed for spec in episodes}) == 15


def few_levels(**changes):
    variants = {"main": {"planner": "oracle"}}
    kwargs = {"team": "single", "split": "test"}
    return EvaluationPlan(env_id="sudoku_v0", variants=variants, env_kwargs=kwargs, **changes)


def test_each_level_of_a_small_pool_is_drawn_once():
    wanted = few_levels(num_levels=100, num_samples=2)
    env = wanted.make_env()
    given = wanted.with_distinct_levels(env)
    assert (given.num_levels, given.num_wanted) == (43, 100)
    assert len(list(given.episodes())) == given.num_episodes == 86
    contents = set()
    for spec in given.episodes():
        env.reset(seed=spec.level_seed)
        assert spec.level_seed == level_seed(0, spec.level)
        contents.add(env.level_hash())
    assert len(contents) == 43
    assert loaded(given).to_json() == given.to_json()
    few = few_levels(num_levels=10).with_distinct_levels(env)
    assert few.level_numbers == given.level_numbers[:10]
    assert few.num_wanted is None


def test_a_large_pool_is_drawn_as_it_comes():
    given = EvaluationPlan(
        env_id="plan_path_v0", variants={"main": {"planner": "p"}}, env_kwargs={"team": "single"}
    )
    assert given.with_distinct_levels(given.make_env()) is given


def test_derived_seeds_are_fixed_for_all_time():
    """The trainer's held-out levels are the same; old runs stay comparable."""
    assert derive_seed(0, "held-out level", 0) == 709944392641963
    assert manifest_of(["a", "b"]) == "7e18f737311b2dc3"


def test_a_plan_must_fit_the_team(guess_id):
    plan().make_env()
    for variants in (
        {"main": {"teller": "oracle"}},
        {"main": {"teller": "a", "guesser": "a", "x": "a"}},
    ):
        with pytest.raises(InvalidArgument, match="teller, guesser"):
            plan(variants=variants).make_env()
    with pytest.raises(InvalidArgument, match='did you mean "teller"'):
        plan(sampling={"tller": Sampling()}).make_env()
    with pytest.raises(UnknownEnvironment):
        plan(env_id="nothing_v0").make_env()


def test_only_the_address_of_a_policy_may_change():
    old = "openai:qwen3:4b@http://localhost:8000/v1"
    new = "openai:qwen3:4b@http://localhost:9000/v1"
    given = plan(
        variants={
            "main": {"teller": old, "guesser": "oracle"},
            "swapped": {"teller": "oracle", "guesser": old},
        },
        prices={old: (1.0, 2.0)},
    )
    moved = given.with_policies({"teller": new})
    assert moved.variants == {
        "main": {"teller": new, "guesser": "oracle"},
        "swapped": {"teller": "oracle", "guesser": new},
    }
    assert moved.prices == {new: (1.0, 2.0)}
    shared = plan(variants={"main": {"teller": old, "guesser": old}})
    assert set(shared.with_policies({"teller": new}).policies()) == {new}
    with pytest.raises(InvalidArgument, match="address may differ"):
        shared.with_policies({"teller": new, "guesser": old})
    for role, name in (("teller", "openai:qwen3:8b@http://localhost:8000/v1"), ("guesser", new)):
        with pytest.raises(InvalidArgument, match="address may differ"):
            given.with_policies({role: name})


def test_swapping_moves_every_policy_to_the_role_before():
    assert swapped({"a": "1", "b": "2", "c": "3"}) == {"a": "2", "b": "3", "c": "1"}
    with pytest.raises(InvalidArgument, match="at least two different"):
        swapped({"a": "1", "b": "1"})


def test_held_out_levels_unless_a_split_is_given(guess_id, guess_env):
    assert held_out_kwargs("guess_v0", {"alpha": 2}) == {"alpha": 2}

    class WithSplits(guess_env):
        def __init__(self, *, split="train", **kwargs):
            super().__init__(**kwargs)

    pettingllms.register("splits_v0", WithSplits)
    assert held_out_kwargs("splits_v0", {}) == {"split": "test"}
    assert held_out_kwargs("splits_v0", {"split": None}) == {"split": None}
