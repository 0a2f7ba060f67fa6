"""The cells of the study: what is to be computed, by a key, and how."""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from credit_study.selection import Cells, Table, best_rate, chosen_rate, rates_of

TABLE = Path(__file__).with_name("table.toml")
LAYERS = ("exact", "tiny", "gpu")
_SECTIONS = ("algorithm", "rollout", "loss", "optimizer")


class Cell(NamedTuple):
    """One thing to compute."""

    key: str
    """Unique; the same in every run of the study."""
    kind: str
    arguments: dict[str, Any]
    """Plain values, so that another process can compute it."""
    is_further: bool = False
    """Whether it is of the further rows of a layer, which are computed when they are asked for."""


def read_table(path: Path = TABLE) -> dict[str, Any]:
    """Return the table of the study."""
    return tomllib.loads(path.read_text(encoding="utf-8"))


def cells_of(table: Table, layer: str, known: Cells) -> list[Cell]:
    """Return all cells of a layer; first seeds first, so that a study that stops is balanced.

    Args:
        table: The table of the study.
        layer: A layer.
        known: Results so far. Learning rates of training follow from those of the first seed, and
            those on fresh levels from the trials on others.
    """
    return _exact(table, known) if layer == "exact" else _training(table, layer, known)


def stages_of(table: Table, layer: str) -> Iterator[Callable[[Cells], list[Cell]]]:
    """Yield functions from results to cells, each for when the cells before are computed."""
    section = {name: part for name, part in table[layer].items() if name != "fresh"}
    seeds = table["seeds"] if layer == "exact" else table["seeds"][:1]
    yield partial(cells_of, {**table, "seeds": seeds, layer: section}, layer)
    yield partial(cells_of, table, layer)


def _exact(table: Mapping[str, Any], known: Cells) -> list[Cell]:
    exact = table["exact"]
    game = {name: value for name, value in exact.items() if name not in ("lemma", "ablations")}
    found = [
        Cell(f"lemma|{case['label']}|{team}", "lemma", {"case": case, "team": team})
        for case in exact["lemma"]
        for team in case["teams"]
    ]
    for reward in exact["rewards"]:
        arguments = {"exact": game, "reward": reward}
        found.append(Cell(f"bias|{reward}", "bias", arguments))
        found += [
            Cell(f"noise|{reward}|{name}", "noise", {**arguments, "keys": _keys(variant)})
            for name, variant in table["variants"].items()
        ]
    for seed, reward, rate, (name, variant) in itertools.product(
        table["seeds"], exact["rewards"], exact["learning_rates"], table["variants"].items()
    ):
        arguments = {
            "exact": game, "keys": _keys(variant), "reward": reward, "rate": rate, "seed": seed
        }  # fmt: skip
        found.append(Cell(f"trial|{reward}|{name}|{rate}|{seed}", "trial", arguments))
    return [*found, *_fresh(table, game, known)]


def _fresh(table: Mapping[str, Any], game: Mapping[str, Any], known: Cells) -> list[Cell]:
    """Return trials on levels that no choice of a variant or a learning rate has seen."""
    fresh = game.get("fresh")
    if fresh is None:
        return []
    every = {"label": "", "variants": list(table["variants"])}
    return [
        Cell(
            f"fresh|{reward}|{name}|{rate:g}|{seed}{_suffix(changed)}",
            "trial",
            {
                "exact": game
                | {"first_level": fresh["first_level"] + seed * game["num_levels"]}
                | {"true_v": changed.get("true_v", False)}
                | {"game": _with_kwargs(game["game"], "kwargs", changed.get("kwargs", {}))},
                "keys": _keys(table["variants"][name], changed),
                "reward": reward,
                "rate": rate,
                "seed": seed,
            },
        )
        for changed in [every, *table["exact"].get("ablations", ())]
        for seed in fresh["seeds"]
        for reward in changed.get("rewards", game["rewards"])
        for name in changed["variants"]
        for rate, trials in [best_rate(table, known, reward, name)]
        if trials
    ]


def _training(table: Table, layer: str, known: Cells) -> list[Cell]:
    section = table[layer]
    apart = ("tasks", "ablations", "figure", "grid", "keys", "fresh", "overview")
    limits = {name: value for name, value in section.items() if name not in apart}
    every = [
        {
            "label": "",
            "tasks": [task],
            "variants": settings.get("variants", section["variants"]),
            "rewards": settings.get("rewards", section["rewards"]),
        }
        for task, settings in section["tasks"].items()
    ]
    found = [
        Cell(
            f"{layer}|{task}|{reward}|{name}|{rate}|{seed}{_suffix(changed)}",
            "training",
            {
                "layer": limits | _plays_untaught(changed),
                "task": _with_kwargs(_task(section, task), "keys", _flags(changed)),
                "keys": _keys(table["variants"][name], changed),
                "reward": reward,
                "rate": rate,
                "seed": seed,
            },
            _is_further(section, changed, task, name) or seed not in table["seeds"],
        )
        for changed in [*every, *section.get("ablations", ()), *_unchanged(section)]
        for task in changed.get("tasks", section["tasks"])
        for reward in changed.get("rewards", section["rewards"])
        for name in changed["variants"]
        for seed in [*table["seeds"], *_fresh_seeds(section, changed, (task, reward, name))]
        for rate in _rates(table, layer, known, changed, seed, (task, reward, name))
    ]
    found += _figure(table, section, limits)
    # What a further row is compared with may be of one that is not.
    unique = {cell.key: cell for cell in sorted(found, key=lambda cell: not cell.is_further)}
    return sorted(unique.values(), key=lambda cell: cell.arguments["seed"])


def _fresh_seeds(
    section: Mapping[str, Any], changed: Mapping[str, Any], of: tuple[str, str, str]
) -> list[int]:
    """Return further seeds of a row, which no choice of rows or learning rates has seen."""
    fresh, (task, reward, name) = section.get("fresh"), of
    if fresh is None or reward != fresh["reward"] or name not in fresh["variants"]:
        return []
    is_row = fresh["rows"].get(task) == changed["label"] and "learning_rate" not in changed
    return [*fresh["seeds"], *fresh.get("more", {}).get(task, ())] if is_row else []


def _is_further(
    section: Mapping[str, Any], changed: Mapping[str, Any], task: str, name: str
) -> bool:
    """Return whether a row is of the further ones: it says so, or its task of the variant."""
    return changed.get("further", False) or name in section["tasks"][task].get("further", ())


def _plays_untaught(changed: Mapping[str, Any]) -> dict[str, bool]:
    """Return whether the roles of an ablation are played untaught, one after the other."""
    return {"plays_untaught": changed.get("plays_untaught", False)} if changed["label"] else {}


def _unchanged(section: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield what rows of ablations are compared with, at their learning rate.

    Only variants that the task has anyway; the rate may be another than the best one of the grid.
    """
    for changed in section.get("ablations", ()):
        names = {"at_grpo"} | ({"vine"} if changed.get("vine") == "" else set())
        if not changed.get("unchanged"):
            names |= set(changed["variants"])
        for task in changed.get("tasks", section["tasks"]):
            of_task = section["tasks"][task].get("variants", section["variants"])
            yield {
                "label": "",
                "learning_rate": changed.get("learning_rate", section["learning_rate"]),
                "tasks": [task],
                "variants": [name for name in of_task if name in names],
                "rewards": changed.get("rewards", section["rewards"]),
                "further": changed.get("further", False),
            }


def _task(section: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return a task with the keys that all tasks of the layer have in common."""
    task = section["tasks"][name]
    return {**task, "keys": {**section.get("keys", {}), **task.get("keys", {})}}


def _rates(
    table: Table,
    layer: str,
    known: Cells,
    changed: Mapping[str, Any],
    seed: int,
    of: tuple[str, str, str],
) -> list[float]:
    """Return the learning rates of a seed: the grid on the first, then the best one of it.

    An ablation has one of its own, and so has what it is compared with.
    """
    task, _, name = of
    if changed["label"] or "learning_rate" in changed:
        return [changed.get("learning_rate", table[layer]["learning_rate"])]
    if seed == table["seeds"][0]:
        return rates_of(table[layer], task, name)
    return [chosen_rate(table, known, layer, *of)]


def _figure(
    table: Mapping[str, Any], section: Mapping[str, Any], limits: Mapping[str, Any]
) -> list[Cell]:
    """Return who is trained with whom: Figure 1 of the paper and its ablation."""
    figure = section.get("figure")
    if figure is None:
        return []
    task = _with_kwargs(_task(section, figure["task"]), "keys", figure.get("keys", {}))
    return [
        Cell(
            f"figure|{name}|{seed}",
            "figure",
            {
                "plays": setting["plays"],
                "limit_s": limits["limit_s"],
                "task": {**task, "config": setting.get("config", task["config"])},
                "keys": _keys(table["variants"][setting["variant"]]),
                "reward": figure["reward"],
                "rate": figure["learning_rate"],
                "seed": seed,
            },
        )
        for seed in table["seeds"]
        for name, setting in figure["settings"].items()
        if "plays" in setting
    ]


def _suffix(changed: Mapping[str, Any]) -> str:
    """Return what an ablation adds to the key of a cell."""
    return f"|{changed['label']}" if changed["label"] else ""


def _flags(changed: Mapping[str, Any]) -> dict[str, Any]:
    return {f"env.kwargs.{name}": value for name, value in changed.get("kwargs", {}).items()}


def _with_kwargs(
    settings: Mapping[str, Any], name: str, kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """Return settings whose entry `name` has further keys."""
    return {**settings, name: {**settings.get(name, {}), **kwargs}} if kwargs else dict(settings)


def _keys(variant: Mapping[str, Any], changed: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the sections of a run file that a variant sets, with those of an ablation."""
    return {
        name: {**variant.get(name, {}), **(changed or {}).get(name, {})}
        for name in _SECTIONS
        if name in variant or name in (changed or {})
    }
