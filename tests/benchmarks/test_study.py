"""The study in small: what is computed, that it can be traced, and what is said of it."""

import importlib
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
from safetensors.torch import load_file

from pettingllms.files import read_lines
from pettingllms.types import flat_table
from pettingllms_trainers.config.loading import load_config
from pettingllms_trainers.runs.export import export_policies

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "benchmarks" / "suites")]
study = importlib.import_module("study")
rows = importlib.import_module("credit_study.rows")
trained = importlib.import_module("credit_study.trained")
intervals = importlib.import_module("credit_study.intervals")
tables = importlib.import_module("credit_study.tables")

TABLE = rows.read_table()


def tiny_cells():
    return {cell.key: cell for cell in rows.tiny(TABLE)}


def test_every_cell_is_asked_for_once_and_rates_are_chosen_on_other_seeds():
    for layer in ("exact", "tiny"):
        keys = [cell.key for cell in rows.cells_of(TABLE, layer)]
        assert len(keys) == len(set(keys)) >= 250
    assert {cell.arguments["seed"] for cell in rows.tiny(TABLE)} == set(TABLE["seeds"])
    for cell in rows.exact(TABLE):
        if cell.kind == "trial":
            given = cell.arguments["study"]
            assert len(given["seeds"]) == 40
            assert not set(given["seeds"]) & set(given["selection_seeds"])


def test_the_run_file_of_every_training_cell_loads(tmp_path):
    cells = [*rows.abstract(TABLE)]
    assert len({cell.key for cell in cells}) == len(cells) == 3 * 5 * 2 + 3 * (4 + 4 + 3)
    for cell in (*rows.tiny(TABLE), *cells):
        given = {k: v for k, v in cell.arguments.items() if k not in ("limit_s", "shows")}
        plays = given.pop("plays")
        if plays == "apart" or given["seed"] != 10:
            continue
        file = trained.run_file(tmp_path, given["task"], plays)
        config = load_config([file], trained.flag_lines(trained.flags_of(**given)))
        assert config.seed == 10
        assert bool(config.rewards) == bool(given["bonus"])
        assert config.algorithm.name == given["algorithm"]["name"]
        assert len(config.roles) == (1 if plays == "single" else 2)
        assert len(config.models) == (1 if plays in ("single", "shared") else 2)
        assert set(config.warm_start.demonstrators) == set(config.roles)


def test_a_working_tree_that_differs_from_its_commit_is_refused(tmp_path):
    def git(*words):
        identity = ("-c", "user.name=a", "-c", "user.email=a@b.c")
        subprocess.run(["git", "-C", tmp_path, *identity, *words], check=True, capture_output=True)

    result = tmp_path / "result.json"
    git("init")
    (tmp_path / "code.py").write_text("1")
    git("add", "code.py")
    git("commit", "-m", "one")
    result.write_text("{}")
    commit = study.clean_commit(tmp_path, [result])
    assert len(commit) == 40
    (tmp_path / "code.py").write_text("2")
    with pytest.raises(SystemExit, match=r"differs from its commit \(code.py\)"):
        study.clean_commit(tmp_path, [result])


def test_a_layer_goes_on_where_it_stopped_and_its_cells_name_their_commit(tmp_path, capsys):
    path = tmp_path / "result.json"
    names = ("lemma|Plan-Path 4x4|single", "lemma|Plan-Path 4x4|proposer-planner")
    both = [cell for cell in rows.exact(TABLE) if cell.key in names]
    broken = both[0]._replace(key="broken", arguments={})
    assert study.run(study.Study(path, "exact", "a" * 40, False), [broken, both[0]], tmp_path) == 1
    assert "broken FAILED: TypeError" in capsys.readouterr().out
    again = study.Study(path, "exact", "b" * 40, False)
    assert study.run(again, both, tmp_path) == 0
    assert "2 cells, 1 known" in capsys.readouterr().out
    found = json.loads(path.read_text())["cells"]
    assert [(key, cell["commit"][0]) for key, cell in found.items()] == [
        (names[0], "a"), (names[1], "b"),
    ]  # fmt: skip
    assert all("processor_seconds" in cell for cell in found.values())
    assert study.Study(path, "exact", "b" * 40, True).cells == {}


def test_cells_are_computed_again_and_what_differs_is_said(tmp_path, capsys):
    path = tmp_path / "result.json"
    names = ("lemma|Plan-Path 4x4|single", "lemma|Plan-Path 4x4|proposer-planner")
    both = [cell for cell in rows.exact(TABLE) if cell.key in names]
    study.run(study.Study(path, "exact", "a" * 40, False), both, tmp_path)
    found = json.loads(path.read_text())
    found["cells"][names[1]]["greedy"] += 1
    path.write_text(json.dumps(found))
    before = path.read_bytes()
    assert study.recheck(study.Study(path, "exact", "b" * 40, False), both, 5, tmp_path) == 1
    said = capsys.readouterr().out
    assert f"{names[0]} equal" in said
    assert f"{names[1]} DIFFERS" in said
    assert path.read_bytes() == before


def small(key, **changes):
    """The arguments of a training that takes seconds."""
    given = tiny_cells()[key].arguments
    keys = {
        "env.kwargs.size": 4, "warm_start.num_steps": 5, "warm_start.num_episodes": 8,
        "evaluation.num_episodes": 4, "rollout.num_levels": 2, "algorithm.num_candidates": 2,
    }  # fmt: skip
    keys |= {"env.kwargs.min_moves": 3, "env.kwargs.max_turns": 6}
    task = given["task"]
    return (
        given | {"task": {**task, "tokens": 200, "every": 1, "keys": task["keys"] | keys}} | changes
    )


@pytest.mark.nightly
def test_figure_cells_train_roles_together_and_apart(tmp_path):
    found = trained.training_cell(**small("tiny|figure|team|10"), shared=tmp_path, shows=True)
    assert 0 <= found["swapped"] <= 1
    before, after = found["said"] or ({"success": False}, {"success": True})
    assert (before["success"], after["success"]) == (False, True)
    apart = trained.training_cell(**small("tiny|figure|apart|10"), shared=tmp_path)
    for role in ("tool", "planner"):
        assert apart[role]["curve"][-1][0] >= 200
    assert set(apart["joined"]) == {"before", "after"}


@pytest.mark.nightly
def test_a_cell_that_was_killed_goes_on_and_ends_the_same(tmp_path, monkeypatch):
    given = small("tiny|figure|team|10")
    given |= {"task": given["task"] | {"tokens": 12000}}

    run = subprocess.run

    def look(*args, **keys):
        if any(tmp_path.glob("killed/unfinished/*/run/checkpoints/step-*")):
            raise KeyboardInterrupt
        return run(*args, **keys)

    with monkeypatch.context() as patch:
        patch.setattr(trained.subprocess, "run", look)
        with pytest.raises(KeyboardInterrupt):
            trained.training_cell(**given, shared=tmp_path / "killed")
    found = trained.training_cell(**given, shared=tmp_path / "killed")
    assert found.pop("continued")
    assert found == trained.training_cell(**given, shared=tmp_path / "whole")


def run_of(**changes):
    """Files and flags of the run of a cell, or of one like it."""
    given = small("tiny|plan_path_hard, outcome|reinforce|10", num_levels=2) | changes
    del given["limit_s"], given["plays"]
    return [ROOT / given["task"]["config"]], trained.flags_of(**given)


@pytest.mark.nightly
@pytest.mark.parametrize("rank", [0, 4])
def test_a_run_is_the_same_with_a_shared_warm_start(rank, tmp_path):
    files, flags = run_of()
    flags = {**flags, "num_steps": 2, "every_policy.lora.rank": rank}
    (tmp_path / "shared").mkdir()
    begun = trained.begin_with(tmp_path / "shared", files, flags)
    assert begun["warm_start.num_steps"] == 0
    curves = {}
    for directory, of in {"alone": flags, "begun": begun}.items():
        command = trained.command_of(files, {**of, "output_dir": tmp_path / directory})
        subprocess.run(command, check=True, capture_output=True)
        lines = read_lines(tmp_path / directory / "evaluations.jsonl")
        curves[directory] = [line["variants"]["sampled"] for line in lines]
    assert curves["alone"] == curves["begun"]
    assert len(curves["alone"]) == 3
    for role in ("tool", "planner"):
        for directory in ("alone", "begun"):
            export_policies(tmp_path / directory, tmp_path / directory / role, policy=role)
        first, second = (
            load_file(tmp_path / directory / role / f"{'adapter_' * bool(rank)}model.safetensors")
            for directory in ("alone", "begun")
        )
        assert first.keys() == second.keys()
        assert all((first[name] == second[name]).all() for name in first)


@pytest.mark.parametrize("plays", ["single", "team", "shared"])
@pytest.mark.parametrize("task", TABLE["abstract"]["tasks"])
def test_runs_of_the_abstract_begin_with_trained_adapters(task, plays, tmp_path):
    """No key of a recipe's new adapters is left that would change nothing, and be refused."""
    given = next(c for c in rows.abstract(TABLE) if c.key.startswith(f"abstract|{task}|"))
    arguments = {k: v for k, v in given.arguments.items() if k not in ("plays", "limit_s", "shows")}
    path = trained.run_file(tmp_path, arguments["task"], plays)
    policies = load_config([path], []).policies
    begun = {"policies": trained.begun_with(dict.fromkeys(policies, tmp_path))}
    flags = {**trained.flags_of(**arguments), **flat_table(begun), "warm_start.num_steps": 0}
    models = load_config([path], trained.flag_lines(flags)).models
    assert {policy.lora.rank for policy in models.values()} == {0}


@pytest.mark.nightly
def test_only_what_comes_later_shares_a_warm_start(tmp_path):
    def begun(**changes):
        return trained.warm_start(tmp_path, *run_of(**changes))

    first = begun()
    written = (first / "config.toml").stat().st_mtime_ns
    assert begun(algorithm={"name": "vine"}, num_levels=3, bonus="length", reward="shaped") == first
    assert (first / "config.toml").stat().st_mtime_ns == written, "it was run once"
    assert begun(seed=11) != first
    left = {path.name for path in tmp_path.iterdir() if path.is_dir()}
    assert left == {first.name, begun(seed=11).name}, "nothing half-written is left"


@pytest.mark.parametrize(
    ("end", "said"),
    [
        ("while True: pass", "within 1 s"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "no output"),
        ("raise SystemExit('no memory')", "no memory"),
        ("pass", "within 1 s"),
    ],
)
def test_a_run_that_is_ended_from_outside_is_not_taken_for_one_that_is_slow(
    end, said, tmp_path, monkeypatch
):
    directory = tmp_path / "run"
    directory.mkdir()
    (directory / "metrics.jsonl").write_text('{"step": 0}\n')
    first = {"step": 0, "num_episodes": 4, "variants": {"sampled": {"success": 0.5}}}
    (directory / "evaluations.jsonl").write_text(json.dumps(first) + "\n")
    monkeypatch.setattr(trained, "command_of", lambda *_: [sys.executable, "-c", end])
    with pytest.raises(RuntimeError, match=said):
        trained.train(tmp_path, {"evaluation.every": 1}, directory, 100, 1)


_STEPS = """
import json, sys
steps = int(sys.argv[1])
for name in ("metrics", "evaluations"):
    with open(sys.argv[2] + f"/{name}.jsonl", "w") as file:
        for step in range(0, steps + 1, 1 if name == "metrics" else 3):
            line = {"step": step, "rollout/num_completion_tokens": 10 * (step > 0),
                    "num_episodes": 4, "variants": {"sampled": {"success": 0.5}}}
            print(json.dumps(line), file=file)
"""


def test_counts_alone_decide_the_last_train_step(tmp_path, monkeypatch):
    """Ten tokens a step and an evaluation every three: the first with 1,000 is after step 102."""
    asked = []

    def command(files, flags, *kind):
        asked.append(flags["num_steps"])
        return [sys.executable, "-c", _STEPS, str(asked[-1]), str(tmp_path / "run")]

    (tmp_path / "run").mkdir()
    monkeypatch.setattr(trained, "command_of", command)
    found = trained.train(tmp_path, {"evaluation.every": 3}, tmp_path / "run", 1000, 100)
    assert (asked[0], asked[-1], found["tokens"], found["steps"]) == (3, 102, 1020, 102)
    assert len(asked) < 8


@pytest.mark.parametrize("num_pairs", [5, 10, 20])
@pytest.mark.parametrize("name", ["normal", "skewed"])
def test_intervals_of_paired_differences_hold_as_often_as_they_say(name, num_pairs):
    """Skewed: shares near 1, of two ways that differ in how much they vary and not on average."""
    rng, shape = np.random.default_rng(0), (4000, num_pairs)
    drawn = {
        "normal": lambda: rng.normal(size=shape),
        "skewed": lambda: rng.beta(6, 2, shape) - rng.beta(60, 20, shape),
    }[name]()
    # In hundreds of points, so that rounding to whole points hides nothing.
    ends = [_INTERVAL.findall(intervals.paired(of))[0] for of in (100 * drawn).tolist()]
    assert 0.93 <= np.mean([int(low) <= 0 <= int(high) for _, low, high in ends]) <= 0.97


def test_a_family_is_corrected_step_by_step():
    corrected = intervals.holm([0.015, 0.04, 0.03, 0.005])
    # 0.04 by itself is below its own limit; the 0.03 that fails before takes it along.
    assert corrected == pytest.approx([0.045, 0.06, 0.06, 0.02])
    assert intervals.holm([0.9, 0.6]) == [1.0, 1.0]


def test_differences_without_variance_have_a_p_value():
    assert [intervals.p_value(of) for of in ([0.1] * 3, [0.0] * 3)] == [0.0, 1.0]
    assert intervals.p_value([0.1, 0.2, 0.3]) == pytest.approx(0.0742, abs=1e-4)  # t = 3.46, 2 df


_INTERVAL = re.compile(r"(?<![\w.])([-+]?\d+)(?: points?| %)?(?:,| \() ?([-+]?\d+) to ([-+]?\d+)")


def test_results_are_of_the_table_and_of_commits_that_are_here():
    """The exact layer of one; rows of small models of one each."""
    known = subprocess.run(["git", "-C", ROOT, "cat-file", "-t", "HEAD"], capture_output=True)
    for layer in rows.LAYERS:
        path = study.RESULTS / f"credit_{layer}.json"
        if path.is_file():
            found = json.loads(path.read_text())["cells"]
            asked = {cell.key for cell in rows.cells_of(TABLE, layer)}
            assert set(found) <= asked
            if layer == "exact":
                assert set(found) == asked
                assert len({cell["commit"] for cell in found.values()}) == 1
            if known.returncode == 0 and not (ROOT / ".git" / "shallow").exists():
                for commit in {cell["commit"] for cell in found.values()}:
                    command = ["git", "-C", ROOT, "merge-base", "--is-ancestor", commit, "HEAD"]
                    assert subprocess.run(command, check=False).returncode == 0


def test_a_table_has_complete_rows_alone_with_values_at_the_budget():
    found = tables.Results()
    curves = {"at_grpo": [[0, 0.0, 4], [80000, 0.5, 4], [100000, 1.0, 4]]}
    name, ways = "plan_path_hard, noise", TABLE["tiny"]["ways"]
    found.by_seed = {
        (name, way): {
            seed: {"curve": curves.get(way, [[0, 0.0, 4], [90000, 0.5, 4]])}
            for seed in TABLE["seeds"]
        }
        for way in ways
    }
    assert found.is_complete(name)
    assert found.mean((name, "at_grpo"), lambda c: tables.at_tokens(c, 90000)) == 75
    assert found.mean((name, "vine"), lambda c: tables.over_tokens(c, 90000)) == pytest.approx(25)
    del found.by_seed[name, "vine"][TABLE["seeds"][-1]]
    assert not found.is_complete(name)


def test_a_family_has_in_bold_what_the_correction_leaves():
    doubtful = [0.1, 0.13, 0.18]  # p = 0.028
    alone = {("a", "b"): doubtful, ("a", "c"): doubtful}
    assert "**" not in tables.Family(alone).shown(("a", "b"))
    sure = tables.Family({("a", "b"): doubtful, ("a", "c"): [0.1, 0.1, 0.099]})
    assert sure.shown(("a", "b")) == "**+14 (+4 to +24)**"
    assert "the 2 that Holm" in sure.note()
