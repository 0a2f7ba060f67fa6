"""`pettingllms check`."""

from __future__ import annotations

import click
from rich.console import Console

from pettingllms.cli.console import plain_table, print_json, stdout
from pettingllms.cli.options import complete_id, env_option, read_pairs
from pettingllms.tables import visible
from pettingllms.testing import CheckReport, CheckStatus, examine_env

_STYLES = {
    CheckStatus.KEPT: "green",
    CheckStatus.BROKEN: "bold red",
    CheckStatus.SKIPPED: "yellow",
    CheckStatus.NOT_PROMISED: "dim",
}


@click.command("check")
@click.argument("env_id", metavar="ID", shell_complete=complete_id)
@env_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def check_command(env_id: str, env_values: tuple[str, ...], as_json: bool) -> int:
    """Check that an environment keeps the contract.

    Lists what holds, what is broken, what could not be checked and why, and what was measured. The
    exit status is 1 if a promise is broken.
    """
    report = examine_env(env_id, **read_pairs(env_values, "--env"))
    if as_json:
        print_json(report.to_json())
    else:
        _print(stdout(), report)
    return 1 if report.of(CheckStatus.BROKEN) else 0


def _print(console: Console, report: CheckReport) -> None:
    table = plain_table("check", "status", "s", "promise")
    for finding in report.findings:
        text = visible(finding.promise)
        if finding.message:
            text.append_text(visible(f"\n{finding.message}", _STYLES[finding.status]))
        status = visible(finding.status, _STYLES[finding.status])
        table.add_row(visible(finding.check, "cyan"), status, f"{finding.seconds:.1f}", text)
    console.print(table)
    console.print()
    figures = plain_table("measured", "value")
    for name, value in report.figures.items():
        figures.add_row(visible(name), f"{value:.4g}")
    console.print(figures)
    console.print()
    console.print(visible(report.summary))
