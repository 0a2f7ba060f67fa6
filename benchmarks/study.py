"""By what should answers be credited? Runs the study, cell by cell, and continues where it stopped.

    python benchmarks/study.py exact         # ten minutes
    python benchmarks/study.py tiny          # about 10 hours
    python benchmarks/study.py ensemble_tiny # Figure 5b; ensemble_smollm2: with a pretrained model
    python benchmarks/study.py abstract      # planning, mathematics, code; --task math: one

Rows, ways and seeds are in `benchmarks/credit_study/rows.toml`. A layer's cells are computed one
after another, in one thread; one that was killed goes on (from `runs/study`). What differs from the
commit must be committed first: every cell names the commit that computed it. A copy of the
repository that nobody changes (`git worktree add PATH`), with `--results` outside of it, keeps the
study apart from other work.

`--recheck N` computes N known cells once more, drawn at random, writes nothing, and fails if any
differs. The exact layer is of one commit: `--anew` begins it again.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).with_name("rivals")))
sys.path.insert(0, str(Path(__file__).with_name("suites")))

from credit_study.rows import LAYERS, Cell, cells_of, compute, read_table

from pettingllms.files import write_whole

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"

_ABOUT = ("processor_seconds", "commit", "found_again", "continued")
"""Keys of a cell that are not its result."""


class Study:
    """The results of a layer so far, and the file in which they are.

    Args:
        path: The result file.
        layer: Which layer.
        commit: What computes.
        begins_anew: Whether cells that are there are dropped.
    """

    def __init__(self, path: Path, layer: str, commit: str, begins_anew: bool) -> None:
        self._path, self._layer, self._commit = path, layer, commit
        found = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        self.cells: dict[str, Any] = {} if begins_anew else found.get("cells", {})

    def add(self, cell: Cell, result: dict[str, Any], seconds: float) -> None:
        """Keep the result of a cell, also if the study ends right afterwards."""
        ours = {"processor_seconds": round(seconds, 2), "commit": self._commit}
        self.cells[cell.key] = {**result, **ours}
        self._write()

    def is_equal(self, cell: Cell, result: Mapping[str, Any]) -> bool:
        """Whether a result is the known one."""
        known = {key: of for key, of in self.cells[cell.key].items() if key not in _ABOUT}
        return known == result

    def _write(self) -> None:
        head = {
            "suite": "study",
            "command": f"python benchmarks/study.py {self._layer}",
            "date": datetime.now(UTC).date().isoformat(),
            "hardware": f"{platform.system()} {platform.machine()}, one thread, CPU time",
            "versions": {"python": platform.python_version()}
            | {name: version(name) for name in ("torch", "transformers", "numpy")},
        }
        # A line per cell, so that a diff shows which were computed.
        lines = [f'"{key}": {json.dumps(of)}' for key, of in self.cells.items()]
        text = ",\n".join([*(f'"{name}": {json.dumps(of)}' for name, of in head.items())])
        cells = ",\n".join(lines)
        write_whole(self._path, f'{{\n{text},\n"cells": {{\n{cells}\n}}\n}}\n')


def clean_commit(root: Path, results: Sequence[Path]) -> str:
    """The commit of a working tree.

    Args:
        root: The working tree.
        results: Files that may differ from it.

    Raises:
        SystemExit: The tree differs from its commit, so that nobody could compute the cells again.
    """

    def git(*words: str) -> str:
        command = ["git", "-C", str(root), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    found = [
        line[3:] for line in git("status", "--porcelain", "--untracked-files=all").splitlines()
    ]
    allowed = [path.resolve() for path in results]
    changed = [name for name in found if (root / name).resolve() not in allowed]
    if changed:
        raise SystemExit(
            f"{root} differs from its commit ({', '.join(changed[:3])}); commit or stash, or run "
            "the study in a copy of the repository: git worktree add PATH"
        )
    return git("rev-parse", "HEAD").strip()


def run(study: Study, cells: Sequence[Cell], shared: Path) -> int:
    """Compute the cells that are missing; return how many failed.

    Args:
        study: Gets their results.
        cells: In order.
        shared: Folder for what cells share.
    """
    todo = [cell for cell in cells if cell.key not in study.cells]
    print(f"{len(cells)} cells, {len(cells) - len(todo)} known", flush=True)
    num_failed = 0
    for number, cell in enumerate(todo, 1):
        # Of ended children, too: trainings have processes of their own.
        before = _processor_seconds()
        try:
            result = compute(cell, shared)
        except Exception as error:  # noqa: BLE001  one cell must not end the study
            num_failed += 1
            print(f"{cell.key} FAILED: {type(error).__name__}: {error}", flush=True)
            continue
        seconds = _processor_seconds() - before
        study.add(cell, result, seconds)
        print(f"[{number}/{len(todo)}] {cell.key} {seconds:.1f} s", flush=True)
    return num_failed


def recheck(study: Study, cells: Sequence[Cell], number: int, shared: Path) -> int:
    """Compute known cells once more, drawn at random; return how many differ.

    Args:
        study: Has their results.
        cells: Of which those that the study knows are drawn from.
        number: How many.
        shared: Folder for what cells share.
    """
    known = [cell for cell in cells if cell.key in study.cells]
    num_different = 0
    for cell in random.Random().sample(known, min(number, len(known))):
        is_equal = study.is_equal(cell, compute(cell, shared))
        num_different += not is_equal
        print(f"{cell.key} {'equal' if is_equal else 'DIFFERS'}", flush=True)
    return num_different


def _processor_seconds() -> float:
    """The seconds that this process and its ended children have computed."""
    return sum(os.times()[:4])


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("layer", choices=LAYERS)
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the result files")
    parser.add_argument("--only", default="", help="cells whose key contains this text")
    parser.add_argument("--task", default="", help="cells of one task of the layer abstract")
    parser.add_argument("--anew", action="store_true", help="drop the cells that are there")
    parser.add_argument("--recheck", type=int, default=0, metavar="N", help="known cells, again")
    options = parser.parse_args(arguments)
    options.results.mkdir(parents=True, exist_ok=True)
    # A study that is told to stop stops its training, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    # Times are of one thread, and results must not depend on their number.
    os.environ["OMP_NUM_THREADS"] = "1"
    paths = {layer: options.results / f"credit_{layer}.json" for layer in LAYERS}
    commit = clean_commit(ROOT, [*paths.values()])
    study = Study(paths[options.layer], options.layer, commit, options.anew)
    others = {cell["commit"][:9] for cell in study.cells.values()} - {commit[:9]}
    if options.layer == "exact" and others and not options.recheck:
        raise SystemExit(
            f"{paths['exact']} has cells of {', '.join(others)}, and this is {commit[:9]}: one "
            "table is of one commit. --anew computes all again; --results FOLDER writes elsewhere"
        )
    cells = cells_of(read_table(), options.layer)
    part = f"abstract|{options.task}|" if options.task else ""
    cells = [cell for cell in cells if options.only in cell.key and cell.key.startswith(part)]
    # Kept, so that a cell that is killed goes on; by commit, as another one may train otherwise.
    shared = ROOT / "runs" / "study" / commit
    shared.mkdir(parents=True, exist_ok=True)
    if options.recheck:
        return bool(recheck(study, cells, options.recheck, shared))
    return bool(run(study, cells, shared))


if __name__ == "__main__":
    sys.exit(main())
