"""The tables of the study of credit: results by row and way, and what documents show of them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from statistics import fmean
from typing import Any

import numpy as np
from documents import RESULTS, markdown, result

from credit_study.intervals import holm, p_value, paired
from credit_study.rows import at_rate, read_table, ways_of

TABLE = read_table()
Cell = Mapping[str, Any]
Place = tuple[str, str]
"""Row and way."""
Value = Callable[[Cell], float]
_LEVEL = 0.05


class Results:
    """The cells of a layer.

    Args:
        layer: A layer of the study.
    """

    def __init__(self, layer: str) -> None:
        self.layer = layer
        path = RESULTS / f"credit_{layer}.json"
        self.data: dict[str, Any] = result(path.stem) if path.is_file() else {"cells": {}}
        self.cells: Mapping[str, Cell] = self.data["cells"]
        self._by_seed: dict[Place, dict[int, Cell]] = defaultdict(dict)
        for key, cell in self.cells.items():
            kind, *place = key.split("|")
            if kind in ("exact", "tiny"):
                name, way, seed = place
                self._by_seed[name, way][int(seed)] = cell
        self.rows = {
            row["name"]: row for row in TABLE["exact" if layer == "exact" else "tiny"]["rows"]
        }

    def of(self, name: str, way: str) -> list[Cell]:
        """The cells of a row and way, by seed."""
        return [cell for _, cell in sorted(self._by_seed[name, way].items())]

    def has(self, name: str, way: str) -> bool:
        """Whether all seeds of a row and way are there."""
        found = self._by_seed.get((name, way), {})
        return set(found) == set(self.rows[name].get("seeds", TABLE["seeds"]))

    def is_complete(self, name: str) -> bool:
        """Whether all ways of a row are there."""
        row, section = self.rows[name], TABLE["exact" if self.layer == "exact" else "tiny"]
        found = [self.has(name, way) for way in row.get("plays", ways_of(section, row))]
        return all(found)

    def mean(self, place: Place, value: Value) -> float:
        """The mean over seeds of what a value takes from a cell, in percent."""
        return 100 * fmean(map(value, self.of(*place)))

    def differences(self, place: Place, other: Place, value: Value) -> list[float]:
        """The differences of two places, by the seeds that both have."""
        # Paired by seed: levels differ more than ways.
        ours, theirs = self._by_seed[place], self._by_seed[other]
        return [value(ours[s]) - value(theirs[s]) for s in sorted(set(ours) & set(theirs))]

    def caption(self) -> str:
        """When and how the cells were computed."""
        if not self.cells:
            return "\nNot measured yet.\n"
        hours = sum(cell["processor_seconds"] for cell in self.cells.values()) / 3600
        commits = Counter(cell["commit"][:9] for cell in self.cells.values())
        at = ", ".join(f"{commit} ({number:,})" for commit, number in commits.most_common())
        again = sum("found_again" in cell for cell in self.cells.values())
        note = f"; {again:,} came out equal when a later one computed them again" if again else ""
        return (
            f"\nMeasured until {self.data['date']}, {self.data['hardware']}, with "
            f"`{self.data['command']}`: {len(self.cells):,} cells, {hours:.1f} h. "
            f"Commits (cells): {at}{note}.\n"
        )


@lru_cache(maxsize=4)
def results(layer: str) -> Results:
    """The cells of a layer, read once."""
    return Results(layer)


def label_of(way: str) -> str:
    """What documents call a way."""
    return TABLE["ways"][way]["label"]


def at_end(cell: Cell) -> float:
    """The success of a trial after its largest budget."""
    return cell["success"][max(cell["success"], key=int)]


def greedy(cell: Cell) -> float:
    """The success of a trial in the end when the likeliest answers are given."""
    return cell["greedy"]


def over_budgets(cell: Cell) -> float:
    """The mean success of a trial over its budgets."""
    return fmean(cell["success"].values())


def at_tokens(cell: Cell, tokens: float) -> float:
    """The success of a training at a number of tokens, between its evaluations."""
    return float(np.interp(tokens, *zip(*((x, y) for x, y, _ in cell["curve"]), strict=True)))


def over_tokens(cell: Cell, tokens: float) -> float:
    """The mean success of a training up to a number of tokens."""
    return fmean(at_tokens(cell, at) for at in np.linspace(0, tokens, 200))


class Family:
    """Differences of one table, corrected together.

    Args:
        found: Place to its differences.
    """

    def __init__(self, found: Mapping[Place, Sequence[float]]) -> None:
        self._found = found
        self._p = dict(zip(found, map(p_value, found.values()), strict=True))
        self._corrected = dict(zip(found, holm([*self._p.values()]), strict=True))

    def shown(self, place: Place) -> str:
        """A difference with its interval, in bold if the correction leaves it."""
        if place not in self._found:
            return ""
        # Bold by the corrected value, while the interval is that of the difference alone.
        text = paired(self._found[place])
        return f"**{text}**" if self._corrected[place] <= _LEVEL else text

    def note(self) -> str:
        """How to read the differences."""
        alone, left = (sum(p <= _LEVEL for p in of.values()) for of in (self._p, self._corrected))
        text = "Differences in points, paired by seed, with 95 % t-intervals. "
        return (
            f"{text}The family is all {len(self._found)} of this table: one by one {alone} exclude "
            f"0; in **bold** the {left} that Holm's correction leaves.\n"
        )


_COMPARED = "at_grpo"
WAYS = (*TABLE["tiny"]["ways"], "reinforce_step")
_OTHERS = [way for way in WAYS if way != _COMPARED]
_EVERY = [row for row in TABLE["tiny"]["rows"] if "plays" not in row]
_PLAYS = {"single": "one agent", "shared": "team, one policy", "team": "team, a policy per role"}


def credit_tiny() -> str:
    """The rows of the tiny layer that are complete, and which are not."""
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
    """The rows of ways that have all their cells."""
    return [row for row in _EVERY if found.is_complete(row["name"])]


def tokens_of(row: Mapping[str, Any]) -> int:
    """The budget of a row."""
    return TABLE["tiny"]["tasks"][row["task"]]["tokens"]


def credit_figure_1() -> str:
    """Who was trained with whom, and what is solved before and after."""
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


_WHOLE = "reinforce"
_REWARDS = ("shaped", "outcome")
_FEW = ("reinforce", "at_grpo")
_MORE = "16 times"
_MEAN = f"its mean after {', '.join(f'{budget:,}' for budget in TABLE['exact']['budgets'])}"


def credit_exact() -> str:
    """Success by way under both kinds of reward, and how far from whole episodes."""
    return _compared(_REWARDS)


def credit_distractors() -> str:
    """The same where steps pay something beside the outcome."""
    return _compared(("noise_0.001", "noise_0.01", "noise_0.1", "length", "format", "taste"))


def _compared(names: Sequence[str]) -> str:
    found, ways = results("exact"), TABLE["exact"]["ways"]
    # Without what they are compared with, a column says nothing.
    names = [name for name in names if found.has(name, _WHOLE)]
    places = [(name, way) for name in names for way in ways if found.has(name, way)]
    # A table that is being computed says so.
    missing = len(names) * len(ways) - len(places)
    ways = [way for way in ways if any(way == other for _, other in places)]
    family = Family(
        {
            (name, way): found.differences((name, way), (name, _WHOLE), over_budgets)
            for name, way in places
            if way != _WHOLE
        }
    )

    def shown(*place: str) -> str:
        name, way = place
        if not found.has(name, way):
            return "not yet"
        end, mean = (found.mean((name, way), value) for value in (at_end, over_budgets))
        text = f"{end:.0f} % ({mean:.0f} %)"
        return text if way == _WHOLE else f"{text}, {family.shown((name, way))}"

    rows = [[label_of(way), *(shown(name, way) for name in names)] for way in ways]
    head = ["algorithm", *(found.rows[name]["label"] for name in names)]
    note = (
        f"\nSuccess after {max(TABLE['exact']['budgets']):,} completions, in brackets {_MEAN}, and "
    )
    note += f"by how much that mean is above that of whole episodes. {family.note()}"
    note += f"{missing} places are still being computed.\n" if missing else ""
    return markdown(head, rows) + note + found.caption()


def credit_rates() -> str:
    """How far two ways are from whole episodes at every learning rate of the selection."""
    found, section, rows = results("exact"), TABLE["exact"], list[list[str]]()
    for row in section["rows"]:
        for way in section["rate_ways"] if "ways" not in row else ():
            pairs = [
                (_at(row["name"], way, rate), _at(row["name"], _WHOLE, rate))
                for rate in section["rates"]
            ]
            if way != _WHOLE and all(found.has(*place) for pair in pairs for place in pair):
                minus = (paired(found.differences(*pair, over_budgets)) for pair in pairs)
                rows.append([row["label"], label_of(way), *minus])
    head = ["rewards", "algorithm", *(f"rate {rate:g}" for rate in section["rates"])]
    note = f"\nSuccess, {_MEAN}, minus that of whole episodes at the same rate, in points, paired "
    return markdown(head, rows) + note + "by seed, with 95 % t-intervals, one by one.\n"


def _at(name: str, way: str, rate: float) -> Place:
    """Where the cells of a way at a rate are: the chosen one is what the way goes by."""
    found, place = results("exact"), (name, at_rate(way, rate))
    is_chosen = not found.has(*place) and any(c["rate"] == rate for c in found.of(name, way))
    return (name, way) if is_chosen else place


def credit_settings() -> str:
    """What one changed setting does on the enumerated levels."""
    found, rows = results("exact"), list[list[str]]()
    for label, before, after, value in _changes():
        if found.has(*before) and found.has(*after):
            # A longer run is compared by its end: its mean has other budgets.
            old = over_budgets if value == over_budgets else at_end
            pairs = zip(found.of(*after), found.of(*before), strict=True)
            minus = paired([value(one) - old(other) for one, other in pairs])
            shares = [f"{found.mean(before, old):.0f} %", f"{found.mean(after, value):.0f} %"]
            reward = found.rows[before[0]]["label"]
            rows.append([reward, label_of(before[1]), label, *shares, minus])
    head = ["rewards", "algorithm", "changed", "before", "after", "difference (95 %)"]
    note = f"\nSuccess, {_MEAN}; in the end for the last rows. Intervals hold one by one.\n"
    return markdown(head, rows) + note + found.caption()


def _changes() -> Iterator[tuple[str, Place, Place, Value]]:
    """What is changed, what by, and what success is measured by afterwards."""
    for name, row in results("exact").rows.items():
        base, comma, change = name.partition(", ")
        if comma and base != "c3":
            label = row["label"].removeprefix(f"{results('exact').rows[base]['label']}, ")
            for way in row["ways"]:
                value = at_end if change == _MORE else over_budgets
                yield label, (base, way), (name, way), value
    for name, label, way, other in (
        ("outcome", "gamma = 0.8", "reinforce", "reinforce_gamma"),
        ("shaped", "random branch", "at_grpo", "tree_random"),
        ("shaped", "K = 2", "at_grpo", "at_grpo_k2"),
        ("shaped", "K = 8", "at_grpo", "at_grpo_k8"),
        ("shaped", "groups by agent", "reinforce_step", "groups_agent"),
        ("shaped", "groups by turn", "reinforce_step", "groups_turn"),
        ("shaped", "one group", "reinforce_step", "groups_none"),
    ):
        yield label, (name, way), (name, other), over_budgets
    for name in _REWARDS:
        for way in _FEW:
            yield "evaluated by the likeliest answers", (name, way), (name, way), greedy


def credit_c3() -> str:
    """C3 beside whole episodes, by turns, ability of the team, and what is counted."""
    found, ways = results("exact"), ("magrpo", "c3", "c3_k8", "c3_once")
    names = ["outcome", *(name for name in found.rows if name.startswith("c3"))]
    names = [name for name in names if all(found.has(name, way) for way in (_WHOLE, *ways))]
    family = Family(
        {
            (name, way): found.differences((name, way), (name, _WHOLE), over_budgets)
            for name in names
            for way in ways
        }
    )
    rows = [
        [
            found.rows[name]["label"] if name != "outcome" else "four turns",
            f"{found.mean((name, _WHOLE), over_budgets):.0f} %",
            *(family.shown((name, way)) for way in ways),
        ]
        for name in names
    ]
    head = ["levels", label_of(_WHOLE), *(f"{label_of(way)}, minus these" for way in ways)]
    note = f"\nSuccess by the outcome, {_MEAN}. {family.note()}"
    return markdown(head, rows) + note + found.caption()


TABLES: Mapping[str, Callable[[], str]] = {
    of.__name__: of
    for of in (
        credit_tiny,
        credit_figure_1,
        credit_exact,
        credit_distractors,
        credit_rates,
        credit_settings,
        credit_c3,
    )
}
"""Name of a table in the documents -> what makes it."""
