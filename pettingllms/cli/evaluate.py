"""`pettingllms eval` and `pettingllms compare`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import click

from pettingllms.cli import options
from pettingllms.cli.app import print_result, stderr
from pettingllms.cli.playing import played
from pettingllms.env import roles_of
from pettingllms.errors import InvalidArgument
from pettingllms.evaluation.plan import MAIN, SWAPPED, EvaluationPlan, held_out_kwargs, swapped
from pettingllms.evaluation.report import Comparison, Report, compare, compare_shares, pool_note
from pettingllms.evaluation.run_folder import RunFolder
from pettingllms.evaluation.sides import ComparedSides, Side, open_side, unlike
from pettingllms.evaluation.statistics import special_functions
from pettingllms.evaluation.training_run import TrainingRun, is_training_run
from pettingllms.registry import make
from pettingllms.sources import RUN, is_source, run_directory
from pettingllms.tables import as_markdown

_EXAMPLES = """\b
Examples:
  pettingllms eval plan_path_v0 -p oracle -n 200
  pettingllms eval plan_path_v0 -p openai:qwen3:4b@http://localhost:11434/v1 -s temperature=0.6
  pettingllms eval plan_path_v0 -p tool=oracle -p planner=openai:gpt-5-mini -k 4 --price 0.25,2
  pettingllms eval recipe:plan_path -p oracle
  pettingllms eval runs/tiny_team --step 2 -s temperature=0
"""


@click.command("eval", epilog=_EXAMPLES)
@click.argument("source", metavar="SOURCE", required=False, shell_complete=options.complete_id)
@options.policy_option
@options.env_option
@options.reset_option
@options.sampling_option
@options.environment_option
@options.number("--step", least=0, help="Checkpoint of a training run.  [default: the newest]")
@options.number("-n", "--episodes", default=100, help="Held-out levels.")
@options.number(
    "-k", "--samples", default=1, help="Plays of every level; gives pass@k up to this k."
)
@options.seed_option
@options.flag("--swap", help="Play again after moving each policy to the role before its own.")
@options.price_option
@options.policy_settings_options
@options.max_failures_option("Episodes", 10)
@options.path("--out", metavar="RUN", help="Folder of the run.  [default: runs/eval-ID-TIME]")
@options.path(
    "--resume",
    metavar="RUN",
    help="Continue an interrupted run; --policy may name another address of the same model.",
)
@options.json_option
@click.pass_context
def eval_command(context: click.Context, **values: Any) -> int:
    """Play held-out levels with policies and report with 95 % intervals.

    SOURCE is the id of an environment, a file such as game.py, the folder of a training run, or
    recipe:NAME. A run or a recipe is evaluated as in its own held-out evaluation: environment,
    prompts, sampling, levels and policies are the same, unless options override them.

    Every model answer is written at once, so --resume RUN continues an interrupted run even in the
    middle of an episode. If the environment has splits, levels come from `test`, unless --env
    split=... names another.
    """
    special_functions()  # raises now, not at the end of a long run
    settings = options.policy_settings(values)
    folder = _resumed(context, values) if values["resume"] else _begun(context, values)
    write = partial(_reported, folder, values["output"])
    played(folder, settings, values["max_failures"], write=write)
    stderr().print(f"kept in {folder.path}", style="dim", highlight=False)
    return 0


def _begun(context: click.Context, values: Mapping[str, Any]) -> RunFolder:
    trained = _trained(context, values)
    given = options.read_pairs(values["env_values"], "--env")
    if trained is None:
        env_id = values["source"]
        if env_id is None:
            raise click.UsageError(
                "name an environment, a training run, recipe:NAME, or an evaluation to continue "
                "(--resume RUN)"
            )
        kwargs = held_out_kwargs(env_id, given)
    else:
        env_id, kwargs = trained.env_id, {**trained.held_out_kwargs(), **given}
    # Which roles there are depends on the arguments, such as `team`: it has to be made.
    env = make(env_id, checks=False, **kwargs)
    roles = roles_of(env)
    assignment = options.read_policies(values["policy_values"], roles)
    if trained is not None:
        assignment = {**trained.assignment(values["step"]), **assignment}
    missing = [role for role in roles if role not in assignment]
    if missing:
        raise click.UsageError(
            f"no policy for {', '.join(missing)}; name one for every role (--policy "
            f"{missing[0]}=oracle) or one for all (--policy oracle)"
        )
    variants = {MAIN: assignment}
    if values["swap"]:
        variants[SWAPPED] = swapped(assignment)
    defaults = trained.sampling(assignment) if trained else None
    numbers = trained.levels() if trained else {}
    plan = EvaluationPlan(
        env_id=env_id,
        variants=variants,
        env_kwargs=kwargs,
        options=options.read_reset(values["option_values"], env),
        sampling=options.read_sampling(values["sampling_values"], roles, defaults),
        seed=_chosen(context, values, "seed", numbers),
        num_levels=_chosen(context, values, "episodes", numbers),
        num_samples=values["samples"],
        prices=options.read_prices(values["price_values"], assignment),
    )
    # Before there is a folder: a plan that does not fit its environment leaves nothing behind.
    plan = plan.with_distinct_levels(plan.make_env())
    if plan.num_wanted is not None:
        stderr().print(pool_note(plan), markup=False, highlight=False)
    return RunFolder.create(values["out"] or options.free_folder("eval", str(env_id)), plan)


def _trained(context: click.Context, values: Mapping[str, Any]) -> TrainingRun | None:
    source: str = values["source"] or ""
    # What looks like a folder and is none is a mistake in its name, and not an id.
    is_folder = source.startswith(RUN) or ("/" in source and not is_source(source))
    if source and (run_directory(source) / "run.json").is_file():
        raise click.UsageError(f"{source} is an evaluation; continue it with --resume {source}")
    if not source or not (is_folder or is_training_run(source)):
        options.refuse_given(context, "what is not a training run", "step", "environment")
        return None
    return options.run_environment(
        TrainingRun.open(source, trust=values["trust"]), values["environment"]
    )


def _chosen(
    context: click.Context, values: Mapping[str, Any], name: str, of_run: Mapping[str, int]
) -> int:
    """The value of a flag, or that of the training run where the flag is not given."""
    return values[name] if options.given(context, name) else of_run.get(name, values[name])


def _resumed(context: click.Context, values: Mapping[str, Any]) -> RunFolder:
    # The plan of the run is in its folder.
    options.refuse_given(
        context, "--resume", "source", "env_values", "option_values", "sampling_values",
        "episodes", "samples", "seed", "environment", "step", "swap", "out",
    )  # fmt: skip
    folder = RunFolder.open(values["resume"], trust=values["trust"])
    assignment = folder.plan.variants[MAIN]
    moved = options.read_policies(values["policy_values"], tuple(assignment))
    plan = folder.plan.with_policies(moved) if moved else folder.plan
    # Prices decide no result: they may be named, or corrected, afterwards.
    if values["price_values"]:
        prices = options.read_prices(values["price_values"], plan.variants[MAIN])
        plan = replace(plan, prices={**plan.prices, **prices})
    # Before anything is played, so that a second interruption resumes with the same addresses.
    if plan != folder.plan:
        folder.plan = plan
        folder.save_plan()
    return folder


def _reported(
    folder: RunFolder, output: str | None, report: Report, failures: Counter[str]
) -> None:
    """Write and print the report of what is finished."""
    report = replace(report, failures=dict(failures.most_common()))
    folder.write_report(report.to_json(), as_markdown(report.parts()))
    # Without a finished episode there is nothing to read; programs get their JSON all the same.
    if report.variants or output:
        print_result(output, report)


@click.command("compare")
@click.argument("first", metavar="RUN[:VARIANT][@STEP]")
@click.argument("second", metavar="RUN[:VARIANT][@STEP]")
@options.flag("--anyway", help="Compare even if tasks or levels differ.")
@options.json_option
@click.option("--markdown", "output", flag_value="markdown", help="Print Markdown.")
def compare_command(first: str, second: str, anyway: bool, output: str | None) -> int:
    """Compare two runs: who played, which settings differ, and the second minus the first.

    If RUN is an evaluation, the levels that both runs played are compared. VARIANT defaults to
    main; a run with --swap also has the variant swapped. If RUN is a training run, VARIANT is
    greedy, sampled, swapped or scripted:NAME of its evaluation after train step STEP, by default
    the last one. Such evaluations keep shares only, so their comparison is not paired.
    """
    sides = open_side(first), open_side(second)
    comparison = _compared(*sides, anyway=anyway)
    print_result(output, ComparedSides(first=sides[0], second=sides[1], comparison=comparison))
    return 0


def _told(side: Side, key: str) -> str:
    return json.dumps(side.task.get(key), ensure_ascii=False)


def _compared(first: Side, second: Side, *, anyway: bool) -> Comparison:
    if (keys := unlike(first, second)) and not anyway:
        differing = (f"{key} is {_told(first, key)} and {_told(second, key)}" for key in keys)
        raise InvalidArgument(
            "runs",
            f"unlike tasks: {'; '.join(differing)}",
            "runs of one task",
            "Compare them all the same with --anyway.",
        )
    # Training runs keep shares of their evaluations, no episodes: there is nothing to pair.
    if first.results and second.results:
        contents = ({play.content for play in side.results} for side in (first, second))
        if not anyway or set.intersection(*contents):
            return compare(first.results, second.results)
    return compare_shares(
        first.success, second.success, num_levels=(first.num_levels, second.num_levels)
    )
