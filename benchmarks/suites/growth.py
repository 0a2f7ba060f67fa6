"""Does the time of a train step grow in proportion to what is played?

    python benchmarks/suites/growth.py

For every built-in algorithm one of two things is doubled, the turns of an episode or the levels of
a step, and four pieces of work are timed: playing with an engine that costs nothing, scoring (which
groups, and forms the advantages), recording the trees, and filling the viewer's page with them. The
slope of log(seconds) over log(size) is the exponent: 1 is linear. The size of playing is the number
of sampled answers, as some algorithms play each candidate on to the end of its episode; that of all
else is the number of decisions. An exponent beyond the bound ends the suite with an error.
"""

from __future__ import annotations

import io
import math
import statistics
import tempfile
import time
import timeit
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import measuring

from pettingllms.viewer.page import fill_view
from pettingllms.viewer.runs import open_run
from pettingllms_trainers.config.algorithm import (
    Algorithm,
    StepContext,
    algorithm_names,
    algorithm_of,
)
from pettingllms_trainers.learning.groups import score_decisions
from pettingllms_trainers.runs.folder import RunDirectory
from pettingllms_trainers.runs.recorder import tree_to_json
from pettingllms_trainers.testing import played
from pettingllms_trainers.types import RolloutTree

SHORT, FEW = 10, 4
DOUBLINGS = (1, 2, 4, 8)
ROUNDS = 3
BOUND = 1.25
GAME = '[env]\nid = "sums"\n'


def record(trees: Sequence[RolloutTree], files: RunDirectory) -> None:
    """Write all trees of a step, as the recorder does."""
    files.rollouts.unlink(missing_ok=True)
    for tree in trees:
        files.append(files.rollouts, 1, {"set": "training", "env": {}, **tree_to_json(tree)})


def view(folder: Path) -> None:
    """Fill the page of a run."""
    fill_view(io.StringIO(), run=open_run(folder), max_replays=0)


def seconds(algorithm: Algorithm, levels: int, turns: int, folder: Path) -> dict[str, float]:
    """CPU seconds of each piece of work, the least of several rounds, and the decisions."""
    files, context = RunDirectory(folder), StepContext()
    trees = played(algorithm, context, levels, turns)
    work: dict[str, Callable[[], Any]] = {
        "playing": partial(played, algorithm, context, levels, turns),
        "scoring": partial(score_decisions, trees, algorithm, None, context),
        "recording": partial(record, trees, files),
        "viewing": partial(view, folder),
    }
    # An answer of this game is one token.
    answers = sum(
        tree.num_continuation_tokens + sum(len(one.candidates) for one in tree.decisions)
        for tree in trees
    )
    decisions = sum(len(tree.decisions) for tree in trees)
    return {"decisions": decisions, "answers": answers} | {
        name: cpu_seconds(call) for name, call in work.items()
    }


def cpu_seconds(work: Callable[[], Any]) -> float:
    """CPU seconds of a call, the least of several rounds: what else the machine does only adds."""
    timer = timeit.Timer(work, timer=time.process_time)
    # Calls of a few milliseconds are repeated until a round takes 0.2 s.
    number, _ = timer.autorange()
    return float(f"{min(timer.repeat(ROUNDS, number)) / number:.3g}")


def exponents(rows: Sequence[dict[str, float]]) -> dict[str, float]:
    """The slope of log(seconds) over log(size), by piece of work."""

    def slope(work: str) -> float:
        size = "answers" if work == "playing" else "decisions"
        points = [(math.log(row[size]), math.log(row[work])) for row in rows]
        return round(statistics.linear_regression(*zip(*points, strict=True)).slope, 2)

    return {work: slope(work) for work in rows[0] if work not in ("decisions", "answers")}


def main() -> None:
    options = measuring.parser_of("growth", __doc__).parse_args()
    result = measuring.frame("growth", [0]) | {"bound": BOUND}
    algorithms: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "config.toml").write_text(GAME, encoding="utf-8")
        for name in algorithm_names():
            measure = partial(seconds, algorithm_of({"name": name}), folder=folder)
            rows = {
                "length": [measure(FEW, SHORT * times) for times in DOUBLINGS],
                "number": [measure(FEW * times, SHORT) for times in DOUBLINGS],
            }
            found = {axis: exponents(measured) for axis, measured in rows.items()}
            algorithms[name] = {"exponents": found, "seconds": rows}
            print(name, found)
    measuring.write(result | {"algorithms": algorithms}, options.output)
    steepest = max(
        (value, name, axis, what)
        for name, one in algorithms.items()
        for axis, by_work in one["exponents"].items()
        for what, value in by_work.items()
    )
    if steepest[0] > BOUND:
        raise SystemExit(f"{steepest} grows faster than size^{BOUND}")


if __name__ == "__main__":
    main()
