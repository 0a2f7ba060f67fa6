"""Figure 1 of the paper and its ablation at laptop scale: who is trained, and with whom.

The roles that are trained apart begin with the weights of the team: the warm start of the team is
run first, and each role's policy is then trained alone from there, the planner in `team="single"`,
the tool agent in `team="single-tool"`, with the prompts of the team. So both can read what the team
reads, and differ from the team's policies in the training alone. Afterwards they play as a team.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomli_w

from credit_study.tiny import ENVIRONMENT, ROOT, command_of, flags_of, played, train

__all__ = ["begin_apart", "figure_cell"]

ALONE = {"planner": "single", "tool": "single-tool"}
"""Role -> the team in which it plays alone."""


def figure_cell(
    plays: str,
    limit_s: int,
    task: Mapping[str, Any],
    keys: Mapping[str, Any],
    reward: str,
    rate: float,
    seed: int,
) -> dict[str, Any]:
    """Train until the task's sampled tokens are used up, and evaluate on its held-out levels.

    Args:
        plays: `"single"`: the planner alone, with a warm start of its own; `"team"`: all roles;
            `"apart"`: each role alone, from the team's warm start, with the task's tokens each.
        limit_s: Limit of the processor time of a training.
        task: Run file of the team, tokens, further keys.
        keys: The variant: sections of a run file.
        reward: Argument of the environment.
        rate: Learning rate.
        seed: Of the run; the held-out levels are always the same.

    Returns:
        As `training_cell`. A team of two policies has `swapped` besides: its success with policies
        exchanged. `"apart"` has what `training_cell` returns for each role instead, and `joined`:
        the success of both as a team, and that of the same team `before` training.
    """
    started = time.monotonic()
    flags = flags_of(task, keys, reward, rate, seed)
    with tempfile.TemporaryDirectory(prefix="credit-study-") as name:
        folder = Path(name)
        if plays == "apart":
            found = _apart(folder, task, flags, limit_s)
        elif plays == "single":
            path = _alone(folder, task, "planner", {})
            found = train([path], flags, folder / "run", task["tokens"], limit_s)
        else:
            files = [ROOT / task["config"]]
            found = train(files, flags, folder / "run", task["tokens"], limit_s)
            policies = tomllib.loads(files[0].read_text(encoding="utf-8"))["policies"]
            if found["complete"] and len(policies) > 1:
                found["swapped"] = played(folder / "run", "swapped", {}, "--swap")["swapped"]
    return {**found, "seconds": round(time.monotonic() - started, 1)}


def _apart(
    folder: Path, task: Mapping[str, Any], flags: Mapping[str, Any], limit_s: int
) -> dict[str, Any]:
    """Train each role alone, from the weights of the team's warm start, and join them."""
    team = folder / "team"
    begun = begin_apart(team, task, flags)
    found: dict[str, Any] = {"complete": True}
    for role, weights in begun.items():
        changes = {"policies": {role: {"model": str(weights)}}}
        path = _alone(folder, task, role, changes)
        alone = {**flags, "warm_start.num_steps": 0}
        found[role] = train([path], alone, folder / role, task["tokens"], limit_s)
        found["complete"] &= found[role]["complete"]
        if "error" in found[role]:
            found["error"] = found[role]["error"]
    if found["complete"]:
        after = {role: f"run:{folder / role}?policy={role}" for role in ALONE}
        before = {role: f"hf:{weights}" for role, weights in begun.items()}
        found["joined"] = {
            "before": played(team, "before", before)["main"],
            "after": played(team, "after", after)["main"],
        }
    return found


def begin_apart(
    directory: Path, task: Mapping[str, Any], flags: Mapping[str, Any]
) -> dict[str, Path]:
    """Run the warm start of the team; return role -> directory of the weights it begins with.

    Args:
        directory: Output directory of the warm start, new.
        task: Run file of the team.
        flags: Keys that override those of the run file.
    """
    command = command_of([ROOT / task["config"]], {**flags, "output_dir": directory}, "warm-start")
    subprocess.run(command, capture_output=True, check=True, env=ENVIRONMENT)
    return {role: directory / "policies" / role for role in ALONE}


def _alone(folder: Path, task: Mapping[str, Any], role: str, changes: Mapping[str, Any]) -> Path:
    """Write the run file in which a role of the team plays alone; return its path."""
    config = tomllib.loads((ROOT / task["config"]).read_text(encoding="utf-8"))
    kwargs, warm_start = config["env"]["kwargs"], config["warm_start"]
    kwargs["team"], kwargs["prompts"] = ALONE[role], {role: kwargs["prompts"][role]}
    warm_start["demonstrators"] = {role: warm_start["demonstrators"][role]}
    config["policies"] = {role: config["policies"][config["roles"][role]]}
    config["roles"] = {role: role}
    path = folder / f"{role}.toml"
    path.write_text(tomli_w.dumps({**config, **changes}), encoding="utf-8")
    return path
