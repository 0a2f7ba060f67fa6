"""What does branching buy? Runs the study, resumably, and writes its figures and its pages.

    python benchmarks/study.py                      # the exact layer
    python benchmarks/study.py --layer tiny --resume
    python benchmarks/study.py --layer tiny --resume --further
    python benchmarks/study.py --page               # only the figures and the pages

Variants, settings and seeds are in `benchmarks/credit_study/table.toml`; the result of every cell
is added to `benchmarks/results/credit_study.json` when it is there.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import subprocess
import sys
import tempfile
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from credit_study.cells import LAYERS, TABLE, Cell, compute, read_table, stages_of
from credit_study.page import write_pages
from rich.progress import Progress, Task

from pettingllms_trainers.files import write_atomically

_HOUR_S = 3600.0
RESULT = Path(__file__).with_name("results") / "credit_study.json"


class Study:
    """The results so far, and the file in which they are.

    Args:
        path: The result file.
        layer: Which layer is run.
        resumes: Whether the layer's cells that are there are kept; other layers' always are.
    """

    def __init__(self, path: Path, layer: str, resumes: bool) -> None:
        self._path = path
        self._commit = _commit()
        known = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        cells = known.get("cells", {})
        self.cells: dict[str, Any] = {
            key: cell for key, cell in cells.items() if resumes or cell["layer"] != layer
        }

    def add(self, cell: Cell, layer: str, result: dict[str, Any], seconds: float) -> None:
        """Keep the result of a cell, also if the study ends right afterwards."""
        self.cells[cell.key] = {
            "layer": layer,
            "date": datetime.now(UTC).date().isoformat(),
            "commit": self._commit,
            "processor_seconds": round(seconds, 1),
            **result,
        }
        data = {
            "suite": "study",
            "command": "python benchmarks/study.py --layer LAYER --resume",
            "date": max(known["date"] for known in self.cells.values()),
            "hardware": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
            "versions": {"python": platform.python_version()}
            | {name: version(name) for name in ("torch", "transformers", "numpy")},
            "cells": dict(sorted(self.cells.items())),
        }
        write_atomically(self._path, json.dumps(data, indent=1) + "\n")


def _commit() -> str:
    """Return the commit that computes, with a mark if the code differs from it."""
    code = ("pettingllms", "envs", "trainers", "benchmarks/credit_study")
    git = ["git", "-C", str(Path(__file__).parents[1])]
    found = [
        subprocess.run([*git, *words], capture_output=True, text=True, check=True).stdout.strip()
        for words in (("rev-parse", "--short", "HEAD"), ("status", "--porcelain", "--", *code))
    ]
    return found[0] + ("+" if found[1] else "")


def timed(cell: Cell, shared: Path) -> tuple[dict[str, Any], float]:
    """Return the result of a cell and its processor time, which other work does not change."""
    before = _processor_seconds()
    return compute(cell, shared), _processor_seconds() - before


def _processor_seconds() -> float:
    """Return the seconds that this process and its ended children have computed."""
    return sum(os.times()[:4])


def run(study: Study, layer: str, cells: list[Cell], num_processes: int, shared: Path) -> int:
    """Compute the cells that are missing; return how many failed.

    Args:
        study: Gets their results.
        layer: Theirs.
        cells: All of the layer, or of a part of it.
        num_processes: That compute beside each other.
        shared: Folder for what cells share.
    """
    todo = [cell for cell in cells if cell.key not in study.cells]
    progress = Progress(speed_estimate_period=_HOUR_S)  # of 30 s by default: shorter than a cell
    say = partial(progress.console.print, markup=False, highlight=False, soft_wrap=True)
    say(f"{layer}: {len(cells)} cells, {len(cells) - len(todo)} known")
    if not todo:
        return 0
    num_failed = 0
    context = multiprocessing.get_context("spawn")
    with progress, ProcessPoolExecutor(num_processes, mp_context=context) as pool:
        waiting: dict[Future[tuple[dict[str, Any], float]], Cell] = {
            pool.submit(timed, cell, shared): cell for cell in todo
        }
        try:
            bar = progress.add_task(layer, total=len(todo))
            for future in as_completed(waiting):
                cell = waiting[future]
                progress.advance(bar)
                try:
                    result, seconds = future.result()
                except Exception as error:  # noqa: BLE001  one cell must not end the study
                    num_failed += 1
                    say(f"{cell.key} FAILED: {type(error).__name__}: {error}")
                    continue
                study.add(cell, layer, result, seconds)
                say(f"{_so_far(progress.tasks[0])} {cell.key} {seconds:.1f} s")
        except KeyboardInterrupt:
            pool.shutdown(cancel_futures=True)
            say("stopped; continue with --resume")
            raise
    return num_failed


def _so_far(task: Task) -> str:
    """Return how far a layer is, for logs, in which no bar moves."""
    left = task.time_remaining
    minutes = "" if left is None else f", {left / 60:.0f} min left"
    return f"[{task.completed:.0f}/{task.total:.0f}{minutes}]"


def main(arguments: list[str] | None = None) -> int:
    """Run a layer of the study and write the pages."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--layer", choices=LAYERS, default="exact")
    parser.add_argument("--resume", action="store_true", help="keep the cells that are there")
    parser.add_argument("--further", action="store_true", help="the further rows of the layer, too")
    parser.add_argument("--page", action="store_true", help="only write figures and pages")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--table", type=Path, default=TABLE)
    parser.add_argument("--output", type=Path, default=RESULT)
    parser.add_argument("--only", default="", help="cells whose key contains this text")
    options = parser.parse_args(arguments)
    table = read_table(options.table)
    num_failed = 0
    if not options.page:
        study = Study(options.output, options.layer, options.resume)
        os.environ["OMP_NUM_THREADS"] = "1"  # cells run beside each other, one thread each
        with tempfile.TemporaryDirectory(prefix="credit-study-") as shared:
            for stage in stages_of(table, options.layer):
                cells = [
                    cell
                    for cell in stage(study.cells)
                    if options.only in cell.key and (options.further or not cell.is_further)
                ]
                num_failed += run(study, options.layer, cells, options.processes, Path(shared))
    if options.output == RESULT:
        write_pages(table, options.output)
    return bool(num_failed)


if __name__ == "__main__":
    sys.exit(main())
