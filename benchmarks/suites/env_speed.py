"""The games beside their peers, like for like: what a user calls here and what a user calls there.

    python benchmarks/suites/env_speed.py --peers-python PYTHON --paper-code CHECKOUT

`--peers-python` is the interpreter of a throw-away environment with `pip install gem-llm textarena
reasoning-gym`; `--paper-code` is a checkout of the public code of the paper (arXiv 2510.11062),
which is on no package index and needs numpy. What is missing is left out and reported as such.

Both sides of a row run in processes of their own, one after the other, round by round; every ratio
is formed within a round, from CPU seconds. Steps are timed without the resets between them, on a
fresh level in every episode; both sides return or build the text that an agent reads at every step.
Ours is a whole prompt with the rules each time, unless the row says that it is the board alone;
those of the peers are the board alone (gem adds a sentence), unless the row says otherwise. What
the paper's agents read of Plan-Path is the first board, not the present one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

from measuring import frame, parser_of, spread, write

HERE = Path(__file__).with_name("env_speed_here.py")
THERE = Path(__file__).with_name("env_speed_there.py")
PEERS = ("gem-llm", "reasoning-gym", "textarena")


class Row(NamedTuple):
    """A comparison with a peer."""

    title: str
    """What is compared, for people."""
    here: str
    """What a user calls here."""
    peer: str
    """Name of the peer."""
    there: str
    """What a user calls there."""
    ours: str
    """Workload of env_speed_here.py."""
    theirs: str
    """Workload of env_speed_there.py."""
    goal: float | None = None
    """Ratio that is wanted; None: none."""


ROWS = [
    Row(*texts, goal=goal or None)
    for *texts, goal in tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))[
        "rows"
    ]
]


def printed(command: list[str]) -> Any:
    """What a workload prints last, None if it fails."""
    # CPU time counts all threads, and NumPy's linear algebra starts some that spin for a while.
    env = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no output"])[-1]
        print(f"{' '.join(command[1:5])}: {reason}", file=sys.stderr)
        return None
    return json.loads(done.stdout.strip().splitlines()[-1])


def measure(row: Row, rounds: int, seconds: float, python: str, checkout: str) -> dict[str, Any]:
    """Time both sides of a row in turn."""
    ours: list[float] = []
    theirs: list[float] = []
    # In turn, so that both sides meet the same machine, busy or not.
    for seed in range(rounds):
        tail = [str(seed), str(seconds)]
        here = printed([sys.executable, str(HERE), row.ours, *tail])
        # isolated: the paper's package has the name of ours
        command = [python, "-I", str(THERE), row.peer, row.theirs, *tail, checkout]
        there = printed(command)
        # A round without one side gives no ratio.
        if here is not None and there is not None:
            ours.append(here)
            theirs.append(there)
    result: dict[str, Any] = row._asdict()
    if ours:
        result["here_us"] = spread([1e6 / value for value in ours])
        result["there_us"] = spread([1e6 / value for value in theirs])
        result["ratio"] = spread([one / other for one, other in zip(ours, theirs, strict=True)])
    return result


def versions(python: str) -> dict[str, str]:
    """The version of every peer."""
    code = "import importlib.metadata, sys; print(importlib.metadata.version(sys.argv[1]))"
    found: dict[str, str] = {}
    # Asked of its interpreter: the peers are installed there only.
    for name in PEERS:
        done = subprocess.run([python, "-c", code, name], capture_output=True, text=True)
        found[name] = done.stdout.strip() or "not installed"
    return found


def revision(checkout: str) -> str:
    """The revision of a checkout that was measured."""
    command = ["git", "-C", checkout, "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True).stdout.strip() or "unknown"


def main() -> None:
    parser = parser_of("env_speed", __doc__)
    parser.add_argument("--peers-python", default="", help="interpreter with the peers")
    parser.add_argument("--paper-code", default="", help="checkout of the paper's public code")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.5, help="CPU time of a measurement")
    options = parser.parse_args()
    result = frame("env_speed", range(options.rounds))
    result["versions"] |= versions(options.peers_python)
    result["versions"]["paper's code"] = revision(options.paper_code)
    result["rows"] = []
    for row in ROWS:
        found = measure(
            row, options.rounds, options.seconds, options.peers_python, options.paper_code
        )
        print(row.title, row.peer, found.get("ratio"), flush=True)
        result["rows"].append(found)
    write(result, options.output)


if __name__ == "__main__":
    main()
