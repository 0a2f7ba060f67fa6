"""Episodes of the coder-tester environment, against a fresh interpreter per test.

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

import json
import platform
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from measuring import frame, parser_of, spread, write

from pettingllms.sandbox import ExecutionResult, Limits, Sandbox, Status
from pettingllms_envs.code import CodeEnv, builtin_problems
from pettingllms_envs.code.judge import Judge, Memory
from pettingllms_envs.code.known_bad import BadProgram
from pettingllms_envs.datasets import CodeProblem

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
        try:
            done = subprocess.run(
                command,
                input=stdin,
                capture_output=True,
                text=True,
                timeout=limits.wall_s,
                check=False,
            )
        except subprocess.TimeoutExpired:  # known-bad programs may run for ever
            return ExecutionResult(Status.TIMEOUT, "", "", -9, limits.wall_s, 0, 0, False)
        status = Status.OK if done.returncode == 0 else Status.ERROR
        return ExecutionResult(status, done.stdout, done.stderr, done.returncode, 0, 0, 0, False)


class ForgetfulJudge(Judge):
    """Remembers the known-bad programs of a problem and nothing else."""

    def __init__(self, sandbox: Any) -> None:
        super().__init__(sandbox)
        self._memory = Memory(0)
        self._found: dict[str, tuple[BadProgram, ...]] = {}

    def bad_programs(self, problem: CodeProblem) -> tuple[BadProgram, ...]:
        """Return the known-bad programs of a problem, found once."""
        if problem.id not in self._found:
            self._found[problem.id] = super().bad_programs(problem)
        return self._found[problem.id]


def episode(env: CodeEnv, problem_id: str) -> None:
    """Play one branched episode: a wrong program first, then the right one."""
    problem = builtin_problems()[problem_id]
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
        judge.bad_programs(builtin_problems()[problem_id])
        judge.run(builtin_problems()[problem_id], "print(1)", ["1"])
    start = time.perf_counter()
    for problem_id in problem_ids:
        episode(env, problem_id)
    return len(problem_ids) / (time.perf_counter() - start)


def one_round(problem_ids: Sequence[str]) -> dict[str, float]:
    """Measure both variants once."""
    with Sandbox(workers=NUM_WORKERS) as sandbox:
        ours = code_episodes_per_s(Judge(sandbox), problem_ids)
    fresh = code_episodes_per_s(ForgetfulJudge(FreshInterpreters()), problem_ids)
    return {
        "code_episodes_per_s_sandbox": ours,
        "code_episodes_per_s_fresh": fresh,
        "code_sandbox_over_fresh": ours / fresh,
    }


def main() -> None:
    """Measure, print and write the result file."""
    parser = parser_of("code_math", __doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--problems", type=int, default=8)
    options = parser.parse_args()
    result = frame("code_math", range(options.rounds))
    result["hardware"] = f"{platform.system()} {platform.machine()}, {NUM_WORKERS} programs at once"
    ids = list(builtin_problems())
    rounds: list[dict[str, float]] = []
    for seed in range(options.rounds):
        rounds.append(one_round(random.Random(seed).sample(ids, options.problems)))
        print(json.dumps(rounds[-1]), flush=True)
    result["metrics"] = {name: spread([r[name] for r in rounds]) for name in rounds[0]}
    write(result, options.output)


if __name__ == "__main__":
    main()
