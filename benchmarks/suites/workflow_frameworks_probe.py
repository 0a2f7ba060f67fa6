"""One team of examples/frameworks, with the framework that is installed here: does it train?

    python benchmarks/suites/workflow_frameworks_probe.py TEAM

`workflow_frameworks.py` runs it in environments that have the framework. The last line that it
prints is a JSON object of what was found.
"""

from __future__ import annotations

import importlib
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tomli_w
from safetensors.torch import load_file
from tokenizers import Regex
from tokenizers.pre_tokenizers import Split

from pettingllms.evaluation.training_run import TrainingRun, replay_rollout
from pettingllms.files import read_lines
from pettingllms.types import role_of
from pettingllms.workflows import Workflow, WorkflowEnv
from pettingllms_trainers.backends.hf.tiny import build_tiny, build_tokenizer
from pettingllms_trainers.cli import main
from pettingllms_trainers.runs.metrics import is_timing

TEAMS = Path(__file__).resolve().parents[2] / "examples" / "frameworks"
_SHOWN = 300
NUM_STEPS, NUM_LEVELS, NUM_CANDIDATES, NUM_PLAYS = 3, 3, 4, 3


def probed(team: str, folder: Path) -> dict[str, Any]:
    """What was found about a team: a check that fails raises `AssertionError`."""
    sys.path.append(str(TEAMS))
    module = importlib.import_module(team)
    played = play(module.workflow)
    words = {text for texts in module.ANSWERS.values() for text in texts} | played
    build_words(folder / "model", sorted(words | set("0123456789+*")))
    path = folder / "run.toml"
    path.write_text(tomli_w.dumps(run_file(team, module.workflow, folder / "model")))
    first = folder / "first"
    assert main([str(path), "--trust", "--output-dir", str(first)]) == 0, "the run failed"
    found = trained(first, module.workflow)
    check_trees(first, module.workflow)
    if same(first, run(path, hash_seed=other_order(module.workflow.roles))):
        return found
    assert same(first, run(path, hash_seed=0)), "a seed does not repeat"
    return {**found, "note": "a seed repeats with the same PYTHONHASHSEED only"}


def run(path: Path, *, hash_seed: int) -> Path:
    """Train in a process of its own, and return the folder of the run.

    Sets of texts, and what a framework makes of them, have another order there if the seed of
    hashes is not that of this process, which is 0.
    """
    folder = path.with_name(f"hash-seed-{hash_seed}")
    command = [
        sys.executable,
        "-m",
        "pettingllms_trainers.cli",
        str(path),
        "--trust",
        "--output-dir",
    ]
    variables = {**os.environ, "PYTHONHASHSEED": str(hash_seed)}
    done = subprocess.run([*command, str(folder)], env=variables, capture_output=True, text=True)
    assert done.returncode == 0, f"the run failed: {done.stderr.strip()[-_SHOWN:]}"
    return folder


def other_order(names: Sequence[str]) -> int:
    """A seed of hashes by which a set of names is in another order than in this process."""
    code = f"print(*{{*{[*names]!r}}})"
    for seed in range(1, 100):
        variables = {**os.environ, "PYTHONHASHSEED": str(seed)}
        done = subprocess.run(
            [sys.executable, "-S", "-c", code], env=variables, capture_output=True
        )
        if done.stdout.decode().split() == [*set(names)][::-1]:
            return seed
    return 1


def same(one: Path, other: Path) -> bool:
    """Whether two runs have the same metrics, trees and weights."""
    return all(kind(one) == kind(other) for kind in (metrics_of, trees_of, weights_of))


def play(workflow: Workflow) -> set[str]:
    """Solve tasks by the script, with a fork that says anything at every turn; return the texts.

    A fork continues from recorded answers, and what happens in it changes nothing here.
    """
    texts: set[str] = set()
    rng = random.Random(0)
    for split in ("train", "test"):
        env = WorkflowEnv(workflow, split=split)
        for seed in range(NUM_PLAYS):
            env.reset(seed=seed)
            agent = env.agent_selection
            while not (env.terminations[agent] or env.truncations[agent]):
                fork = env.fork()
                fork.step(env.scripted_action(agent, "any", rng))
                texts.add(env.scripted_action(agent, "right", rng))
                env.step(env.scripted_action(agent, "right", rng))
                agent = env.agent_selection
            assert env.infos[agent]["success"], f"the script does not solve {env.state()}"
    return texts


def build_words(folder: Path, words: list[str]) -> None:
    """Build a tiny model whose tokens are whole answers.

    It reads whatever stands between its words as one unknown token, so that prompts with schemas of
    tools, which it could not understand anyway, are short.
    """
    build_tiny(folder, vocabulary=words, hidden_size=32, num_layers=1, num_heads=2, max_length=512)
    tokenizer = build_tokenizer(words, max_length=512)
    known = "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))
    pattern = Regex(f"{known}|(?:(?!{known})[\\s\\S])+")
    tokenizer.backend_tokenizer.pre_tokenizer = Split(pattern, "isolated")
    tokenizer.save_pretrained(folder)


def run_file(team: str, workflow: Workflow, model: Path) -> dict[str, Any]:
    """A run of a few steps, in which every role has a policy of its own."""
    roles = sorted(set(map(role_of, workflow.agents)))
    return {
        "num_steps": NUM_STEPS,
        "num_threads": 1,
        "env": {"id": f"workflow:{TEAMS / team}.py:workflow"},
        "every_policy": {"model": str(model)},
        "roles": {role: role for role in roles},
        "warm_start": {
            "num_steps": 120,
            "num_episodes": 32,
            "batch_size": 32,
            "learning_rate": 3e-3,
            "demonstrators": {role: {"right": 0.7, "any": 0.3} for role in roles},
        },
        "algorithm": {"name": "continuation", "num_candidates": NUM_CANDIDATES},
        "rollout": {"num_levels": NUM_LEVELS, "max_completion_tokens": 2},
        "optimizer": {"learning_rate": 1e-3},
        "evaluation": {"num_episodes": 1, "decoding": "greedy", "swap_roles": False},
        "logging": {
            "progress": "off",
            "tensorboard": False,
            "rollouts_every": 1,
            "num_rollouts": NUM_LEVELS,
        },
    }


def trained(run: Path, workflow: Workflow) -> dict[str, Any]:
    """In how many steps every role learnt something; each must in one of them at least."""
    lines = [
        line for line in read_lines(run / "metrics.jsonl") if "rollout/num_failed_trees" in line
    ]
    assert len(lines) == NUM_STEPS, f"{len(lines)} train steps"
    assert not any(line["rollout/num_failed_trees"] for line in lines), "a tree has failed"
    steps = {
        role: sum(
            bool(line.get(f"update/{role}/num_groups") and line[f"loss/{role}/grad_norm"] > 0)
            for line in lines
        )
        for role in sorted(set(map(role_of, workflow.agents)))
    }
    # A role without a gradient is wired past the trainer.
    assert all(steps.values()), f"steps with a signal: {steps}"
    return {"steps_with_signal": steps}


def check_trees(run: Path, workflow: Workflow) -> None:
    """Every recorded tree is played again: each group is answers to one request, of one agent."""
    opened = TrainingRun.open(run, trust=True)
    trees = [tree for tree in trees_of(run) if tree["set"] == "training"]
    assert len(trees) == NUM_STEPS * NUM_LEVELS, f"{len(trees)} trees"
    for tree in trees:
        for decision in tree["decisions"]:
            # A framework that keeps state between calls fails in the fork, not in the run.
            assert len(decision["candidates"]) == NUM_CANDIDATES, "a branch was dropped"
            assert decision["policy"] == role_of(decision["agent"])
        replay_rollout(opened, tree["step"], tree["episode"]).replay()


def metrics_of(run: Path) -> list[dict[str, Any]]:
    """The metrics of a run without those that depend on the clock."""
    return [
        {name: value for name, value in line.items() if not is_timing(name)}
        for line in read_lines(run / "metrics.jsonl")
    ]


def trees_of(run: Path) -> list[dict[str, Any]]:
    """The recorded trees."""
    return list(read_lines(run / "rollouts.jsonl"))


def weights_of(run: Path) -> dict[str, Any]:
    """The trained weights of all policies."""
    return {
        f"{path.parent.name} {name}": weight.tolist()
        for path in sorted(run.glob("policies/*/model.safetensors"))
        for name, weight in load_file(path).items()
    }


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        try:
            result: dict[str, Any] = {"works": True, **probed(sys.argv[1], Path(name))}
        except Exception as error:  # noqa: BLE001  any way in which a framework fails is a result
            traceback.print_exc()
            result = {"works": False, "cause": f"{type(error).__name__}: {error}"}
    spent = os.times()
    result["cpu_s"] = round(sum(spent[:4]), 1)
    print(f"\n{json.dumps(result)}")  # frameworks may leave a line open
