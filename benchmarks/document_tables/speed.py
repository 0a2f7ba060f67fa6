"""Tables of the speed of environments, sandbox and trainer beside that of others."""

from __future__ import annotations

from typing import Any

from document_tables.markdown import caption, markdown, ratio, result

_SANDBOX, _FRESH, _TRL = "`Sandbox.run`", "fresh interpreter", "TRL `GRPOTrainer`"
_TWO_STREAMS = "figures/trivial_two_streams_over"
_STEPS = {
    "tiny": "0.43 M weights, 32 prompts of 128 tokens, 8 x 64",
    "short_prompts": "0.43 M weights, 8 prompts of 16 tokens, 8 x 128",
    "long_completions": "0.43 M weights, 8 prompts of 64 tokens, 8 x 256",
    "two_completions": "0.43 M weights, 64 prompts of 32 tokens, 2 x 64",
    "bench": "4.2 M weights, 32 prompts of 128 tokens, 8 x 64",
    "bench_short_prompts": "4.2 M weights, 8 prompts of 16 tokens, 8 x 128",
}
"""Workload of the suite trainer_trl -> its model and shape."""


def _against_trl(part: str, workload: str, phase: str, goal: float) -> tuple[Any, ...]:
    source = f"trainer_trl/workloads/{workload}/ratios/{phase}_speedup_over_trl"
    return part, "`pettingllms-train`", _TRL, goal, source


SPEED: tuple[tuple[str, str, str, float | None, str], ...] = (
    *(
        (f"sandbox, {what}, tier `{tier}`", _SANDBOX, there, goal, f"{name}/{_TWO_STREAMS}_{peer}")
        for what, tier, there, goal, name, peer in (
            ("trivial program, two streams", "namespaces", _FRESH, 4, "sandbox", "spawn"),
            ("the same", "landlock", _FRESH, 3, "sandbox_landlock", "spawn"),
            ("the same", "sealed", _FRESH, 3, "sandbox_sealed", "spawn"),
            ("the same", "namespaces", "the paper's way", 30, "sandbox", "paper"),
        )
    ),
    ("sandbox, numpy program", _SANDBOX, _FRESH, 15, "sandbox/figures/numpy_over_spawn"),
    (
        "`code_v0` episodes, four branches",
        "`env.step(text)`",
        "fresh interpreter per test, no cache",
        None,
        "code_math/metrics/code_sandbox_over_fresh",
    ),
    _against_trl(f"rollout of a train step, {_STEPS['tiny']}", "tiny", "rollout", 2.4),
    _against_trl("update of a train step, the same", "tiny", "update", 2.5),
    _against_trl("train step, the same", "tiny", "step", 2.3),
    *(
        _against_trl(f"train step, {shape}", name, "step", 2)
        for name, shape in _STEPS.items()
        if name != "tiny"
    ),
    (
        "generation, 16,384 tokens",
        "`TransformersPolicy.generate`",
        "`transformers.generate`",
        2.4,
        "trainer_throughput/workloads/shared_prompts/ratios/generate_speedup_over_transformers",
    ),
    (
        "update, the same tokens",
        "`TransformersPolicy.update`",
        "plain forward and backward",
        None,
        "trainer_throughput/workloads/shared_prompts/ratios/update_speedup_over_plain",
    ),
)
"""Workload, here, there, goal, result file and keys of the ratio in it, divided by slashes."""


def speed() -> str:
    """Return what a user calls here against what a user calls there, missed goals included."""
    data, teams = result("env_speed"), result("env_speed_teams")
    rows = [_games_row(row) for row in (*data["rows"], *teams["rows"]) if "here_us" in row]
    for workload, here, there, goal, source in SPEED:
        entry = _entry(source)
        rows.append([workload, here, there, ratio(entry), _verdict(goal, entry)])
    header = ["workload", "here", "there", "ratio (range)", "goal"]
    return markdown(header, rows) + _peers(data) + _peers(teams)


def speed_in_brief() -> str:
    """Return the best ratio, the worst one and how many are losses, in a sentence."""
    found = {
        row["title"]: (row["ratio"]["median"], row["peer"], row["goal"])
        for name in ("env_speed", "env_speed_teams")
        for row in result(name)["rows"]
        if "here_us" in row and row["peer"]
    }
    steps = [_entry(row[4])["median"] for row in SPEED if row[0].startswith("train step")]
    best, worst = (pick(found, key=lambda title: found[title][0]) for pick in (max, min))
    lost = sum(figure < 1 for figure, _, _ in found.values())
    missed = sum(bool(goal) and figure < goal for figure, _, goal in found.values())
    return (
        f"On one CPU thread, train steps are {min(steps):.1f} to {max(steps):.1f} times as fast as "
        f"TRL's; against other libraries' games, the best of {len(found)} comparisons is "
        f"{_compared(best, found)} and the worst {_compared(worst, found)}, {lost} are losses, and "
        f"{missed} miss the goal that we set ourselves.\n"
    )


def _compared(title: str, found: dict[str, tuple[float, str, float | None]]) -> str:
    figure, peer, _ = found[title]
    game, *rest = title.partition(";")[0].split(", ")
    what = " ".join([game, *(part for part in rest if part in ("steps", "levels"))])
    return f"{figure:.2g} times ({what}, beside {peer})"


def _entry(source: str) -> dict[str, Any]:
    """Return a measured ratio by result file and keys."""
    name, *keys = source.split("/")
    entry: Any = result(name)
    for key in keys:
        entry = entry[key]
    return entry


def _games_row(row: dict[str, Any]) -> list[str]:
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
        _verdict(row["goal"], row["ratio"]),
    ]


def _verdict(goal: float | None, entry: dict[str, Any]) -> str:
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
