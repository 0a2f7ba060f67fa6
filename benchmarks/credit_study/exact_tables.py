"""Tables of the exact layer."""

from __future__ import annotations

from statistics import fmean

import numpy as np
from document_tables.markdown import markdown

from credit_study.intervals import paired
from credit_study.selection import BASELINES, Cells, Table, best_rate


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
            rate, curves = best_rate(table, cells, reward, name)
            if not curves:
                continue
            row = [reward, variant["label"], f"{rate:g}", str(len(curves))]
            for index in range(len(budgets)):
                found = [100 * curve[index] for curve in curves]
                row.append(f"{fmean(found):.0f} ({min(found):.0f} to {max(found):.0f})")
            rows.append(row)
    return markdown(["reward", "variant", "rate", "seeds", *(f"{b:,}" for b in budgets)], rows)


def _fresh(table: Table, cells: Cells) -> str:
    budgets = table["exact"]["budgets"]
    rows: list[list[str]] = []
    for reward in table["exact"]["rewards"]:
        curves = {
            name: np.array(found)
            for name in table["variants"]
            if (found := _fresh_curves(table, cells, reward, name))
        }
        for name, found in curves.items():
            # Pairs: a seed's levels are the same for all variants.
            against = [
                "" if name == other else paired((found - curves[other]).mean(1).tolist())
                for other in BASELINES
            ]
            means = [f"{100 * mean:.0f}" for mean in found.mean(0)]
            rows.append([reward, table["variants"][name]["label"], *means, *against])
    head = [f"minus {label}, paired (95 %)" for label in BASELINES.values()]
    return markdown(["reward", "variant", *(f"{b:,}" for b in budgets), *head], rows)


def _exact_ablations(table: Table, cells: Cells) -> str:
    """Return success at every budget with one setting changed, beside that of no change."""
    budgets = table["exact"]["budgets"]
    rows: list[list[str]] = []
    for changed in table["exact"].get("ablations", ()):
        for reward in changed.get("rewards", table["exact"]["rewards"]):
            for name in changed["variants"]:
                after = _fresh_curves(table, cells, reward, name, changed["label"])
                before = _fresh_curves(table, cells, reward, name)
                if after and before:
                    means = [f"{100 * mean:.0f}" for mean in np.mean(after, 0)]
                    minus = (np.array(after) - np.array(before)).mean(1).tolist()
                    label = table["variants"][name]["label"]
                    rows.append([reward, label, changed["label"], *means, paired(minus)])
    head = ["reward", "variant", "changed", *(f"{b:,}" for b in budgets)]
    return markdown([*head, "minus unchanged, paired (95 %)"], rows)


def _fresh_curves(
    table: Table, cells: Cells, reward: str, name: str, changed: str = ""
) -> list[list[float]]:
    """Return success at every budget, by seed; nothing unless all seeds are there."""
    budgets, seeds = table["exact"]["budgets"], table["exact"]["fresh"]["seeds"]
    rate, _ = best_rate(table, cells, reward, name)
    suffix = f"|{changed}" if changed else ""
    found = [cells.get(f"fresh|{reward}|{name}|{rate:g}|{seed}{suffix}") for seed in seeds]
    return (
        []
        if None in found
        else [[cell["success"][str(budget)] for budget in budgets] for cell in found if cell]
    )


EXACT_TABLES = {
    "bias": _bias,
    "noise": _noise,
    "lemma": _lemma,
    "exact": _exact,
    "fresh": _fresh,
    "exact_ablations": _exact_ablations,
}
"""Name of a block of the page -> what makes its table."""
