"""Tables of what runs learn."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from credit_study.intervals import paired

from document_tables.markdown import RESULTS, caption, markdown, result, share


def learning() -> str:
    """Return held-out success before and after the embedded default, for every seed."""
    return _learning("learning_plan_path", "warm_start", "after")


def learning_llm() -> str:
    """Return the same for the pretrained chat model, with the untouched model before all."""
    return _learning("learning_plan_path_smollm2", "before", "warm_start", "after")


def learning_precisions() -> str:
    """Return what the recipe of the pretrained chat model takes in either precision, one seed."""
    found = {
        precision: result(f"learning_plan_path_smollm2_{precision}")
        for precision in ("bfloat16", "float32")
    }
    rows = [
        [
            precision,
            *(share(run[moment]["greedy"]) for moment in ("before", "warm_start", "after")),
            f"{run['cpu_s']:.0f} s",
        ]
        for precision, data in found.items()
        for run in data["runs"]
    ]
    header = ["precision", "untouched", "after warm start", "after", "processor time"]
    return markdown(header, rows) + "".join(map(caption, found.values()))


_BRIEF = {
    "learning_plan_path": "`make train`: two models of 0.17 M random weights, Plan-Path",
    "learning_plan_path_smollm2": "`make train-llm`: SmolLM2-135M with two adapters, Plan-Path",
    "learning_langgraph_writer_editor": "LangGraph writer and editor, SmolLM2-135M likewise",
}
"""Result file -> what the README calls the run."""


def learning_in_brief() -> str:
    """Return the range over seeds of held-out success before and after training, three runs."""
    rows: list[list[str]] = []
    for name, title in _BRIEF.items():
        runs = result(name)["runs"]
        shares = (_range_over(runs, moment) for moment in ("warm_start", "after"))
        rows.append([title, str(len(runs)), *shares])
    return markdown(["run", "seeds", "before", "after"], rows)


def _range_over(runs: list[dict[str, Any]], moment: str) -> str:
    """Return the lowest and the highest success of the seeds, or one figure where all agree."""
    shares = sorted(f"{100 * run[moment]['greedy']['success']:3.0f}" for run in runs)
    return " to ".join(dict.fromkeys((shares[0].strip(), shares[-1].strip()))) + " %"


TINY = (
    "blocksworld",
    "dining",
    "fireworks",
    "math",
    "panel",
    "queens",
    "relay",
    "search",
    "sokoban",
    "sudoku",
    "sudoku_6x6",
)
"""Recipes of tiny models for one game each, beside that of `make train`."""


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
                    f"`{name}`",
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
    captions = "".join(caption(data) for data in found.values())
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
    return markdown([*header, "processor time"], rows) + caption(data)


WORKFLOWS = (
    "largest_digit",
    "langgraph_coder_tester",
    "langgraph_writer_editor",
    "agents_reasoner_judge",
)
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
    return markdown(header, rows) + "".join(map(caption, found.values()))


def workflow_frameworks() -> str:
    """Return which versions of other frameworks train, with the teams of examples/frameworks."""
    data = result("workflow_frameworks")
    teams: dict[str, dict[str, dict[str, Any]]] = {}
    for row in data["rows"]:
        teams.setdefault(row["team"], {})[row["versions"]] = row
    rows = [
        [
            next(iter(found.values()))["framework"],
            f"`{team}.py`",
            *(_trained_with(found.get(versions)) for versions in ("pinned", "newest")),
        ]
        for team, found in teams.items()
    ]
    return markdown(["framework", "team", "pinned", "newest"], rows) + caption(data)


def _trained_with(row: dict[str, Any] | None) -> str:
    if row is None:
        return "not tried"
    versions = ", ".join(f"{name} {version}" for name, version in row.get("packages", {}).items())
    told = f" ({row['note']})" if "note" in row else ""
    return (
        f"trains: {versions}{told}"
        if row["works"]
        else f"**no** ({row['cause']}) {versions}".strip()
    )


def transcripts_writer_editor() -> str:
    """Return what writer and editor say to the same held-out words, before and after training."""
    rows = [
        [words, moment, *(_quoted(said["answer"]) for said in exchange["said"]), _mark(exchange)]
        for words, exchanges in _spoken()
        for moment, exchange in exchanges.items()
    ]
    return markdown(["words", "moment", "writer", "editor", "success"], rows)


def transcripts_in_brief() -> str:
    """Return what the team of writer and editor returns, before and after training."""
    rows = [
        [
            words,
            *(f"{_quoted(one['said'][-1]['answer'])} {_mark(one)}" for one in exchanges.values()),
        ]
        for words, exchanges in _spoken()
    ]
    return markdown(["words", "before", "after"], rows)


def _spoken() -> list[tuple[str, dict[str, dict[str, Any]]]]:
    """Return for the first held-out words of the first seed: moment -> exchange."""
    first, *_, last = result("learning_langgraph_writer_editor")["runs"][0]["transcripts"]
    return [
        (before["said"][0]["asked"].splitlines()[-1], {"before": before, "after": after})
        for before, after in zip(first, last, strict=True)
    ]


def _quoted(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _mark(exchange: dict[str, Any]) -> str:
    return "✓" if exchange["success"] else "✗"


def learning_curriculum() -> str:
    """Return held-out success at equal tokens, with levels by success and from all stages alike."""
    data = result("curriculum")
    kinds = [("by success", "sampled"), ("all alike", "sampled")]
    kinds += [(levels, "greedy") for levels, _ in kinds]
    starts = [
        run["curves"]["sampled"][0][1] for run in data["runs"] if run["levels"] == "by success"
    ]
    columns = [starts, *(data[variant]["reached"][levels] for levels, variant in kinds)]
    rows = [
        [str(seed), *(f"{100 * share:.1f} %" for share in shares)]
        for seed, *shares in zip(data["seeds"], *columns, strict=True)
    ]
    header = ["seed", "after warm start, sampled", *(", ".join(kind) for kind in kinds)]
    differences = "; ".join(
        f"{variant} {100 * of['mean']:+.1f} ({100 * of['low']:+.1f} to {100 * of['high']:+.1f})"
        for variant, of in ((name, data[name]["difference"]) for name in ("sampled", "greedy"))
    )
    told = f"\nAfter {data['num_tokens']:,} sampled tokens. By success minus all alike, in points, "
    told += f"mean and Student's 95 % interval over seeds: {differences}.\n"
    return markdown(header, rows) + told + caption(data)


_STARTS = {
    "whole": "whole levels alone",
    "alike": "all starts alike",
    "adaptive": "starts by success",
}


def certified_starts() -> str:
    """Return success on whole levels with starts part of the way, where these find nothing."""
    data = result("certified_starts")
    rows = []
    for name, game in data["games"].items():
        for way, found in game["ways"].items():
            curves = [trial["curve"] for trial in found["trials"]]
            solved, num = (
                sum(trial[key] for trial in found["trials"]) for key in ("num_solved", "num_whole")
            )
            rows.append(
                [
                    name,
                    str(game["kwargs"]["max_turns"]),
                    f"{fmean(trial['by_chance'] for trial in found['trials']):.0e}",
                    _STARTS[way],
                    f"{solved:,} of {num:,}",
                    _spread([curve[len(curve) // 2][1] for curve in curves]),
                    _spread([curve[-1][1] for curve in curves]),
                ]
            )
    header = ["game", "turns", "by chance", "training begins at", "whole levels solved in training"]
    header += [f"success after {data['budget'] // 2:,}, %", f"after {data['budget']:,}, %"]
    told = f"\nMean and range over {len(data['seeds'])} seeds, each with {data['num_levels']} "
    told += "levels of its own, after so many sampled answers.\n"
    return markdown(header, rows) + told + caption(data)


def equal_states() -> str:
    """Return what averaging over equal states costs or brings in where states hold texts."""
    data = result("equal_states")
    plain, *others = data["rows"][0]["ways"]
    rows = []
    for row in data["rows"]:
        trials = row["ways"]
        areas = {way: [_area(one) for one in of] for way, of in trials.items()}
        met = [
            fmean(one["met"][key] for one in trials[plain]) for key in ("prompt_ids", "state_key")
        ]
        rows.append(
            [
                row["game"],
                {"shaped": "every step"}.get(row["reward"], row["reward"]),
                *(f"{100 * share:.0f} %" for share in met),
                *(f"{100 * fmean(of):.0f} %" for of in areas.values()),
                *(
                    paired([one - base for one, base in zip(areas[way], areas[plain], strict=True)])
                    for way in others
                ),
            ]
        )
    header = [
        "game",
        "rewards",
        "met in the prompt",
        "met in what counts",
        *data["rows"][0]["ways"],
    ]
    header += [f"{way} minus {plain}" for way in others]
    told = f"\nMean success up to {data['budget']:,} sampled answers, over {len(data['seeds'])} "
    told += "seeds. Differences in points, paired by seed, with 95 % t-intervals, not corrected.\n"
    return markdown(header, rows) + told + caption(data)


def _area(trial: dict[str, Any]) -> float:
    return fmean(success for _, success in trial["curve"])


def ensemble_sizes() -> str:
    """Return what ensembles of several sizes solve with three judges, tiny models."""
    return _ensembles("ensemble_sizes_tiny")


def ensemble_sizes_llm() -> str:
    """Return the same for the pretrained chat model."""
    return _ensembles("ensemble_sizes_smollm2")


_JUDGES = {
    "any": "oracle judge",
    "majority": "most frequent answer",
    "judge": "trained judge",
}


def _ensembles(name: str) -> str:
    data = result(name)
    seeds_of: dict[str, set[str]] = {}
    for key in sorted(data["cells"], key=lambda key: key.partition("|")[0].split("+")[::-1]):
        size, _, seed = key.partition("|")
        seeds_of.setdefault(size, set()).add(seed)
    first, seeds = next((size, sorted(of)) for size, of in seeds_of.items())
    found = {
        size: [data["cells"][f"{size}|{seed}"] for seed in seeds]
        for size, of in seeds_of.items()
        if of >= set(seeds)
    }
    compares = len(seeds) > 2  # the interval of two differences says nothing
    rows = []
    for size, cells in found.items():
        pairs = zip(cells, found[first], strict=True)
        minus = paired([one["judge"] - of["judge"] for one, of in pairs]) if size != first else ""
        shares = (
            _spread([cell[key] for cell in cells]) if key in cells[0] else ""
            for key in ("reasoner", "tool", *_JUDGES)
        )
        rows.append([size.replace("+", " + "), *shares, *([minus] if compares else ())])
    header = ["reasoners + tool users", "a reasoner is right, %", "a tool user, %"]
    header += [f"{judge}, %" for judge in _JUDGES.values()]
    header += [f"trained judge, minus {first.replace('+', ' + ')}"] if compares else []
    seed_s, questions = "seed" if len(seeds) == 1 else "seeds", found[first][0]["num_questions"]
    told = f"\nMean and range over {len(seeds)} {seed_s} on {questions} held-out questions"
    told += "; differences in points, paired by seed, with 95 % t-intervals, not corrected"
    return (
        markdown(header, rows)
        + (told if compares else told.partition(";")[0])
        + ".\n"
        + caption(data)
    )


def learning_staleness() -> str:
    """Return learning curves with rollouts that are up to so many train steps old."""
    data = result("staleness")
    runs = {bound: _of_bound(data, bound) for bound in {run["bound"]: 0 for run in data["runs"]}}
    rows = [
        [
            str(bound),
            f"{fmean(run['mean_age'] for run in own):.2f}",
            *(_spread([run["greedy_curve"][at][1] for run in own]) for at in range(len(curve))),
            _spread([_last(run) - _last(plain) for run, plain in zip(own, runs[0], strict=True)]),
            f"{fmean(run['mean_gap'] for run in own):.3f}",
        ]
        for bound, own in runs.items()
        for curve in [own[0]["greedy_curve"]]
    ]
    steps = [f"{step} steps" for step, _ in runs[0][0]["greedy_curve"]]
    header = ["`max_staleness`", "mean age", *steps, "against 0"]
    told = f"\nMean over {len(runs[0])} seeds (lowest to highest), in points of success.\n"
    return markdown([*header, "log-probability, sampled to newest"], rows) + told + caption(data)


def _of_bound(data: dict[str, Any], bound: int) -> list[dict[str, Any]]:
    return sorted((r for r in data["runs"] if r["bound"] == bound), key=lambda run: run["seed"])


def _last(run: dict[str, Any]) -> float:
    return run["greedy_curve"][-1][1]


def _spread(values: Sequence[float]) -> str:
    """Return mean, lowest and highest in points; one figure where all agree."""
    low, middle, high = (100 * of(values) for of in (min, fmean, max))
    low, middle, high = (f"{value:.0f}" for value in (low, middle, high))
    return middle if low == high else f"{middle} ({low} to {high})"


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
    return markdown(header, rows) + caption(data)
