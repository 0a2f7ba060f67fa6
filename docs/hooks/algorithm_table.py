"""The algorithms and when to take each, from their classes."""

from __future__ import annotations

import inspect
import re

from markdown_text import code, table

from pettingllms_trainers.config import Algorithm
from pettingllms_trainers.config.announced import algorithm_class, algorithm_names


def algorithm_table() -> str:
    """A table of all algorithms, and a section with source and parameters of each."""
    kinds = {name: algorithm_class(name) for name in algorithm_names()}
    rows = [[f"[{code(name)}](#{name})", *_words(kind)] for name, kind in kinds.items()]
    overview = table(["name", "what it does", "when to take it"], rows)
    return "\n".join([overview, *(_section(name, kind) for name, kind in kinds.items())])


def _words(kind: type[Algorithm]) -> list[str]:
    """The first two paragraphs of a docstring: what it does, and when to take it."""
    what, when, *_ = inspect.getdoc(kind).split("\n\n")
    return [" ".join(what.split()), " ".join(when.split())]


def _section(name: str, kind: type[Algorithm]) -> str:
    source = re.search(r"Source:\n(.*)", inspect.getdoc(kind), re.DOTALL)
    text = " ".join(source.group(1).split()) if source else ""
    keys = ", ".join(code(key) for key in kind.model_fields if key != "name")
    return f"## {name} {{ #{name} }}\n\n{text}\n\nParameters: {keys}.\n"
