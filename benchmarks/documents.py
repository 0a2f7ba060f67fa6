"""Result files in documents: reading them, captions, Markdown, and how figures are shown."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

import pettingllms

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"

Figures = Mapping[str, float]


@cache
def result(name: str) -> dict[str, Any]:
    """The content of `benchmarks/results/<name>.json`."""
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def declared(path: str) -> dict[str, Any]:
    """The tables of a TOML file of the repository, which tests read too."""
    return tomllib.loads((ROOT / path).read_text(encoding="utf-8"))


def head(*names: str) -> str:
    """The first two lines of a Markdown table, without the last line end."""
    return f"| {' | '.join(names)} |\n| {' | '.join(['---'] * len(names))} |"


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = (f"| {' | '.join(row)} |\n" for row in rows)
    return f"{head(*header)}\n{''.join(lines)}"


def caption(data: Mapping[str, Any], hardware: str = "") -> str:
    """When, where and by which command a result was measured, without the last line end."""
    where, command = hardware or data["hardware"], data["command"].strip()
    return f"\nMeasured on {data['date']}, {where}, with `{command}`."


def share(figures: Figures) -> str:
    low, mid, high = (
        f"{100 * figures[key]:.1f}" for key in ("success_low", "success", "success_high")
    )
    return f"{mid} % ({low} to {high})"


def part(figures: Figures, digits: int = 1) -> str:
    low, mid, high = (f"{100 * figures[key]:.{digits}f}" for key in ("low", "value", "high"))
    return f"{mid} % ({low} to {high})"


def ratio(figures: Figures) -> str:
    low, mid, high = (f"{figures[key]:.3g}" for key in ("min", "median", "max"))
    return f"{mid}x ({low} to {high})"


def middle(figures: Figures) -> str:
    return "{median:.2f} ({min:.2f} to {max:.2f})".format(**figures)


def points(values: Sequence[float]) -> str:
    """Mean, lowest and highest in points; one figure where all agree."""
    low, mid, high = (f"{100 * of(values):.0f}" for of in (min, fmean, max))
    return mid if low == high else f"{mid} ({low} to {high})"


def ends(values: Sequence[float]) -> str:
    """The lowest and the highest share, or one figure where all agree."""
    low, high = (f"{100 * of(values):.0f}" for of in (min, max))
    return " to ".join(dict.fromkeys((low, high))) + " %"


def ensemble_cells(data: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Sizes, few tool users first, with their cells by seed; those without all seeds are left out.

    The seeds are those of the first size.
    """
    found: dict[str, dict[str, Any]] = {}
    for key in sorted(data["cells"], key=lambda key: key.partition("|")[0].split("+")[::-1]):
        size, _, seed = key.partition("|")
        found.setdefault(size, {})[seed] = data["cells"][key]
    seeds = sorted(next(iter(found.values())))
    return {
        size: [of[seed] for seed in seeds] for size, of in found.items() if of.keys() >= set(seeds)
    }


def entry(source: str) -> Any:
    """A measured ratio, by result file and keys divided by dots."""
    name, *keys = source.split(".")
    found: Any = result(name)
    for key in keys:
        found = found[key]
    return found


def games() -> Iterator[tuple[str, Any]]:
    """Id and class of every built-in environment."""
    for env_id in pettingllms.registered_ids():
        spec = pettingllms.spec(env_id)
        if spec.package == "pettingllms":
            yield env_id, spec.load()


def leaderboard_entries() -> list[dict[str, Any]]:
    """The entries of the leader board, suite by suite, the best first."""
    paths = (ROOT / "benchmarks" / "leaderboard").glob("*.json")
    entries = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
    return sorted(entries, key=lambda one: (one["suite"], -one["score"]["value"], one["name"]))


def cheapest(data: Mapping[str, Any]) -> Iterator[tuple[str, str, float, str, str]]:
    """Of every role: environment, role, largest share of the oracle's pay, level, policy."""
    found: dict[tuple[str, str], list[tuple[float, str, str]]] = {}
    for case in data["environments"]:
        level = str(next(iter(case["arguments"].values()), "default"))
        for row in case["roles"]:
            policy = row["policy"][row["role"]]
            found.setdefault((case["env"], row["role"]), []).append((row["share"], level, policy))
    # Of all levels the worst: a role is as exploitable as its most exploitable level.
    for place, policies in found.items():
        yield (*place, *max(policies))
