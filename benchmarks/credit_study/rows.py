"""The cells of the study: what is to be computed, by a key, and how."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
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


PLAIN = ("shaped", "outcome")
"""Columns in which nothing is paid beside what the environment pays."""
NOISE = [("normal", name) for name in PLAIN]


def ways_of(section: Table, row: Table) -> list[str]:
    """The ways of a row, those that it has beside the layer's at the end."""
    return [*row.get("ways", section["ways"]), *row.get("more", ())]


def exact(table: Table) -> Iterator[Cell]:
    """The cells of the exact layer; all seeds of a way are one cell."""
    section = table["exact"]
    study = dict(section["study"])
    first, num = study.pop("first_seed"), study.pop("num_seeds")
    study["seeds"] = [*range(first, first + num)]
    for case in section["lemma"]:
        for team in case["teams"]:
            yield Cell(f"lemma|{case['label']}|{team}", "lemma", {"case": case, "team": team})
    for name, column in _columns(section):
        given = {"game": _game(section, name, column), "study": study}
        ways = ways_of(section, column)
        if column["name"] in PLAIN:
            yield Cell(f"pilot|{name}|{column['name']}", "pilot", given)
        for optimizer in study["rates"]:
            for way in ways:
                if optimizer == "adam" or way in section["sgd_ways"]:
                    key = f"{optimizer}|{name}|{column['name']}|{way}"
                    arguments = {**given, "algorithm": table["ways"][way]["algorithm"]}
                    arguments |= {"optimizer": optimizer, "bonus": column.get("bonus")}
                    yield Cell(key, "trial", arguments)
        for way in section["noise_ways"] if (name, column["name"]) in NOISE else ():
            arguments = {**given, "algorithm": table["ways"][way]["algorithm"]}
            yield Cell(f"noise|{column['name']}|{way}", "noise", arguments)


def _columns(section: Table) -> Iterator[tuple[str, Table]]:
    """Every game with every column that it has."""
    for name in section["games"]:
        for column in section["columns"]:
            if name in column.get("games", section["games"]):
                yield name, column


def _game(section: Table, name: str, column: Table) -> dict[str, Any]:
    game, own = section["game"], section["games"][name]
    kwargs = {**game["kwargs"], **own.get("kwargs", {}), **column["kwargs"]}
    return {**game, **own, "kwargs": kwargs}


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
                "task": {
                    "rate": section["rate"],
                    **task,
                    "keys": section["keys"] | task.get("keys", {}),
                },
                "algorithm": table["ways"][way]["algorithm"],
                "num_levels": task["num_levels"],
                "reward": "shaped",
                "bonus": "",
                "seed": seed,
                "limit_s": section["limit_s"],
                "shows": label == "team" and seed == section["seeds"][0],
            }
            yield Cell(f"abstract|{name}|{label}|{seed}", "training", arguments)


def ensemble(table: Table, model: str) -> Iterator[Cell]:
    """The cells of Figure 5b, seed by seed: a layer that is stopped has whole comparisons."""
    for seed in table["ensemble"]["seeds"]:
        for size in table["ensemble"]["sizes"]:
            yield Cell(f"{size}|{seed}", "ensemble", {"model": model, "size": size, "seed": seed})


def cells_of(table: Table, layer: str) -> Sequence[Cell]:
    """All cells of a layer, in the order in which they are computed."""
    layers = {"exact": exact, "tiny": tiny, "abstract": abstract}
    of_model = partial(ensemble, model=layer.removeprefix("ensemble_"))
    return [*layers.get(layer, of_model)(table)]


LAYERS = ("exact", "tiny", "abstract", "ensemble_tiny", "ensemble_smollm2")


def compute(cell: Cell, shared: Path) -> dict[str, Any]:
    """The result of a cell, as JSON data.

    Args:
        cell: What to compute.
        shared: Folder for what cells share; the same one for all cells of a layer.
    """
    # Imported late: listing cells needs neither.
    from credit_study import ensembles, exact, trained  # numpy and the trainer

    kinds = {
        **exact.KINDS,
        "training": partial(trained.training_cell, shared=shared),
        "ensemble": ensembles.ensemble_cell,
    }
    found = kinds[cell.kind](**cell.arguments)
    return json.loads(json.dumps(found))
