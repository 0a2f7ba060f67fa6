"""Playing a plan from the command line: its progress, and how to resume it."""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from click.exceptions import Exit
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as Bar

from pettingllms.cli.app import stderr
from pettingllms.errors import counted
from pettingllms.evaluation.report import Report, summarise, tokens
from pettingllms.evaluation.run_folder import EvaluationStopped, Progress, RunFolder, evaluate
from pettingllms.files import write_whole
from pettingllms.loops import meanwhile
from pettingllms.policies import PolicySettings, PolicyUnavailable, Usage
from pettingllms.tables import Presentable, visible
from pettingllms.viewer import write_view

if TYPE_CHECKING:
    from pettingllms.evaluation.blame import Replayed

Write = Callable[[Report, Counter[str]], None]
"""Takes the report, and cause -> number of episodes that could not be finished."""


def played(
    folder: RunFolder,
    settings: PolicySettings,
    max_failures: int,
    command: str = "",
    write: Write = lambda report, failures: None,
) -> Report:
    """Play the unfinished episodes of a folder's plan, with a progress bar; report all episodes.

    Args:
        folder: The folder.
        settings: How policies reach their models.
        max_failures: Failed episodes after which the evaluation stops, at least 0.
        command: The command that continues it; empty: `eval --resume` with the folder.
        write: Called with the report, also of an evaluation that is not played to its end.

    Raises:
        RunFolderError: Another process writes into the folder.
        Exit: It was stopped, or not played to its end; why, and how to go on, is said on stderr.
    """
    with folder.owned():  # for the report, too
        return _played(folder, settings, max_failures, command, write)


def _played(
    folder: RunFolder, settings: PolicySettings, max_failures: int, command: str, write: Write
) -> Report:
    progress = Progress(folder.plan.num_episodes)
    # What stops a run is not an error of the command: all that was played is kept and reported.
    status, reason = 0, None
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
        status, reason = 130, "interrupted"
    except (PolicyUnavailable, EvaluationStopped) as error:
        status, reason = 1, str(error)
    # No policy could be loaded: there is nothing to report, and no folder to continue.
    if not folder.has_begun:
        _say(f"stopped: {reason}", "bold red")
        raise Exit(status)
    report = summarise(folder.plan, folder.results(), folder.bill())
    write(report, progress.failures)
    # Also where it was stopped after its last episode: others may follow, which are not wanted.
    if reason or not report.is_complete:
        _say_what_is_missing(folder, report, progress, reason, command)
        raise Exit(status or 1)
    return report


def _say_what_is_missing(
    folder: RunFolder, report: Report, progress: Progress, reason: str | None, command: str
) -> None:
    num_finished = sum(variant.num_episodes for variant in report.variants.values())
    wanted = counted(folder.plan.num_episodes, "episode")
    lines = [f"{'' if report.is_complete else 'in'}complete: {num_finished} of {wanted} finished"]
    lines += [f"stopped: {reason}"] if reason else []
    lines += [f"{count} failed: {cause}" for cause, count in progress.failures.most_common()]
    for line in lines:
        _say(line, "bold red")
    spent = sum((usage for variant in report.bill.values() for usage in variant.values()), Usage())
    if spent.num_requests:
        _say(f"tokens spent so far: {tokens(spent)}")
    trust = " --trust" if folder.plan.needs_trust else ""
    command = command or f"eval --resume {shlex.quote(str(folder.path))}"
    _say(f"No answer is lost. Continue with: pettingllms {command}{trust}")


def keep(folder: Path, name: str, found: Presentable) -> None:
    """Write what a command has found as a JSON file of a folder, and the folder's page."""
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / name, json.dumps(found.to_json(), allow_nan=False) + "\n")
    page = write_view(folder, folder / "view.html")
    stderr().print(visible(f"kept in {folder}; its page is {page.path}", "dim"), soft_wrap=True)


def _say(text: str, style: str = "") -> None:
    stderr().print(text, style=style, markup=False, highlight=False)


# Where standard error is not a terminal, such as in the log of a job.
SECONDS_BETWEEN_LINES = 30.0

Show = Callable[[Progress], None]


@contextmanager
def progress_bar(seen: Progress) -> Generator[Show]:
    """Show on stderr how far the evaluation is, with the time left, what failed and what it cost.

    Args:
        seen: Gets the failures that are reported, so that they are known after an interruption.
    """
    clock = _Clock()

    # A bar would fill the log of a job with thousands of lines.
    if not sys.stderr.isatty():
        with meanwhile(1.0, clock.say):

            def and_say(progress: Progress) -> None:
                clock.keep(seen, progress)
                clock.say()

            yield and_say
        return
    columns = (
        BarColumn(None),  # as wide as the figures leave it
        MofNCompleteColumn(),
        TextColumn("{task.description}"),
        TextColumn("[red]{task.fields[failed]}"),
        TextColumn("{task.fields[left]}"),
    )
    with Bar(*columns, console=stderr(), expand=True) as bar:
        task = bar.add_task("", total=seen.num_episodes, failed="", left="")

        def show(progress: Progress) -> None:
            clock.keep(seen, progress)
            bar.update(
                task,
                completed=progress.num_finished,
                description=", ".join(_figures(progress)),
                failed=", ".join(_failures(progress)),
                left=clock.left(),
            )

        yield show


@contextmanager
def replay_bar(name: str) -> Generator[Callable[[Replayed], None]]:
    """Show on a terminal how many replays of an episode are over."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Bar(*columns, console=stderr(), transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task(name, total=None)

        def show(replayed: Replayed) -> None:
            bar.update(task, completed=replayed.num_finished, total=replayed.num_replays)

        yield show


class _Clock:
    """Estimates the time left from the episodes of this attempt, and says when to print a line."""

    def __init__(self) -> None:
        self._start = self._last = time.monotonic()
        self._now: Progress | None = None
        self._num_before = 0

    def keep(self, seen: Progress, progress: Progress) -> None:
        """Take the progress, which the evaluation goes on to change."""
        seen.failures = progress.failures
        if self._now is None:
            self._now, self._num_before = progress, progress.num_finished
            self._start = time.monotonic()

    def left(self) -> str:
        """In words; before the first episode ends, what it would be if all were played out."""
        if self._now is None:
            return ""
        now = self._now
        num_left = now.num_episodes - now.num_finished
        if num_played := now.num_finished - self._num_before:
            bound, share = "", num_left / num_played
        elif now.num_answers:
            bound, share = "at most ", max(num_left * now.most_answers / now.num_answers - 1, 0.0)
        else:
            return "waiting for the first answer"
        seconds = round((time.monotonic() - self._start) * share)
        return f"{bound}{timedelta(seconds=seconds)} left"

    def say(self) -> None:
        """Write a line, if it is time for one."""
        now, seconds = self._now, time.monotonic()
        if now is None or now.is_complete or seconds - self._last < SECONDS_BETWEEN_LINES:
            return
        self._last = seconds
        parts = [f"{now.num_finished} of {counted(now.num_episodes, 'episode')}"]
        _say(", ".join([*parts, *_figures(now), *_failures(now), self.left()]))


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
