"""Measures how many tokens prompts have, and whether a tokenizer sees the cells of boards.

    python benchmarks/suites/prompt_tokens.py --tokenizer DIR

DIR holds a Hugging Face tokenizer. A cell is seen if no token holds a part of another cell: then it
is a token of its own (or several), and the columns of a board are aligned. Nothing is timed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from measuring import frame, parser_of, write
from transformers import AutoTokenizer

import pettingllms

GAMES: dict[str, tuple[str, dict[str, Any]]] = {
    "Plan-Path 10x10": ("plan_path_v0", {}),
    "Plan-Path 10x10, centred": ("plan_path_v0", {"view": "centred"}),
    "Plan-Path 16x16": ("plan_path_v0", {"size": 16}),
    "Sokoban 6x6": ("sokoban_v0", {}),
    "Sokoban 10x10, 4 boxes": ("sokoban_v0", {"size": 10, "boxes": 4}),
    "Sudoku 4x4": ("sudoku_v0", {}),
    "Sudoku 9x9": ("sudoku_v0", {"size": 9}),
    "Sudoku 16x16": ("sudoku_v0", {"size": 16}),
}
TEAMS: tuple[dict[str, str], ...] = (
    {"team": "tool-planner", "tool": "python"},
    {"team": "tool-planner", "tool": "call"},
    {"team": "proposer-planner"},
    {"team": "single"},
    {"team": "single-tool", "tool": "python"},
    {"team": "single-tool", "tool": "call"},
)
OTHERS: dict[str, tuple[str, tuple[dict[str, str], ...]]] = {
    "Code": ("code_v0", ({"team": "coder-tester"}, {"team": "single"})),
    "Mathematics": ("math_v0", ({"team": "reasoner-tool"}, {"team": "single"})),
    "Mathematics, ensemble": ("math_ensemble_v0", ({},)),
}


class View(NamedTuple):
    """A way in which prompts can show a board."""

    placeholder: str
    first_line: int
    """Lines before the first row of cells."""
    cell: re.Pattern[str]
    """What a cell of a row is."""


LABELLED = View("board", 1, re.compile(r"(?<= )[^\s\d]"))
SPACED = View("board", 0, re.compile(r"\S"))
COMPACT = View("board_compact", 0, re.compile("."))
NUMBERS = View("grid", 0, re.compile(r"\d+"))
VIEWS: dict[str, tuple[View, ...]] = {
    "Plan-Path 10x10, centred": (SPACED, COMPACT),
    "Plan-Path": (LABELLED, COMPACT),
    "Sokoban": (LABELLED, COMPACT),
    "Sudoku": (NUMBERS,),
}


class Measure(NamedTuple):
    """A tokenizer."""

    spans: Callable[[str], list[tuple[int, int]]]
    """Text -> begin and end of every token, in characters."""

    def sizes(self, env: Any) -> dict[str, dict[str, int]]:
        """Return characters and tokens of what each agent of an environment reads now."""
        texts = {agent: str(env.observe(agent)) for agent in env.possible_agents}
        return {
            agent: {"characters": len(text), "tokens": len(self.spans(text))}
            for agent, text in texts.items()
        }

    def board(self, text: str, view: View) -> dict[str, int]:
        """Return the tokens of a board, its cells, and how many of them share a token."""
        owner = {
            place: number
            for number, (begin, end) in enumerate(_cells(text, view))
            for place in range(begin, end)
        }
        tokens = self.spans(text)
        held = [{owner[at] for at in range(*span) if at in owner} for span in tokens]
        merged: set[int] = set[int]().union(*(cells for cells in held if len(cells) > 1))
        num_cells = len(set(owner.values()))
        return {"cells": num_cells, "tokens": len(tokens), "merged_cells": len(merged)}


def _cells(text: str, view: View) -> Iterator[tuple[int, int]]:
    begin = 0
    for number, line in enumerate(text.split("\n")):
        if number >= view.first_line:
            yield from (
                (begin + cell.start(), begin + cell.end()) for cell in view.cell.finditer(line)
            )
        begin += len(line) + 1


def measure_of(path: Path) -> Measure:
    """Load a tokenizer."""
    tokenizer = AutoTokenizer.from_pretrained(path, local_files_only=True)

    def spans(text: str) -> list[tuple[int, int]]:
        encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        return [(begin, end) for begin, end in encoded["offset_mapping"]]

    return Measure(spans)


def prompts(measure: Measure) -> dict[str, dict[str, Any]]:
    """Return the sizes of the first observations of every role: game -> team -> agent."""
    found: dict[str, dict[str, Any]] = {}
    asked = {name: (env_id, given, TEAMS) for name, (env_id, given) in GAMES.items()}
    asked |= {name: (env_id, {}, teams) for name, (env_id, teams) in OTHERS.items()}
    for name, (env_id, given, teams) in asked.items():
        found[name] = {}
        for team in teams:
            env = pettingllms.make(env_id, checks=False, **given, **team)
            env.reset(seed=0)
            label = team.get("team", "ensemble") + (f", {team['tool']}" if "tool" in team else "")
            found[name][label] = measure.sizes(env)
            env.close()
    return found


def boards(measure: Measure) -> dict[str, dict[str, dict[str, int]]]:
    """Return what the tokenizer sees of the boards: game -> placeholder -> figures."""
    found: dict[str, dict[str, dict[str, int]]] = {}
    for name, (env_id, given) in GAMES.items():
        views = next(views for start, views in VIEWS.items() if name.startswith(start))
        found[name] = {}
        for view in views:
            only = {"planner": {"system": "", "user": f"{{{view.placeholder}}}"}}
            env = pettingllms.make(env_id, checks=False, team="single", prompts=only, **given)
            env.reset(seed=0)
            text = env.observe("planner_0").strip("\n")
            found[name][view.placeholder] = measure.board(text, view)
    return found


def main() -> None:
    """Measure, write the JSON result, print it."""
    parser = parser_of("prompt_tokens", __doc__)
    parser.add_argument("--tokenizer", type=Path, required=True, help="directory of a tokenizer")
    options = parser.parse_args()
    measure = measure_of(options.tokenizer)
    result = frame("prompt_tokens", []) | {"tokenizer": options.tokenizer.resolve().name}
    result |= {"prompts": prompts(measure), "boards": boards(measure)}
    write(result, options.output)
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
