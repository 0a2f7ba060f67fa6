"""`pettingllms view`."""

from __future__ import annotations

import os
import webbrowser
from pathlib import Path

import click

from pettingllms.cli.console import stderr, stdout
from pettingllms.errors import InvalidArgument
from pettingllms.tables import visible
from pettingllms.viewer import LiveServer, ViewSummary, runs_below, write_overview, write_view


@click.command("view")
@click.argument("runs", metavar="RUN...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The page to write.  [default: RUN/view.html; of several runs: runs.html beside them]",
)
@click.option("--open", "is_opened", is_flag=True, help="Open the page in a browser.")
@click.option(
    "--live",
    "is_live",
    is_flag=True,
    help="Write nothing; serve a page that refreshes itself while the run runs, on this machine "
    "only, until Ctrl+C.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    metavar="N",
    help="Of --live: port of 127.0.0.1; 0: any that is free.  [default: 0]",
)
@click.option(
    "--replays",
    type=click.IntRange(min=0),
    default=1000,
    show_default=True,
    metavar="N",
    help="Episodes to play again, at most, to draw where every candidate led; 0: none.",
)
def view_command(
    runs: tuple[Path, ...],
    out: Path | None,
    is_opened: bool,
    is_live: bool,
    port: int,
    replays: int,
) -> int:
    """Write runs as self-contained HTML pages that work offline.

    RUN is a folder that `pettingllms-train` or `pettingllms eval` wrote, a recorded episode, or a
    folder of recorded episodes. Of several runs, or a folder of runs, a page that compares them is
    written too: curves over each other, and what differs in their configurations.
    """
    paths = [path for run in runs for path in (runs_below(run) or [run])]
    if is_live:
        return _serve(paths, port, replays, is_opened=is_opened)
    if len(paths) == 1:
        (run,) = paths
        target = out or (run.with_suffix(".html") if run.is_file() else run / "view.html")
        summary = _reported(write_view(run, target, max_replays=replays))
    else:
        if files := [str(path) for path in paths if path.is_file()]:
            raise InvalidArgument("runs", ", ".join(files), "folders, when several are named")
        for run in paths:
            _reported(write_view(run, run / "view.html", max_replays=replays))
        beside = Path(os.path.commonpath([path.resolve().parent for path in paths]))
        summary = write_overview(paths, out or beside / "runs.html")
        stdout().print(visible(f"{summary.path}: {len(paths)} runs"), soft_wrap=True)
    return _open(summary.path.resolve().as_uri()) if is_opened else 0


def _serve(runs: list[Path], port: int, replays: int, *, is_opened: bool) -> int:
    server = LiveServer(runs, port=port, max_replays=replays)
    stdout().print(visible(f"{server.url} (Ctrl+C ends it)"), soft_wrap=True)
    code = _open(server.url) if is_opened else 0
    try:
        server.serve()
    except KeyboardInterrupt:
        return code
    return code


def _reported(summary: ViewSummary) -> ViewSummary:
    for notice in summary.notices:
        stderr().print(visible(notice, "yellow"))
    size = summary.num_bytes / 1e6
    text = f"{summary.path}: {summary.num_episodes} episodes, {size:.1f} MB"
    stdout().print(visible(text), soft_wrap=True)
    return summary


def _open(address: str) -> int:
    if not webbrowser.open(address):
        stderr().print(visible("no browser could be opened on this machine", "yellow"))
        return 1
    return 0
