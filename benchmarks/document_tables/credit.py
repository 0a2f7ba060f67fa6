"""The tables of the exact layer of the study of credit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from credit_study.intervals import paired
from credit_study.rows import at_rate

from document_tables.credit_cells import (
    TABLE,
    Family,
    Place,
    Value,
    at_end,
    greedy,
    label_of,
    over_budgets,
    results,
)
from document_tables.markdown import markdown

_WHOLE = "reinforce"
_REWARDS = ("shaped", "outcome")
_FEW = ("reinforce", "lockstep", "at_grpo")
_MORE = "16 times"
_MEAN = f"its mean after {', '.join(f'{budget:,}' for budget in TABLE['exact']['budgets'])}"


def credit_exact() -> str:
    """Return success by way under both kinds of reward, and how far from whole episodes."""
    return _compared(_REWARDS)


def credit_distractors() -> str:
    """Return the same where steps pay something beside the outcome."""
    return _compared(("noise_0.001", "noise_0.01", "noise_0.1", "length", "format", "taste"))


def _compared(names: Sequence[str]) -> str:
    found, ways = results("exact"), TABLE["exact"]["ways"]
    names = [name for name in names if found.has(name, _WHOLE)]
    places = [(name, way) for name in names for way in ways if found.has(name, way)]
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
    """Return how far two ways are from whole episodes at every learning rate of the selection."""
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
    """Return where the cells of a way at a rate are: the chosen one is what the way goes by."""
    found, place = results("exact"), (name, at_rate(way, rate))
    is_chosen = not found.has(*place) and any(c["rate"] == rate for c in found.of(name, way))
    return (name, way) if is_chosen else place


def credit_settings() -> str:
    """Return what one changed setting does on the enumerated levels."""
    found, rows = results("exact"), list[list[str]]()
    for label, before, after, value in _changes():
        if found.has(*before) and found.has(*after):
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
    """Yield what is changed, what by, and what success is measured by afterwards."""
    for name, row in results("exact").rows.items():
        base, comma, change = name.partition(", ")
        if comma and base != "c3":
            label = row["label"].removeprefix(f"{results('exact').rows[base]['label']}, ")
            for way in row["ways"]:
                value = at_end if change == _MORE else over_budgets
                yield label, (base, way), (name, way), value
    for name, label, way, other in (
        ("outcome", "gamma = 0.8", "reinforce", "reinforce_gamma"),
        ("outcome", "gamma = 0.8", "lockstep", "lockstep_gamma"),
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
    """Return C3 beside whole episodes, by turns, ability of the team, and what is counted."""
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


def credit_bias() -> str:
    """Return cosines of expected updates of trees with the true gradient."""
    sizes, rows = TABLE["exact"]["num_candidates"], list[list[str]]()
    for reward in _REWARDS:
        found = results("exact").cells.get(f"bias|{reward}", {}).get("cosines", {})
        for name in dict.fromkeys(key.rpartition(", ")[0] for key in found):
            branch, credit, norm = name.split(", ")
            credit = "true V" if credit == "value" else "step"
            means = [f"{found[f'{name}, {size}']['mean']:.2f}" for size in sizes]
            rows.append([reward, branch, credit, norm, *means])
    return markdown(["reward", "branch", "credit", "norm", *(f"K = {k}" for k in sizes)], rows)


def credit_noise() -> str:
    """Return bias and noise of sampled updates, by way."""
    found, rows = results("exact").cells, list[list[str]]()
    for way in TABLE["exact"]["noise_ways"]:
        cells = [found.get(f"noise|{reward}|{way}", {}) for reward in _REWARDS]
        values = [cell.get(what) for cell in cells for what in ("cosine", "noise")]
        rows.append([label_of(way), *("-" if of is None else f"{of:.2f}" for of in values)])
    head = [f"{what}, {reward}" for reward in _REWARDS for what in ("cosine", "noise")]
    return markdown(["algorithm", *head], rows)


def credit_lemma() -> str:
    """Return in how many decisions the best reward of a step is best in the end."""
    rows: list[list[str]] = []
    for case in TABLE["exact"]["lemma"]:
        for team in case["teams"]:
            found = results("exact").cells.get(f"lemma|{case['label']}|{team}")
            for role, (nodes, *kinds) in found["nodes"].items() if found else ():
                shares = [f"{100 * n / nodes:.1f} %" for n in kinds]
                greedy = f"{found['greedy_solves']} of {found['solvable']}"
                rows.append([case["label"], team, role, str(nodes), *shares, greedy])
    head = ["levels", "team", "role", "decisions", "best return", "best success", "greedy solves"]
    return markdown(head, rows)
