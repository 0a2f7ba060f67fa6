"""What is learnt on one split is not asked in another, and held-out levels never change."""

import json

import pytest

import pettingllms
from pettingllms.evaluation.plan import level_seed, manifest_of
from pettingllms.seeding import SPLITS

MANY = 100
"""Distinct levels that a test split should have; a difficulty with fewer says how many it has."""


AXES = {
    env_id: pettingllms.make(env_id).unwrapped.difficulties
    for env_id in pettingllms.registered_ids()
}


def resets(env_id, difficulty, split, num_levels):
    env = pettingllms.make(env_id, checks=False, difficulty=difficulty, split=split)
    for seed in range(num_levels):
        env.reset(seed=seed)
        yield env


def places(is_nightly):
    """Every difficulty of every game; those for which `is_nightly` holds are tested at night."""
    return [
        pytest.param(
            env_id, number, marks=[pytest.mark.nightly] if is_nightly(axis, number) else []
        )
        for env_id, axis in AXES.items()
        for number in range(len(axis))
    ]


@pytest.mark.parametrize(("env_id", "difficulty"), places(lambda axis, number: number > 0))
def test_no_level_and_no_first_prompt_of_the_team_is_in_two_splits(env_id, difficulty):
    of_hash, of_prompts = {}, {}
    for split in SPLITS:
        for env in resets(env_id, difficulty, split, 100):
            prompts = tuple(map(env.observe, env.possible_agents))
            assert of_hash.setdefault(env.level_hash(), split) == split
            assert of_prompts.setdefault(prompts, split) == split


@pytest.mark.parametrize(
    ("env_id", "difficulty"), places(lambda axis, number: number not in axis.toys)
)
def test_a_difficulty_has_a_hundred_test_levels_or_is_a_toy_of_as_many_as_it_says(
    env_id, difficulty
):
    found = set()
    for env in resets(env_id, difficulty, "test", 1000):
        found.add(env.level_hash())
        if len(found) == MANY:
            break
    most = AXES[env_id].toys.get(difficulty, MANY)
    # Rare levels of a toy take more draws than these.
    assert (1 if most == MANY else 0.8) * most <= len(found) <= most


@pytest.mark.parametrize("split", ["validation", "test"])
@pytest.mark.parametrize(
    "env_id", [i for i in pettingllms.registered_ids() if pettingllms.spec(i).package]
)
def test_held_out_levels_are_the_frozen_ones(env_id, split, repository, request):
    path = repository / "envs" / "pettingllms_envs" / "manifests.json"
    manifests, hashes = json.loads(path.read_text()), []
    env = pettingllms.make(env_id, checks=False, split=split)
    for level in range(200):
        env.reset(seed=level_seed(0, level))
        hashes.append(env.state_hash())
    found = manifest_of(hashes)
    if request.config.getoption("--update-transcripts"):
        manifests.setdefault(env_id, {})[split] = found
        path.write_text(json.dumps(manifests, indent=2, sort_keys=True) + "\n")
    assert manifests[env_id][split] == found, (
        f"the {split} levels of {env_id} are not the frozen ones: a change of levels is a new id"
    )
