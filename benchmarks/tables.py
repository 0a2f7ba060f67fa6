"""Writes the tables of the documents from `benchmarks/results/*.json` and the registry.

    python benchmarks/tables.py           # write
    python benchmarks/tables.py --check   # exit 1 if a document is not up to date

A table stands between `<!-- table:NAME -->` and `<!-- /table:NAME -->`. Nothing in it is typed.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable
from inspect import getmembers, isfunction
from pathlib import Path

from document_tables import (
    credit,
    credit_tiny,
    games,
    judging,
    learning,
    repository,
    speed,
    trainer,
)

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = (
    "README.md",
    "CONTRIBUTING.md",
    "envs/README.md",
    "benchmarks/README.md",
    "docs/blame.md",
    "docs/check-an-environment.md",
    "docs/curriculum.md",
    "docs/research/enumerated.md",
    "docs/research/equal-states.md",
    "docs/research/small-models.md",
    "docs/fleet.md",
    "docs/gpus.md",
    "docs/fleet-checked.md",
    "docs/workflows-frameworks.md",
    "docs/writer-editor.md",
    "docs/leaderboard.md",
)
_BLOCK = re.compile(r"(<!-- table:(\w+) -->\n).*?(<!-- /table:\2 -->)", re.DOTALL)

TABLES: dict[str, Callable[[], str]] = {
    name: function
    for module in (credit, credit_tiny, games, judging, learning, repository, speed, trainer)
    for name, function in getmembers(module, isfunction)
    if function.__module__ == module.__name__ and not name.startswith("_")
}
"""Name -> what makes the table: the public functions of these modules."""


def render(text: str) -> str:
    """Return a document with all its tables regenerated."""

    def replace(match: re.Match[str]) -> str:
        name = match.group(2)
        if name not in TABLES:
            raise SystemExit(f"unknown table {name!r}; known: {', '.join(TABLES)}")
        return match.group(1) + TABLES[name]() + match.group(3)

    return _BLOCK.sub(replace, text)


def main() -> None:
    """Write or check all documents."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only tell whether all is up to date")
    check = parser.parse_args().check
    stale: list[str] = []
    for name in DOCUMENTS:
        path = ROOT / name
        text = path.read_text(encoding="utf-8")
        fresh = render(text)
        if fresh != text:
            stale.append(name)
            if not check:
                path.write_text(fresh, encoding="utf-8")
    print(f"{'stale' if check else 'written'}: {', '.join(stale) or 'nothing'}")
    sys.exit(bool(check and stale))


if __name__ == "__main__":
    main()
