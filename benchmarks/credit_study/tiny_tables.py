"""Tables of the tiny layer."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from functools import partial
from statistics import fmean
from typing import Any

from document_tables.markdown import markdown

from credit_study.figure_table import figure_table
from credit_study.intervals import paired, pooled
from credit_study.overview import overview_table
from credit_study.selection import (
    BASELINES,
    Cells,
    Table,
    all_seeds,
    along,
    chosen_rate,
    differences,
    ends_of,
    rates_of,
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
                        for other in BASELINES
                    ]
                    rate = chosen_rate(table, cells, "tiny", task, reward, name)
                    row = [settings["label"], reward, label, f"{rate:g}"]
                    rows.append([*row, *_summary(found, tokens), *against])
    head = ["task", "reward", "variant", "rate", "seeds", "tokens", "before"]
    head += ["at the end (95 %); seeds"]
    head += ["one role untaught", "time of V", "R2 of V (seeds)", "mean over the tokens"]
    return markdown(
        [*head, *(f"minus {label}, paired (95 %)" for label in BASELINES.values())], rows
    )


def _rates(table: Table, cells: Cells) -> str:
    """Return the mean over the tokens at every learning rate of the grid.

    That of the first seed, by which the rate is chosen, and that of all seeds where more have run.
    """
    section, seed = table["tiny"], table["seeds"][0]
    rates = section.get("grid", {}).get("learning_rates", [])
    rows: list[list[str]] = []
    for task, settings in section["tasks"].items():
        names = settings.get("variants", section["variants"])
        for reward, name in itertools.product(section["rewards"], names):
            found = [ends_of(table, cells, task, reward, name, rate) for rate in rates]
            if len(rates_of(section, task, name)) > 1 and any(seed in of for of in found):
                row = [settings["label"], reward, table["variants"][name]["label"]]
                rows.append([*row, *(_at_rate(of, seed, settings["tokens"]) for of in found)])
    return markdown(["task", "reward", "variant", *(f"{rate:g}" for rate in rates)], rows)


def _at_rate(found: Mapping[int, Any], first: int, tokens: float) -> str:
    if first not in found:
        return "-"
    means = {seed: 100 * along(cell, tokens) for seed, cell in found.items()}
    every = f"; {fmean(means.values()):.0f} % ({len(means)} seeds)" if len(means) > 1 else ""
    return f"{means[first]:.0f} %{every}"


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
            rate = changed.get("learning_rate", section["learning_rate"])
            settings = section["tasks"][task]
            after = found(name, rate, changed["label"])
            if not after:
                continue
            tokens = settings["tokens"]
            seeds, _, _, end, untaught, *_, mean = _summary(after, tokens)
            before = found(name, rate, changed.get("unchanged", ""))
            beside = {
                other: found(other, rate, changed[other])
                for other in ("vine", "lockstep")
                if other in changed and name != other
            }
            if name != "at_grpo":
                beside["at_grpo"] = found("at_grpo", rate)
            others = [
                _minus(beside[other], after, tokens) if beside.get(other) else ""
                for other in ("vine", "lockstep", "at_grpo")
            ]
            label = table["variants"][name]["label"]
            row = [settings["label"], reward, label, f"{rate:g}", changed["label"]]
            rows.append([*row, seeds, end, untaught, mean, _minus(after, before, tokens), *others])
    head = ["task", "reward", "variant", "rate", "changed", "seeds", "at the end (95 %); seeds"]
    head += ["one role untaught", "mean over the tokens", "minus unchanged, paired (95 %)"]
    names = ("vine", "lockstep", "AT-GRPO")
    head += [f"{name} minus it, paired (95 %)" for name in names]
    return markdown(head, rows)


def _tiny_fresh(table: Table, cells: Cells) -> str:
    """Return how two variants differ on seeds that were known, on fresh ones, and on all."""
    section, rows = table["tiny"], list[list[str]]()
    fresh = section["fresh"]
    one, other = fresh["variants"]
    every = all_seeds(table)
    more = [seed for seed in every if seed not in (*table["seeds"], *fresh["seeds"])]
    parts = [some for some in (table["seeds"], fresh["seeds"], more) if some]
    for task, label in fresh["rows"].items():
        settings = section["tasks"][task]
        of = {
            name: ends_of(table, cells, task, fresh["reward"], name, changed=label, seeds=every)
            for name in (one, other)
        }
        if not any(seed in of[one] for seed in fresh["seeds"]):
            continue
        ends = [_summary(found, settings["tokens"])[3:5] for found in of.values()]
        between = [
            _minus(*(_at(found, some) for found in of.values()), settings["tokens"])
            for some in (*parts, every)
        ]
        rows.append([settings["label"], label, *ends[0], ends[1][0], *between])
    names = [table["variants"][name]["label"] for name in (one, other)]
    head = ["task", "changed", f"{names[0]}: at the end (95 %); seeds", "one role untaught"]
    head += [f"{names[1]}: at the end"]
    head += [f"difference, seeds {min(some)} to {max(some)} (95 %)" for some in parts]
    head += ["difference, all seeds (95 %)"]
    return markdown(head, rows)


def _at(found: Mapping[int, Any], seeds: Sequence[int]) -> dict[int, Any]:
    return {seed: found[seed] for seed in seeds if seed in found}


def _summary(found: Mapping[int, Any], tokens: float) -> list[str]:
    last = [(share, levels) for cell in found.values() for _, share, levels in cell["curve"][-1:]]
    before = fmean(cell["curve"][0][1] for cell in found.values())
    of_v = fmean(cell["value_share"] for cell in found.values())
    r2 = [cell["r2"] for cell in found.values() if cell.get("r2") is not None]
    untaught = [cell["untaught"] for cell in found.values() if "untaught" in cell]
    roles = {role: fmean(of[role] for of in untaught) for role in (untaught or [{}])[0]}
    mean = fmean(along(cell, tokens) for cell in found.values())
    return [
        str(len(found)),
        f"{fmean(cell['curve'][-1][0] for cell in found.values()):,.0f}",
        f"{100 * before:.0f} %",
        pooled(last),
        ", ".join(f"{role} {100 * share:.0f} %" for role, share in roles.items()),
        f"{100 * of_v:.0f} %" if of_v else "",
        f"{fmean(r2):.2f} ({len(r2)})" if r2 else "",
        f"{100 * mean:.0f} %",
    ]


def _minus(found: Mapping[int, Any], other: Mapping[int, Any], tokens: float) -> str:
    """Return the difference of two rows; of how many seeds, if some have one of them only."""
    between = differences(found, other, tokens)
    num = max(len(found), len(other))
    return paired(between) + (f", {len(between)} of {num} seeds" if 0 < len(between) < num else "")


TINY_TABLES = {
    "overview": overview_table,
    "tiny": _tiny,
    "tiny_rates": _rates,
    "tiny_ablations": _tiny_ablations,
    "tiny_fresh": _tiny_fresh,
    "figure": figure_table,
}
"""Name of a block of the page -> what makes its table."""
