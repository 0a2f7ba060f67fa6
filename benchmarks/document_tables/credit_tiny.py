"""The tables of the tiny layer of the study of credit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from statistics import fmean
from typing import Any

from document_tables.credit_cells import (
    TABLE,
    Family,
    Results,
    at_tokens,
    label_of,
    over_tokens,
    results,
)
from document_tables.markdown import markdown

_COMPARED = "lockstep"
WAYS = (*TABLE["tiny"]["ways"], "reinforce_step")
_OTHERS = [way for way in WAYS if way != _COMPARED]
_EVERY = [row for row in TABLE["tiny"]["rows"] if "plays" not in row]
_PLAYS = {"single": "one agent", "shared": "team, one policy", "team": "team, a policy per role"}


def credit_tiny() -> str:
    """Return the rows of the tiny layer that are complete, and which are not."""
    found = results("tiny")
    rows = complete_rows(found)
    if not rows:
        return "No row is complete yet.\n"
    budgets = {row["name"]: tokens_of(row) for row in rows}
    family = Family(
        {
            (name, way): found.differences(
                (name, _COMPARED), (name, way), partial(over_tokens, tokens=tokens)
            )
            for name, tokens in budgets.items()
            for way in _OTHERS
            if found.has(name, way)
        },
    )

    def shown(name: str, way: str) -> str:
        if not found.has(name, way):
            return ""
        values = (partial(of, tokens=budgets[name]) for of in (at_tokens, over_tokens))
        end, mean = (found.mean((name, way), value) for value in values)
        return f"{end:.0f} % ({mean:.0f} %)"

    used = [way for way in WAYS if any(found.has(row["name"], way) for row in rows)]
    others = [way for way in used if way != _COMPARED]
    lines = [
        [
            row["label"],
            f"{budgets[name]:,}",
            str(len(found.of(name, _COMPARED))),
            *(shown(name, way) for way in used),
            *(family.shown((name, way)) for way in others),
        ]
        for row in rows
        for name in [row["name"]]
    ]
    head = ["task, rewards", "tokens", "seeds", *map(label_of, used)]
    head += [f"{label_of(_COMPARED)} minus {label_of(way)}" for way in others]
    missing = [row["label"] for row in _EVERY if row not in rows]
    note = "\nSuccess at the budget of sampled tokens, in brackets its mean up to there, of which "
    note += f"differences are. {family.note()}"
    note += f"Not yet in it: {'; '.join(missing)}.\n" if missing else ""
    return markdown(head, lines) + note + found.caption()


def complete_rows(found: Results) -> list[Mapping[str, Any]]:
    """Return the rows of ways that have all their cells."""
    return [row for row in _EVERY if found.is_complete(row["name"])]


def tokens_of(row: Mapping[str, Any]) -> int:
    """Return the budget of a row."""
    return TABLE["tiny"]["tasks"][row["task"]]["tokens"]


def credit_figure_1() -> str:
    """Return who was trained with whom, and what is solved before and after."""
    found = results("tiny")
    lines: list[list[str]] = []

    def line(label: str, tokens: float, before: Sequence[float], after: Sequence[float]) -> None:
        ends = f"{100 * min(after):.0f} to {100 * max(after):.0f}"
        shares = [f"{100 * fmean(before):.0f} %", f"{100 * fmean(after):.0f} % ({ends})"]
        lines.append([label, f"{tokens:,.0f}", str(len(after)), *shares])

    def trained(label: str, cells: Sequence[Mapping[str, Any]]) -> None:
        firsts, lasts = zip(*((cell["curve"][0], cell["curve"][-1]) for cell in cells), strict=True)
        tokens = fmean(tokens for tokens, *_ in lasts)
        line(label, tokens, [share for _, share, _ in firsts], [share for _, share, _ in lasts])

    for plays, label in _PLAYS.items():
        trained(label, found.of("figure", plays))
    swapped = [cell["swapped"] for cell in found.of("figure", "team")]
    line(
        "the same, policies exchanged",
        0,
        [cell["curve"][0][1] for cell in found.of("figure", "team")],
        swapped,
    )
    apart = found.of("figure", "apart")
    for role, label in (("tool", "tool agent alone"), ("planner", "planner alone")):
        trained(label, [cell[role] for cell in apart])
    tokens = fmean(sum(cell[role]["tokens"] for role in ("tool", "planner")) for cell in apart)
    joined = [cell["joined"] for cell in apart]
    befores, afters = ([of[moment] for of in joined] for moment in ("before", "after"))
    line("both, trained alone and then joined", tokens, befores, afters)
    head = ["who is trained, by AT-GRPO", "sampled tokens", "seeds", "before", "after (seeds)"]
    return markdown(head, lines) + found.caption()
