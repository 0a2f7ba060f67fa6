"""Evaluation reports and comparisons on the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from pettingllms.cli.console import plain_table, visible
from pettingllms.evaluation.comparison import Comparison
from pettingllms.evaluation.markdown import (
    ROLE_HEAD,
    comparison_note,
    mean,
    number,
    policy_rows,
    role_rows,
    setting_rows,
    share,
    share_difference,
    variant_rows,
)
from pettingllms.evaluation.report import Report
from pettingllms.evaluation.sides import Side

_NUM_TEXT_COLUMNS = 2
"""The first columns of the table of roles are texts, the others figures."""


def print_report(console: Console, report: Report) -> None:
    """Print the figures of an evaluation."""
    plan = report.plan
    arguments = " ".join(f"{key}={value}" for key, value in plan.env_kwargs.items())
    console.print(visible(plan.env_id, "bold cyan"), visible(arguments), f"seed {plan.seed}")
    for name, variant in report.variants.items():
        console.print()
        if len(report.variants) > 1:
            console.print(visible(name, "bold yellow"))
        figures = plain_table("", "")
        figures.show_header = False
        for key, text in variant_rows(variant):
            is_success = key == "success"
            figures.add_row(key, visible(text, "bold green" if is_success else ""))
        console.print(figures)
        console.print()
        roles = plain_table(*ROLE_HEAD)
        _align(roles, _NUM_TEXT_COLUMNS)
        for row in role_rows(variant):
            roles.add_row(*map(visible, row))
        console.print(roles)
    console.print(
        "\n[dim]figure [lower, upper]: 95 % intervals[/dim]".replace("[lower", "\\[lower")
    )


def print_sides(
    console: Console, first: Side, second: Side, differing: Mapping[str, tuple[Any, Any]]
) -> None:
    """Print who played, and which settings differ.

    Args:
        console: Where to.
        first: One side.
        second: The other.
        differing: Key -> values of both.
    """
    tables = {"who played": policy_rows(first, second), "differs": setting_rows(differing)}
    for head, rows in tables.items():
        if rows:
            shown = plain_table(head, first.name, second.name)
            for row in rows:
                shown.add_row(*map(visible, row))
            console.print(shown)
            console.print()


def print_comparison(console: Console, comparison: Comparison, first: str, second: str) -> None:
    """Print two variants side by side.

    Args:
        console: Where to.
        comparison: Two variants.
        first: Name of the first.
        second: Name of the second.
    """
    table = plain_table("", first, second, "difference [95 % interval]")
    _align(table, 1)
    success = comparison.success.difference
    style = "bold green" if success.low > 0 else "bold red" if success.high < 0 else "bold"
    shares = map(visible, map(share, (comparison.first_success, comparison.second_success)))
    table.add_row("success", *shares, visible(share_difference(success), style))
    for name, found in comparison.figures.items():
        numbers = (number(found.first), number(found.second), mean(found.difference, sign="+"))
        table.add_row(visible(name), *map(visible, numbers))
    console.print(table)
    console.print()
    console.print(visible(comparison_note(comparison)))


def _align(table: Table, num_text_columns: int) -> None:
    for column in table.columns[num_text_columns:]:
        column.justify = "right"
