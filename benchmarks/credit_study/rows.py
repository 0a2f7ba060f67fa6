"""The cells of the study: what is to be computed, by a key, and how."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

TABLE = Path(__file__).with_name("rows.toml")
Table = Mapping[str, Any]
Cells = Mapping[str, Mapping[str, Any]]


class Cell(NamedTuple):
    """One thing to compute."""

    key: str
    """Layer or kind, row, way and seed, divided by bars."""
    kind: str
    """Name of the function that computes it."""
    arguments: dict[str, Any]
    """Its arguments, plain values."""


def read_table(path: Path = TABLE) -> dict[str, Any]:
    """The table of the study."""
    return tomllib.loads(path.read_text(encoding="utf-8"))


def ways_of(section: Table, row: Table) -> list[str]:
    """The ways of a row, those that it has beside the layer's at the end."""
    return [*row.get("ways", section["ways"]), *row.get("more", ())]


def selection(table: Table) -> Iterator[Cell]:
    """The trials by which learning rates are chosen, on seeds of their own."""
    for row, way in _exact_rows(table):
        if "rates_of" not in row:
            # One rate beyond those to choose from shows that the largest was large enough.
            tried = () if "rates" in row else (table["exact"]["tried_rate"],)
            for rate in (*rates_of(table["exact"], row), *tried):
                for seed in table["selection_seeds"]:
                    key = f"selection|{row['name']}|{way}|{rate:g}|{seed}"
                    yield Cell(key, "trial", _trial(table, row, way, rate, seed))


def exact(table: Table, chosen: Cells) -> Iterator[Cell]:
    """The cells of the exact layer.

    Args:
        table: The table of the study.
        chosen: Results of `selection`.
    """
    section = table["exact"]
    for case in section["lemma"]:
        for team in case["teams"]:
            yield Cell(f"lemma|{case['label']}|{team}", "lemma", {"case": case, "team": team})
    for reward in ("shaped", "outcome"):
        game = {"exact": _section(section), "reward": reward}
        yield Cell(f"bias|{reward}", "bias", game)
        for way in section["noise_ways"]:
            keys = {"algorithm": table["ways"][way]["algorithm"]}
            yield Cell(f"noise|{reward}|{way}", "noise", {**game, "keys": keys})
    for row, way in _exact_rows(table):
        rate = best_rate(table, chosen, row, way)
        names = {way: rate}
        if "ways" not in row and way in section["rate_ways"]:
            # Whether a conclusion hangs on the chosen rate is seen at the others.
            others = (other for other in rates_of(section, row) if other != rate)
            names |= {at_rate(way, other): other for other in others}
        for name, at in names.items():
            for seed in table["seeds"]:
                key = f"exact|{row['name']}|{name}|{seed}"
                yield Cell(key, "trial", _trial(table, row, way, at, seed))


def rates_of(section: Table, row: Table) -> Sequence[float]:
    """The learning rates that are to choose from in a row of the exact layer."""
    return row.get("rates", section["rates"])


def at_rate(way: str, rate: float) -> str:
    """What a way is called at a rate that the selection did not choose."""
    return f"{way} at {rate:g}"


def best_rate(table: Table, chosen: Cells, row: Table, way: str) -> float:
    """The learning rate of the selection with the highest mean over seeds and budgets.

    Raises:
        LookupError: The selection has not been run.
    """
    name, rates = row.get("rates_of", row["name"]), rates_of(table["exact"], row)

    def mean(rate: float) -> float:
        keys = (f"selection|{name}|{way}|{rate:g}|{seed}" for seed in table["selection_seeds"])
        missing = [key for key in keys if key not in chosen]
        if missing:
            raise LookupError(
                f"no result of {missing[0]}; run first: python benchmarks/study.py selection"
            )
        return fmean(
            fmean(chosen[f"selection|{name}|{way}|{rate:g}|{seed}"]["success"].values())
            for seed in table["selection_seeds"]
        )

    return max(rates, key=mean)


def tiny(table: Table) -> Iterator[Cell]:
    """The cells of the tiny layer, row by row, all ways of a seed together."""
    section = table["tiny"]
    for row in section["rows"]:
        task = dict(section["tasks"][row["task"]])
        levels = task.pop("levels", {})
        task["keys"] = {**section["keys"], **task.get("keys", {})}
        given = {"task": task, "reward": row["reward"], "limit_s": section["limit_s"]}
        for seed in row.get("seeds", table["seeds"]):
            # Rows of Figure 1 compare who is trained, and have one way.
            plays = {one: (one, "at_grpo") for one in row.get("plays", ())}
            for label, (who, way) in (
                plays or {way: ("", way) for way in ways_of(section, row)}
            ).items():
                arguments = {
                    **given,
                    "plays": who,
                    "seed": seed,
                    "algorithm": table["ways"][way]["algorithm"],
                    "num_levels": levels[row["reward"]][way],
                    "bonus": row.get("bonus", ""),
                }
                yield Cell(f"tiny|{row['name']}|{label}|{seed}", "training", arguments)


def abstract(table: Table) -> Iterator[Cell]:
    """The cells of the paper's abstract: who plays, and how it is trained; the four bars first."""
    section = table["abstract"]
    for name, task in section["tasks"].items():
        plays = {one: (one, section["way"]) for one in ("single", "team", *task["beside"])}
        plays |= {f"team, {way}": ("team", way) for way in section["other_ways"]}
        bars = [(label, seed) for seed in section["seeds"] for label in ("single", "team")]
        beside = [(label, seed) for seed in section["beside_seeds"] for label in [*plays][2:]]
        for label, seed in bars + beside:
            who, way = plays[label]
            arguments = {
                "plays": who,
                "task": {"rate": section["rate"], "keys": section["keys"], **task},
                "algorithm": table["ways"][way]["algorithm"],
                "num_levels": task["num_levels"],
                "reward": "shaped",
                "bonus": "",
                "seed": seed,
                "limit_s": section["limit_s"],
            }
            yield Cell(f"abstract|{name}|{label}|{seed}", "training", arguments)


def ensemble(table: Table, model: str) -> Iterator[Cell]:
    """The cells of Figure 5b, seed by seed: a layer that is stopped has whole comparisons."""
    for seed in table["ensemble"]["seeds"]:
        for size in table["ensemble"]["sizes"]:
            yield Cell(f"{size}|{seed}", "ensemble", {"model": model, "size": size, "seed": seed})


def cells_of(table: Table, layer: str, chosen: Cells) -> Sequence[Cell]:
    """All cells of a layer, in the order in which they are computed.

    Args:
        table: The table of the study.
        layer: A layer.
        chosen: Results of `selection`, for the exact layer.
    """
    if layer == "exact":
        return [*exact(table, chosen)]
    layers = {"selection": selection, "tiny": tiny, "abstract": abstract}
    of_model = partial(ensemble, model=layer.removeprefix("ensemble_"))
    return [*layers.get(layer, of_model)(table)]


LAYERS = ("selection", "exact", "tiny", "abstract", "ensemble_tiny", "ensemble_smollm2")


def compute(cell: Cell, shared: Path) -> dict[str, Any]:
    """The result of a cell, as JSON data.

    Args:
        cell: What to compute.
        shared: Folder for what cells share; the same one for all cells of a layer.
    """
    # Imported late: listing cells needs neither.
    from credit_study import ensembles, enumerated, trained  # numpy and the trainer

    kinds = {
        **enumerated.KINDS,
        "training": partial(trained.training_cell, shared=shared),
        "ensemble": ensembles.ensemble_cell,
    }
    found = kinds[cell.kind](**cell.arguments)
    return json.loads(json.dumps(found))


def _exact_rows(table: Table) -> Iterator[tuple[Table, str]]:
    for row in table["exact"]["rows"]:
        for way in ways_of(table["exact"], row):
            yield row, way


def _trial(table: Table, row: Table, way: str, rate: float, seed: int) -> dict[str, Any]:
    return {
        "exact": _section(table["exact"], row),
        "algorithm": table["ways"][way]["algorithm"],
        "reward": row["reward"],
        "bonus": row.get("bonus"),
        "rate": rate,
        "seed": seed,
    }


def _section(section: Table, row: Table | None = None) -> dict[str, Any]:
    row = row or {}
    game = section["game"]
    kwargs = {**game["kwargs"], **row.get("kwargs", {})}
    answers = section["answers"][row["answers"]] if "answers" in row else game["answers"]
    names = ("budgets", "completions_per_step", "num_levels", "num_candidates", "num_groups")
    return {
        **{name: row.get(name, section[name]) for name in names},
        "counts": row.get("counts", "sampled"),
        "start": row.get("start", 0.0),
        "game": {**game, "answers": answers, "kwargs": kwargs},
    }
