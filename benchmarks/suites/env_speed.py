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

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from measuring import frame, parser_of, spread, write

HERE = Path(__file__).with_name("env_speed_here.py")
THERE = Path(__file__).with_name("env_speed_there.py")
PEERS = ("gem-llm", "reasoning-gym", "textarena")
GEM_RESET = "`SokobanEnv.reset(seed=)`"
STEP = "`env.step(text)`, `env.last()`, two agents"
RESET = "`env.reset(seed=)`, `env.last()`"


class Row(NamedTuple):
    """A comparison."""

    title: str
    here: str
    """What a user calls here."""
    peer: str
    """Empty: none of the peers has this game; ours is timed alone."""
    there: str
    """What a user calls there."""
    ours: str
    """Workload of env_speed_here.py."""
    theirs: str
    """Workload of env_speed_there.py."""
    goal: float | None = None


def paper(name: str) -> str:
    """Return the calls of a game of the paper's code."""
    return f"`{name}.step([action])`, its `observation`"


SUDOKU, SOKOBAN = paper("SudukuEnvState"), paper("SokobanGridEnvState")
PLAN_PATH = "`PlanPathGridEnvState.step([action])`, `text_observation()`"
PAPER_AGENT = "`PlanAgent.update_from_model(text)`, `.step(env)`, `.update_from_env(turn, env)`"
GYM = "`create_dataset(...)[i]`"
ROWS = (
    *(
        Row(f"{title}, steps{note}", STEP, "gem-llm", there, ours, theirs, goal)
        for title, name, env, aim in (
            ("Sudoku 4x4", "sudoku_4x4", "Sudoku", 2),
            ("Sudoku 9x9", "sudoku_9x9", "Sudoku", 2),
            ("Sokoban 6x6, 1 box", "sokoban", "Sokoban", 3),
        )
        for note, there, ours, theirs, goal in (
            ("", f"`{env}Env.step(text)`", f"{name}_steps", f"{name}_steps", aim),
            (
                ", the board alone on both sides",
                f"`{env}Env.step(text)`",
                f"{name}_board_steps",
                f"{name}_steps",
                None,
            ),
            (
                ", whole prompts on both sides",
                f"`ObservationWrapper({env}Env).step(text)`",
                f"{name}_steps",
                f"{name}_prompt_steps",
                None,
            ),
        )
    ),
    *(
        Row(title, STEP, "paper's code", there, f"{name}_steps", theirs, goal)
        for game, name, state, note, goal in (
            ("Sudoku 16x16", "sudoku_16x16", SUDOKU, "", 10),
            ("Plan-Path 10x10", "plan_path", PLAN_PATH, " (there: of the first board)", 3),
            ("Sokoban 6x6, 1 box", "sokoban", SOKOBAN, "", 3),
        )
        for title, there, theirs in (
            (f"{game}, steps; the peer's reads no text", state, f"{name}_steps"),
            (f"{game}, steps, from text to prompt{note}", PAPER_AGENT, f"{name}_agent_steps"),
        )
    ),
    *(
        Row(
            f"Sokoban 6x6, {count} {name}, shortest solution known, levels",
            RESET,
            peer,
            there,
            f"sokoban_{count}_{name}_levels",
            f"sokoban_{count}_{name}_levels",
            goal,
        )
        for count, name, peer, there, goal in (
            (1, "box", "gem-llm", GEM_RESET, 10),
            (2, "boxes", "reasoning-gym", GYM, None),
            (3, "boxes", "reasoning-gym", GYM, None),
        )
    ),
    Row(
        "Sudoku 4x4, 6 clues, one solution, levels",
        RESET,
        "reasoning-gym",
        GYM,
        "sudoku_4x4_levels",
        "sudoku_4x4_levels",
    ),
    Row(
        "Sudoku 9x9, 40 clues, one solution, levels",
        RESET,
        "TextArena",
        "`SudokuEnv.reset(num_players=1, seed=)`",
        "sudoku_9x9_40_clues_levels",
        "sudoku_9x9_40_clues_levels",
        10,
    ),
    Row(
        "Sudoku 9x9, 31 clues, one solution, levels",
        RESET,
        "gem-llm",
        "`SudokuEnv.reset(seed=)`",
        "sudoku_9x9_31_clues_levels",
        "sudoku_9x9_31_clues_levels",
        10,
    ),
    Row(
        "Plan-Path 10x10, shortest path known, levels",
        RESET,
        "reasoning-gym",
        GYM,
        "plan_path_levels",
        "plan_path_levels",
        2,
    ),
    Row(
        "a copy of an environment for two agents",
        "`env.fork()`",
        "gem-llm",
        "`copy.deepcopy(env)`",
        "forks",
        "forks",
    ),
)


def rate(command: list[str]) -> float | None:
    """Return what a workload prints last, None if it fails."""
    # CPU time counts all threads, and NumPy's linear algebra starts some that spin for a while.
    env = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no output"])[-1]
        print(f"{' '.join(command[1:5])}: {reason}", file=sys.stderr)
        return None
    return float(done.stdout.strip().splitlines()[-1])


def measure(row: Row, rounds: int, seconds: float, python: str, checkout: str) -> dict[str, Any]:
    """Time both sides of a row in turn."""
    ours: list[float] = []
    theirs: list[float] = []
    for seed in range(rounds):
        tail = [str(seed), str(seconds)]
        here = rate([sys.executable, str(HERE), row.ours, *tail])
        # isolated: the paper's package has the name of ours
        command = [python, "-I", str(THERE), row.peer, row.theirs, *tail, checkout]
        there = rate(command) if row.peer else None
        if here is not None and (there is not None or not row.peer):
            ours.append(here)
        if here is not None and there is not None:
            theirs.append(there)
    result: dict[str, Any] = row._asdict()
    if ours:
        result["here_us"] = spread([1e6 / value for value in ours])
    if theirs:
        result["there_us"] = spread([1e6 / value for value in theirs])
        result["ratio"] = spread([one / other for one, other in zip(ours, theirs, strict=True)])
    return result


def versions(python: str) -> dict[str, str]:
    """Return the version of every peer."""
    code = "import importlib.metadata, sys; print(importlib.metadata.version(sys.argv[1]))"
    found: dict[str, str] = {}
    for name in PEERS:
        done = subprocess.run([python, "-c", code, name], capture_output=True, text=True)
        found[name] = done.stdout.strip() or "not installed"
    return found


def revision(checkout: str) -> str:
    """Return the revision of the paper's code that was measured."""
    command = ["git", "-C", checkout, "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True).stdout.strip() or "unknown"


def main(suite: str = "env_speed", rows: Sequence[Row] = ROWS) -> None:
    """Measure rows and write the JSON result of their suite."""
    parser = parser_of(suite, __doc__)
    parser.add_argument("--peers-python", required=True, help="interpreter with the peers")
    parser.add_argument("--paper-code", default="", help="checkout of the paper's public code")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.5, help="CPU time of a measurement")
    options = parser.parse_args()
    result = frame(suite, range(options.rounds))
    result["versions"] |= versions(options.peers_python)
    result["versions"]["paper's code"] = revision(options.paper_code)
    result["rows"] = []
    for row in rows:
        found = measure(
            row, options.rounds, options.seconds, options.peers_python, options.paper_code
        )
        print(row.title, row.peer, found.get("ratio"), flush=True)
        result["rows"].append(found)
    write(result, options.output)


if __name__ == "__main__":
    main()
