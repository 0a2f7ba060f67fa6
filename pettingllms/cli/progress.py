"""The progress bar of `pettingllms eval`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager

from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from pettingllms.cli.console import stderr
from pettingllms.evaluation.runner import Progress


@contextmanager
def progress_bar(seen: Progress) -> Generator[Callable[[Progress], None]]:
    """Show on stderr how far the evaluation is, where stderr is a terminal.

    Args:
        seen: Gets the failures that are told, so that they are known after an interruption.
    """
    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("solved {task.fields[solved]}"),
        TextColumn("{task.fields[tokens]}"),
        TextColumn("[red]{task.fields[failed]}"),
        TimeRemainingColumn(elapsed_when_finished=True),
    )
    with Bar(*columns, console=stderr(), disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task("", total=seen.num_episodes, solved="-", tokens="", failed="")

        def show(progress: Progress) -> None:
            seen.failures = progress.failures
            num_failed = progress.failures.total()
            solved = progress.num_success / max(1, progress.num_finished)
            bar.update(
                task,
                completed=progress.num_finished,
                solved=f"{solved:.0%}" if progress.num_finished else "-",
                tokens=f"{progress.num_tokens:,} tokens" if progress.num_tokens else "",
                failed=f"{num_failed} failed" if num_failed else "",
            )

        yield show
