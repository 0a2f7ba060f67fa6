"""Writes the tables of the documents from `benchmarks/results/*.json` and the registry.

    python benchmarks/tables.py           # write
    python benchmarks/tables.py --check   # exit 1 if a document is not up to date

A table stands between `<!-- table:NAME -->` and `<!-- /table:NAME -->`. Nothing in it is typed: it
is what the macro of that name in `tables.jinja` gives, or a function of `credit_study.tables`.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Mapping
from statistics import fmean

import documents
from credit_study import teams
from credit_study.intervals import paired
from credit_study.tables import FIGURES, TABLE, TABLES
from documents import ROOT
from gpu_campaign import jobs_of
from jinja2 import Environment, FileSystemLoader

MARK = re.compile(r"(<!-- table:(\w+) -->\n).*?(<!-- /table:\2 -->)", re.DOTALL)


def tables() -> dict[str, Callable[[], str]]:
    """Name of a table -> what makes it."""
    # Blocks take whole lines of the template, and leave none in the table.
    env = Environment(
        loader=FileSystemLoader(ROOT / "benchmarks"),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    names = ("share", "part", "ratio", "middle", "points", "ends", "entry")
    env.filters |= {name: getattr(documents, name) for name in names}
    env.filters |= {
        "mean": fmean,
        "repr": repr,
        "percent": lambda value: f"{100 * value:.1f} %",
        "game_name": lambda game: game.rpartition("_")[0].replace("_", " "),
    }
    env.tests |= {
        "in_steps": lambda title: title.startswith("train step"),
        "missed": lambda row: row["ratio"]["median"] < row["goal"],
    }
    names = ("caption", "cheapest", "declared", "ensemble_cells", "entry", "games", "head")
    names += ("leaderboard_entries", "result")
    env.globals |= {name: getattr(documents, name) for name in names}
    env.globals |= FIGURES | {"study": TABLE, "campaign_jobs": jobs_of}
    env.globals["paired"] = lambda ours, theirs: paired(
        [one - other for one, other in zip(ours, theirs, strict=True)]
    )
    return {**vars(env.get_template("tables.jinja").module), **TABLES, **teams.TABLES}


def render(text: str, known: Mapping[str, Callable[[], str]]) -> str:
    """The text of a document with all its tables made anew."""

    def replace(match: re.Match[str]) -> str:
        # A misspelt mark would keep an old table for ever.
        if match[2] not in known:
            raise SystemExit(f"unknown table {match[2]!r}; tables.jinja has all")
        return match[1] + known[match[2]]() + match[3]

    return MARK.sub(replace, text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only tell whether all is up to date")
    check = parser.parse_args().check
    known, stale = tables(), list[str]()
    folders = ("docs", "envs", "benchmarks")
    documents = [*ROOT.glob("*.md"), *(p for name in folders for p in (ROOT / name).rglob("*.md"))]
    for path in sorted(documents):
        text = path.read_text(encoding="utf-8")
        fresh = render(text, known)
        if fresh != text:
            stale.append(str(path.relative_to(ROOT)))
            if not check:
                path.write_text(fresh, encoding="utf-8")
    print(f"{'stale' if check else 'written'}: {', '.join(stale) or 'nothing'}")
    sys.exit(bool(check and stale))


if __name__ == "__main__":
    main()
