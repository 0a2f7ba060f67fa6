"""Who is trained with whom: Figure 1 of the paper with tiny models, its abstract with SmolLM2."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from statistics import fmean
from typing import Any, NamedTuple

from documents import markdown, result

from credit_study.intervals import holm, p_value, paired
from credit_study.tables import TABLE, at_tokens, caption, results
from pettingllms.evaluation.statistics import Interval, mean_interval

Cell = Mapping[str, Any]
_BARS = {"single": "one agent", "team": "team, a policy per role"}
_BESIDE = {
    "shared": "team, one policy",
    "team, reinforce": "team, by whole episodes",
    "team, auto": "team, `auto`",
}
_TASKS = {"plan_path": "planning", "math": "mathematics", "code": "code"}
_LEVEL, _FEWEST = 0.05, 3


class Line(NamedTuple):
    """A row of a table: success before and after training."""

    who: str
    tokens: float
    """Sampled tokens, a mean over seeds."""
    before: list[float]
    """Success of each seed before training, in [0, 1]."""
    after: list[float]
    """Success of each seed after it."""
    early: Sequence[float] = ()
    """Success of each seed after a third of the tokens; empty where it is not shown."""


class Bar(NamedTuple):
    """A bar of the picture."""

    label: str
    kind: str
    """Its CSS classes."""
    success: Interval
    """Success over seeds."""


def _cells(task: str, plays: str) -> list[Cell]:
    """The cells of a task of the abstract, by seed; none unless three seeds or more are there.

    Of the four bars, the seeds that both kinds of play have: their pairs are compared.
    """
    section = TABLE["abstract"]
    found = result("credit_abstract")["cells"]
    seeds, needed = section["beside_seeds"], (plays,)
    if plays in _BARS:
        seeds, needed = section["seeds"], tuple(_BARS)
    both = [s for s in seeds if all(f"abstract|{task}|{one}|{s}" in found for one in needed)]
    return [found[f"abstract|{task}|{plays}|{s}"] for s in both] if len(both) >= _FEWEST else []


def _trained(who: str, cells: Sequence[Cell], tokens: float | None = None) -> Line:
    """Success before training and after so many tokens, between evaluations; None: at its end."""
    ends = [tokens or cell["curve"][-1][0] for cell in cells]
    after = [at_tokens(cell, end) for cell, end in zip(cells, ends, strict=True)]
    return Line(who, fmean(ends), [cell["curve"][0][1] for cell in cells], after)


def _lines(
    by_play: Mapping[str, Sequence[Cell]], roles: Sequence[str], tokens: float | None = None
) -> Iterator[Line]:
    """Every kind of play that has cells; the team also with its policies exchanged."""
    for plays, who in {**_BARS, **_BESIDE}.items():
        if cells := by_play[plays]:
            yield _trained(who, cells, tokens)
        if cells and plays == "team":
            line = _trained("the same, policies exchanged", cells)
            yield line._replace(tokens=0, after=[cell["swapped"] for cell in cells])
    if apart := by_play["apart"]:
        yield from (_trained(f"{role} alone", [cell[role] for cell in apart]) for role in roles)
        tokens = fmean(sum(cell[role]["tokens"] for role in roles) for cell in apart)
        before, after = ([cell["joined"][at] for cell in apart] for at in ("before", "after"))
        yield Line("both, trained alone and then joined", tokens, before, after)


def _table(found: Mapping[str, Sequence[Line]]) -> str:
    """The lines of every task, if it has a name, with gains that are corrected together."""
    lines = [(task, line) for task, of in found.items() for line in of]
    gains = [[b - a for a, b in zip(line.before, line.after, strict=True)] for _, line in lines]
    corrected = holm([*map(p_value, gains)])
    seeds = {len(gain) for gain in gains}
    differ, has_early = len(seeds) > 1, any(line.early for _, line in lines)
    rows = [
        [
            *([task] if task else []),
            line.who,
            f"{line.tokens:,.0f}",
            *([str(len(line.after))] if differ else []),
            _shown(line.before),
            *([_shown(line.early) if line.early else ""] if has_early else []),
            _shown(line.after),
            f"**{paired(gain)}**" if p < _LEVEL else paired(gain),
        ]
        for (task, line), gain, p in zip(lines, gains, corrected, strict=True)
    ]
    head = ["task"] if any(found) else []
    head += ["who is trained, by AT-GRPO unless named", "sampled tokens"]
    head += [*(["seeds"] if differ else []), "before"]
    head += [*(["after a third"] if has_early else []), "after", "gain"]
    num = "" if differ else f"of {max(seeds, default=0)} seeds "
    note = (
        f"\nMeans {num}with 95 % t-intervals; gains in points, **bold** where Holm's correction "
        "over the table leaves them.\n"
    )
    return markdown(head, rows) + note


def _shown(values: Sequence[float]) -> str:
    one = mean_interval(values)
    low, high = 100 * max(0, one.low), 100 * min(1, one.high)
    return f"{100 * one.value:.0f} % ({low:.0f} to {high:.0f})"


def credit_figure_1() -> str:
    """Tiny models: who was trained with whom, and what is solved before and after."""
    found = results()
    by_play = {plays: found.of("figure", plays) for plays in (*_BARS, *_BESIDE, "apart")}
    return _table({"": [*_lines(by_play, ("tool", "planner"))]}) + caption(found.data)


def _abstract() -> dict[str, dict[str, list[Cell]]]:
    """Task -> kind of play -> its cells, for all tasks whose four bars are complete."""
    found = {task: {plays: _cells(task, plays) for plays in _BARS} for task in _TASKS}
    return {task: of for task, of in found.items() if all(of.values())}


def credit_abstract() -> str:
    """SmolLM2: what the team and a single agent solve before and after, by task."""
    tokens = {task: TABLE["abstract"]["tasks"][task]["tokens"] for task in _TASKS}
    found = {
        _TASKS[task]: [_trained(who, by_play[plays], tokens[task]) for plays, who in _BARS.items()]
        for task, by_play in _abstract().items()
    }
    return _table(found) + caption(result("credit_abstract"))


def abstract_beside() -> str:
    """SmolLM2: the team trained in other ways, on equal seeds, after a third of the tokens and all.

    In planning all ways end alike, and differ in how soon.
    """
    found: dict[str, list[Line]] = {}
    for task, bars in _abstract().items():
        section = TABLE["abstract"]["tasks"][task]
        beside = {plays: _cells(task, plays) for plays in (*_BESIDE, "apart")}
        team = bars["team"][: len(TABLE["abstract"]["beside_seeds"])]
        by_play = {**beside, "single": [], "team": team}
        third = _lines({**by_play, "apart": []}, [], section["tokens"] / 3)
        early = {line.who: line.after for line in third if line.tokens}
        ends = _lines(by_play, [*section["alone"]], section["tokens"])
        found[_TASKS[task]] = [end._replace(early=early.get(end.who, ())) for end in ends]
    return _table(found)


def abstract_said() -> str:
    """What the first team says on a held-out level that only training lets it solve, by task."""
    parts = []
    for task, by_play in _abstract().items():
        said = by_play["team"][0].get("said")
        if not said:
            continue
        before, after = (exchange["said"] for exchange in said)
        rows = [
            [(a or b)["agent"], *(_code(one["answer"]) if one else "" for one in (b, a))]
            for b, a in zip_longest(before, after)
        ]
        question = before[0]["asked"].rpartition("\n\n")[2]
        head = ["agent", "after the warm start: failed", "after training: solved"]
        parts.append(f"{_TASKS[task]}: {_code(question)}\n\n{markdown(head, rows)}")
    return "\n".join(parts)


def _code(text: str) -> str:
    """A text in a cell of a table, as it was written."""
    lines = (line.replace("|", "\\|") for line in text.splitlines())
    return "<br>".join(f"`` {line} ``" for line in lines if line.strip())


def abstract_bars() -> dict[str, list[Bar]]:
    """Task -> its four bars: one agent and the team, each before and after training."""
    found: dict[str, list[Bar]] = {}
    for task, by_play in _abstract().items():
        found[_TASKS[task]] = bars = []
        for plays, who in (("single", "one agent"), ("team", "team")):
            line = _trained(who, by_play[plays], TABLE["abstract"]["tasks"][task]["tokens"])
            bars.append(Bar(f"{who}, warm-started", f"{plays} before", mean_interval(line.before)))
            bars.append(Bar(f"{who}, trained", plays, mean_interval(line.after)))
    return found


TABLES = {
    of.__name__: of for of in (credit_figure_1, credit_abstract, abstract_beside, abstract_said)
}
"""Name of a table in the documents -> what makes it."""
