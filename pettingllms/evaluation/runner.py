"""Playing the episodes of a plan, many at a time, and resuming an interrupted run."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import Any

from pettingllms.env import TextEnv
from pettingllms.errors import InvalidArgument, PettingLLMsError
from pettingllms.evaluation.answer_log import AnswerLog, AnswerRecord, Key
from pettingllms.evaluation.episode import EpisodeResult, play_episode
from pettingllms.evaluation.levels import EpisodeSpec
from pettingllms.evaluation.plan import EvaluationPlan
from pettingllms.evaluation.run_folder import LineWriter, RunFolder
from pettingllms.loops import finish, work_off
from pettingllms.policies import (
    Policy,
    PolicySettings,
    PolicyUnavailable,
    Usage,
    loaded_policies,
)

_logger = logging.getLogger(__name__)


class EvaluationStopped(PettingLLMsError, RuntimeError):
    """An evaluation stopped before its end; what was played is kept."""


@dataclass
class Progress:
    """Progress of an evaluation."""

    num_episodes: int
    """Episodes of the plan."""
    num_finished: int = 0
    """Those that are on disk, from earlier runs too."""
    num_success: int = 0
    """Finished ones that were solved."""
    num_tokens: int = 0
    """Tokens spent so far, of prompts and completions, on failed episodes too."""
    num_retries: int = 0
    """Requests of this run that had to be sent again."""
    failures: Counter[str] = field(default_factory=Counter[str])
    """Cause -> episodes that this run could not finish; they are played again on resume."""

    @property
    def is_complete(self) -> bool:
        """Whether every episode is finished."""
        return self.num_finished == self.num_episodes

    def count(self, result: EpisodeResult) -> None:
        """Count a finished episode."""
        self.num_finished += 1
        self.num_success += result.success

    def charge(self, usage: Usage) -> None:
        """Count what was spent."""
        self.num_tokens += usage.prompt_tokens + usage.completion_tokens
        self.num_retries += usage.num_retries


def evaluate(
    folder: RunFolder,
    settings: PolicySettings | None = None,
    *,
    max_concurrency: int = 16,
    max_failures: int = 10,
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> Progress:
    """Play all episodes of a folder's plan that it does not hold yet.

    An episode that fails (a request that could not be answered after all retries, an environment
    that raised) is counted and left out; playing again with the same folder makes up for it, from
    the first action that was not answered.

    It waits, inside a running event loop (a notebook) too; see also `evaluate_async`.

    Args:
        folder: Where the plan is and the results go.
        settings: How policies reach their models.
        max_concurrency: Concurrent episodes, at least 1.
        max_failures: Failed episodes after which the evaluation stops, at least 0.
        on_progress: Called after every episode, and once at the start.

    Raises:
        InvalidArgument: If the plan does not fit the environment, or policies cannot play in it.
        PolicyUnavailable: If a policy cannot be used at all; before or in the middle.
        EvaluationStopped: If more episodes failed than allowed.
        KeyboardInterrupt: If the user interrupts; what was answered is kept.
    """
    return finish(
        evaluate_async(
            folder,
            settings,
            max_concurrency=max_concurrency,
            max_failures=max_failures,
            on_progress=on_progress,
        )
    )


async def evaluate_async(
    folder: RunFolder,
    settings: PolicySettings | None = None,
    *,
    max_concurrency: int = 16,
    max_failures: int = 10,
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> Progress:
    """Do what `evaluate` does, as a coroutine."""
    if max_concurrency < 1:
        raise InvalidArgument("max_concurrency", max_concurrency, "an integer of at least 1")
    plan = folder.plan
    env = plan.make_env()
    progress = Progress(plan.num_episodes)
    finished: set[Key] = set()
    for result in folder.results():
        finished.add(result.key)
        progress.count(result)
    # What earlier attempts spent is part of the bill; their retries are not news.
    for roles in folder.bill().values():
        for usage in roles.values():
            progress.charge(usage)
    progress.num_retries = 0
    pending = (spec for spec in plan.episodes() if spec[:3] not in finished)
    on_progress(progress)
    if progress.is_complete:
        return progress
    # A missing key or model leaves no folder behind.
    async with loaded_policies(plan.policies(), settings) as policies:
        try:
            for policy in policies.values():
                await policy.check(env)
        except PolicyUnavailable:
            folder.save_plan()  # so that it can be resumed when the server is there
            raise
        folder.save_plan()
        with folder.appending() as (episodes, answers):
            log = _log(folder, finished, answers, progress)
            play = _Play(env, plan, policies, episodes, log, progress, max_failures, on_progress)
            await play.all(pending, max_concurrency)
    return progress


def _log(
    folder: RunFolder, finished: Set[Key], writer: LineWriter, progress: Progress
) -> AnswerLog:
    """Return the answers of unfinished episodes, of earlier attempts and of this one."""

    def write(record: AnswerRecord) -> None:
        writer.add(record)
        progress.charge(record.usage)

    unfinished = (
        record
        for record in folder.answers()
        if record.key not in finished and record.completion is not None
    )
    return AnswerLog(unfinished, write)


class _Play:
    """The workers of one evaluation."""

    def __init__(
        self,
        env: TextEnv[Any],
        plan: EvaluationPlan,
        policies: Mapping[str, Policy],
        writer: LineWriter,
        log: AnswerLog,
        progress: Progress,
        max_failures: int,
        on_progress: Callable[[Progress], None],
    ) -> None:
        self._env = env
        self._plan = plan
        self._line_ups = {
            variant: {role: policies[str(name)] for role, name in line_up.items()}
            for variant, line_up in plan.variants.items()
        }
        self._writer = writer
        self._log = log
        self._progress = progress
        self._max_failures = max_failures
        self._on_progress = on_progress

    async def all(self, pending: Iterator[EpisodeSpec], num_workers: int) -> None:
        """Play all pending episodes; the first reason to stop cancels what is running."""
        await work_off(pending, self._one, min(num_workers, self._plan.num_episodes))

    async def _one(self, spec: EpisodeSpec) -> None:
        await self._played(spec)
        self._on_progress(self._progress)

    async def _played(self, spec: EpisodeSpec) -> None:
        plan = self._plan
        try:
            result = await play_episode(
                self._env,
                spec,
                self._line_ups[spec.variant],
                plan.sampling,
                plan.options,
                self._log,
            )
        # Every other episode would fail the same way: stop instead of counting failures.
        except PolicyUnavailable:
            raise
        except Exception as error:  # noqa: BLE001  the rollout boundary
            self._failed(spec, error)
            return
        self._writer.add(result)
        self._progress.count(result)

    def _failed(self, spec: EpisodeSpec, error: Exception) -> None:
        cause = f"{type(error).__name__}: {error}"
        failures = self._progress.failures
        if failures.total() > self._max_failures:
            return  # another worker stops the evaluation; this one failed before it was cancelled
        if cause not in failures:
            # The traceback of an environment or plug-in is needed to fix it; logged once per cause.
            _logger.info("episode %s failed", spec, exc_info=error)
        failures[cause] += 1
        num_failed = failures.total()
        if num_failed > self._max_failures:
            raise EvaluationStopped(
                f"{num_failed} episodes failed, more than the {self._max_failures} allowed "
                f"(--max-failures). Most frequent cause: {failures.most_common(1)[0][0]}"
            ) from error
