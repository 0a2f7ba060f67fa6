"""`pettingllms compare`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from pettingllms.cli.console import print_json, stdout
from pettingllms.cli.reports import print_comparison
from pettingllms.errors import InvalidArgument, suggestion
from pettingllms.evaluation.comparison import compare
from pettingllms.evaluation.episode import EpisodeResult
from pettingllms.evaluation.markdown import comparison_markdown
from pettingllms.evaluation.plan import MAIN
from pettingllms.evaluation.run_folder import RunFolder


@click.command("compare")
@click.argument("first", metavar="RUN[:ARM]")
@click.argument("second", metavar="RUN[:ARM]")
@click.option(
    "--format",
    "output",
    type=click.Choice(["text", "json", "markdown"]),
    default="text",
    show_default=True,
    help="How the comparison is printed.",
)
def compare_command(first: str, second: str, output: str) -> int:
    """Compare two evaluations on the levels that both played.

    The difference is the second minus the first. ARM is main if it is not named; a run that was
    made with --swap has the arm swapped, too.
    """
    comparison = compare(_arm(first), _arm(second))
    if output == "json":
        print_json(comparison.to_json())
    elif output == "markdown":
        sys.stdout.write(comparison_markdown(comparison, first, second))
    else:
        print_comparison(stdout(), comparison, first, second)
    return 0


def _arm(name: str) -> list[EpisodeResult]:
    path, arm = name, MAIN
    if not Path(name).exists() and ":" in name:
        path, _, arm = name.rpartition(":")
    folder = RunFolder.open(path)
    arms = folder.plan.arms
    if arm not in arms:
        raise InvalidArgument("arm", arm, f"{', '.join(arms)} of {path}" + suggestion(arm, arms))
    results = [result for result in folder.results() if result.arm == arm]
    if not results:
        raise InvalidArgument("run", name, "a run with finished episodes")
    return results
