"""The paper and this code: what of it stands where, and which test shows it (`docs/paper.toml`)."""

from __future__ import annotations

import tomllib
from typing import Any

from markdown_text import ROOT, breakable, code, table

from pettingllms_trainers.config import Algorithm, Config
from pettingllms_trainers.config.announced import DEFAULT, algorithm_class


def paper_index() -> str:
    """A table per part of the paper, and its hyper-parameters next to our defaults."""
    index = tomllib.loads((ROOT / "docs" / "paper.toml").read_text(encoding="utf-8"))
    rows = [
        [entry["what"], entry["paper"], code(entry["key"]), code(default_of(entry["key"]))]
        for entry in index["setting"]
    ]
    settings = table(["what", "paper", "key", "our default"], rows)
    return "\n".join([*map(_part, index["part"]), "## Hyper-parameters\n", settings])


def default_of(key: str) -> Any:
    """The default of a key of the run file, such as `algorithm.num_candidates`."""
    *sections, name = key.split(".")
    model: Any = Config
    for section in sections:
        model = model.model_fields[section].annotation
    if model is Algorithm:
        model = algorithm_class(DEFAULT)
    return model.model_fields[name].default


def _part(part: dict[str, Any]) -> str:
    rows = [[row["what"], _places(row["code"]), _places(row["tests"])] for row in part["rows"]]
    return f"## {part['title']}\n\n{part['intro']}\n\n" + table(["what", "code", "shown by"], rows)


def _places(places: list[str]) -> str:
    return "<br>".join(map(breakable, places))
