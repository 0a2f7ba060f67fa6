"""Writes the tables of the documents from `benchmarks/results/*.json` and the registry.

    python benchmarks/tables.py           # write
    python benchmarks/tables.py --check   # exit 1 if a document is not up to date

A table stands between `<!-- table:NAME -->` and `<!-- /table:NAME -->`. Nothing in it is typed.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pettingllms

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
DOCUMENTS = ("README.md", "envs/README.md", "benchmarks/README.md")
_BLOCK = re.compile(r"(<!-- table:(\w+) -->\n).*?(<!-- /table:\2 -->)", re.DOTALL)


def result(name: str) -> dict[str, Any]:
    """Return the content of `benchmarks/results/<name>.json`."""
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def markdown(header: list[str], rows: list[list[str]]) -> str:
    """Return a Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def environments() -> str:
    """Return the table of the built-in environments, from their classes."""
    rows: list[list[str]] = []
    for env_id in pettingllms.registered_ids():
        spec = pettingllms.spec(env_id)
        if spec.package != "pettingllms":
            continue
        cls: Any = spec.load()
        task = (cls.__doc__ or "").strip().splitlines()[0]
        roles = ", ".join(cls.default_prompts)
        rows.append([f"`{env_id}`", task, roles, ", ".join(cls.reference_policies)])
    return markdown(["id", "task", "roles", "reference policies"], rows)


def ratio(entry: dict[str, Any]) -> str:
    """Return `median (min to max)` of a measured ratio."""
    low, mid, high = (f"{entry[key]:.3g}" for key in ("min", "median", "max"))
    return f"{mid}x ({low} to {high})"


def learning() -> str:
    """Return held-out success before and after the embedded default, for every seed."""
    data = result("learning_plan_path")
    rows = [
        [
            str(run["seed"]),
            share(run["before"]["greedy"]),
            share(run["after"]["greedy"]),
            share(run["after"]["sampled"]),
            share(run["references"]["reference:greedy"]),
            f"{run['cpu_s']:.0f} s",
        ]
        for run in data["runs"]
    ]
    header = ["seed", "before", "after", "after, sampled", "greedy rule", "processor time"]
    return markdown(header, rows) + _caption(data)


def share(figures: dict[str, float]) -> str:
    """Return a success share with its 95 % interval, in per cent."""
    low, mid, high = (
        f"{100 * figures[key]:.1f}" for key in ("success_low", "success", "success_high")
    )
    return f"{mid} % ({low} to {high})"


class Row(NamedTuple):
    """One measured ratio."""

    workload: str
    peer: str
    """What it is compared with."""
    goal: float | None
    """The ratio that was aimed at."""
    source: str
    """Result file and keys of the ratio in it, divided by slashes."""


SPEED = (
    Row(
        "Plan-Path 10x10, certified levels",
        "reasoning-gym",
        2,
        "plan_path/ratios/levels_per_s_over_reasoning_gym",
    ),
    Row(
        "Plan-Path step and text, core",
        "paper's code (estimate)",
        19,
        "plan_path/ratios/core_steps_over_paper_code_estimate",
    ),
    Row("Plan-Path fork", "copy.deepcopy", None, "plan_path/ratios/fork_over_deepcopy"),
    Row(
        "Sokoban 6x6, 1 box, optimal length known, levels",
        "gem-llm",
        20,
        "games/ratios/sokoban_6x6_1_box_levels_over_gem-llm",
    ),
    Row(
        "Sokoban 6x6, 2 boxes, levels",
        "reasoning-gym",
        6,
        "games/ratios/sokoban_6x6_2_boxes_levels_over_reasoning-gym",
    ),
    Row(
        "Sokoban 6x6, 3 boxes, levels",
        "reasoning-gym",
        3,
        "games/ratios/sokoban_6x6_3_boxes_levels_over_reasoning-gym",
    ),
    Row(
        "Sokoban step and text, core",
        "paper's code (estimate)",
        20,
        "games/ratios/sokoban_core_steps_over_paper_code_estimate",
    ),
    Row(
        "Sokoban `step` and `last` of a team of two, on fresh levels",
        "paper's code (estimate)",
        6,
        "games/ratios/sokoban_aec_steps_over_paper_code_estimate",
    ),
    Row(
        "the same, on and on in one level, as the peers are timed",
        "paper's code (estimate)",
        6,
        "games/ratios/sokoban_aec_steps_on_one_level_over_paper_code_estimate",
    ),
    Row(
        "Sudoku 4x4, unique, 6 clues, puzzles",
        "reasoning-gym",
        3.5,
        "games/ratios/sudoku_4x4_6_clues_levels_over_reasoning-gym",
    ),
    Row(
        "Sudoku 9x9, unique, 40 clues, puzzles",
        "TextArena",
        10,
        "games/ratios/sudoku_9x9_40_clues_levels_over_textarena",
    ),
    Row(
        "Sudoku 9x9, unique, 31 clues, puzzles",
        "gem-llm",
        20,
        "games/ratios/sudoku_9x9_31_clues_levels_over_gem-llm",
    ),
    Row("Sudoku 4x4 step and text", "gem-llm", 4, "games/ratios/sudoku_4x4_steps_over_gem-llm"),
    Row("Sudoku 9x9 step and text", "gem-llm", 10, "games/ratios/sudoku_9x9_steps_over_gem-llm"),
    Row(
        "Sudoku 16x16 step and text",
        "paper's code (estimate)",
        200,
        "games/ratios/sudoku_16x16_steps_over_paper_code_estimate",
    ),
    Row(
        "sandbox, trivial program, two streams",
        "fresh interpreter",
        4,
        "sandbox/figures/trivial_two_streams_over_spawn",
    ),
    Row(
        "sandbox, the same", "the paper's way", 30, "sandbox/figures/trivial_two_streams_over_paper"
    ),
    Row("sandbox, numpy program", "fresh interpreter", 15, "sandbox/figures/numpy_over_spawn"),
    Row(
        "`code_v0` episodes, four branches",
        "fresh interpreter per test, no cache",
        None,
        "code_math/metrics/code_sandbox_over_fresh",
    ),
    Row(
        "generation, 16,384 tokens",
        "`transformers.generate`",
        2.4,
        "trainer_throughput/workloads/shared_prompts/ratios/generate_speedup_over_transformers",
    ),
    Row(
        "update, the same tokens",
        "plain forward and backward",
        None,
        "trainer_throughput/workloads/shared_prompts/ratios/update_speedup_over_plain",
    ),
)


def speed() -> str:
    """Return the measured ratios beside their goals, missed ones included."""
    rows: list[list[str]] = []
    for workload, peer, goal, source in SPEED:
        name, *keys = source.split("/")
        entry: Any = result(name)
        for key in keys:
            entry = entry[key]
        verdict = (
            "" if goal is None else f"{goal}x" + ("" if entry["median"] >= goal else ", missed")
        )
        rows.append([workload, peer, ratio(entry), verdict])
    return markdown(["workload", "compared with", "ratio (range)", "goal"], rows)


def _caption(data: dict[str, Any]) -> str:
    return f"\nMeasured on {data['date']}, {data['hardware']}, with `{data['command'].strip()}`.\n"


TABLES: dict[str, Callable[[], str]] = {
    "environments": environments,
    "learning": learning,
    "speed": speed,
}


def render(text: str) -> str:
    """Return a document with all its tables written anew."""

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
