"""Tables of what train steps take: time by part, growth, overlap, memory."""

from __future__ import annotations

import math
from statistics import linear_regression
from typing import Any

from document_tables.markdown import caption, markdown, percent, ratio, result

SWEPT = {
    "levels": "levels of a step",
    "candidates": "candidates of a decision",
    "team": "team",
    "agents": "agents of an ensemble",
    "game": "game",
}
_KINDS = ("planned", "by_hand")


def phases() -> str:
    """Return what a train step takes and where, at every point that was measured."""
    data = result("trainer_scaling")
    rows = [
        [
            f"{SWEPT[name]}: {str(point['value']).replace('_', ' ')}",
            f"{point['num_sampled_tokens']['median']:,.0f}",
            f"{point['step_s']['median']:.2f} s",
            *(percent(point["shares"][phase]) for phase in ("generate", "update", "environment")),
            f"{point['us_per_sampled_token']['median']:.0f} \u00b5s",
        ]
        for name, sweep in data["sweeps"].items()
        for point in sweep["points"]
    ]
    header = ["varied", "sampled tokens", "step", "generation", "update", "environment"]
    return markdown([*header, "per sampled token"], rows) + caption(data)


def overlap() -> str:
    """Return the step times of rollouts that overlap with updates, and with each other."""
    data = result("trainer_overlap")
    rows = [
        [
            name,
            *(f"{entry[figure]['median']:.2f} s" for figure in ("step_s", "rollout_s", "update_s")),
            f"{entry['wait_s']['median']:.2f} s",
            ratio(entry["faster"]),
        ]
        for name, entry in data["variants"].items()
    ]
    header = ["variant", "step", "rollouts", "update", "waiting for rollouts", "faster"]
    return markdown(header, rows) + caption(data)


def episodes_at_once() -> str:
    """Return what an episode costs among few and among many, in every part of a train step."""
    data = result("growth")
    rows = [
        [
            f"{entry['num_episodes']:,}",
            *(f"{micros:.0f} \u00b5s" for micros in entry["us_per_episode"].values()),
            f"{entry['grown_mib']:.0f} MiB",
        ]
        for entry in data["episodes"]
    ]
    header = ["episodes at once", "level", "rollout", "groups", "batches", "for the viewer"]
    return markdown([*header, "memory"], rows) + caption(data)


def sandbox_workers() -> str:
    """Return rollouts per hour with so many workers of the sandbox."""
    return _per_hour("workers", result("growth")["workers"]) + caption(result("growth"))


def rollout_servers() -> str:
    """Return rollouts per hour with so many vLLM servers."""
    data = result("fleet_servers")
    return _per_hour("servers", data) + caption(data)


def _per_hour(what: str, data: dict[str, Any]) -> str:
    numbers = list(data["simulated_per_hour"])
    rows = [
        [name, *(f"{data[key][n]:,}" if n in data[key] else "" for n in numbers)]
        for name, key in (("measured", "measured_per_hour"), ("simulated", "simulated_per_hour"))
    ]
    return markdown([what, *numbers], rows)


def long_run_memory() -> str:
    """Return the memory of a run after so many train steps."""
    found = result("growth")["memory"]["mib_after"]
    row = ["memory", *(f"{mib:.0f} MiB" for mib in found.values())]
    return markdown(["train steps", *found], [row]) + caption(result("growth"))


def fleet() -> str:
    """Return what the planner of fleets says, beside what is calculated or measured."""
    data = result("fleet")
    rows = [
        [
            f"time in an M/M/1 queue, load {row['load']:g}",
            f"{row['simulated']:.3f}",
            f"{row['calculated']:.3f}",
            f"{row['simulated'] / row['calculated']:.3f}",
        ]
        for row in data["queues"]
    ]
    rows += _settings(data["machine"])
    header = ["seconds of", "planned", "calculated or measured", "ratio"]
    return markdown(header, rows) + caption(data)


def fleet_servers() -> str:
    """Return train steps with vLLM servers, planned and measured."""
    data = result("fleet_servers")
    header = ["seconds of", "planned", "measured", "ratio"]
    return markdown(header, _settings(data["settings"])) + caption(data)


def _settings(rows: list[dict[str, Any]]) -> list[list[str]]:
    return [
        [
            f"train step, {row['setting']}",
            f"{row['planned_s']['median']:.2f}",
            "{median:.2f} ({min:.2f} to {max:.2f})".format(**row["measured_s"]),
            "{median:.2f} ({min:.2f} to {max:.2f})".format(**row["planned_over_measured"]),
        ]
        for row in rows
    ]


def fleet_stragglers() -> str:
    """Return what stragglers cost on planned engines, and how many episodes are given up."""
    data = result("fleet")
    rows = [
        [
            str(row["bound"]),
            f"{row['waiting_s']:.0f} s",
            f"{row['dropped_s']:.0f} s",
            f"{row['waiting_s'] / row['dropped_s']:.2f}x",
            f"{row['stale']:.1%}",
        ]
        for row in data["stragglers"]
    ]
    head = ["`max_staleness`", "all are waited for", "stragglers are given up", "faster"]
    return markdown([*head, "episodes given up"], rows) + caption(data)


def gpu_updates() -> str:
    """Return what updates of models with random weights took on a GPU."""
    rows = [
        [
            model.removeprefix("Qwen/"),
            {"lora": "an adapter", "full": "all weights"}[kind],
            f"{job['tokens_per_s']:,.0f}" if job["fits"] else "not tried: does not fit by the plan",
            f"{job['peak_bytes'] / 2**30:.1f} GiB" if job["fits"] else "",
        ]
        for (model, kind), job in _gpu_jobs("update")
    ]
    return markdown(["model", "trained", "tokens per second", "memory"], rows) + _gpu_caption()


def gpu_attention() -> str:
    """Return FlexAttention beside padded rows on a GPU: time, memory and distance."""
    job = result("gpu_campaign")["jobs"]["packed_attention"]
    rows = [
        [
            name.replace("_", " "),
            f"{found['num_tokens']:,}",
            f"{found['padded_s'] / found['flex_s']:.2f}x",
            f"{found['padded_peak_bytes'] / found['flex_peak_bytes']:.2f}x",
            f"{max(found['largest_gaps']):.1%}",
        ]
        for name, found in job.items()
        if isinstance(found, dict)
    ]
    header = ["micro-batch", "tokens", "faster", "less memory", "largest difference"]
    return markdown(header, rows) + _gpu_caption()


def _gpu_jobs(kind: str) -> list[tuple[list[str], dict[str, Any]]]:
    jobs = result("gpu_campaign")["jobs"]
    return [(name.split()[1:], job) for name, job in jobs.items() if name.split()[0] == kind]


def _gpu_caption() -> str:
    data = result("gpu_campaign")
    machine = data["jobs"]["machine"]
    where = f"{machine['gpu']}, torch {machine['torch']}, transformers {machine['transformers']}"
    return caption(data | {"hardware": where})


def fleet_plans() -> str:
    """Return the fastest fleets of some plans, what they wait for, and what planning took."""
    data = result("fleet")
    rows = [
        [
            f"`{row['recipe']}`",
            str(row["num_gpus"]),
            _gpus(row["generate"]),
            _gpus(row["learn"]),
            "{:.0f} s ({:.0f} to {:.0f})".format(row["step_s"], *row["range_s"]),
            "/".join(f"{share:.0%}" for share in row["busy"].values()),
            f"{row['usd']:,}",
            row["waits_for"],
            f"{row['num_fleets']} fleets, {row['cpu_s']:.0f} s",
        ]
        for row in data["plans"]
    ]
    head = ["run", "GPUs", "generate", "learn", "train step", "busy", "$", "waits for", "planning"]
    return markdown(head, rows) + caption(data)


def _gpus(numbers: int | str | list[int]) -> str:
    if isinstance(numbers, list):
        return "/".join(map(str, numbers))
    return f"{numbers} shared" if isinstance(numbers, int) else numbers


def fleet_orders() -> str:
    """Return what long answers and waiting for each other cost, on planned engines."""
    data = result("fleet")
    rows = [
        [
            f"{row['spread']:g}",
            f"{row['waiting']:.0f} s",
            f"{row['continuous']:.0f} s",
            f"{row['waiting'] / row['continuous']:.2f}x",
            f"{row['tail']:.0%}",
        ]
        for row in data["orders"]
    ]
    head = ["spread of lengths", "all wait for the longest", "nobody waits", "faster", "tail"]
    return markdown(head, rows) + caption(data)


def growth() -> str:
    """Return how the time of a train step grows with what is varied."""
    rows = [
        [
            SWEPT[name],
            f"{sweep['points'][0]['value']} to {sweep['points'][-1]['value']}",
            f"{1000 * sweep['slope_s_per_unit']['step']['median']:.0f} ms",
            "{median:.2f} ({min:.2f} to {max:.2f})".format(**sweep["growth_exponent"]),
            f"{_exponent(sweep['points']):.2f}",
        ]
        for name, sweep in result("trainer_scaling")["sweeps"].items()
        if "growth_exponent" in sweep
    ]
    header = ["varied", "from, to", "for one more", "over sampled tokens", "over all tokens"]
    return markdown(header, rows)


def _exponent(points: list[dict[str, Any]]) -> float:
    """Return the exponent with which step time grows with the tokens that are read and written."""
    tokens = [p["num_prompt_tokens"]["median"] + p["num_sampled_tokens"]["median"] for p in points]
    times = [point["step_s"]["median"] for point in points]
    return linear_regression([*map(math.log, tokens)], [*map(math.log, times)]).slope


def planned_memory() -> str:
    """Return the peak that the dry run plans beside what runs took."""
    data = result("planned_memory")
    rows = [
        [
            row["title"],
            *(f"{row[key] / (1 << 30):.2f} GiB" for key in ("planned", "measured")),
            f"{row['planned'] / row['measured']:.2f}",
        ]
        for row in data["rows"]
    ]
    return markdown(["run", "planned", "measured", "planned over measured"], rows) + caption(data)


def plan_by_hand() -> str:
    """Return what the dry run plans for the recipes of GPUs beside arithmetic by hand."""
    data = result("plan_by_hand")
    rows = [
        [f"`{name}`", row["quantity"], *(_size(row, kind) for kind in _KINDS), row["how"]]
        for name, found in data["recipes"].items()
        for row in found
    ]
    made = f"Computed on {data['date']} with `{data['command']}`."
    header = ["recipe", "on a GPU", "planned", "by hand", "how"]
    return markdown(header, rows) + f"\n{made}\n"


def _size(row: dict[str, Any], kind: str) -> str:
    number: float | None = row[kind]
    if number is None:
        return "in the micro-batch"
    if row["quantity"] == "parameters":
        return f"{number:,.0f}"
    return f"{number / (1 << 30):.2f} GiB" if number >= 1 << 20 else f"{number / 1024:.0f} KiB"
