"""The suite of blame on a few episodes: faults are found, and intervals hold what is exact."""

import asyncio
import importlib
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks" / "suites"))
suite = importlib.import_module("blame")


@pytest.mark.nightly
@pytest.mark.parametrize("name", suite.CASES)
def test_planted_faults_are_found(name):
    found = suite.measured(suite.CASES[name], num_episodes=24)
    assert found["right"]["value"] >= 0.95
    assert found["single"]["value"] >= 0.88
    for held in found["hold"].values():
        assert held["jointly"]["high"] >= 0.95


def test_the_exact_chance_is_the_share_of_plays():
    """Two branches of every answer, summed, against the policy that draws them."""
    case = suite.CASES["Search"]
    env = suite.pettingllms.make(case.env_id, checks=False, **case.kwargs)
    env.reset(seed=1)
    policy = suite.Erring(case.fault, case.rates)
    exact = policy.chance(env, {})
    wins = 0
    for seed in range(200):
        twin = env.fork()
        for number in range(8):
            agent = twin.agent_selection
            if twin.terminations[agent] or twin.truncations[agent]:
                break
            prompt = suite.Prompt([], agent, 1000 * seed + number, twin)
            (answer,) = asyncio.run(policy.sample([prompt], 1, suite.Sampling()))
            twin.step(answer.completions[0].text)
        wins += twin.infos[agent]["success"]
    assert 0.3 < exact < 0.95
    assert abs(wins / 200 - exact) < 4 * (exact * (1 - exact) / 200) ** 0.5
