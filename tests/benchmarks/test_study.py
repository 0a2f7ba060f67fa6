"""The study in small: what is computed, that it can be traced, and what is said of it."""

import importlib
import json
import re
import subprocess
import sys
import tomllib
from collections import defaultdict
from functools import partial
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest

pytest.importorskip("torch")
from safetensors.torch import load_file

from pettingllms.evaluation.statistics import mean_interval
from pettingllms.files import read_lines
from pettingllms.types import flat_table
from pettingllms_trainers.config.loading import load_config
from pettingllms_trainers.runs.export import export_policies

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
study = importlib.import_module("study")
rows = importlib.import_module("credit_study.rows")
trained = importlib.import_module("credit_study.trained")
enumerated = importlib.import_module("credit_study.enumerated")
intervals = importlib.import_module("credit_study.intervals")
tables = importlib.import_module("credit_study.tables")

TABLE = rows.read_table()


def tiny_cells():
    return {cell.key: cell for cell in rows.tiny(TABLE)}


def chosen(rate=3.0):
    """Return results of a selection in which a rate is the best."""
    return {
        cell.key: {"success": {"1": float(cell.arguments["rate"] == rate)}}
        for cell in rows.selection(TABLE)
    }


def test_every_cell_is_asked_for_once_and_no_seed_of_the_selection_is_in_it():
    for found in (rows.exact(TABLE, chosen()), rows.tiny(TABLE), rows.selection(TABLE)):
        keys = [cell.key for cell in found]
        assert len(keys) == len(set(keys)) >= 300
    assert not set(TABLE["seeds"]) & set(TABLE["selection_seeds"])
    played = {cell.arguments["seed"] for cell in rows.tiny(TABLE)}
    played |= {c.arguments["seed"] for c in rows.exact(TABLE, chosen()) if c.kind == "trial"}
    assert played == set(TABLE["seeds"])


def test_rates_are_those_that_were_best_in_the_selection_and_some_ways_have_the_others_too():
    cells = [cell for cell in rows.exact(TABLE, chosen(3.0)) if cell.kind == "trial"]
    rates = {cell.key: cell.arguments["rate"] for cell in cells}
    assert {rate for key, rate in rates.items() if " at " not in key} == {3.0}
    others = {f"exact|length|{way} at {rate}|10" for way in ("at_grpo", "reinforce")
              for rate in (1, 10)}  # fmt: skip
    assert {key for key in rates if key.startswith("exact|length|") and " at " in key
            and key.endswith("|10")} == others  # fmt: skip
    assert all(f" at {rate:g}|" in key for key, rate in rates.items() if " at " in key)
    with pytest.raises(LookupError, match=r"no result of selection\|.*study.py selection"):
        [*rows.exact(TABLE, {})]


def test_a_larger_rate_than_those_to_choose_from_would_not_have_been_better():
    cells = json.loads((study.RESULTS / "credit_selection.json").read_text())["cells"]
    found = defaultdict(lambda: defaultdict(list))
    for key, cell in cells.items():
        _, name, way, rate, _ = key.split("|")
        found[name, way][float(rate)].append(fmean(cell["success"].values()))
    means = {
        place: {rate: fmean(of) for rate, of in rates.items()} for place, rates in found.items()
    }
    tried = TABLE["exact"]["tried_rate"]
    better = {
        place: rates[tried] - max(mean for rate, mean in rates.items() if rate != tried)
        for place, rates in means.items()
        if tried in rates
    }
    assert len(better) > 60
    assert {place for place, by in better.items() if by > 0.01} == {("shaped", "vine")}


def test_a_trial_learns_and_is_the_same_again():
    (cell,) = (c for c in rows.exact(TABLE, chosen(1.0)) if c.key == "exact|outcome|reinforce|10")
    small = {**cell.arguments["exact"], "budgets": [600, 1200], "num_levels": 2}
    found = enumerated.trial_cell(**{**cell.arguments, "exact": small})
    assert list(found["success"]) == ["600", "1200"]
    assert found["success"]["600"] < found["success"]["1200"] <= found["greedy"] == 1
    assert found["completions"] > 1200
    assert enumerated.trial_cell(**{**cell.arguments, "exact": small}) == found


def test_the_run_file_of_every_training_cell_loads(tmp_path):
    cells = [*rows.abstract(TABLE)]
    assert len({cell.key for cell in cells}) == len(cells) == 3 * 5 * 2 + 3 * (3 + 3 + 2)
    for cell in (*rows.tiny(TABLE), *cells):
        given = {k: v for k, v in cell.arguments.items() if k != "limit_s"}
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
    both = [cell for cell in rows.exact(TABLE, chosen()) if cell.key in names]
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
    both = [cell for cell in rows.exact(TABLE, chosen()) if cell.key in names]
    study.run(study.Study(path, "exact", "a" * 40, False), both, tmp_path)
    found = json.loads(path.read_text())
    found["cells"][names[1]]["greedy_solves"] += 1
    path.write_text(json.dumps(found))
    assert study.recheck(study.Study(path, "exact", "b" * 40, False), both, 5, tmp_path) == 1
    said = capsys.readouterr().out
    assert f"{names[0]} equal" in said
    assert f"{names[1]} DIFFERS" in said
    cells = json.loads(path.read_text())["cells"]
    assert [cells[name].get("found_again", "")[:1] for name in names] == ["b", ""]


def small(key, **changes):
    """Return the arguments of a training that takes seconds."""
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
def test_training_cells_stop_at_equal_tokens(tmp_path):
    found = trained.training_cell(
        **small("tiny|plan_path_hard, noise|reinforce|10", num_levels=2), shared=tmp_path
    )
    tokens = [point[0] for point in found["curve"]]
    assert tokens == sorted(tokens)
    assert tokens[0] == 0
    assert tokens[-1] >= 200
    assert found["scripted"]


@pytest.mark.nightly
def test_figure_cells_train_roles_together_and_apart(tmp_path):
    found = trained.training_cell(**small("tiny|figure|team|10"), shared=tmp_path)
    assert 0 <= found["swapped"] <= 1
    apart = trained.training_cell(**small("tiny|figure|apart|10"), shared=tmp_path)
    for role in ("tool", "planner"):
        assert apart[role]["curve"][-1][0] >= 200
    assert set(apart["joined"]) == {"before", "after"}


@pytest.mark.nightly
def test_a_cell_that_was_killed_goes_on_and_ends_the_same(tmp_path, monkeypatch):
    given = small("tiny|figure|team|10")
    given |= {"task": given["task"] | {"tokens": 12000}}

    def look(_):
        if any(tmp_path.glob("killed/unfinished/*/run/checkpoints/step-*2")):
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(trained.time, "sleep", look)
        with pytest.raises(KeyboardInterrupt):
            trained.training_cell(**given, shared=tmp_path / "killed")
    found = trained.training_cell(**given, shared=tmp_path / "killed")
    assert found.pop("continued")
    assert found == trained.training_cell(**given, shared=tmp_path / "whole")


def run_of(**changes):
    """Return files and flags of the run of a cell, or of one like it."""
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
    arguments = {k: v for k, v in given.arguments.items() if k not in ("plays", "limit_s")}
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
        trained.train(tmp_path, {}, directory, 100, 1)


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


def test_results_are_of_the_table_and_of_a_commit_that_is_here():
    known = subprocess.run(["git", "-C", ROOT, "cat-file", "-t", "HEAD"], capture_output=True)
    selected = json.loads((study.RESULTS / "credit_selection.json").read_text())["cells"]
    for layer in rows.LAYERS:
        path = study.RESULTS / f"credit_{layer}.json"
        if path.is_file():
            found = json.loads(path.read_text())
            asked = {cell.key for cell in rows.cells_of(TABLE, layer, selected)}
            assert set(found["cells"]) <= asked
            if known.returncode == 0 and not (ROOT / ".git" / "shallow").exists():
                for commit in {cell["commit"] for cell in found["cells"].values()}:
                    command = ["git", "-C", ROOT, "merge-base", "--is-ancestor", commit, "HEAD"]
                    assert subprocess.run(command, check=False).returncode == 0


def test_a_table_has_complete_rows_alone_with_values_at_the_budget():
    found = tables.Results("tiny")
    curves = {"at_grpo": [[0, 0.0, 4], [80000, 0.5, 4], [100000, 1.0, 4]]}
    name, ways = "plan_path_hard, noise", TABLE["tiny"]["ways"]
    found._by_seed = {
        (name, way): {
            seed: {"curve": curves.get(way, [[0, 0.0, 4], [90000, 0.5, 4]])}
            for seed in TABLE["seeds"]
        }
        for way in ways
    }
    assert found.is_complete(name)
    assert found.mean((name, "at_grpo"), lambda c: tables.at_tokens(c, 90000)) == 75
    assert found.mean((name, "vine"), lambda c: tables.over_tokens(c, 90000)) == pytest.approx(25)
    del found._by_seed[name, "vine"][TABLE["seeds"][-1]]
    assert not found.is_complete(name)


def test_a_family_has_in_bold_what_the_correction_leaves():
    doubtful = [0.1, 0.13, 0.18]  # p = 0.028
    alone = {("a", "b"): doubtful, ("a", "c"): doubtful}
    assert "**" not in tables.Family(alone).shown(("a", "b"))
    sure = tables.Family({("a", "b"): doubtful, ("a", "c"): [0.1, 0.1, 0.099]})
    assert sure.shown(("a", "b")) == "**+14 (+4 to +24)**"
    assert "the 2 that Holm" in sure.note()


PROSE = [
    "docs/which-credit.md",
    *(f"docs/research/{name}.md" for name in ("index", "enumerated", "small-models")),
]
CLAIMS = tomllib.loads(Path(__file__).with_name("claims.toml").read_text())["claim"]
_RELATION = r"\b(?:is|are|was|were)\b[^.:;]*\b(?:ahead|behind|level)\b|\d points\b"
_COMPARES = re.compile(rf"[^.:;]*(?:{_RELATION})[^.:;]*")
_BLOCK = re.compile(r"<!-- (table:\w+) -->.*?<!-- /\1 -->", re.DOTALL)


def prose_of(page):
    text = _BLOCK.sub("", (ROOT / page).read_text(encoding="utf-8"))
    text = re.sub(
        r"^(\||#|- \*\*)[^\n]*\n",
        lambda m: m[0] if m[1] == "- **" else "\n",
        text,
        flags=re.MULTILINE,
    )
    return re.sub(r"\s+", " ", re.sub(r"\]\([^)]*\)|[\[*`]", "", text))


@pytest.mark.parametrize("claim", CLAIMS, ids=[of["says"][:60] for of in CLAIMS])
def test_what_a_page_says_of_two_ways_is_what_the_table_has(claim):
    """Ahead, behind: the 95 % interval excludes 0; level: it does not; unbeaten: none is ahead."""
    assert claim["says"] in prose_of(claim["page"])
    found, checked = tables.results(claim["layer"]), 0
    groups = defaultdict(list)
    for relation in ("ahead", "level", "behind"):
        for name, way, other, *of in claim.get(relation, ()):
            how = tables.over_budgets
            if claim["layer"] != "exact":
                tokens = tables.tokens_of(found.rows[name])
                how = partial(tables.over_tokens, tokens=tokens)
            assert found.has(name, way)
            by = found.differences((name, way), ([*of, name][0], other), how)
            low, high = mean_interval(by)[1:]
            is_so = {"ahead": low > 0, "level": low <= 0 <= high, "behind": high < 0}
            assert is_so[relation], (name, way, other, low, high)
            groups[relation, way, other].append(by)
            checked += 1
    for name, way, *but in claim.get("unbeaten", ()):
        for other in {*TABLE["exact"]["ways"]} - {way, *but}:
            by = found.differences((name, way), (name, other), tables.over_budgets)
            assert mean_interval(by)[2] >= 0, (name, way, other)
            checked += 1
    assert checked
    points_agree(claim["says"], [*groups.values()])


def points_agree(says, groups):
    """Assert that the points and intervals of a sentence are those of the differences it rests on.

    Args:
        says: The sentence.
        groups: Differences of one pair of ways, in one relation, over rows.
    """
    ends = [
        [sorted(abs(round(100 * e)) for e in mean_interval(by)[1:]) for by in g] for g in groups
    ]
    for low, high in re.findall(r"\((\d+) to (\d+)\)", says):
        assert any([int(low), int(high)] in group for group in ends), (low, high)
    means = [{abs(round(100 * fmean(by))) for by in group} for group in groups]
    rest = re.sub(r"\([^)]*\)", "", says)
    for several in re.findall(r"\bby (\d+(?:(?:, | and )\d+)*)\b(?! to)", rest):
        assert {*map(int, re.findall(r"\d+", several))} <= set().union(*means), several
    for low, high in re.findall(r"(\d+) to (\d+)", rest):
        every = set().union(*means)
        spans = [{min(of), max(of)} for of in (*means, every)]
        assert {int(low), int(high)} in spans, (low, high, spans)


@pytest.mark.parametrize("page", PROSE)
def test_every_sentence_that_compares_is_such_a_claim(page):
    rest = prose_of(page)
    for claim in CLAIMS:
        if claim["page"] == page:
            rest = rest.replace(claim["says"], "")
    assert not re.findall(_COMPARES, rest)


def test_no_difference_in_the_prose_is_in_none_of_the_tables():
    text = " ".join((ROOT / page).read_text(encoding="utf-8") for page in PROSE)
    shown = " ".join(block.group() for block in _BLOCK.finditer(text))
    known = {found[1:] for found in _INTERVAL.findall(shown)}
    known |= {tuple(f"{-int(end):+d}" for end in reversed(of)) for of in known}
    said = re.findall(r"\(([-+]?\d+) to ([-+]?\d+)\)", _BLOCK.sub("", text))
    as_numbers = {tuple(map(int, of)) for of in known}
    assert {tuple(map(int, of)) for of in said} <= as_numbers
