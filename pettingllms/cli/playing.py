"""Playing a plan from the command line: a bar, or lines now and then, and how to go on."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import timedelta
from typing import NamedTuple

from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from pettingllms.cli.console import stderr
from pettingllms.evaluation.blame import Replayed
from pettingllms.evaluation.presentation import tokens
from pettingllms.evaluation.report import Report
from pettingllms.evaluation.run_folder import EvaluationStopped, Progress, RunFolder, evaluate
from pettingllms.policies import PolicySettings, PolicyUnavailable, Usage


class PlanPlayed(NamedTuple):
    """How playing has ended."""

    progress: Progress
    status: int
    """0: at the end of the plan; else the exit status of the command."""
    reason: str | None
    """Why it stopped before; None where it did not."""


def play_all(folder: RunFolder, settings: PolicySettings, max_failures: int) -> PlanPlayed:
    """Play what a folder's plan has left, with a bar; what stops it is no error here."""
    progress = Progress(folder.plan.num_episodes)
    try:
        with progress_bar(progress) as on_progress:
            evaluate(
                folder,
                settings,
                max_concurrency=settings.max_concurrency,
                max_failures=max_failures,
                on_progress=on_progress,
            )
    except KeyboardInterrupt:
        return PlanPlayed(progress, 130, "interrupted")
    except (PolicyUnavailable, EvaluationStopped) as error:
        return PlanPlayed(progress, 1, str(error))
    return PlanPlayed(progress, 0, None)


def tell_incomplete(
    folder: RunFolder,
    report: Report,
    progress: Progress,
    reason: str | None,
    command: str = "eval",
) -> None:
    """Say on stderr what is missing, why, what was spent, and how to go on."""
    console = stderr()
    num_finished = sum(variant.num_episodes for variant in report.variants.values())
    lines = [f"incomplete: {num_finished} of {folder.plan.num_episodes} episodes are finished"]
    if reason:
        lines.append(f"stopped: {reason}")
    lines += [f"{count} failed: {cause}" for cause, count in progress.failures.most_common()]
    for line in lines:
        console.print(line, style="bold red", markup=False, highlight=False)
    spent = sum((usage for variant in report.bill.values() for usage in variant.values()), Usage())
    if spent.num_requests:
        console.print(f"tokens spent so far: {tokens(spent)}", markup=False, highlight=False)
    trust = " --trust" if folder.plan.needs_trust else ""
    console.print(
        f"No answer is lost. Continue with: pettingllms {command} --resume {folder.path}{trust}",
        markup=False,
        highlight=False,
    )


SECONDS_BETWEEN_LINES = 30.0
"""Where standard error is no terminal, such as in the log of a job."""

Show = Callable[[Progress], None]


@contextmanager
def progress_bar(seen: Progress) -> Generator[Show]:
    """Show on stderr how far the evaluation is, with the time left, what failed and what it cost.

    Args:
        seen: Gets the failures that are reported, so that they are known after an interruption.
    """

    def and_keep(show: Show) -> Show:
        def shown(progress: Progress) -> None:
            seen.failures = progress.failures
            show(progress)

        return shown

    if not sys.stderr.isatty():
        yield and_keep(_Lines().show)
        return
    columns = (
        BarColumn(None),  # as wide as the figures leave it
        MofNCompleteColumn(),
        TextColumn("{task.description}"),
        TextColumn("[red]{task.fields[failed]}"),
        TimeRemainingColumn(elapsed_when_finished=True),
    )
    with Bar(*columns, console=stderr(), expand=True) as bar:
        yield and_keep(_Terminal(bar, seen.num_episodes).show)


@contextmanager
def replay_bar(name: str) -> Generator[Callable[[Replayed], None]]:
    """Show on a terminal how many replays of an episode are over.

    Args:
        name: Of the episode.
    """
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Bar(*columns, console=stderr(), transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task(name, total=None)

        def show(replayed: Replayed) -> None:
            bar.update(task, completed=replayed.num_finished, total=replayed.num_replays)

        yield show


class _Terminal:
    def __init__(self, bar: Bar, num_episodes: int) -> None:
        self._bar = bar
        self._task = bar.add_task("", total=num_episodes, failed="", start=False)
        self._has_begun = False

    def show(self, progress: Progress) -> None:
        if not self._has_begun:
            # Episodes of earlier attempts say nothing about the speed of this one.
            self._has_begun = True
            self._bar.reset(self._task, completed=progress.num_finished)
        failed = ", ".join(_failures(progress))
        self._bar.update(
            self._task,
            completed=progress.num_finished,
            description=", ".join(_figures(progress)),
            failed=failed,
        )


class _Lines:
    def __init__(self) -> None:
        self._start = self._last = time.monotonic()
        self._num_before: int | None = None

    def show(self, progress: Progress) -> None:
        now = time.monotonic()
        if self._num_before is None:
            self._start, self._num_before = now, progress.num_finished
        if now - self._last < SECONDS_BETWEEN_LINES or progress.is_complete:
            return
        self._last = now
        num_played = progress.num_finished - self._num_before
        parts = [f"{progress.num_finished} of {progress.num_episodes} episodes"]
        parts += [*_figures(progress), *_failures(progress)]
        if num_played:
            num_left = progress.num_episodes - progress.num_finished
            seconds = round((now - self._start) / num_played * num_left)
            parts.append(f"{timedelta(seconds=seconds)} left")
        stderr().print(", ".join(parts), markup=False, highlight=False)


def _figures(progress: Progress) -> list[str]:
    figures: list[str] = []
    if progress.num_finished:
        figures.append(f"solved {progress.num_success / progress.num_finished:.0%}")
    if progress.num_tokens:
        figures.append(f"{progress.num_tokens:,} tokens")
    return figures


def _failures(progress: Progress) -> list[str]:
    counts = {"failed": progress.failures.total(), "retries": progress.num_retries}
    return [f"{count} {name}" for name, count in counts.items() if count]
