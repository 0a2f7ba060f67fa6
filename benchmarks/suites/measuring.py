"""What the suites share: clocks, spreads, the frame of a result file."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

REPOSITORY = Path(__file__).resolve().parents[2]
RESULTS = REPOSITORY / "benchmarks" / "results"
LIBRARIES = ("torch", "transformers", "numpy")
PACKAGES = ("pettingllms", "envs", "trainers")

ResultT = TypeVar("ResultT")


class Spent(NamedTuple):
    """What a piece of work took."""

    cpu_s: float
    """CPU seconds of the whole process: little changed by what else the machine does."""
    wall_s: float
    """Wall-clock seconds."""


def timed(work: Callable[[], ResultT]) -> tuple[Spent, ResultT]:
    """What a call took, and its result."""
    cpu, wall = time.process_time(), time.perf_counter()
    result = work()
    return Spent(time.process_time() - cpu, time.perf_counter() - wall), result


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, minimum and maximum of a series, to four digits."""
    low, middle, high = (
        float(f"{value:.4g}") for value in (min(values), statistics.median(values), max(values))
    )
    # Extremes beside the median: with few rounds a deviation would say less.
    return {"median": middle, "min": low, "max": high}


def ratios(slow: Sequence[float], fast: Sequence[float]) -> dict[str, float]:
    """The spread of the ratios of two series, formed round by round."""
    return spread([one / other for one, other in zip(slow, fast, strict=True)])


def parser_of(suite: str, doc: str | None) -> argparse.ArgumentParser:
    """What reads the options of a suite, of which `--output` names the result file."""
    parser = argparse.ArgumentParser(description=(doc or "").partition("\n")[0])
    parser.add_argument("--output", type=Path, default=RESULTS / f"{suite}.json")
    return parser


def frame(suite: str, seeds: Sequence[int]) -> dict[str, Any]:
    """What every result says about how it was made; call it when the run begins."""
    # Folders of a machine are nobody's business.
    flags = ["PATH" if "/" in word else word for word in sys.argv[1:]]
    return {
        "suite": suite,
        "date": datetime.now(UTC).date().isoformat(),
        "command": " ".join(["python", f"benchmarks/suites/{suite}.py", *flags]),
        "git": {
            "commit": _git("rev-parse", "HEAD"),
            # What was measured is the packages; documents may be under work.
            "is_dirty": bool(_git("status", "--porcelain", "--", *PACKAGES)),
        },
        "hardware": f"{platform.system()} {platform.machine()}, one thread, CPU time",
        "load_average_before": round(os.getloadavg()[0], 2),
        "seeds": list(seeds),
        "versions": {"python": platform.python_version()} | versions_of(LIBRARIES),
    }


def versions_of(packages: Sequence[str]) -> dict[str, str]:
    """The versions of those packages that are installed."""
    found: dict[str, str] = {}
    for name in packages:
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def write(result: dict[str, Any], output: Path) -> None:
    """Write a result that is complete."""
    result["load_average_after"] = round(os.getloadavg()[0], 2)
    output.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


def _git(*words: str) -> str:
    command = ["git", "-C", str(REPOSITORY), *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
