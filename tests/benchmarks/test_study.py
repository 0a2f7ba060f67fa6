"""The study in small: every kind of cell, resumed, and its page."""

import importlib
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
from safetensors.torch import load_file

from pettingllms_trainers.config.loading import load_config
from pettingllms_trainers.runs.export import export_policy

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
study = importlib.import_module("study")
page = importlib.import_module("credit_study.page")
cells = importlib.import_module("credit_study.cells")
tiny = importlib.import_module("credit_study.tiny")
intervals = importlib.import_module("credit_study.intervals")
overview = importlib.import_module("credit_study.overview")
runs = importlib.import_module("credit_study.runs")
warm_start = importlib.import_module("credit_study.warm_start")

SMALL = """
seeds = [0, 1]

[variants.at_grpo]
label = "AT-GRPO"
[variants.value_random]
label = "value"
algorithm = { name = "value", branch_choice = "random", value = { num_warmup_steps = 1 } }
[variants.grpo]
label = "GRPO"
algorithm = { name = "grpo" }

[exact]
rewards = ["outcome"]
num_candidates = [2]
learning_rates = [1.0]
budgets = [100, 200]
completions_per_update = 50
num_levels = 1
noise_trees = 4
[exact.game]
id = "plan_path_v0"
answers = ['#### ["U"]', '#### ["D"]', '#### ["L"]', '#### ["R"]']
kwargs = { team = "proposer-planner", size = 4, max_turns = 2, moves_per_turn = 1, max_moves = 2 }
[exact.fresh]
first_level = 100
seeds = [0]
[[exact.ablations]]
label = "alpha = 0"
variants = ["at_grpo"]
kwargs = { alpha = 0.0 }
[[exact.lemma]]
label = "Plan-Path"
id = "plan_path_v0"
moves = 1
num_levels = 1
kwargs = { size = 4, max_turns = 2, moves_per_turn = 1, min_moves = 2, max_moves = 2 }
teams = ["single"]

[tiny]
rewards = ["outcome"]
variants = ["at_grpo", "value_random"]
learning_rate = 1e-3
limit_s = 100
plays_untaught = true
[tiny.tasks.plan_path]
label = "Plan-Path"
config = "trainers/pettingllms_trainers/recipes/plan_path.toml"
tokens = 200
every = 1
[tiny.tasks.plan_path.keys]
"env.kwargs.size" = 4
"warm_start.num_steps" = 5
"warm_start.num_episodes" = 8
"evaluation.num_episodes" = 4
"rollout.num_levels" = 2
"algorithm.num_candidates" = 2
[[tiny.ablations]]
label = "K = 3"
drawn = "K = 3"
tasks = ["plan_path"]
variants = ["at_grpo"]
algorithm = { num_candidates = 3 }

[tiny.overview]
compared = "grpo"
ways = { at_grpo = "AT-GRPO", value_random = "value", grpo = "whole" }
[[tiny.overview.panels]]
title = "the outcome"
reward = "outcome"
rows = { plan_path = {} }
[[tiny.overview.panels]]
title = "every step"
reward = "shaped"
rows = { plan_path = {} }

[tiny.figure]
task = "plan_path"
reward = "shaped"
learning_rate = 1e-3
[tiny.figure.settings.team_grpo]
label = "team, GRPO"
variant = "grpo"
[tiny.figure.settings.team_per_role]
label = "team, AT-GRPO"
variant = "at_grpo"
plays = "team"
[tiny.figure.settings.apart]
variant = "at_grpo"
plays = "apart"

[gpu]
rewards = []
variants = []
learning_rate = 1e-6
[gpu.tasks]
"""


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "table.toml"
    path.write_text(SMALL)
    return path


def cells_in(table, layer):
    return cells.cells_of(cells.read_table(table), layer, {})


def test_the_exact_layer_is_run_and_resumed(table, tmp_path, capsys):
    output = tmp_path / "result.json"
    arguments = ["--table", str(table), "--output", str(output), "--processes", "1"]
    assert study.main([*arguments, "--only", "|0"]) == 0
    first = json.loads(output.read_text())["cells"]
    assert study.main([*arguments, "--resume"]) == 0
    every = json.loads(output.read_text())["cells"]
    assert set(first) < set(every)
    assert all(every[key] == cell for key, cell in first.items()), "known cells are kept"
    known = {cell.key for cell in cells.cells_of(cells.read_table(table), "exact", every)}
    assert set(every) == known
    assert "fresh|outcome|at_grpo|1|0" in known
    trial = every["trial|outcome|value_random|1.0|0"]
    assert list(trial["success"]) == ["100", "200"]
    assert all(0 <= value <= 1 for value in trial["success"].values())
    capsys.readouterr()
    assert study.main([*arguments, "--resume"]) == 0
    assert f"{len(known)} cells, {len(known)} known" in capsys.readouterr().out


@pytest.mark.nightly
def test_training_cells_stop_at_equal_tokens(table, tmp_path):
    output = tmp_path / "result.json"
    arguments = ["--table", str(table), "--output", str(output), "--processes", "1"]
    assert study.main([*arguments, "--layer", "tiny", "--only", "value_random|0.001|0"]) == 0
    ((key, cell),) = json.loads(output.read_text())["cells"].items()
    assert cell["complete"], (key, cell)
    tokens = [point[0] for point in cell["curve"]]
    assert tokens == sorted(tokens)
    assert tokens[0] == 0
    assert tokens[-1] >= 200
    assert cell["scripted"], "the reactive rule's line"
    assert 0 < cell["value_share"] < 1
    assert set(cell["untaught"]) == {"tool", "planner"}
    assert all(0 <= share <= 1 for share in cell["untaught"].values())
    empty = "<!-- study:tiny -->\n<!-- /study:tiny -->"
    _, _, row, _ = page.rendered(empty, cells.read_table(table), {key: cell}).splitlines()[1:]
    assert row.startswith("| Plan-Path | outcome | value | 0.001 | 1 |")
    assert "tool " in row


def test_an_ablation_changes_one_setting_of_a_variant(table):
    read = cells.read_table(table)
    trials = {"trial|outcome|at_grpo|1.0|0": {"success": {"100": 0.1, "200": 0.2}}}
    known = {
        cell.key: cell.arguments
        for layer in ("exact", "tiny")
        for cell in cells.cells_of(read, layer, trials)
    }
    before = known["tiny|plan_path|outcome|at_grpo|0.001|1"]
    after = known["tiny|plan_path|outcome|at_grpo|0.001|1|K = 3"]
    layer = before["layer"] | {"plays_untaught": False}
    assert after == before | {"keys": {"algorithm": {"num_candidates": 3}}, "layer": layer}
    assert len([key for key in known if key.endswith("K = 3")]) == 2, "one per seed"
    before, after = (known[f"fresh|outcome|at_grpo|1|0{of}"] for of in ("", "|alpha = 0"))
    assert before["rate"] == 1.0, "the best of the trials"
    game = before["exact"]["game"]
    kwargs = game["kwargs"] | {"alpha": 0.0}
    assert after == before | {"exact": before["exact"] | {"game": game | {"kwargs": kwargs}}}


def test_a_row_and_the_figure_may_differ_from_the_tasks(table):
    text = table.read_text()
    text = text.replace(
        "{ num_candidates = 3 }\n", "{ num_candidates = 3 }\nplays_untaught = true\n"
    )
    text = text.replace('reward = "shaped"\n', 'reward = "shaped"\nkeys = { "seed" = 7 }\n')
    table.write_text(text)
    known = {c.key: c.arguments for c in cells.cells_of(cells.read_table(table), "tiny", {})}
    row, figure = known["tiny|plan_path|outcome|at_grpo|0.001|1|K = 3"], known["figure|apart|0"]
    assert row["layer"]["plays_untaught"]
    assert figure["task"]["keys"] == row["task"]["keys"] | {"seed": 7}


def test_later_seeds_take_the_best_learning_rate_of_the_first(table):
    grid = "[tiny.grid]\nlearning_rates = [1e-4, 1e-3]\n"
    grid += 'tasks = ["plan_path"]\nvariants = ["at_grpo"]\n'
    table.write_text(table.read_text().replace("[tiny.figure]\n", f"{grid}[tiny.figure]\n", 1))
    read = cells.read_table(table)
    first, second = cells.stages_of(read, "tiny")
    keys = {cell.key for cell in first({})}
    of = "tiny|plan_path|outcome"
    assert {f"{of}|at_grpo|{rate}|0" for rate in (0.0001, 0.001)} < keys
    assert f"{of}|value_random|0.001|0" in keys, "not in the grid: the rate of the recipe"
    assert f"{of}|at_grpo|0.001|0|K = 3" in keys, "an ablation beside the rate of the recipe"
    assert not any("|1" in key for key in keys), "the other seeds wait"

    def ended(share):
        return {"curve": [[0, 0.25, 4], [200, share, 4]], "value_share": 0.0, "scripted": {}}

    known = {f"{of}|at_grpo|0.0001|0": ended(0.75), f"{of}|at_grpo|0.001|0": ended(0.5)}
    assert {cell.key for cell in second(known)} == keys | {
        f"{of}|at_grpo|0.0001|1", f"{of}|value_random|0.001|1", f"{of}|at_grpo|0.001|1|K = 3",
        f"{of}|at_grpo|0.001|1",  # what the ablation is compared with
        "figure|team_per_role|0", "figure|apart|0", "figure|team_per_role|1", "figure|apart|1",
    }  # fmt: skip
    known[f"{of}|at_grpo|0.0001|0"]["error"] = "out of memory"
    assert f"{of}|at_grpo|0.0001|1" not in {cell.key for cell in second(known)}
    del known[f"{of}|at_grpo|0.0001|0"]["error"]
    empty = "<!-- study:tiny_rates -->\n<!-- /study:tiny_rates -->"
    rows = page.rendered(empty, read, known).splitlines()
    assert rows[1] == "| task | reward | variant | 0.0001 | 0.001 |"
    assert rows[3:-1] == ["| Plan-Path | outcome | AT-GRPO | 50 % | 38 % |"]
    known[f"{of}|at_grpo|0.001|1"] = ended(0.75)
    rows = page.rendered(empty, read, known).splitlines()
    assert rows[3:-1] == ["| Plan-Path | outcome | AT-GRPO | 50 % | 38 %; 44 % (2 seeds) |"]
    empty = empty.replace("tiny_rates", "tiny")
    row = page.rendered(empty, read, known).splitlines()[3]
    assert row.startswith("| Plan-Path | outcome | AT-GRPO | 0.0001 | 1 | 200 | 25 % | 75 %")


@pytest.mark.nightly
def test_further_rows_are_computed_when_they_are_asked_for(table, tmp_path, capsys):
    text = table.read_text().replace('label = "K = 3"', 'label = "K = 3"\nfurther = true')
    table.write_text(text.replace("every = 1\n", 'every = 1\nfurther = ["value_random"]\n'))
    found = {cell.key: cell.is_further for cell in cells_in(table, "tiny")}
    of = "tiny|plan_path|outcome"
    assert {key for key, is_further in found.items() if is_further} == {
        f"{of}|{row}" for seed in (0, 1)
        for row in (f"value_random|0.001|{seed}", f"at_grpo|0.001|{seed}|K = 3")
    }  # fmt: skip
    assert found[f"{of}|at_grpo|0.001|0"] is False, "what a further row is compared with"
    output = tmp_path / "result.json"
    arguments = ["--table", str(table), "--output", str(output), "--layer", "tiny"]
    assert study.main([*arguments, "--only", "K = 3"]) == 0
    assert "tiny: 0 cells, 0 known" in capsys.readouterr().out
    assert study.main([*arguments, "--only", "|0|K = 3", "--further"]) == 0
    assert list(json.loads(output.read_text())["cells"]) == [f"{of}|at_grpo|0.001|0|K = 3"]


def test_the_page_has_a_row_per_ablation(table):
    curve = [[0, 0.25, 4], [200, 0.5, 4]]
    ended = {"curve": curve, "value_share": 0.0, "scripted": {}}
    known = {
        "fresh|outcome|at_grpo|1|0": {"success": {"100": 0.2, "200": 0.4}},
        "fresh|outcome|at_grpo|1|0|alpha = 0": {"success": {"100": 0.1, "200": 0.3}},
        "tiny|plan_path|outcome|at_grpo|0.001|0": ended,
        "tiny|plan_path|outcome|at_grpo|0.001|0|K = 3": {
            **ended,
            "untaught": {"tool": 0.2, "planner": 0.3},
        },
    }
    at_end = "50 % (15 to 85) | tool 20 %, planner 30 % | 38 %"
    for layer, expected in (
        ("exact", "| outcome | AT-GRPO | alpha = 0 | 10 | 30 | -10 |"),
        (
            "tiny",
            f"| Plan-Path | outcome | AT-GRPO | 0.001 | K = 3 | 1 | {at_end} | +0 |  |  |  |",
        ),
    ):
        empty = f"<!-- study:{layer}_ablations -->\n<!-- /study:{layer}_ablations -->"
        rows = page.rendered(empty, cells.read_table(table), known).splitlines()
        assert rows[3:-1] == [expected]


def test_an_ablation_is_compared_with_what_is_run_beside_it(table):
    def ended(share):
        curve = [[0, share, 4], [200, share, 4]]
        return {"curve": curve, "value_share": 0.0, "scripted": {}}

    of = "tiny|plan_path|outcome"
    known = {
        f"{of}|value_random|0.001|0|K = 3": ended(0.25),
        f"{of}|vine|0.001|0": ended(0.5),
        f"{of}|lockstep|0.001|0|K = 4": ended(0.75),
        f"{of}|at_grpo|0.001|0": ended(0.125),
    }
    read = cells.read_table(table)
    changed = {"label": "K = 3", "vine": "", "lockstep": "K = 4", "variants": ["value_random"]}
    read["tiny"]["ablations"] = [changed]
    empty = "<!-- study:tiny_ablations -->\n<!-- /study:tiny_ablations -->"
    row = page.rendered(empty, read, known).splitlines()[3]
    assert row.endswith("| 25 % | - | +25 | +50 | -12 |")


def test_fresh_seeds_confirm_a_row_at_the_rate_and_apart_from_the_known_ones(table):
    grid = '[tiny.grid]\nlearning_rates = [1e-4, 1e-3]\ntasks = ["plan_path"]\n'
    grid += 'variants = ["at_grpo"]\n'
    fresh = '[tiny.fresh]\nseeds = [2, 3]\nreward = "outcome"\n'
    fresh += 'variants = ["value_random", "at_grpo"]\nrows = { plan_path = "" }\n'
    table.write_text(
        table.read_text().replace("[tiny.figure]\n", f"{grid}{fresh}[tiny.figure]\n", 1)
    )
    read = cells.read_table(table)

    def ended(share):
        return {"curve": [[0, share, 4], [200, share, 4]], "value_share": 0.0, "scripted": {}}

    of = "tiny|plan_path|outcome"
    known = {f"{of}|at_grpo|0.0001|0": ended(0.5), f"{of}|at_grpo|0.001|0": ended(0.25)}
    first, second = cells.stages_of(read, "tiny")
    assert not [cell for cell in first({}) if cell.arguments["seed"] in (2, 3)], "they wait"
    keys = [cell.key for cell in second(known) if cell.arguments["seed"] in (2, 3)]
    assert keys == [
        f"{of}|{row}|{s}" for s in (2, 3) for row in ("at_grpo|0.0001", "value_random|0.001")
    ]
    known |= {
        f"{of}|at_grpo|0.0001|2": ended(0.25),
        f"{of}|value_random|0.001|0": ended(0.75),
        f"{of}|value_random|0.001|2": ended(0.75),
    }
    empty = "<!-- study:tiny_fresh -->\n<!-- /study:tiny_fresh -->"
    head, _, row = page.rendered(empty, read, known).splitlines()[1:-1]
    assert all(f"seeds {some} (" in head for some in ("0 to 1", "2 to 3"))
    assert head.endswith("| difference, all seeds (95 %) |")
    assert row.endswith("| +25 | +50 | +38 (-121 to +196) |")
    state = page.rendered(empty.replace("tiny_fresh", "state"), read, known)
    assert "| tiny, further rows | 4 | 2 |" in state
    read["tiny"]["fresh"]["more"] = {"plan_path": [4], "another": [5]}
    keys = [cell.key for cell in second(known) if cell.arguments["seed"] in (4, 5)]
    assert keys == [f"{of}|{row}|4" for row in ("at_grpo|0.0001", "value_random|0.001")]
    known |= dict.fromkeys(keys, ended(0.25))
    head, _, row = page.rendered(empty, read, known).splitlines()[1:-1]
    assert "seeds 4 to 5 (" in head
    assert row.endswith("| +25 | +50 | +0 | +25 (-37 to +87) |")


@pytest.mark.nightly
def test_figure_cells_train_roles_together_and_apart(table, tmp_path):
    table.write_text(table.read_text().replace("seeds = [0, 1]", "seeds = [0]"))
    output = tmp_path / "result.json"
    arguments = ["--table", str(table), "--output", str(output), "--processes", "1"]
    assert study.main([*arguments, "--layer", "tiny", "--only", "figure|"]) == 0
    known = json.loads(output.read_text())["cells"]
    assert set(known) == {"figure|team_per_role|0", "figure|apart|0"}
    assert all(cell["complete"] and "error" not in cell for cell in known.values())
    assert 0 <= known["figure|team_per_role|0"]["swapped"] <= 1
    apart = known["figure|apart|0"]
    for role in ("tool", "planner"):
        assert apart[role]["curve"][-1][0] >= 200
        assert [*apart[role]["used"]] == [f"role/{role}/decisions_used"]
    assert set(apart["joined"]) == {"before", "after"}
    empty = "<!-- study:figure -->\n<!-- /study:figure -->"
    rows = page.rendered(empty, cells.read_table(table), known).splitlines()[3:-1]
    assert [row.split("|")[1].strip() for row in rows] == [
        "team, AT-GRPO",
        "the same, policies exchanged",
        "tool agent alone, AT-GRPO",
        "planner alone, AT-GRPO",
        "both, trained alone and then joined",
    ]
    assert all(row.split("|")[3].strip() == "1" for row in rows)


def run_of(table, name, seed=0, **changes):
    """Return files and flags of the run of a cell, or of one like it."""
    key = f"tiny|plan_path|outcome|{name}|0.001|{seed}"
    (given,) = [cell.arguments for cell in cells_in(table, "tiny") if cell.key == key]
    given = given | changes
    names = ("task", "keys", "reward", "rate", "seed")
    return [ROOT / given["task"]["config"]], tiny.flags_of(*(given[name] for name in names))


@pytest.mark.nightly
def test_a_run_is_the_same_with_a_shared_warm_start(table, tmp_path):
    files, flags = run_of(table, "value_random")
    flags = {**flags, "num_steps": 2}
    alone = runs.train(files, flags, tmp_path / "alone", 10**6, 100)
    (tmp_path / "shared").mkdir()
    begun = warm_start.begin_with(tmp_path / "shared", files, flags)
    assert begun["warm_start.num_steps"] == 0
    assert runs.train(files, begun, tmp_path / "begun", 10**6, 100)["curve"] == alone["curve"]
    assert len(alone["curve"]) == 3
    for role in ("tool", "planner"):
        for directory in ("alone", "begun"):
            export_policy(tmp_path / directory, tmp_path / directory / role, policy=role)
        first, second = (
            load_file(tmp_path / directory / role / "model.safetensors")
            for directory in ("alone", "begun")
        )
        assert first.keys() == second.keys()
        assert all((first[name] == second[name]).all() for name in first)


@pytest.mark.nightly
def test_only_what_comes_later_shares_a_warm_start(table, tmp_path):
    def begun(*of, **changes):
        return warm_start.warm_start(tmp_path, *run_of(table, *of, **changes))

    first = begun("at_grpo")
    written = (first / "config.toml").stat().st_mtime_ns
    assert begun("value_random") == first
    assert begun("at_grpo", reward="shaped", rate=0.1) == first
    assert (first / "config.toml").stat().st_mtime_ns == written, "it was run once"
    assert begun("at_grpo", 1) != first
    left = {path.name for path in tmp_path.iterdir() if path.is_dir()}
    assert left == {first.name, begun("at_grpo", 1).name}, "nothing half-written is left"


def test_a_cell_that_fails_is_reported_and_ends_nothing(table, tmp_path, capsys):
    table.write_text(
        table.read_text().replace('id = "plan_path_v0"\nmoves', 'id = "nothing_v0"\nmoves')
    )
    output = tmp_path / "result.json"
    arguments = ["--table", str(table), "--output", str(output), "--processes", "1"]
    assert study.main([*arguments, "--only", "lemma"]) == 1
    assert "lemma|Plan-Path|single FAILED: " in capsys.readouterr().out


def test_the_pages_are_made_from_the_result():
    table = cells.read_table()
    known = json.loads(study.RESULT.read_text())["cells"]
    for path in page.PAGES:
        text = path.read_text()
        assert page.rendered(text, table, known) == text, "run: python benchmarks/study.py --page"


def test_every_table_is_on_one_page():
    shown = [name for path in page.PAGES for _, name, _ in page._BLOCK.findall(path.read_text())]
    assert sorted(shown) == sorted(page.TABLES)


def test_the_result_has_no_cells_that_the_table_does_not_ask_for():
    table = cells.read_table()
    known = json.loads(study.RESULT.read_text())["cells"]
    asked = {cell.key for layer in cells.LAYERS for cell in cells.cells_of(table, layer, known)}
    assert set(known) <= asked


def test_every_variant_of_the_table_is_a_run_file():
    from credit_study.tabular import algorithm_of

    table = cells.read_table()
    for variant in table["variants"].values():
        assert algorithm_of(variant).name == variant["algorithm"]["name"]
    for layer in cells.LAYERS:
        keys = [cell.key for cell in cells.cells_of(table, layer, {})]
        assert len(keys) == len(set(keys)) > 10


def test_the_run_file_of_every_training_cell_loads():
    table = cells.read_table()
    first = {**table, "seeds": table["seeds"][:1]}
    found = [c for layer in ("tiny", "gpu") for c in cells.cells_of(first, layer, {})]
    names = ("task", "keys", "reward", "rate", "seed")
    for given in (cell.arguments for cell in found if cell.kind == "training"):
        task = given["task"]
        files = [ROOT / name for name in (task["config"], *task.get("more", ()))]
        flags = runs.flag_lines(tiny.flags_of(*(given[name] for name in names)))
        assert load_config(files, flags).seed == given["seed"]


@pytest.mark.parametrize(
    ("end", "is_error"),
    [
        ("while True: pass", False),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", True),
        ("raise SystemExit('no memory')", True),
        ("pass", False),
    ],
)
def test_a_run_that_is_ended_from_outside_is_not_taken_for_one_that_is_slow(
    end, is_error, tmp_path, monkeypatch
):
    directory = tmp_path / "run"
    directory.mkdir()
    (directory / "metrics.jsonl").write_text('{"step": 0}\n')
    first = {"step": 0, "num_episodes": 4, "variants": {"sampled": {"success": 0.5}}}
    (directory / "evaluations.jsonl").write_text(json.dumps(first) + "\n")
    monkeypatch.setattr(runs, "command_of", lambda *_: [sys.executable, "-c", end])
    found = runs.train([], {}, directory, 100, 1)
    assert found["curve"] == [[0.0, 0.5, 4]]
    assert not found["complete"]
    assert ("error" in found) == is_error


def test_the_overview_has_means_of_the_tables_seeds_and_pairs_all_that_both_have(table, tmp_path):
    read = cells.read_table(table)
    read["tiny"]["overview"]["panels"][0]["rows"]["plan_path"]["grpo"] = "K = 4"
    read["tiny"]["fresh"] = {"seeds": [2]}
    changed = {"label": "K = 4", "tasks": ["plan_path"], "variants": ["grpo"]}
    read["tiny"]["ablations"] = [{**changed, "learning_rate": 0.5}]

    def ended(share, last):
        return {"curve": [[0, share, 4], [200, share, 4], [300, last, 4]]}

    of = "tiny|plan_path|outcome"
    shares = {0: 0.25, 1: 0.75, 2: 0.5}
    known = {f"{of}|grpo|0.5|{seed}|K = 4": ended(s, 1.0) for seed, s in shares.items()}
    known |= {f"{of}|at_grpo|0.001|{seed}": ended(0.25, 0.5) for seed in (0, 1)}
    empty = "<!-- study:overview -->\n<!-- /study:overview -->"
    head, _, *rows, _, caption = page.rendered(empty, read, known).splitlines()[1:-1]
    assert head.endswith("| AT-GRPO | value | whole | whole minus AT-GRPO (95 %) | "
                         "whole minus value (95 %) |")  # fmt: skip
    assert rows == [
        "| the outcome | Plan-Path | 25 % (50 %) |  | 50 % (100 %) | +25 (-293 to +343) |  |"
    ], "means of seeds 0 and 1; nothing of what was not run, no row of a panel without results"
    assert caption.startswith("The family is all 1 differences of this table. One by one, 0 ")
    known[f"{of}|at_grpo|0.001|2"] = ended(0.5, 0.5)
    known[f"{of}|value_random|0.001|1"] = ended(0.5, 0.5)
    row, *_ = page.rendered(empty, read, known).splitlines()[3:-1]
    assert row.endswith("| 25 % (50 %) |  | 50 % (100 %) | +17 (-55 to +88) |  |"), (
        "one seed is none"
    )
    path = tmp_path / "overview.svg"
    pyplot = pytest.importorskip("matplotlib.pyplot")
    overview.draw_overview(read, known, pyplot, path)
    drawn = path.read_text()
    assert "rewarded: the outcome" in drawn
    assert "rewarded: every step" not in drawn
    read["tiny"]["overview"]["panels"][0]["rows"]["plan_path"]["grpo"] = "K = 5"
    with pytest.raises(LookupError, match="no ablation 'K = 5' of plan_path, outcome, grpo"):
        page.rendered(empty, read, known)


def test_the_overview_has_in_bold_what_the_correction_leaves(table):
    read = cells.read_table(table)
    read["seeds"] = [0, 1, 2]

    def shown(**shares):
        known = {
            f"tiny|plan_path|outcome|{way}|0.001|{seed}": {"curve": [[0, s, 4], [200, s, 4]]}
            for way, of in shares.items()
            for seed, s in enumerate(of)
        }
        empty = "<!-- study:overview -->\n<!-- /study:overview -->"
        *_, row, _, caption, _ = page.rendered(empty, read, known).splitlines()
        numbers = [int(num) for num in re.findall(r"\d+(?= differences| exclude|, in)", caption)]
        return numbers, [cell.strip() for cell in row.split("|")[-3:-1]]

    whole, level, beside = (0.6, 0.63, 0.68), (0.5, 0.5, 0.5), (0.5, 0.53, 0.581)
    doubtful = "+14 (+4 to +24)"  # p = 0.028
    assert shown(grpo=whole, at_grpo=level, value_random=level) == ([2, 2, 0], [doubtful] * 2)
    assert shown(grpo=whole, at_grpo=level, value_random=beside) == (
        [2, 2, 2],
        [f"**{doubtful}**", "**+10 (+10 to +10)**"],
    )


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


FINDINGS = ("index", "at-grpo", "lockstep", "other-credits", "settings")
"""Pages whose prose says what the tables of all pages show."""


def test_no_difference_in_the_prose_of_the_pages_is_in_none_of_their_tables():
    """It finds figures that have become stale, not those of another row."""
    texts = {path.stem: path.read_text() for path in page.PAGES}
    blocks = re.compile(r"<!-- ((?:study|table):\w+) -->.*?<!-- /\1 -->", re.DOTALL)
    tables = " ".join(block.group() for text in texts.values() for block in blocks.finditer(text))
    known = {tuple(map(int, found)) for found in _INTERVAL.findall(tables)}
    known |= {(-mean, -high, -low) for mean, low, high in known}
    prose = re.sub(r"\s+", " ", " ".join(blocks.sub("", texts[name]) for name in FINDINGS))
    said = [tuple(map(int, found)) for found in _INTERVAL.findall(prose)]
    assert len(said) > 30
    assert not [of for of in said if of not in known]
    # Where the mean is said in another place of the sentence.
    apart = re.findall(r"\(([-+]?\d+) to ([-+]?\d+)[;)]", prose)
    found = {tuple(map(int, of)) for of in apart}
    assert found - {of[1:] for of in known} == set()
