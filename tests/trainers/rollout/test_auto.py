"""`auto`: what is shown to lead to success, on scripted play and on the run's own episodes."""

import json
import random
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pettingllms
from pettingllms.files import read_lines
from pettingllms_trainers.algorithms.auto import Auto, EpisodeRewards, Evidence, leads, pilot
from pettingllms_trainers.cli import main
from pettingllms_trainers.config.algorithm import StepContext

PLAN_PATH = {"size": 5, "team": "tool-planner", "moves_per_turn": 2, "max_turns": 4}
REWARDS = st.lists(st.floats(-1, 1), min_size=1, max_size=6)
LEVEL = st.lists(st.builds(EpisodeRewards, REWARDS, st.booleans()), min_size=1, max_size=4)


@given(LEVEL, st.floats(-1, 1))
def test_how_an_episode_ends_and_how_long_it_is_paid_makes_nobody_lead(level, pay):
    """Of the last reward, and of what every decision of everybody is paid."""
    ended = [one._replace(rewards=[*one.rewards[:-1], pay]) for one in level]
    assert leads(ended) == leads(level)
    paid = [one._replace(rewards=[pay] * len(one.rewards)) for one in level]
    assert all(lead is None or abs(lead[0]) < 1e-12 for lead in leads(paid))


def test_rewards_that_mean_nothing_are_shown_in_no_run_of_many():
    for seed in range(40):
        rng, evidence = random.Random(seed), Evidence()
        for _ in range(400):
            level = [
                EpisodeRewards(
                    [rng.gauss(0, 1) for _ in range(rng.randint(1, 8))], rng.random() < 0.2
                )
                for _ in range(4)
            ]
            evidence = evidence.with_level(level)
            assert not evidence.is_shown


def test_the_pilot_shows_what_pays_progress_and_not_what_pays_the_end():
    shaped, outcome = (
        pettingllms.make("plan_path_v0", reward=reward, checks=False, **PLAN_PATH)
        for reward in ("shaped", "outcome")
    )
    before = json.dumps(shaped.possible_agents)
    assert pilot(shaped, 400, seed=1).is_shown
    assert pilot(shaped, 60, seed=1) == pilot(shaped, 60, seed=1) != pilot(shaped, 60, seed=2)
    assert pilot(outcome, 60, seed=1) == Evidence() == pilot(shaped, 0, seed=1)
    assert json.dumps(shaped.possible_agents) == before


def tree(rewards, *, success, level, env=""):
    candidates = [[SimpleNamespace(reward=reward)] for reward in rewards]
    decisions = [SimpleNamespace(candidates=own, chosen=0) for own in candidates]
    outcome = SimpleNamespace(success=success)
    return SimpleNamespace(env=env, env_seed=level, outcome=outcome, decisions=decisions)


def played(rng, levels, env="", gain=1.0):
    """Episodes of which those that earn more are solved more often."""
    for level in levels:
        for _ in range(4):
            rewards = [rng.random(), rng.random()]
            yield tree(rewards, success=gain * rewards[0] > rng.random(), level=level, env=env)


def test_the_runs_own_episodes_decide_where_the_pilot_could_not():
    algorithm, rng = Auto(), random.Random(0)
    memory = algorithm.begin({}, seed=0)
    taken = []
    for step in range(12):
        context = StepContext(step, json.loads(json.dumps(memory)))
        taken.append(algorithm.at(context).name)
        memory = algorithm.remember([*played(rng, range(8))], context)
    assert (taken[0], taken[-1]) == ("reinforce", "at_grpo")
    assert taken == sorted(taken, reverse=True), "what is shown stays shown"
    known = algorithm.remember([*played(rng, range(8), gain=0)], StepContext(12, memory))
    assert known == memory
    assert "at_grpo" in algorithm.says(memory) != algorithm.says({"": [0, 1]})


def test_of_several_environments_each_has_to_show_it():
    algorithm, rng = Auto(), random.Random(0)
    memory = algorithm.remember([*played(rng, range(200), "a")], StepContext(0, {}))
    assert algorithm.at(StepContext(1, memory)).name == "at_grpo"
    both = [*played(rng, range(200), "a"), *played(rng, range(200), "b", gain=0)]
    memory = algorithm.remember(both, StepContext(0, {}))
    assert memory["a"] != memory["b"]
    assert algorithm.at(StepContext(1, memory)).name == "reinforce"


@pytest.mark.parametrize(
    ("reward", "like"),
    [
        ("shaped", ["--algorithm.name=at_grpo", "--algorithm.branch_choice=greedy"]),
        ("outcome", ["--algorithm.name=reinforce", "--algorithm.credit=success"]),
    ],
)
def test_a_run_is_that_of_the_algorithm_that_was_chosen(
    reward, like, small_run_file, tmp_path, capsys
):
    def run(name, *flags):
        out = tmp_path / name
        arguments = [str(small_run_file(2)), "--output-dir", str(out), "--stalled-after=9"]
        arguments += ["--logging.progress=plain", f"--env.kwargs.reward={reward}"]
        assert main([*arguments, *flags]) == 0
        return out, capsys.readouterr()

    few = ["--algorithm.num-pilot-levels=20"] * (reward == "outcome")
    (ours, said), (theirs, _) = run("ours", "--algorithm.name=auto", *few), run("theirs", *like)
    follows = float(reward == "shaped")
    lines = read_lines(ours / "metrics.jsonl")
    assert [line["algorithm/follows_steps"] for line in lines] == [follows] * 3
    assert ("lead to success (z = " in said.out + said.err) == bool(follows)
    weights = [sorted(out.glob("policies/**/*.safetensors")) for out in (ours, theirs)]
    assert weights[0]
    for one, other in zip(*weights, strict=True):
        assert one.read_bytes() == other.read_bytes()
