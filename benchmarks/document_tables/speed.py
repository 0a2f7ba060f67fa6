"""Tables of the speed of environments, sandbox and trainer beside that of others."""

from __future__ import annotations

from typing import Any

from document_tables.markdown import caption, markdown, ratio, result
from document_tables.speed_rows import SPEED

__all__ = ["core_speed", "pretrained", "speed"]


def speed() -> str:
    """Return what a user calls here against what a user calls there, missed goals included."""
    data, teams = result("env_speed"), result("env_speed_teams")
    measured = [row for row in (*data["rows"], *teams["rows"]) if "here_us" in row]
    rows = [games_row(row) for row in measured if not row["is_core"]]
    for workload, here, there, goal, source in SPEED:
        name, *keys = source.split("/")
        entry: Any = result(name)
        for key in keys:
            entry = entry[key]
        rows.append([workload, here, there, ratio(entry), verdict(goal, entry)])
    header = ["workload", "here", "there", "ratio (range)", "goal"]
    return markdown(header, rows) + _peers(data) + _peers(teams)


def core_speed() -> str:
    """Return how fast parts of the games are that no user calls alone."""
    data = result("env_speed")
    rows = [games_row(row)[:4] for row in data["rows"] if row["is_core"] and "ratio" in row]
    header = ["workload", "core, called alone", "there, the whole call", "ratio (range)"]
    return markdown(header, rows) + _peers(data)


def games_row(row: dict[str, Any]) -> list[str]:
    """Return a row of the suite env_speed; without a peer it has the time of ours."""
    if not row["peer"]:
        time = f"{row['here_us']['median']:.3g} \u00b5s, ours alone"
        return [row["title"], row["here"], "no peer has it", time, ""]
    there = f"{row['peer']}: {row['there']}"
    return [
        row["title"],
        row["here"],
        there,
        ratio(row["ratio"]),
        verdict(row["goal"], row["ratio"]),
    ]


def verdict(goal: float | None, entry: dict[str, Any]) -> str:
    """Return a goal, and whether it was missed."""
    if goal is None:
        return ""
    return f"{goal:g}x" + ("" if entry["median"] >= goal else ", missed")


def _load(data: dict[str, Any]) -> str:
    before, after = data["load_average_before"], data["load_average_after"]
    return f"load average {before:g} before, {after:g} after"


def _peers(data: dict[str, Any]) -> str:
    names = ("gem-llm", "reasoning-gym", "textarena", "paper's code")
    versions = ", ".join(f"{name} {data['versions'][name]}" for name in names)
    load = _load(data)
    rounds = f"rounds: {len(data['seeds'])}"
    return f"\nGames: {versions}. {caption(data).strip()[:-1]}, {rounds}, {load}.\n"


PRETRAINED = {
    "step_speedup_over_trl": ("train step", "TRL `GRPOTrainer`"),
    "rollout_speedup_over_trl": ("its rollouts", "TRL `GRPOTrainer`"),
    "update_speedup_over_trl": ("its update", "TRL `GRPOTrainer`"),
    "generate_speedup_over_transformers": ("generation", "`transformers.generate`"),
    "update_speedup_over_plain": ("update", "plain forward and backward"),
}


def pretrained() -> str:
    """Return what train steps of a pretrained model take beside TRL and transformers."""
    data = result("trainer_pretrained")
    rows: list[list[str]] = []
    for entry in data["shapes"].values():
        shape = (
            "{num_prompts} prompts of {prompt_length} tokens, "
            "{num_candidates} completions of {completion_length} each"
        ).format(**entry["shape"])
        for name, (what, there) in PRETRAINED.items():
            rows.append([shape, what, there, ratio(entry["ratios"][name])])
    load = _load(data)
    versions = next(iter(data["shapes"].values()))["trl"]["workload"]["versions"]
    about = ", ".join(f"{name} {version}" for name, version in versions.items())
    about_run = f"\n{data['model']}; {about}; rounds: {len(data['seeds'])}, {load}.\n"
    header = ["tokens of a step", "here", "there", "ratio (range)"]
    return markdown(header, rows) + about_run + caption(data)
