"""Figure 1 of the paper and its ablation at laptop scale: who is trained, and with whom.

The roles that are trained apart begin with the weights of the team: the warm start of the team is
run first, and each role's policy is then trained alone from there, the planner in `team="single"`,
the tool agent in `team="single-tool"`, with the prompts of the team. So both can read what the team
reads, and differ from the team's policies in the training alone. Afterwards they play as a team.
"""

from __future__ import annotations

import tempfile
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomli_w

from credit_study.runs import played
from credit_study.trained import ROOT, flags_of, trained
from credit_study.warm_start import begin_with, warm_start, weights_of
from pettingllms.evaluation.plan import swapped
from pettingllms.evaluation.training_run import TrainingRun

ALONE = {"planner": "single", "tool": "single-tool"}
"""Role -> the team in which it plays alone."""


def figure_cell(
    plays: str, task: Mapping[str, Any], reward: str, seed: int, limit_s: int, shared: Path
) -> dict[str, Any]:
    """Train by AT-GRPO until the task's sampled tokens are used up; evaluate on held-out levels.

    Args:
        plays: `"single"`: the planner alone, with a warm start of its own; `"team"`: both roles,
            with a policy each; `"shared"`: with one policy; `"apart"`: each role alone, from the
            team's warm start, with the task's tokens each.
        task: Run file of the team, tokens, further keys.
        reward: Argument of the environment.
        seed: Of the run; the held-out levels are always the same.
        limit_s: Limit of the processor time of a training.
        shared: Folder of the study's warm starts.

    Returns:
        As `training_cell`. A team of two policies has `swapped` besides: its success with policies
        exchanged. `"apart"` has the same for each role instead, and `joined`: the success of both
        as a team `after` training, and that of the same team `before`.

    Raises:
        RuntimeError: A run failed, or did not use up its tokens within the limit.
    """
    algorithm = {"name": "at_grpo", "branch_choice": "greedy"}
    flags = flags_of(task, algorithm, 48, reward, "", seed)
    with tempfile.TemporaryDirectory(prefix="credit-study-") as name:
        folder = Path(name)
        if plays == "apart":
            return _apart(folder, task, flags, limit_s, shared)
        path = ROOT / task["config"]
        if plays == "single":
            path = _alone(folder, task, "planner", {})
        elif plays == "shared":
            path = path.with_name(f"{path.stem}_shared.toml")
        begun = begin_with(shared, [path], flags)
        found = trained(path, begun, folder / "run", task["tokens"], limit_s)
        if plays == "team":
            found |= _swapped(folder / "run")
    return found


def _swapped(directory: Path) -> dict[str, float]:
    """The success with the policies exchanged."""
    line_up = TrainingRun.open(directory).line_up()
    return played(directory, directory / "swapped", {"swapped": swapped(line_up)})


def _apart(
    folder: Path, task: Mapping[str, Any], flags: Mapping[str, Any], limit_s: int, shared: Path
) -> dict[str, Any]:
    """Train each role alone, from the weights of the team's warm start, and join them."""
    team = warm_start(shared, [ROOT / task["config"]], flags)
    begun = weights_of(team)
    found: dict[str, Any] = {}
    for role in ALONE:
        path = _alone(folder, task, role, {"policies": {role: {"model": str(begun[role])}}})
        alone = {**flags, "warm_start.num_steps": 0}
        found[role] = trained(path, alone, folder / role, task["tokens"], limit_s)
    teams = {
        "before": {role: f"hf:{begun[role]}" for role in ALONE},
        "after": {role: f"run:{folder / role}?policy={role}" for role in ALONE},
    }
    return {**found, "joined": played(team, folder / "joined", teams)}


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
