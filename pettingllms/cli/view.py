"""`pettingllms view`."""

from __future__ import annotations

import importlib
from pathlib import Path

import click

from pettingllms.cli.console import stdout, visible


@click.command("view")
@click.argument("run", metavar="RUN", type=click.Path(exists=True, path_type=Path))
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The page to write.  [default: RUN/view.html]",
)
def view_command(run: Path, out: Path | None) -> int:
    """Write a run of the evaluation or the trainer as one self-contained HTML page."""
    target = out or run / "view.html"
    importlib.import_module("pettingllms.viewer").write_view(run, target)
    stdout().print(visible(str(target)))
    return 0
