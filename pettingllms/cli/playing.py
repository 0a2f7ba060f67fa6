"""Playing the plan of a run folder from the command line: with a bar, and a way to go on."""

from __future__ import annotations

from typing import NamedTuple

from pettingllms.cli.console import stderr
from pettingllms.cli.progress import progress_bar
from pettingllms.evaluation.presentation import tokens
from pettingllms.evaluation.report import Report
from pettingllms.evaluation.run_folder import RunFolder
from pettingllms.evaluation.runner import EvaluationStopped, Progress, evaluate
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
