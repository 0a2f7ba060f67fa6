"""plan_path_v0: speed compared with reasoning-gym, separation of the splits, scripted policies.

    python benchmarks/suites/plan_path.py --peer-python /tmp/peers/bin/python

`--peer-python` is the interpreter of an environment with `pip install reasoning-gym`. Every round
times every workload once, in CPU seconds of one process; ratios are formed within a round. Written
is the median over the rounds with the minimum and maximum value.

The public code of the paper is on no package index. It was measured at 78,800 single steps with
text per second on a machine on which reasoning-gym made 23,986 levels/s; the ratio
`core_steps_over_paper_code_estimate` scales that by the speed of reasoning-gym in the same round.
"""

from __future__ import annotations

import argparse
import copy
import json
import platform
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pettingllms
from pettingllms_envs.plan_path import PlanPathEnv
from pettingllms_envs.plan_path.generator import Request, generate
from pettingllms_envs.plan_path.rules import canonical_form, maze_of
from pettingllms_envs.plan_path.text import compact_board

REPOSITORY = Path(__file__).resolve().parents[2]
RESULT = REPOSITORY / "benchmarks" / "results" / "plan_path.json"
REQUEST = Request(10, 10, 0.22, 4, 40, "train")

PEER = """
import importlib.metadata, sys, time
from reasoning_gym.graphs.shortest_path import ShortestPathConfig, ShortestPathDataset
config = ShortestPathConfig(10, 10, 10, 10, 0.22, size=10**9, seed=int(sys.argv[1]))
levels = ShortestPathDataset(config)
start = time.process_time()
for index in range(2000):
    levels[index]
print(2000 / (time.process_time() - start), importlib.metadata.version("reasoning-gym"))
"""


PAPER_STEPS_PER_PEER_LEVEL = 78_800 / 23_986


def levels(split: str | None) -> Callable[[int], int]:
    """Certified 10x10 levels with exact shortest lengths."""
    request = REQUEST._replace(split=split)

    def work(seed: int) -> int:
        rng = random.Random(seed)
        for _ in range(3000):
            generate(rng, request)
        return 3000

    return work


def core_steps(seed: int) -> int:
    """Single moves with the new board's text, without PettingZoo."""
    rng = random.Random(seed)
    level = generate(rng, REQUEST)
    step, draw, position = maze_of(level).step, compact_board, level.start
    moves = rng.choices("UDLR", k=200_000)
    for move in moves:
        position = step(position, move)
        draw(level, position)
    return len(moves)


def aec_steps(team: str, checks: bool, terse: bool) -> Callable[[int], int]:
    """Steps through the AEC interface: `last` and `step`, whole episodes with resets."""
    roles = ("tool", "planner") if team == "tool-planner" else ("planner",)
    prompt = {"system": "", "user": "{board_compact}"}
    prompts = dict.fromkeys(roles, prompt) if terse else None
    env = pettingllms.make("plan_path_v0", checks=checks, team=team, max_turns=50, prompts=prompts)

    def work(seed: int) -> int:
        num_steps = 0
        for episode in range(40):
            env.reset(seed=1000 * seed + episode)
            for agent in env.agent_iter():
                _, _, terminated, truncated, _ = env.last()
                if terminated or truncated:
                    break
                env.step("2,3" if agent == "tool_0" else "L")
                num_steps += 1
        return num_steps

    return work


def forks(copy_env: Callable[[PlanPathEnv], object], count: int) -> Callable[[int], int]:
    """Copies of the whole two-agent environment."""
    env = PlanPathEnv()

    def work(seed: int) -> int:
        env.reset(seed=seed)
        for _ in range(count):
            copy_env(env)
        return count

    return work


WORKLOADS: dict[str, Callable[[int], int]] = {
    "levels_per_s": levels("train"),
    "levels_per_s_without_split": levels(None),
    "core_steps_with_text_per_s": core_steps,
    "aec_steps_per_s_tool_planner": aec_steps("tool-planner", False, False),
    "aec_steps_per_s_tool_planner_short_prompt": aec_steps("tool-planner", False, True),
    "aec_steps_per_s_single_short_prompt": aec_steps("single", False, True),
    "aec_steps_per_s_tool_planner_with_checks": aec_steps("tool-planner", True, False),
    "forks_per_s": forks(PlanPathEnv.fork, 20_000),
    "deepcopies_per_s": forks(copy.deepcopy, 100),
}


def peer_rate(python: str, seed: int) -> tuple[float, str]:
    """Levels per second of reasoning-gym's shortest_path (board and answer), and its version."""
    command = [python, "-c", PEER, str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    rate, peer_version = done.stdout.split()
    return float(rate), peer_version


def measure(num_rounds: int, peer_python: str | None) -> dict[str, object]:
    """Time all workloads in interleaved rounds."""
    rates: dict[str, list[float]] = {name: [] for name in WORKLOADS}
    peer: list[float] = []
    peer_version = "not installed"
    for seed in range(num_rounds):
        for name, work in WORKLOADS.items():
            begin = time.process_time()
            done = work(seed)
            rates[name].append(done / (time.process_time() - begin))
        if peer_python:
            rate, peer_version = peer_rate(peer_python, seed)
            peer.append(rate)
    ratios = {
        "fork_over_deepcopy": _ratio(rates["forks_per_s"], rates["deepcopies_per_s"]),
    }
    if peer:
        rates["reasoning_gym_levels_per_s"] = peer
        for name in ("levels_per_s", "levels_per_s_without_split"):
            ratios[f"{name}_over_reasoning_gym"] = _ratio(rates[name], peer)
        paper = [PAPER_STEPS_PER_PEER_LEVEL * rate for rate in peer]
        ratios["core_steps_over_paper_code_estimate"] = _ratio(
            rates["core_steps_with_text_per_s"], paper
        )
    return {
        "metrics": {name: _summary(values) for name, values in rates.items()},
        "ratios": {name: _summary(values) for name, values in ratios.items()},
        "split_overlap": split_overlap(),
        "scripted_success": scripted_success(),
        "versions": {
            "python": platform.python_version(),
            "pettingllms": pettingllms.__version__,
            "pettingzoo": version("pettingzoo"),
            "reasoning-gym": peer_version,
        },
    }


def split_overlap(num_train: int = 20_000, num_test: int = 2_000) -> dict[str, int]:
    """Contents, up to symmetry and direction, that train and test levels of equal seeds share."""
    forms: dict[str, set[bytes]] = {}
    for split, count in (("train", num_train), ("test", num_test)):
        rng, request = random.Random(0), REQUEST._replace(split=split)
        forms[split] = {canonical_form(generate(rng, request)) for _ in range(count)}
    common = len(forms["train"] & forms["test"])
    return {"train_levels": num_train, "test_levels": num_test, "common": common}


def scripted_success(num_levels: int = 500) -> dict[str, dict[str, float]]:
    """Fraction of test levels that the scripted policies of a single agent solve in the turns."""
    arms: dict[str, dict[str, Any]] = {
        "10x10, default arguments": {},
        "10x10, 30 % walls": {"obstacle_ratio": 0.3},
        "5x5, 30 % walls, 6 turns of 2 moves": {
            "size": 5,
            "obstacle_ratio": 0.3,
            "min_moves": 3,
            "max_turns": 6,
            "moves_per_turn": 2,
        },
    }
    found: dict[str, dict[str, float]] = {}
    for name, arguments in arms.items():
        env = PlanPathEnv(team="single", split="test", **arguments)
        found[name] = {}
        for policy in env.scripted_policies:
            rng, solved = random.Random(0), 0
            for seed in range(num_levels):
                env.reset(seed=seed)
                while not (env.terminations["planner_0"] or env.truncations["planner_0"]):
                    env.step(env.scripted_action("planner_0", policy, rng))
                solved += env.infos["planner_0"]["success"]
            found[name][policy] = solved / num_levels
    return found


def _ratio(above: list[float], below: list[float]) -> list[float]:
    return [one / other for one, other in zip(above, below, strict=True)]


def _summary(values: list[float]) -> dict[str, float | int]:
    low, middle, high = min(values), statistics.median(values), max(values)
    return {"median": _round(middle), "min": _round(low), "max": _round(high), "n": len(values)}


def _round(value: float) -> float:
    return float(f"{value:.4g}")


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(REPOSITORY), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def main() -> None:
    """Measure, write the JSON result, print it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--peer-python", help="interpreter with reasoning-gym installed")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--output", type=Path, default=RESULT)
    arguments = parser.parse_args()
    result = {
        "suite": "plan_path",
        "date": datetime.now(UTC).date().isoformat(),
        "command": "python benchmarks/suites/plan_path.py --peer-python PYTHON",
        "git": {
            "commit": _git("rev-parse", "HEAD"),
            "is_dirty": bool(_git("status", "--porcelain", "--", "pettingllms", "envs")),
        },
        "hardware": f"{platform.system()} {platform.machine()}, one process, CPU time",
        "seeds": list(range(arguments.rounds)),
        **measure(arguments.rounds, arguments.peer_python),
    }
    arguments.output.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    json.dump(result, sys.stdout, indent=2)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
