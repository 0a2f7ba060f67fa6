"""Results say how they were made, and every table in a document is the one that they give."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from statistics import median

import pytest

import pettingllms
from pettingllms.evaluation.bench import FULL, QUICK
from pettingllms.evaluation.statistics import mean_interval, wilson_interval
from pettingllms_trainers.config.recipes import (
    Recorded,
    read_recipe,
    recipe_names,
    recipe_path,
)

ROOT = Path(__file__).resolve().parents[2]
RESULTS = sorted((ROOT / "benchmarks" / "results").glob("*.json"))


@pytest.mark.parametrize("path", RESULTS, ids=[path.stem for path in RESULTS])
def test_results_name_command_date_and_a_suite_that_exists(path):
    result = json.loads(path.read_text(encoding="utf-8"))
    script = next(word for word in result["command"].split() if word.endswith(".py"))
    assert (ROOT / script).exists()
    assert Path(script).stem == result["suite"]
    assert result["date"]


def test_tables_are_up_to_date():
    command = [sys.executable, ROOT / "benchmarks" / "tables.py", "--check"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


def test_results_hold_every_seed_that_was_run():
    runs = json.loads((ROOT / "benchmarks/results/learning_plan_path.json").read_text())["runs"]
    assert len({run["seed"] for run in runs}) >= 3
    for run in runs:
        for variant in (run["warm_start"]["greedy"], run["after"]["greedy"]):
            assert variant["success_low"] <= variant["success"] <= variant["success_high"]
            assert variant["num_episodes"] >= 256


def test_a_pretrained_team_learns_on_every_seed_that_was_run():
    """More than the warm start, chance and the untouched model; intervals do not overlap."""
    path = ROOT / "benchmarks/results/learning_plan_path_smollm2.json"
    runs = json.loads(path.read_text())["runs"]
    assert len({run["seed"] for run in runs}) >= 3
    for run in runs:
        low = run["after"]["greedy"]["success_low"]
        others = [run[moment]["greedy"] for moment in ("before", "warm_start")]
        others.append(run["scripted"]["scripted:random"])
        assert all(other["success_high"] < low for other in others)


def test_a_team_learns_from_tokens_of_every_recorded_age():
    """Whatever the bound: more levels are solved in the end than before."""
    runs = json.loads((ROOT / "benchmarks/results/staleness.json").read_text())["runs"]
    assert {run["bound"] for run in runs} == {0, 1, 2, 4}
    for run in runs:
        assert run["max_age"] == run["bound"]
        (_, before), *_, (_, after) = run["greedy_curve"]
        assert wilson_interval(before, 256)[1] < wilson_interval(after, 256)[0]


@pytest.mark.parametrize(
    "name",
    [
        "blocksworld",
        "dining",
        "fireworks",
        "math",
        "panel",
        "queens",
        "relay",
        "search",
        "sokoban",
        "sudoku",
        "sudoku_6x6",
    ],
)
def test_tiny_recipes_learn_on_every_seed_or_say_that_no_run_is_recorded(name):
    """After training a team is above the warm start and chance, also taken over all seeds."""
    path = recipe_path(name)
    recorded = ROOT / "benchmarks" / "results" / f"learning_{path.stem}.json"
    is_not_shown = "Not shown to learn" in path.read_text()
    assert recorded.exists() or is_not_shown
    if is_not_shown:
        return
    runs = json.loads(recorded.read_text())["runs"]
    assert len({run["seed"] for run in runs}) >= 3
    gains = []
    for run in runs:
        before, after = (run.get(key, run["before"])["greedy"] for key in ("warm_start", "after"))
        gains.append(after["success"] - before["success"])
        assert gains[-1] > 0
        assert after["success"] > run["scripted"]["scripted:random"]["success"]
    assert sum(gains) / len(gains) >= 0.1


@pytest.mark.parametrize("name", [name for name in recipe_names() if "/" not in name])
def test_recipes_say_what_is_recorded_of_them(name):
    path = ROOT / "benchmarks" / "results" / f"learning_{name}.json"
    recorded = read_recipe(name)[0].recorded
    if not path.exists():
        assert recorded is None
        return
    runs = json.loads(path.read_text())["runs"]
    before = [
        round(run.get("warm_start", run.get("before"))["greedy"]["success"], 3) for run in runs
    ]
    after = [round(run["after"]["greedy"]["success"], 3) for run in runs]
    assert recorded == Recorded(
        seeds=len(runs),
        minutes=round(min(run["wall_s"] for run in runs) / 60, 1),
        cpu_minutes=round(median(run["cpu_s"] for run in runs) / 60, 1),
        before=(min(before), max(before)),
        after=(min(after), max(after)),
    )


def test_a_run_on_two_games_learns_both_on_every_seed():
    path = ROOT / "benchmarks" / "results" / "learning_two_games.json"
    runs = json.loads(path.read_text())["runs"]
    assert len({run["seed"] for run in runs}) >= 3
    for run in runs:
        before, after, chance = (
            found["environments"]
            for found in (
                run["warm_start"]["greedy"],
                run["after"]["greedy"],
                run["scripted"]["scripted:random"],
            )
        )
        assert set(after) == {"plan_path", "blocksworld"}
        for env, found in after.items():
            assert found["success"] > max(before[env]["success"], chance[env]["success"])


@pytest.mark.parametrize(
    "name",
    [
        "agents_reasoner_judge",
        "langgraph_coder_tester",
        "langgraph_writer_editor",
        "largest_digit",
    ],
)
def test_examples_of_workflows_learn_on_every_seed(name):
    """More than after the warm start, and than any answer, by ten points."""
    runs = json.loads((ROOT / f"benchmarks/results/learning_{name}.json").read_text())["runs"]
    assert len({run["seed"] for run in runs}) >= 3
    for run in runs:
        others = (run["warm_start"]["greedy"], run["scripted"]["scripted:any"])
        gained = run["after"]["greedy"]["success"] - max(other["success"] for other in others)
        assert gained >= 0.1


def test_the_core_modules_tests_kill_nearly_all_mutants():
    """Nightly, after the suite has written this file anew; declarations are right, too."""
    modules = json.loads((ROOT / "benchmarks/results/mutation.json").read_text())["modules"]
    declared = tomllib.loads((ROOT / "benchmarks/suites/mutation.toml").read_text())["module"]
    assert list(modules) == [module["path"] for module in declared]
    num = killed = 0
    for path, found in modules.items():
        assert len(found["outcomes"]) == found["num_mutants"], f"{path} is measured in part"
        assert found["wrongly_declared"] == []
        num += found["num_mutants"] - found["num_equivalent"]
        killed += found["num_killed"]
    assert killed >= 0.95 * num


def test_measured_levels_of_difficulty_are_all_those_of_today():
    """A level's number says nothing of what was measured, once its attributes have changed."""
    data = json.loads((ROOT / "benchmarks/results/games_levels.json").read_text())
    measured: dict[str, list[object]] = {}
    for row in data["levels"]:
        measured.setdefault(row["env_id"], []).append(row["arguments"])
    for env_id, arguments in measured.items():
        assert arguments == list(pettingllms.spec(env_id).load().difficulties.attributes), env_id


def test_no_measured_policy_solves_more_of_harder_levels():
    """As far as Wilson intervals can tell: greedy rules, random and the fixed program."""
    data = json.loads((ROOT / "benchmarks/results/games_levels.json").read_text())
    for column in ("rule", "random", "program"):
        lowest: dict[str, float] = {}
        for row in data["levels"]:
            if column in row:
                low, high = wilson_interval(row[column], data["num_levels"])
                assert low <= lowest.get(row["env_id"], 1.0), (row["env_id"], row["level"], column)
                lowest[row["env_id"]] = min(high, lowest.get(row["env_id"], 1.0))


def test_certified_starts_learn_what_whole_levels_never_find():
    """On every seed of three games; nothing that began at the beginning was solved without them."""
    games = json.loads((ROOT / "benchmarks/results/certified_starts.json").read_text())["games"]
    assert len(games) >= 3
    for game in games.values():
        whole, adaptive = (game["ways"][way]["trials"] for way in ("whole", "adaptive"))
        assert len(adaptive) >= 5
        assert sum(trial["num_solved"] for trial in whole) == 0
        assert min(trial["num_whole"] for trial in whole) >= 1000
        assert min(trial["curve"][-1][1] for trial in adaptive) >= 0.5
        assert max(trial["by_chance"] for trial in adaptive) < 1e-5


def test_more_members_help_an_ensemble_and_its_trained_judge_is_the_bottleneck():
    cells = json.loads((ROOT / "benchmarks/results/ensemble_sizes_tiny.json").read_text())["cells"]
    seeds = sorted({key.partition("|")[2] for key in cells})
    assert len(seeds) >= 3
    for size in ("4+4", "8+8"):
        pairs = [cells[f"{size}|{seed}"]["judge"] - cells[f"1+1|{seed}"]["judge"] for seed in seeds]
        assert mean_interval(pairs)[1] > 0
    for cell in cells.values():
        assert cell["judge"] < min(cell["majority"], cell["tool"]) < cell["any"]
        assert cell["any"] > 0.95, "an oracle has little left to gain"


def test_entries_of_the_leader_board_played_the_same_boards():
    paths = list((ROOT / "benchmarks/leaderboard").glob("*.json"))
    assert len(paths) >= 3
    suites = {suite.name: suite for suite in (FULL, QUICK)}
    manifests: dict[tuple[str, str, str], str] = {}
    for entry in (json.loads(path.read_text(encoding="utf-8")) for path in paths):
        suite = entry["suite"]
        assert list(entry["games"]) == list(suites[suite].levels)
        for game, found in entry["games"].items():
            for level, figures in found["levels"].items():
                boards = figures["manifest"]
                assert manifests.setdefault((suite, game, level), boards) == boards
