"""`pettingllms view`."""

from __future__ import annotations

import webbrowser
from pathlib import Path

import click

from pettingllms.cli.console import stderr, stdout, visible
from pettingllms.viewer import write_view


@click.command("view")
@click.argument("run", metavar="RUN", type=click.Path(path_type=Path))
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The page to write.  [default: RUN/view.html]",
)
@click.option("--open", "is_opened", is_flag=True, help="Open the page in a browser.")
@click.option(
    "--replays",
    type=click.IntRange(min=0),
    default=200,
    show_default=True,
    metavar="N",
    help="Episodes to play again, at most, to draw boards that prompts do not show; 0: none.",
)
def view_command(run: Path, out: Path | None, is_opened: bool, replays: int) -> int:
    """Write a run as one self-contained HTML page that works offline.

    RUN is a folder that `pettingllms-train` or `pettingllms eval` wrote, a recorded episode, or a
    folder of recorded episodes.
    """
    target = out or (run.with_suffix(".html") if run.is_file() else run / "view.html")
    summary = write_view(run, target, max_replays=replays)
    for notice in summary.notices:
        stderr().print(visible(notice, "yellow"))
    size = summary.num_bytes / 1e6
    stdout().print(visible(f"{summary.path}: {summary.num_episodes} episodes, {size:.1f} MB"))
    if is_opened and not webbrowser.open(summary.path.resolve().as_uri()):
        stderr().print(visible("no browser could be opened on this machine", "yellow"))
        return 1
    return 0
