"""Tables and figures of the study, and the page of the documentation that they are in."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from document_tables.markdown import markdown

from credit_study.curves import draw
from credit_study.figure_table import figure_table
from credit_study.pooled import pooled
from credit_study.selection import Cells, Table, best_rate, ends_of

__all__ = ["PAGE", "rendered", "write_page"]

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "which-credit.md"
_BLOCK = re.compile(r"(<!-- study:(\w+) -->\n).*?(<!-- /study:\2 -->)", re.DOTALL)
_BASE = "at_grpo"
_PARALLEL = "grpo"
_RESAMPLES = 2000


def write_page(table: Table, result: Path) -> None:
    """Write the tables into the page, and the figures beside it."""
    cells: Cells = json.loads(result.read_text(encoding="utf-8"))["cells"]
    PAGE.write_text(rendered(PAGE.read_text(encoding="utf-8"), table, cells), encoding="utf-8")
    draw(table, cells)


def rendered(text: str, table: Table, cells: Cells) -> str:
    """Return the page with all its tables made again."""
    blocks = {
        "state": _state, "bias": _bias, "noise": _noise, "lemma": _lemma,
        "exact": _exact, "fresh": _fresh, "tiny": _tiny, "figure": figure_table,
        "exact_ablations": _exact_ablations, "tiny_ablations": _tiny_ablations,
    }  # fmt: skip

    def replace(match: re.Match[str]) -> str:
        return match.group(1) + blocks[match.group(2)](table, cells) + match.group(3)

    return _BLOCK.sub(replace, text)


def _state(table: Table, cells: Cells) -> str:
    from credit_study.cells import LAYERS, cells_of

    rows: list[list[str]] = []
    for layer in LAYERS:
        keys = {cell.key for cell in cells_of(table, layer)}
        there = [cell for key, cell in cells.items() if key in keys]
        failed = sum("error" in cell for cell in there)
        late = sum(cell.get("complete") is False for cell in there)
        rows.append([layer, str(len(keys)), str(len(there)), str(failed), str(late)])
    head = ["layer", "cells", "computed", "failed", "out of time before their tokens were used"]
    return markdown(head, rows)


def _bias(table: Table, cells: Cells) -> str:
    sizes = table["exact"]["num_candidates"]
    rows: list[list[str]] = []
    for reward in table["exact"]["rewards"]:
        found = cells.get(f"bias|{reward}", {}).get("cosines", {})
        for name in dict.fromkeys(key.rpartition(", ")[0] for key in found):
            branch, credit, norm = name.split(", ")
            credit = "true V" if credit == "value" else "step"
            means = [f"{found[f'{name}, {size}']['mean']:.2f}" for size in sizes]
            rows.append([reward, branch, credit, norm, *means])
    return markdown(["reward", "branch", "credit", "norm", *(f"K = {k}" for k in sizes)], rows)


def _noise(table: Table, cells: Cells) -> str:
    rewards = table["exact"]["rewards"]
    rows: list[list[str]] = []
    for name, variant in table["variants"].items():
        row = [variant["label"]]
        for reward in rewards:
            found = cells.get(f"noise|{reward}|{name}", {})
            row += [_plain(found.get("cosine")), _plain(found.get("noise"))]
        rows.append(row)
    head = [f"{what}, {reward}" for reward in rewards for what in ("cosine", "noise")]
    return markdown(["variant", *head], rows)


def _plain(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _lemma(table: Table, cells: Cells) -> str:
    rows: list[list[str]] = []
    for case in table["exact"]["lemma"]:
        for team in case["teams"]:
            found = cells.get(f"lemma|{case['label']}|{team}")
            if found is None:
                continue
            greedy = f"{found['greedy_solves']} of {found['solvable']}"
            for role, (nodes, of_return, of_success) in found["nodes"].items():
                shares = [f"{100 * n / nodes:.1f} %" for n in (of_return, of_success)]
                rows.append([case["label"], team, role, str(nodes), *shares, greedy])
    head = ["levels", "team", "role", "decisions", "best return", "best success", "greedy solves"]
    return markdown(head, rows)


def _exact(table: Table, cells: Cells) -> str:
    budgets = table["exact"]["budgets"]
    rows: list[list[str]] = []
    for reward in table["exact"]["rewards"]:
        for name, variant in table["variants"].items():
            rate, curves = best_rate(table, cells, "trial", reward, name)
            if not curves:
                continue
            row = [reward, variant["label"], f"{rate:g}", str(len(curves))]
            for index in range(len(budgets)):
                found = [100 * curve[index] for curve in curves]
                row.append(f"{fmean(found):.0f} ({min(found):.0f} to {max(found):.0f})")
            rows.append(row)
    return markdown(["reward", "variant", "rate", "seeds", *(f"{b:,}" for b in budgets)], rows)


def _fresh(table: Table, cells: Cells) -> str:
    fresh, budgets = table["exact"]["fresh"], table["exact"]["budgets"]
    rows: list[list[str]] = []
    for reward in table["exact"]["rewards"]:
        curves = {
            name: np.array(found)
            for name in table["variants"]
            if (found := _fresh_curves(cells, reward, name, fresh["seeds"], budgets))
        }
        for name, found in curves.items():
            # Pairs: a seed's levels are the same for all variants.
            against = [
                "" if name == other else _bootstrap((found - curves[other]).mean(1).tolist())
                for other in (_BASE, _PARALLEL)
            ]
            means = [f"{100 * mean:.0f}" for mean in found.mean(0)]
            rows.append([reward, table["variants"][name]["label"], *means, *against])
    head = ["minus AT-GRPO, paired (95 %)", "minus GRPO, paired (95 %)"]
    return markdown(["reward", "variant", *(f"{b:,}" for b in budgets), *head], rows)


def _exact_ablations(table: Table, cells: Cells) -> str:
    """Return success at every budget with one setting changed, beside that of no change."""
    fresh, budgets = table["exact"]["fresh"], table["exact"]["budgets"]
    rows: list[list[str]] = []
    for changed in table["exact"].get("ablations", ()):
        for reward in changed.get("rewards", table["exact"]["rewards"]):
            for name in changed["variants"]:
                seeds = fresh["seeds"]
                after = _fresh_curves(cells, reward, name, seeds, budgets, changed["label"])
                before = _fresh_curves(cells, reward, name, seeds, budgets)
                if after and before:
                    means = [f"{100 * mean:.0f}" for mean in np.mean(after, 0)]
                    minus = (np.array(after) - np.array(before)).mean(1).tolist()
                    label = table["variants"][name]["label"]
                    rows.append([reward, label, changed["label"], *means, _bootstrap(minus)])
    head = ["reward", "variant", "changed", *(f"{b:,}" for b in budgets)]
    return markdown([*head, "minus unchanged, paired (95 %)"], rows)


def _tiny_ablations(table: Table, cells: Cells) -> str:
    rows: list[list[str]] = []
    section = table["tiny"]
    for changed in section.get("ablations", ()):
        for task, reward, name in itertools.product(
            changed.get("tasks", section["tasks"]),
            changed.get("rewards", section["rewards"]),
            changed["variants"],
        ):
            found = partial(ends_of, table, cells, task, reward)
            after, settings = found(name, changed["label"]), section["tasks"][task]
            if not after:
                continue
            tokens = settings["tokens"]
            seeds, _, end, *_, mean = _summary(after, tokens)
            minus = _minus(after, found(name), tokens)
            other = _minus(found("vine"), after, tokens) if changed.get("beside_vine") else ""
            label = table["variants"][name]["label"]
            row = [settings["label"], reward, label, changed["label"]]
            rows.append([*row, seeds, end, mean, minus, other])
    head = ["task", "reward", "variant", "changed", "seeds", "at the end (95 %)"]
    head += ["mean over the tokens", "minus unchanged, paired (95 %)"]
    return markdown([*head, "vine minus it, paired (95 %)"], rows)


def _fresh_curves(
    cells: Cells,
    reward: str,
    name: str,
    seeds: Sequence[int],
    budgets: Sequence[int],
    changed: str = "",
) -> list[list[float]]:
    """Return success at every budget, by seed; nothing unless all seeds are there."""
    suffix = f"|{changed}" if changed else ""
    found = [cells.get(f"fresh|{reward}|{name}|{seed}{suffix}") for seed in seeds]
    return (
        []
        if None in found
        else [[cell["success"][str(budget)] for budget in budgets] for cell in found if cell]
    )


def _tiny(table: Table, cells: Cells) -> str:
    rows: list[list[str]] = []
    section = table["tiny"]
    for task, settings in section["tasks"].items():
        for reward in section["rewards"]:
            names = settings.get("variants", section["variants"])
            ends = {name: ends_of(table, cells, task, reward, name) for name in names}
            for name, found in ends.items():
                if found:
                    label = table["variants"][name]["label"]
                    tokens = settings["tokens"]
                    against = [
                        "" if name == other else _minus(found, ends.get(other, {}), tokens)
                        for other in (_BASE, _PARALLEL)
                    ]
                    row = [settings["label"], reward, label, *_summary(found, tokens), *against]
                    rows.append(row)
    head = ["task", "reward", "variant", "seeds", "before", "at the end (95 %)"]
    head += ["one role untaught", "time of V", "R2 of V (seeds)", "mean over the tokens"]
    return markdown([*head, *(f"minus {n}, paired (95 %)" for n in ("AT-GRPO", "GRPO"))], rows)


def _summary(found: Mapping[int, Any], tokens: float) -> list[str]:
    last = [(share, levels) for cell in found.values() for _, share, levels in cell["curve"][-1:]]
    before = fmean(cell["curve"][0][1] for cell in found.values())
    of_v = fmean(cell["value_share"] for cell in found.values())
    r2 = [cell["r2"] for cell in found.values() if cell.get("r2") is not None]
    untaught = [cell["untaught"] for cell in found.values() if "untaught" in cell]
    roles = {role: fmean(of[role] for of in untaught) for role in (untaught or [{}])[0]}
    mean = fmean(_along(cell, tokens) for cell in found.values())
    return [
        str(len(found)),
        f"{100 * before:.0f} %",
        pooled(last),
        ", ".join(f"{role} {100 * share:.0f} %" for role, share in roles.items()),
        f"{100 * of_v:.0f} %" if of_v else "",
        f"{fmean(r2):.2f} ({len(r2)})" if r2 else "",
        f"{100 * mean:.0f} %",
    ]


def _along(cell: Mapping[str, Any], tokens: float) -> float:
    """Return the mean of a learning curve over the tokens of a task.

    Runs end where they end a step, some thousand tokens apart; this does not depend on it, and it
    tells apart what reaches 100 % early from what does so late.
    """
    grid = np.linspace(0, tokens, 200)
    return float(
        np.mean(np.interp(grid, *zip(*((x, y) for x, y, _ in cell["curve"]), strict=True)))
    )


def _minus(found: Mapping[int, Any], other: Mapping[int, Any], tokens: float) -> str:
    """Return the difference of these means; the runs of a seed begin with the same weights."""
    seeds = sorted(set(found) & set(other))
    return _bootstrap([_along(found[s], tokens) - _along(other[s], tokens) for s in seeds])


def _bootstrap(differences: Sequence[float]) -> str:
    """Return the mean of paired differences with a percentile interval over seeds."""
    if len(differences) < 2:  # nothing to resample
        return f"{100 * differences[0]:+.0f}" if differences else "-"
    rng = np.random.default_rng(0)
    drawn = rng.choice(differences, (_RESAMPLES, len(differences))).mean(1)
    low, high = np.percentile(drawn, [2.5, 97.5])
    return f"{100 * fmean(differences):+.0f} ({100 * low:+.0f} to {100 * high:+.0f})"
