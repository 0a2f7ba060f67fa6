"""The rivals compute by hand what they say, and are plug-ins like those of anybody."""

import sys
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks" / "rivals"))

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "trainers" / "toys"))

import run_toys
from credit_study.rows import read_table
from pettingllms_rivals.entropy_branching import entropy

from pettingllms.plugins import ALGORITHMS, installed
from pettingllms_trainers.config.algorithm import algorithm_of
from pettingllms_trainers.learning.groups import score_decisions
from pettingllms_trainers.testing import check_algorithm
from pettingllms_trainers.types import TreeOutcome

RIVALS = Path(__file__).resolve().parents[2] / "benchmarks" / "rivals"
PROJECT = (RIVALS / "pyproject.toml").read_text(encoding="utf-8")
ANNOUNCED = tomllib.loads(PROJECT)["project"]["entry-points"][ALGORITHMS]


def step(reward, state="s", agent="a_0", value=0.0, turn=None):
    """What becomes a decision with one candidate, or several if the reward is a list."""
    return (reward if isinstance(reward, list) else [reward]), state, agent, value, turn


def tree(episode, *steps, success=False):
    decisions = [
        run_toys.decision(
            rewards, episode=episode, index=position, agent=agent, policy="p", state_key=state,
            turn=position if turn is None else turn, value=value,
        )
        for position, (rewards, state, agent, value, turn) in enumerate(steps)
    ]  # fmt: skip
    outcome = TreeOutcome(success=success, terminated=success, truncated=not success)
    return run_toys.tree(*decisions, episode=episode, env_seed=0, outcome=outcome)


def advantages(name, *trees, **parameters):
    """The advantages of each episode's decisions; 0 where nothing is learnt."""
    algorithm = algorithm_of({"name": ANNOUNCED[name], **parameters})
    scored = score_decisions(trees, algorithm).decisions
    found = {one.key: [c.advantage for c in one.candidates] for one in scored}
    return [
        [found.get(one.key, [0.0] * len(one.candidates)) for one in tree.decisions]
        for tree in trees
    ]


def of_paths(*args, **keys):
    return [[first for (first,) in path] for path in advantages(*args, **keys)]


def test_none_has_more_than_60_lines():
    modules = [*(RIVALS / "pettingllms_rivals").glob("*.py")]
    num_lines = {path.stem: len(path.read_text("utf-8").splitlines()) for path in modules}
    assert {name: num for name, num in num_lines.items() if num > 60} == {} != num_lines


@pytest.mark.parametrize("name", ANNOUNCED)
def test_it_passes_the_kit(name):
    check_algorithm(ANNOUNCED[name])


def test_they_are_found_as_plug_ins_are(tmp_path, monkeypatch):
    run_toys.announce(tmp_path, "pettingllms-rivals", {ALGORITHMS: ANNOUNCED})
    monkeypatch.syspath_prepend(tmp_path)
    installed.cache_clear()
    try:
        for name in ANNOUNCED:
            assert type(algorithm_of({"name": name})).__name__ in ANNOUNCED[name]
    finally:
        installed.cache_clear()


def test_each_is_a_way_of_the_study():
    ways = [way["algorithm"] for way in read_table()["ways"].values()]
    assert set(ANNOUNCED.values()) <= {way["name"] for way in ways}
    for way in ways:
        algorithm_of(way)


def test_gigpo_adds_the_comparison_in_equal_states_to_that_of_episodes():
    paths = tree(0, step(0), step(4, "x")), tree(1, step(0), step(0, "x")), tree(2, step(2))
    # Returns 4, 0, 2; from s on 2, 0, 2 with gamma 1/2; from x on 4, 0.
    found = of_paths("gigpo", *paths, norm="none", gamma=0.5, step_weight=3.0)
    third = pytest.approx(2 / 3)
    assert found[0] == [pytest.approx(2 + 3 * 2 / 3), 2 + 3 * 2]
    assert found[1] == [pytest.approx(-2 - 3 * 4 / 3), -2 - 3 * 2]
    assert [found[2][0] / 3] == [third]


def test_hgpo_weighs_groups_by_how_much_of_the_past_they_share():
    paths = (
        tree(0, step(0, "s"), step(0, "x"), step(6, "z")),
        tree(1, step(0, "s"), step(0, "x"), step(0, "z")),
        tree(2, step(0, "s"), step(0, "y"), step(0, "z")),
    )
    found = of_paths("hgpo", *paths, norm="none", gamma=1.0, history=1, alpha=1.0)
    # In z: returns 6, 0, 0 minus 2, weight 1/3; of those from x 6, 0 minus 3, weight 2/3.
    assert [path[2] for path in found] == pytest.approx([4 / 3 + 2, -2 / 3 - 2, -2 / 3])
    assert [path[0] for path in found] == pytest.approx([4, -2, -2])
    only = of_paths("hgpo", *paths, norm="none", gamma=1.0, history=0)
    assert [path[2] for path in only] == pytest.approx([4, -2, -2])


def test_c3_leaves_one_out_at_each_decision_and_divides_by_nothing():
    steps = step([3, 0, 0], value=1.0), step([1, 5], "x", "b_0"), step([2, 2, 8], "y")
    ((first, second, third),) = advantages("c3", tree(0, *steps))
    # 3 - (0 + 0) / 2 and 0 - (3 + 0) / 2; V is the same for all. 1 - 5. 2 - (2 + 8) / 2, 8 - 2.
    assert first == pytest.approx([3, -1.5, -1.5])
    assert second == pytest.approx([-4, 4])
    assert third == pytest.approx([-3, -3, 6])


def test_entropy_branching_compares_the_candidates_of_a_branching_with_each_other_alone():
    branching = step([1, 0, 5], "x", "b_0", value=2.0)
    first, second, last = advantages("entropy_branching", tree(0, step(9), branching, step(4)))[0]
    # 3, 2, 7 have the mean 4 and the variance (1 + 4 + 9) / 3. Whoever has one candidate compares
    # with nothing, also where another decision of the role has one.
    assert second == pytest.approx([deviation / (14 / 3) ** 0.5 for deviation in (-1, -2, 3)])
    assert first == last == [0.0]


def test_entropy_branching_prefers_the_least_sure_decision():
    def of(entropies, logprobs):
        made = tree(0, step(0)).decisions[0]
        completion = replace(run_toys.ANSWER, entropies=entropies, logprobs=logprobs)
        return entropy(
            replace(made, candidates=(replace(made.candidates[0], completion=completion),))
        )

    assert of((1.0, 3.0), (-7.0, -7.0)) == 2.0
    assert of((), (-1.0, -4.0)) == 2.5


def test_dr_mas_counts_an_episode_as_often_as_the_agent_acts():
    paths = tree(0, step(3), step(0), step(0)), tree(1, step(0))
    assert of_paths("dr_mas", *paths, norm="none") == [[0.75] * 3, [-2.25]]
    assert of_paths("dr_mas", *paths)[1] == pytest.approx([-(3**0.5)])


def test_magrpo_gives_all_agents_of_a_turn_what_the_team_earned_from_it_on():
    def path(episode, *rewards):
        steps = [
            step(reward, agent="ab"[n % 2] + "_0", turn=n // 2) for n, reward in enumerate(rewards)
        ]
        return tree(episode, *steps)

    paths = path(0, 1, 2, 3, 4), path(1, 0, 0, 0, 5), path(2, 0, 0)
    assert of_paths("magrpo", *paths) == [[5.0, 5.0, 1.0, 1.0], [0.0, 0.0, -1.0, -1.0], [-5.0] * 2]
