"""Writes the tables of the documents from `benchmarks/results/*.json` and the registry.

    python benchmarks/tables.py           # write
    python benchmarks/tables.py --check   # exit 1 if a document is not up to date

A table stands between `<!-- table:NAME -->` and `<!-- /table:NAME -->`. Nothing in it is typed.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import linear_regression
from typing import Any

from speed_rows import SPEED

import pettingllms
from pettingllms.evaluation.statistics import wilson_interval

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
DOCUMENTS = ("README.md", "envs/README.md", "benchmarks/README.md")
_BLOCK = re.compile(r"(<!-- table:(\w+) -->\n).*?(<!-- /table:\2 -->)", re.DOTALL)


def result(name: str) -> dict[str, Any]:
    """Return the content of `benchmarks/results/<name>.json`."""
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def markdown(header: list[str], rows: list[list[str]]) -> str:
    """Return a Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def environments() -> str:
    """Return the table of the built-in environments, from their classes."""
    rows: list[list[str]] = []
    for env_id in pettingllms.registered_ids():
        spec = pettingllms.spec(env_id)
        if spec.package != "pettingllms":
            continue
        cls: Any = spec.load()
        task = (cls.__doc__ or "").strip().splitlines()[0]
        roles = ", ".join(cls.default_prompts)
        rows.append([f"`{env_id}`", task, roles, ", ".join(cls.scripted_policies)])
    return markdown(["id", "task", "roles", "scripted policies"], rows)


def ratio(entry: dict[str, Any]) -> str:
    """Return `median (min to max)` of a measured ratio."""
    low, mid, high = (f"{entry[key]:.3g}" for key in ("min", "median", "max"))
    return f"{mid}x ({low} to {high})"


def learning() -> str:
    """Return held-out success before and after the embedded default, for every seed."""
    return _learning("learning_plan_path", "warm_start", "after")


def learning_llm() -> str:
    """Return the same for the pretrained chat model, with the untouched model before all."""
    return _learning("learning_plan_path_smollm2", "before", "warm_start", "after")


TINY = ("blocksworld", "dining", "math", "panel", "queens", "search", "sokoban")
"""Recipes in trainers/configs/tiny for one game each."""


def learning_tiny() -> str:
    """Return held-out success before and after the tiny recipes with a result, for every seed."""
    rows: list[list[str]] = []
    recorded = [name for name in TINY if (RESULTS / f"learning_{name}.json").exists()]
    found = {name: result(f"learning_{name}") for name in recorded}
    for name, data in found.items():
        for run in data["runs"]:
            scripted = {key.partition(":")[2]: one for key, one in run["scripted"].items()}
            rules = [key for key in scripted if key not in ("oracle", "random")]
            best = max(rules, key=lambda key: scripted[key]["success"])
            # Earlier results have no untouched policies: theirs begin after the warm start.
            start = "warm_start" if "warm_start" in run else "before"
            rows.append(
                [
                    f"`{name}.toml`",
                    str(run["seed"]),
                    str(run["after"]["greedy"]["num_episodes"]),
                    *(share(run[moment]["greedy"]) for moment in (start, "after")),
                    share(scripted["random"]),
                    f"{best} {share(scripted[best])}",
                    f"{run['cpu_s']:.0f} s",
                ]
            )
    header = ["recipe", "seed", "test levels", "after warm start", "after", "random"]
    header += ["best simple rule", "processor time"]
    captions = "".join(_caption(data) for data in found.values())
    return markdown(header, rows) + captions


def learning_two_games() -> str:
    """Return success in each of two games that one run trains on, for every seed."""
    data = result("learning_two_games")
    rows = [
        [
            str(run["seed"]),
            env,
            *(
                share(run[moment]["greedy"]["environments"][env])
                for moment in ("warm_start", "after")
            ),
            *(share(run["scripted"][f"scripted:{n}"]["environments"][env]) for n in RULES),
            f"{run['cpu_s']:.0f} s",
        ]
        for run in data["runs"]
        for env in run["after"]["greedy"]["environments"]
    ]
    header = ["seed", "environment", "after warm start", "after", "random moves", "greedy rule"]
    return markdown([*header, "processor time"], rows) + _caption(data)


WORKFLOWS = ("largest_digit", "langgraph_coder_tester", "agents_reasoner_judge")
"""Examples of workflows, in examples/workflows."""


def learning_workflows() -> str:
    """Return held-out success before and after the examples of workflows, for every seed."""
    recorded = [name for name in WORKFLOWS if (RESULTS / f"learning_{name}.json").exists()]
    found = {name: result(f"learning_{name}") for name in recorded}
    rows = [
        [
            f"`{name}.toml`",
            str(run["seed"]),
            str(run["after"]["greedy"]["num_episodes"]),
            *(share(run[moment]["greedy"]) for moment in ("warm_start", "after")),
            share(run["after"]["sampled"]),
            share(run["scripted"]["scripted:any"]),
            f"{run['cpu_s']:.0f} s",
        ]
        for name, data in found.items()
        for run in data["runs"]
    ]
    header = ["run file", "seed", "test tasks", "after warm start", "after", "after, sampled"]
    header += ["any answer", "processor time"]
    return markdown(header, rows) + "".join(map(_caption, found.values()))


_CURVE_STEPS = (5, 10, 25)


def learning_ahead() -> str:
    """Return points of the learning curve with rollouts played when needed, and one step ahead."""
    results = [result("learning_plan_path"), result("learning_plan_path_ahead")]
    rows = [
        [
            str(runs[0]["seed"]),
            *(curve_share(run, step) for step in _CURVE_STEPS for run in runs),
        ]
        for runs in zip(*(data["runs"] for data in results), strict=True)
    ]
    points = [f"{step} steps" for step in _CURVE_STEPS]
    header = ["seed", *(cell for point in points for cell in (point, f"{point}, ahead"))]
    return markdown(header, rows) + "".join(map(_caption, results))


def curve_share(run: dict[str, Any], step: int) -> str:
    """Return held-out success after some train steps, greedy, with its 95 % interval."""
    success, num_episodes = dict(run["greedy_curve"])[step], run["after"]["greedy"]["num_episodes"]
    low, high = wilson_interval(success, num_episodes)
    return share({"success": success, "success_low": low, "success_high": high})


RULES = ("random", "greedy")
_MOMENTS = {"before": "untouched", "warm_start": "after warm start", "after": "after"}


def _learning(name: str, *moments: str) -> str:
    data = result(name)
    rows = [
        [
            str(run["seed"]),
            *(share(run[moment]["greedy"]) for moment in moments),
            share(run["after"]["sampled"]),
            share(run["scripted"]["scripted:random"]),
            share(run["scripted"]["scripted:greedy"]),
            f"{run['cpu_s']:.0f} s",
        ]
        for run in data["runs"]
    ]
    header = ["seed", *(_MOMENTS[moment] for moment in moments), "after, sampled"]
    header += ["random moves", "greedy rule", "processor time"]
    return markdown(header, rows) + _caption(data)


def share(figures: dict[str, float]) -> str:
    """Return a success share with its 95 % interval, in per cent."""
    low, mid, high = (
        f"{100 * figures[key]:.1f}" for key in ("success_low", "success", "success_high")
    )
    return f"{mid} % ({low} to {high})"


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


def _peers(data: dict[str, Any]) -> str:
    names = ("gem-llm", "reasoning-gym", "textarena", "paper's code")
    versions = ", ".join(f"{name} {data['versions'][name]}" for name in names)
    load = f"load {data['load_average_before']:g} to {data['load_average_after']:g}"
    rounds = f"rounds: {len(data['seeds'])}"
    return f"\nGames: {versions}. {_caption(data).strip()[:-1]}, {rounds}, {load}.\n"


SWEPT = {
    "levels": "levels of a step",
    "candidates": "candidates of a decision",
    "team": "team",
    "agents": "agents of an ensemble",
    "game": "game",
}


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
    return markdown([*header, "per sampled token"], rows) + _caption(data)


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
    return markdown(header, rows) + _caption(data)


def growth() -> str:
    """Return how the time of a train step grows with what is varied."""
    rows = [
        [
            SWEPT[name],
            f"{sweep['points'][0]['value']} to {sweep['points'][-1]['value']}",
            f"{1000 * sweep['slope_s_per_unit']['step']['median']:.0f} ms",
            "{median:.2f} ({min:.2f} to {max:.2f})".format(**sweep["growth_exponent"]),
            f"{exponent(sweep['points']):.2f}",
        ]
        for name, sweep in result("trainer_scaling")["sweeps"].items()
        if "growth_exponent" in sweep
    ]
    header = ["varied", "from, to", "for one more", "over sampled tokens", "over all tokens"]
    return markdown(header, rows)


def exponent(points: list[dict[str, Any]]) -> float:
    """Return the exponent with which step time grows with the tokens that are read and written."""
    tokens = [p["num_prompt_tokens"]["median"] + p["num_sampled_tokens"]["median"] for p in points]
    times = [point["step_s"]["median"] for point in points]
    return linear_regression([*map(math.log, tokens)], [*map(math.log, times)]).slope


def ladder() -> str:
    """Return success and return of every policy of the ladder, game by game."""
    data = result("games_ladder")
    names = list(data["ladders"])
    policies = dict.fromkeys(r["policy"] for rungs in data["ladders"].values() for r in rungs)
    rows: list[list[str]] = []
    for policy in sorted(policies, key=lambda name: name.startswith("oracle")):
        found = [{r["policy"]: r for r in data["ladders"][name]}.get(policy) for name in names]
        cells = [f"{100 * r['success']:.0f} %, {r['return']:+.3f}" if r else "" for r in found]
        rows.append([policy, *cells])
    return markdown(["policy", *names], rows) + _caption(data)


def tokens() -> str:
    """Return the tokens of the first prompt of every agent."""
    data = result("prompt_tokens")
    rows = [
        [game, team, ", ".join(f"{agent} {size['tokens']}" for agent, size in sizes.items())]
        for game, teams in data["prompts"].items()
        for team, sizes in teams.items()
    ]
    return markdown(["game", "team", "tokens"], rows) + _counted(data)


def boards() -> str:
    """Return how many cells of a board share a token with another one, view by view."""
    data = result("prompt_tokens")
    rows = [
        [game, f"`{{{view}}}`", *(str(seen[key]) for key in ("cells", "tokens", "merged_cells"))]
        for game, views in data["boards"].items()
        for view, seen in views.items()
    ]
    header = ["game", "placeholder", "cells", "tokens", "cells that share a token"]
    return markdown(header, rows) + _counted(data)


def presets() -> str:
    """Return the presets of the games: arguments, distinct levels, lengths, scripted policies."""
    data, teams = result("games_presets"), result("games_presets_teams")
    rows: list[list[str]] = []
    for row in (*data["presets"], *teams["presets"]):
        low, middle, high = row.get("length", ("", "", ""))
        distinct = f"{row['num_distinct']:,}"
        rows.append(
            [
                f"`{row['env_id']}`",
                row["preset"],
                ", ".join(f"{name}={value!r}" for name, value in row["arguments"].items()),
                distinct,
                f"{middle:g} ({low} to {high})" if "length" in row else "",
                f"{row['rule_name']} {100 * row['rule']:.0f} %",
                f"{100 * row['random']:.0f} %",
            ]
        )
    header = ["id", "preset", "arguments", f"different among {data['num_draws']:,} test levels"]
    header += ["shortest solution", "simple rule", "random"]
    return markdown(header, rows) + _caption(data) + _caption(teams)


def percent(figures: dict[str, float]) -> str:
    """Return a share in per cent."""
    return f"{100 * figures['median']:.1f} %"


def _counted(data: dict[str, Any]) -> str:
    return f"\nCounted on {data['date']} by {data['tokenizer']}, with `{data['command']}`.\n"


def code_rewards() -> str:
    """Return what honest and degenerate testers and coders earn for themselves."""
    data = result("code_rewards")
    sources = data["sources"]
    rows = [
        [side.removesuffix("s"), name, *(f"{sources[s][side][name]:.2f}" for s in sources)]
        for side in ("testers", "coders")
        for name in next(iter(sources.values()))[side]
    ]
    header = [f"{name}, {found['num_problems']} problems" for name, found in sources.items()]
    return markdown(["role", "writes", *header], rows) + _caption(data)


def answers() -> str:
    """Return the false verdicts of the verifier and of math-verify alone."""
    data = result("answers")
    rows = [
        [
            name,
            f"{found['num_false_refusals']:,} of {found['num_right']:,}",
            f"{found['num_false_acceptances']:,} of {found['num_wrong']:,}",
        ]
        for name, found in (
            ("`math_v0`", data["verifier"]),
            ("math-verify alone", data["math_verify_alone"]),
        )
    ]
    return markdown(["verifier", "right, but refused", "wrong, but accepted"], rows) + _caption(
        data
    )


def _caption(data: dict[str, Any]) -> str:
    return f"\nMeasured on {data['date']}, {data['hardware']}, with `{data['command'].strip()}`.\n"


def viewer() -> str:
    """Return what the pages of long runs take."""
    sizes: dict[str, dict[str, Any]] = result("viewer")["sizes"]
    rows = [
        [what, *(f"{entry[key]:.3g} {unit}" for entry in sizes.values())]
        for what, key, unit in (
            ("rollouts.jsonl", "rollouts_mb", "MB"),
            ("the page", "page_mb", "MB"),
            ("write the page, with every tree played again", "write_s", "s"),
            ("open it until it is drawn", "open_s", "s"),
            ("go to another episode, median", "episode_s", "s"),
            ("the slowest of them", "episode_max_s", "s"),
            ("go to another candidate", "candidate_s", "s"),
            ("first look at the curves of 2,000 steps", "curves_s", "s"),
            ("open it with a search through all texts", "find_s", "s"),
        )
    ]
    names = [f"{name}, {entry['num_episodes']} trees" for name, entry in sizes.items()]
    return markdown(["", *names], rows)


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
    return markdown(["run", "planned", "measured", "planned over measured"], rows) + _caption(data)


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
    load = f"load {data['load_average_before']:g} to {data['load_average_after']:g}"
    versions = next(iter(data["shapes"].values()))["trl"]["workload"]["versions"]
    about = ", ".join(f"{name} {version}" for name, version in versions.items())
    caption = f"\n{data['model']}; {about}; rounds: {len(data['seeds'])}, {load}.\n"
    header = ["tokens of a step", "here", "there", "ratio (range)"]
    return markdown(header, rows) + caption + _caption(data)


TABLES: dict[str, Callable[[], str]] = {
    "environments": environments,
    "ladder": ladder,
    "learning": learning,
    "learning_llm": learning_llm,
    "learning_tiny": learning_tiny,
    "learning_two_games": learning_two_games,
    "learning_workflows": learning_workflows,
    "speed": speed,
    "core_speed": core_speed,
    "growth": growth,
    "phases": phases,
    "overlap": overlap,
    "learning_ahead": learning_ahead,
    "code_rewards": code_rewards,
    "answers": answers,
    "tokens": tokens,
    "boards": boards,
    "presets": presets,
    "viewer": viewer,
    "planned_memory": planned_memory,
    "pretrained": pretrained,
}


def render(text: str) -> str:
    """Return a document with all its tables regenerated."""

    def replace(match: re.Match[str]) -> str:
        name = match.group(2)
        if name not in TABLES:
            raise SystemExit(f"unknown table {name!r}; known: {', '.join(TABLES)}")
        return match.group(1) + TABLES[name]() + match.group(3)

    return _BLOCK.sub(replace, text)


def main() -> None:
    """Write or check all documents."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only tell whether all is up to date")
    check = parser.parse_args().check
    stale: list[str] = []
    for name in DOCUMENTS:
        path = ROOT / name
        text = path.read_text(encoding="utf-8")
        fresh = render(text)
        if fresh != text:
            stale.append(name)
            if not check:
                path.write_text(fresh, encoding="utf-8")
    print(f"{'stale' if check else 'written'}: {', '.join(stale) or 'nothing'}")
    sys.exit(bool(check and stale))


if __name__ == "__main__":
    main()
