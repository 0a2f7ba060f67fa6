"""Results say how they were made, and every table in a document is the one that they give."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from statistics import fmean, median

import pytest

import pettingllms
from pettingllms.evaluation.bench import FULL, QUICK
from pettingllms.evaluation.statistics import mean_interval, wilson_interval
from pettingllms_trainers.config.loading import Recorded, read_recipe, recipe_names, recipe_path

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results"


def result(name):
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def runs_of(name):
    """The runs of a recipe, of three seeds at least."""
    runs = result(f"learning_{name}")["runs"]
    assert len({run["seed"] for run in runs}) >= 3
    return runs


@pytest.mark.parametrize("name", sorted(path.stem for path in RESULTS.glob("*.json")))
def test_results_name_command_date_and_a_suite_that_exists(name):
    found = result(name)
    script = next(word for word in found["command"].split() if word.endswith(".py"))
    assert (ROOT / script).exists()
    assert Path(script).stem == found["suite"]
    assert found["date"]


def test_tables_are_up_to_date():
    command = [sys.executable, ROOT / "benchmarks" / "tables.py", "--check"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


def test_results_hold_every_seed_that_was_run():
    for run in runs_of("plan_path"):
        for variant in (run["warm_start"]["greedy"], run["after"]["greedy"]):
            assert variant["success_low"] <= variant["success"] <= variant["success_high"]
            assert variant["num_episodes"] >= 256


LEARNT = sorted(path.stem.removeprefix("learning_") for path in RESULTS.glob("learning_*.json"))


@pytest.mark.parametrize("name", LEARNT)
def test_a_team_learns_on_every_seed_or_its_recipe_says_that_this_is_not_shown(name):
    """In each of its games it ends above the warm start and chance; over all seeds, by 0.1."""
    if name in recipe_names() and "Not shown to learn" in recipe_path(name).read_text():
        return
    gains = []
    for run in runs_of(name):
        chance = run["scripted"].get("scripted:random") or run["scripted"]["scripted:any"]
        moments = run.get("warm_start", run["before"])["greedy"], run["after"]["greedy"], chance
        games = [{"": found, **found.get("environments", {})} for found in moments]
        before, after, chance = (
            {game: found["success"] for game, found in moment.items()} for moment in games
        )
        assert all(share > max(before[game], chance[game]) for game, share in after.items())
        gains.append(after[""] - before[""])
    assert fmean(gains) >= 0.1


def test_a_team_learns_from_tokens_of_every_recorded_age():
    """Whatever the bound: more levels are solved in the end than before."""
    runs = result("staleness")["runs"]
    assert {run["bound"] for run in runs} == {0, 1, 2, 4}
    for run in runs:
        assert run["max_age"] == run["bound"]
        (_, before), *_, (_, after) = run["greedy_curve"]
        assert wilson_interval(before, 256)[1] < wilson_interval(after, 256)[0]


@pytest.mark.parametrize("name", [name for name in recipe_names() if "/" not in name])
def test_recipes_say_what_is_recorded_of_them(name):
    recorded = read_recipe(name)[0].recorded
    if not (RESULTS / f"learning_{name}.json").exists():
        assert recorded is None
        return
    runs = result(f"learning_{name}")["runs"]
    before, after = (
        [round(run.get(moment, run["before"])["greedy"]["success"], 3) for run in runs]
        for moment in ("warm_start", "after")
    )
    assert recorded == Recorded(
        seeds=len(runs),
        minutes=round(min(run["wall_s"] for run in runs) / 60, 1),
        cpu_minutes=round(median(run["cpu_s"] for run in runs) / 60, 1),
        before=(min(before), max(before)),
        after=(min(after), max(after)),
    )


@pytest.mark.nightly
def test_the_core_modules_tests_kill_nearly_all_mutants():
    """Nightly, after the suite has written this file anew; declarations are right, too."""
    modules = result("mutation")["modules"]
    declared = tomllib.loads((ROOT / "benchmarks/suites/mutation.toml").read_text())["module"]
    assert list(modules) == [module["path"] for module in declared]
    for path, found in modules.items():
        assert len(found["outcomes"]) == found["num_mutants"], f"{path} is measured in part"
        assert found["wrongly_declared"] == []
    killed = sum(found["num_killed"] for found in modules.values())
    num = sum(found["num_mutants"] - found["num_equivalent"] for found in modules.values())
    assert killed >= 0.95 * num


def test_measured_levels_are_those_of_today_and_harder_ones_are_not_solved_more():
    """As far as Wilson intervals can tell: greedy rules, random and the fixed program."""
    data = result("games_levels")
    measured, lowest = {}, {}
    for row in data["levels"]:
        measured.setdefault(row["env_id"], []).append(row["arguments"])
        for column in {"rule", "random", "program"} & row.keys():
            place = (row["env_id"], column)
            low, high = wilson_interval(row[column], data["num_levels"])
            assert low <= lowest.get(place, 1.0), (row["level"], place)
            lowest[place] = min(high, lowest.get(place, 1.0))
    for env_id, arguments in measured.items():
        assert arguments == list(pettingllms.spec(env_id).load().difficulties.attributes), env_id


def test_more_members_help_an_ensemble_and_its_trained_judge_is_the_bottleneck():
    cells = result("credit_ensemble_tiny")["cells"]
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
