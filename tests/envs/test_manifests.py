"""The held-out levels never change silently: their manifests are frozen in the package."""

import json

import pytest

import pettingllms
from pettingllms.evaluation.plan import level_seed, manifest_of

NUM_LEVELS = 200
SEED = 0


def manifest(env_id, split, **kwargs):
    env = pettingllms.make(env_id, checks=False, split=split, **kwargs)
    hashes = []
    for level in range(NUM_LEVELS):
        env.reset(seed=level_seed(SEED, level))
        hashes.append(env.state_hash())
    return manifest_of(hashes)


@pytest.fixture
def frozen(repository):
    path = repository / "envs" / "pettingllms_envs" / "manifests.json"
    return path, json.loads(path.read_text()) if path.exists() else {}


@pytest.mark.parametrize("split", ["validation", "test"])
@pytest.mark.parametrize(
    "env_id", [i for i in pettingllms.registered_ids() if pettingllms.spec(i).package]
)
def test_held_out_levels_are_the_frozen_ones(env_id, split, frozen, request):
    path, manifests = frozen
    found = manifest(env_id, split)
    if request.config.getoption("--update-transcripts"):
        manifests.setdefault(env_id, {})[split] = found
        path.write_text(json.dumps(manifests, indent=2, sort_keys=True) + "\n")
    assert manifests[env_id][split] == found, (
        f"the {split} levels of {env_id} are not the frozen ones: a change of levels is a new id"
    )


def test_a_seed_or_a_split_is_another_manifest():
    assert manifest("sudoku_v0", "test") != manifest("sudoku_v0", "validation")
