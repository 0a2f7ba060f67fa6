"""Episodes of the coder-tester and mathematics environments, against a fresh interpreter per test.

    python benchmarks/suites/code_math.py [--rounds 5] [--problems 8]

Both variants play the same scripted episodes of `code_v0` with the same environment code and the
same number of programs at a time: turn one with a wrong program, turn two with the right one, each
turn branched into four candidates per agent (two different ones, as sampling gives them), the first
of which is followed. Variant `sandbox` is the environment as it is. Variant `fresh` runs every test
in a fresh `python -I` and remembers no verdict, which is how the paper's public code works. The
known-bad programs of each problem are found beforehand in both variants.

Every round plays every variant once, in turn; the ratio is formed within a round, since other
things may run on the machine. Written are the median over the rounds, the minimum and the maximum.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pettingllms.sandbox import ExecutionResult, Limits, Sandbox, Status
from pettingllms.testing import play
from pettingllms.testing.play import scripted_actor
from pettingllms_envs.code import EXERCISES, CodeEnv
from pettingllms_envs.code.judge import Judge
from pettingllms_envs.code.memory import Memory
from pettingllms_envs.code.problems import builtin_problem
from pettingllms_envs.math import MathEnsembleEnv, MathEnv, Verifier

REPOSITORY = Path(__file__).resolve().parents[2]
RESULT = REPOSITORY / "benchmarks" / "results" / "code_math.json"
NUM_WORKERS = 2
NUM_CANDIDATES = 4


class FreshInterpreters:
    """Runs every input in a fresh interpreter, without protection."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(NUM_WORKERS)

    def run_many(self, code: str, stdins: Sequence[str], limits: Limits) -> list[ExecutionResult]:
        """Run a program once per input."""
        return list(self._threads.map(lambda stdin: self._run(code, stdin, limits), stdins))

    def _run(self, code: str, stdin: str, limits: Limits) -> ExecutionResult:
        command = [sys.executable, "-I", "-c", code]
        done = subprocess.run(
            command, input=stdin, capture_output=True, text=True, timeout=limits.wall_s, check=False
        )
        status = Status.OK if done.returncode == 0 else Status.ERROR
        return ExecutionResult(status, done.stdout, done.stderr, done.returncode, 0, 0, 0, False)


class ForgetfulJudge(Judge):
    """Remembers the known-bad programs of a problem and nothing else."""

    def __init__(self, sandbox: Any) -> None:
        super().__init__(sandbox)
        self._runs, self._passed = Memory(0), Memory(0)


def episode(env: CodeEnv, problem_id: str) -> None:
    """Play one branched episode: a wrong program first, then the right one."""
    problem = builtin_problem(problem_id)
    rng = random.Random(0)
    programs = [f"```python\n{problem.wrong_programs[0]}```", f"```python\n{problem.solution}```"]
    env.reset(seed=0, options={"problem": problem_id})
    while not any(env.terminations.values()):
        agent = env.agent_selection
        if agent == "coder_0":
            followed, other = programs if env.turn == 0 else programs[::-1]
        else:
            followed, other = (
                env.scripted_action(agent, policy, rng) for policy in ("oracle", "constant")
            )
        branches = [env.fork() for _ in range(NUM_CANDIDATES)]
        for branch, text in zip(branches, (followed, other, followed, other), strict=True):
            branch.step(text)
        env = branches[0]


def code_episodes_per_s(judge: Judge, problem_ids: Sequence[str]) -> float:
    """Play one episode of each problem with a judge and return the rate."""
    env = CodeEnv(split=None)
    env._judge = judge
    for problem_id in problem_ids:
        judge.bad_programs(builtin_problem(problem_id))
        judge.run(builtin_problem(problem_id), "print(1)", ["1"])
    start = time.perf_counter()
    for problem_id in problem_ids:
        episode(env, problem_id)
    return len(problem_ids) / (time.perf_counter() - start)


def math_episodes_per_s(env: Any, count: int) -> float:
    """Play scripted episodes and return the rate."""
    start = time.perf_counter()
    for seed in range(count):
        env.reset(seed=seed)
        play(env, scripted_actor("oracle", random.Random(seed)))
    return count / (time.perf_counter() - start)


def verdicts_per_s(count: int) -> float:
    """Compare different pairs of formulas and return the rate."""
    verifier = Verifier(timeout_s=60)
    verifier.judge("1/2", "0.5")
    start = time.perf_counter()
    for number in range(count):
        verifier.judge(rf"\frac{{{number}}}{{{number + 1}}}", f"{2 * number}/{2 * number + 2}")
    return count / (time.perf_counter() - start)


def one_round(problem_ids: Sequence[str]) -> dict[str, float]:
    """Measure every variant once."""
    with Sandbox(workers=NUM_WORKERS) as sandbox:
        ours = code_episodes_per_s(Judge(sandbox), problem_ids)
        math = math_episodes_per_s(MathEnv(sandbox=sandbox), 20)
        ensemble = math_episodes_per_s(MathEnsembleEnv(sandbox=sandbox), 10)
    fresh = code_episodes_per_s(ForgetfulJudge(FreshInterpreters()), problem_ids)
    return {
        "code_episodes_per_s_sandbox": ours,
        "code_episodes_per_s_fresh": fresh,
        "code_sandbox_over_fresh": ours / fresh,
        "math_episodes_per_s": math,
        "math_ensemble_episodes_per_s": ensemble,
        "verdicts_per_s": verdicts_per_s(100),
    }


def git(*arguments: str) -> str:
    """Return what git says."""
    command = ["git", "-C", str(REPOSITORY), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def summary(values: Sequence[float]) -> dict[str, float]:
    """Return median, minimum and maximum value."""
    rounded: Callable[[float], float] = lambda value: float(f"{value:.4g}")  # noqa: E731
    return {
        "median": rounded(statistics.median(values)),
        "min": rounded(min(values)),
        "max": rounded(max(values)),
        "n": len(values),
    }


def main() -> None:
    """Measure, print and write the result file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--problems", type=int, default=8)
    parser.add_argument("--output", type=Path, default=RESULT)
    options = parser.parse_args()
    ids = [exercise.id for exercise in EXERCISES]
    rounds = []
    for seed in range(options.rounds):
        rounds.append(one_round(random.Random(seed).sample(ids, options.problems)))
        print(json.dumps(rounds[-1]), flush=True)
    result = {
        "suite": "code_math",
        "date": datetime.now(UTC).date().isoformat(),
        "command": "python benchmarks/suites/code_math.py",
        "git": {"commit": git("rev-parse", "HEAD"), "is_dirty": bool(git("status", "--porcelain"))},
        "hardware": f"{platform.system()} {platform.machine()}, {NUM_WORKERS} programs at a time",
        "seeds": list(range(options.rounds)),
        "metrics": {name: summary([r[name] for r in rounds]) for name in rounds[0]},
    }
    options.output.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
