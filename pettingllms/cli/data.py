"""`pettingllms data`: check files of problems, and export what runs have recorded."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from pettingllms.cli import options
from pettingllms.cli.app import print_json, stdout
from pettingllms.errors import InvalidArgument, counted
from pettingllms.evaluation.rows import VIEWS, rows_of, write_rows
from pettingllms.registry import spec
from pettingllms.tables import visible


@click.group("data")
def data_command() -> None:
    """Check data files of problems, and export the answers that runs recorded."""


@data_command.command("check")
@click.argument("source")
@click.option("--against", metavar="SOURCE", help="Another source: report rows that are in both.")
@click.option("--split", help="Split of a hub data set.")
@click.option("--against-split", help="Split of the source in --against.")
@click.option("--schema", help="Layout of the rows.  [default: recognised]")
@click.option(
    "--threshold",
    type=click.FloatRange(0, 1, min_open=True),
    default=0.7,
    show_default=True,
    help="Smallest similarity of near-duplicates.",
)
@click.option(
    "--env", "env_id", default="code_v0", show_default=True, help="Environment to check rows for."
)
@click.option(
    "--play/--no-play",
    default=True,
    show_default=True,
    help="Play every row with its own solution; programs run in the sandbox.",
)
@options.path(
    "--out", metavar="FILE", help="Write the usable rows, repaired where needed, to a .jsonl file."
)
@options.json_option
@click.pass_context
def check_command(
    context: click.Context,
    source: str,
    against: str | None,
    split: str | None,
    against_split: str | None,
    schema: str | None,
    threshold: float,
    env_id: str,
    play: bool,
    out: Path | None,
    output: str | None,
) -> int:
    """Count the usable rows, say why others are not, and report overlap with another source.

    A row is usable if its layout is recognised, its statement needs nothing that an agent lacks,
    and its own solution, if it has one, solves it.

    SOURCE is a file (.jsonl, .jsonl.gz, .json, .parquet) or the name of a hub data set.
    """
    if against is None:
        options.refuse_given(context, "data without --against", "against_split", "threshold")
    # Environments bring their checks: the core knows the layout of no data set.
    checks = getattr(spec(env_id).load(), "data_checks", None)
    if checks is None:
        raise InvalidArgument("environment", env_id, "one that can check data, such as code_v0")
    reports = {"data": checks.check(source, split=split, schema=schema, play=play, out=out)}
    if against is not None:
        reports["overlap"] = checks.check_overlap(
            source, against, splits=(split, against_split), threshold=threshold
        )
    if output:
        print_json({name: asdict(report) for name, report in reports.items()})
        return 0
    for report in reports.values():
        stdout().print(visible(str(report)))
    return 0


@data_command.command("export")
@click.argument("run", type=options.RunPath(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--view",
    type=click.Choice(VIEWS),
    default="rollouts",
    show_default=True,
    help="rollouts: every recorded answer; sft: prompts and answers of solved episodes; "
    "preference: the best and the worst candidate of every decision of a tree.",
)
@options.path(
    "--out",
    required=True,
    metavar="FILE",
    help="A .parquet or .jsonl file, for datasets.load_dataset and for TRL's trainers.",
)
@options.trust_option
def export_command(run: Path, view: str, out: Path, trust: bool) -> int:
    """Write the answers that a run has recorded as a data set.

    RUN is a training run or an evaluation. Its episodes are played again, so that prompts are the
    chats that the agents read.
    """
    num_rows = write_rows(rows_of(run, view, trust=trust), out)
    stdout().print(visible(f"{out}: {counted(num_rows, 'row')}"), soft_wrap=True)
    return 0
