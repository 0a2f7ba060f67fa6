"""`pettingllms compare`."""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from pettingllms.cli.console import print_json, stdout
from pettingllms.cli.options import format_option
from pettingllms.errors import InvalidArgument
from pettingllms.evaluation.comparison import Comparison, compare, compare_shares
from pettingllms.evaluation.presentation import comparison_parts, sides_parts
from pettingllms.evaluation.sides import Side, differences, open_side, unlike
from pettingllms.tables import as_markdown, print_blocks


@click.command("compare")
@click.argument("first", metavar="RUN[:VARIANT][@STEP]")
@click.argument("second", metavar="RUN[:VARIANT][@STEP]")
@click.option("--anyway", is_flag=True, help="Compare unlike tasks, or levels, too.")
@format_option("comparison is", "json", "markdown")
def compare_command(first: str, second: str, anyway: bool, output: str) -> int:
    """Compare two runs: who played, which settings differ, and the second minus the first.

    RUN is an evaluation, compared on the levels that both played; VARIANT is main if it is not
    named (a run that was made with --swap has the variant swapped, too). Or it is a training run:
    VARIANT is greedy, sampled, swapped or scripted:NAME of its evaluation after train step STEP
    (the last one if it is not named). It keeps shares only, so that the comparison is not paired.
    """
    sides = open_side(first), open_side(second)
    comparison = _compared(*sides, anyway=anyway)
    differing = differences(*sides)
    if output == "json":
        found: dict[str, Any] = {
            "policies": [dict(side.policies) for side in sides],
            "settings": {key: list(values) for key, values in differing.items()},
        }
        print_json({**found, **comparison.to_json()})
        return 0
    parts = [*sides_parts(*sides, differing), *comparison_parts(comparison, first, second)]
    if output == "markdown":
        sys.stdout.write(as_markdown(parts))
    else:
        print_blocks(stdout(), parts)
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
    if first.results and second.results:
        contents = ({play.content for play in side.results} for side in (first, second))
        if not anyway or set.intersection(*contents):
            return compare(first.results, second.results)
    return compare_shares(
        first.success, second.success, num_levels=(first.num_levels, second.num_levels)
    )
