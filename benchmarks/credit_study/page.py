"""Tables and figures of the study, and the page of the documentation that they are in."""

from __future__ import annotations

import itertools
import json
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from credit_study.figure_table import figure_table
from credit_study.markdown import markdown, pooled

__all__ = ["PAGE", "rendered", "write_page"]

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "which-credit.md"
FIGURES = ROOT / "docs" / "assets"
_BLOCK = re.compile(r"(<!-- study:(\w+) -->\n).*?(<!-- /study:\2 -->)", re.DOTALL)
_BASE = "at_grpo"
_PARALLEL = "grpo"
_RESAMPLES = 2000
_NO_RULES = ("oracle", "random")
"""Scripted policies that no line is drawn for."""

Cells = Mapping[str, Mapping[str, Any]]
Table = Mapping[str, Any]


def write_page(table: Table, result: Path) -> None:
    """Write the tables into the page, and the figures beside it."""
    cells: Cells = json.loads(result.read_text(encoding="utf-8"))["cells"]
    PAGE.write_text(rendered(PAGE.read_text(encoding="utf-8"), table, cells), encoding="utf-8")
    _draw(table, cells)


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
            rate, curves = _best_rate(table, cells, "trial", reward, name)
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
        beside = changed.get("beside")
        for task, reward, name in itertools.product(
            changed.get("tasks", section["tasks"]),
            changed.get("rewards", section["rewards"]),
            changed["variants"],
        ):
            found = partial(_ends, table, cells, task, reward)
            after, settings = found(name, changed["label"]), section["tasks"][task]
            if not after:
                continue
            tokens = settings["tokens"]
            seeds, _, end, *_, mean = _summary(after, tokens)
            minus = _minus(after, found(name), tokens)
            other = _minus(found(beside), after, tokens) if beside else ""
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


def _best_rate(
    table: Table, cells: Cells, kind: str, reward: str, name: str
) -> tuple[float, list[list[float]]]:
    """Return the best learning rate over all budgets, and success at every budget by seed."""
    found: dict[float, list[list[float]]] = defaultdict(list)
    budgets = [str(budget) for budget in table["exact"]["budgets"]]
    for rate in table["exact"]["learning_rates"]:
        for seed in table["seeds"]:
            cell = cells.get(f"{kind}|{reward}|{name}|{rate}|{seed}")
            if cell is not None:
                found[rate].append([cell["success"][budget] for budget in budgets])
    if not found:
        return 0.0, []
    best = max(found, key=lambda rate: np.mean(found[rate]))
    return best, found[best]


def _tiny(table: Table, cells: Cells) -> str:
    rows: list[list[str]] = []
    section = table["tiny"]
    for task, settings in section["tasks"].items():
        for reward in section["rewards"]:
            names = settings.get("variants", section["variants"])
            ends = {name: _ends(table, cells, task, reward, name) for name in names}
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


def _ends(
    table: Table, cells: Cells, task: str, reward: str, name: str, changed: str = ""
) -> dict[int, Any]:
    """Return seed -> cell, of the learning rate that ends best, without failed runs."""
    suffix = f"|{changed}" if changed else ""
    by_rate: dict[float, dict[int, Any]] = defaultdict(dict)
    for rate in table["tiny"]["learning_rates"]:
        for seed in table["seeds"]:
            cell = cells.get(f"tiny|{task}|{reward}|{name}|{rate}|{seed}{suffix}")
            if cell is not None and cell["curve"] and "error" not in cell:
                by_rate[rate][seed] = cell
    if not by_rate:
        return {}
    return max(by_rate.values(), key=lambda f: fmean(c["curve"][-1][1] for c in f.values()))


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


def _draw(table: Table, cells: Cells) -> None:
    """Draw the learning curves that there are."""
    import matplotlib  # slow, and only when figures are drawn

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "study"
    from matplotlib import pyplot

    rewards = table["exact"]["rewards"]
    figure, panels = pyplot.subplots(1, len(rewards), figsize=(11, 4), sharey=True)
    for panel, reward in zip(panels, rewards, strict=True):
        for name, variant in table["variants"].items():
            _, curves = _best_rate(table, cells, "trial", reward, name)
            if curves:
                budgets = table["exact"]["budgets"]
                mean = np.mean(curves, 0)
                (line,) = panel.plot(budgets, mean, marker=".", label=variant["label"])
                low, high = np.min(curves, 0), np.max(curves, 0)
                panel.fill_between(budgets, low, high, color=line.get_color(), alpha=0.1)
        panel.set(title=f"{reward} reward", xlabel="sampled completions", xscale="log")
        panel.grid(alpha=0.25)
    panels[0].set_ylabel("probability of success")
    panels[-1].legend(fontsize=6, loc="center left", bbox_to_anchor=(1.0, 0.5))
    figure.savefig(FIGURES / "credit-exact.svg", bbox_inches="tight", metadata={"Date": None})
    pyplot.close(figure)
    _draw_tiny(table, cells, pyplot)


def _draw_tiny(table: Table, cells: Cells, pyplot: Any) -> None:
    section = table["tiny"]
    tasks, rewards = section["tasks"], section["rewards"]
    figure, rows = pyplot.subplots(
        len(tasks), len(rewards), figsize=(11, 3 * len(tasks)), sharey=True, squeeze=False
    )
    lines: dict[str, Any] = {}
    for panels, (task, settings) in zip(rows, tasks.items(), strict=True):
        for panel, reward in zip(panels, rewards, strict=True):
            title = f"{settings['label']}, {reward} reward"
            panel.set(title=title, xlabel="sampled tokens", ylabel="success")
            panel.grid(alpha=0.25)
            shown = _shown(table, cells, task, reward)
            panel.set_visible(bool(shown))
            for label, style, found in shown:
                lines.setdefault(label, _draw_curve(panel, found, settings["tokens"], style))
            rules = [_best_rule(cell) for _, _, found in shown for cell in found.values()]
            if rules:
                rule = panel.axhline(max(rules), color="black", linestyle=":")
                lines.setdefault("best simple rule", rule)
    legend = {"loc": "upper center", "bbox_to_anchor": (0.5, 0.0), "ncol": 2, "fontsize": 8}
    figure.legend(lines.values(), lines.keys(), **legend)
    figure.tight_layout()
    figure.savefig(FIGURES / "credit-tiny.svg", bbox_inches="tight", metadata={"Date": None})
    pyplot.close(figure)


def _shown(
    table: Table, cells: Cells, task: str, reward: str
) -> list[tuple[str, dict[str, Any], dict[int, Any]]]:
    """Return label, style and cells of what a panel shows: variants, dashed with smaller steps."""
    section = table["tiny"]
    drawn = [
        (name, "", "-") for name in section["tasks"][task].get("variants", section["variants"])
    ]
    drawn += [
        (name, changed["label"], "--")
        for changed in section.get("ablations", ())
        if "beside" in changed and task in changed["tasks"]
        for name in changed["variants"]
    ]
    colours = {name: f"C{number}" for number, name in enumerate(section["variants"])}
    found: list[tuple[str, dict[str, Any], dict[int, Any]]] = []
    for name, changed, line in drawn:
        if ends := _ends(table, cells, task, reward, name, changed):
            label = table["variants"][name]["label"] + (", steps as the vine's" if changed else "")
            found.append((label, {"color": colours[name], "linestyle": line}, ends))
    return found


def _draw_curve(
    panel: Any, found: Mapping[int, Any], tokens: float, style: Mapping[str, Any]
) -> Any:
    """Draw the mean learning curve over seeds, with their range; return its line."""
    grid = np.linspace(0, tokens, 40)
    curves = [
        np.interp(grid, *zip(*((x, y) for x, y, _ in cell["curve"]), strict=True))
        for cell in found.values()
    ]
    (line,) = panel.plot(grid, np.mean(curves, 0), **style)
    panel.fill_between(grid, np.min(curves, 0), np.max(curves, 0), color=style["color"], alpha=0.08)
    return line


def _best_rule(cell: Mapping[str, Any]) -> float:
    return max(
        (share for name, share in cell["scripted"].items() if name not in _NO_RULES), default=0.0
    )
