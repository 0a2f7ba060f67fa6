"""`pettingllms crossplay`."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from pettingllms.cli import options
from pettingllms.cli.app import print_result
from pettingllms.cli.playing import keep, played
from pettingllms.env import TextEnv
from pettingllms.errors import InvalidArgument, RunFolderError
from pettingllms.evaluation.crossplay import FILE, cross_play, crossplay_plan
from pettingllms.evaluation.plan import MAIN
from pettingllms.evaluation.run_folder import RunFolder
from pettingllms.evaluation.sides import RunTeam, name_parts
from pettingllms.evaluation.statistics import special_functions
from pettingllms.evaluation.training_run import TrainingRun, is_training_run
from pettingllms.files import load_json, write_whole
from pettingllms.registry import make
from pettingllms.tables import as_markdown

RUNS = "runs.json"

_EXAMPLES = """\b
Examples:
  pettingllms crossplay runs/seed0 runs/seed1 runs/seed2
  pettingllms crossplay runs/team@20 runs/team@40 runs/team     # a run and its own past
  pettingllms crossplay runs/eval_a runs/eval_b -n 200 -k 2     # any teams that were evaluated
"""


@click.command("crossplay", epilog=_EXAMPLES)
@click.argument("runs", metavar="RUN[:VARIANT][@STEP]...", nargs=-1)
@options.number("-n", "--episodes", default=100, help="Held-out levels that every team plays.")
@options.number("-k", "--samples", default=1, help="Plays of every level by every team.")
@options.seed_option
@options.environment_option
@options.policy_settings_options
@options.max_failures_option("Episodes", 10)
@options.path(
    "--out", help="Folder of the evaluation of all teams.  [default: runs/crossplay-ID-TIME]"
)
@options.path("--resume", help="Continue an interrupted cross-play.")
@options.json_option
@click.pass_context
def crossplay_command(context: click.Context, runs: tuple[str, ...], **values: Any) -> int:
    """Play members of different runs together: who coordinates only with its own team-mates?

    RUN is a training run (its newest policies, or those of checkpoint STEP) or an evaluation (the
    team of its VARIANT, main if none is named). In every mixed team one role comes from one run
    and the other roles from another. Each run's own team plays the same levels.
    """
    special_functions()  # raises now, not at the end of a long run
    if values["resume"]:
        options.refuse_given(
            context, "--resume", "runs", "episodes", "samples", "seed", "environment", "out"
        )
        folder, names = _resumed(values["resume"], trust=values["trust"])
    else:
        folder, names = _begun(runs, values)
    with folder.owned():
        return _crossplayed(folder, names, values)


def _crossplayed(folder: RunFolder, names: Sequence[str], values: Mapping[str, Any]) -> int:
    # Before the first episode: what is interrupted in its first minute can be resumed, too.
    write_whole(folder.path / RUNS, json.dumps(list(names)) + "\n")
    resume = f"crossplay --resume {shlex.quote(str(folder.path))}"
    report = played(folder, options.policy_settings(values), values["max_failures"], resume)
    env: TextEnv[Any] = folder.plan.make_env()
    found = cross_play(names, env.possible_agents, folder.results())
    folder.write_report(report.to_json(), as_markdown(found.parts()))
    keep(folder.path, FILE, found)
    print_result(values["output"], found)
    return 0


def _begun(runs: Sequence[str], values: Mapping[str, Any]) -> tuple[RunFolder, list[str]]:
    if not runs:
        raise click.UsageError("name at least two runs, or a cross-play to continue (--resume)")
    teams = _named(runs, values["environment"], trust=values["trust"])
    first = next(iter(teams.values()))
    env: TextEnv[Any] = make(first.env_id, checks=False, **first.env_kwargs)
    plan = crossplay_plan(
        teams,
        env.possible_agents,
        seed=values["seed"],
        num_levels=values["episodes"],
        num_samples=values["samples"],
    )
    plan = plan.with_distinct_levels(plan.make_env())
    out = values["out"] or options.free_folder("crossplay", str(plan.env_id))
    return RunFolder.create(out, plan), list(teams)


def _resumed(path: Path, *, trust: bool) -> tuple[RunFolder, list[str]]:
    folder = RunFolder.open(path, trust=trust)
    try:
        names = load_json(path / RUNS)
        if names != [*folder.plan.variants][: len(names)]:
            raise ValueError(f"{RUNS} names other runs than run.json")
    except (OSError, ValueError, TypeError) as error:
        raise RunFolderError(f"{path} is not the folder of a cross-play ({error})") from error
    return folder, names


def _named(runs: Sequence[str], environment: str | None, *, trust: bool) -> dict[str, RunTeam]:
    """Name -> team; names are the last parts of the paths, where those differ."""
    short = [Path(run).name or run for run in runs]
    # Names become heads of columns, for which whole paths are too long.
    names = short if len(set(short)) == len(short) else list(runs)
    if len(set(names)) < len(names):
        raise InvalidArgument("runs", list(runs), "every run or checkpoint once")
    return {
        name: _team(run, environment, trust=trust) for name, run in zip(names, runs, strict=True)
    }


def _team(text: str, environment: str | None, *, trust: bool) -> RunTeam:
    path, variant, step = name_parts(text)
    if is_training_run(path):
        if variant:
            raise InvalidArgument("run", text, ":VARIANT after an evaluation only")
        run = options.run_environment(TrainingRun.open(path, trust=trust), environment)
        return RunTeam.of_training(run, step)
    if step is not None:
        raise InvalidArgument("run", text, "@STEP after a training run only")
    return RunTeam.of_evaluation(RunFolder.open(path, trust=trust), variant or MAIN)
