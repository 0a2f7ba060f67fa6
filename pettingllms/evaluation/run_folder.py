"""The folder of an evaluation, written line by line, and playing the plan that it holds.

```
RUN/run.json          the plan, the versions, when it was begun
RUN/episodes.jsonl    one line per finished episode
RUN/answers.jsonl     one line per answer of a model, of unfinished episodes too
RUN/report.json       figures with intervals, written at the end
RUN/report.md         the same, readable
```
"""

from __future__ import annotations

import json
import logging
import platform
import shlex
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import IO, Any, TypeVar

from pettingllms.arguments import check_whole
from pettingllms.errors import (
    FOREIGN,
    InvalidArgument,
    PettingLLMsError,
    RunFolderError,
    counted,
    readable,
    told,
)
from pettingllms.evaluation.episode import (
    AnswerLog,
    AnswerRecord,
    Bill,
    EpisodeResult,
    Key,
    bill_of,
    play_episode,
)
from pettingllms.evaluation.plan import EpisodeSpec, EvaluationPlan
from pettingllms.files import iter_lines, json_line, load_json, open_to_append, owned, write_whole
from pettingllms.loops import finish, work_off
from pettingllms.policies import PolicySettings, PolicyUnavailable, Usage, loaded_policies
from pettingllms.registry import spec
from pettingllms.sources import nearby, run_directory
from pettingllms.trust import Name

FORMAT = "pettingllms-evaluation"
VERSION = 1


class RunFolder:
    """The folder of one evaluation; made by `create` or `open`.

    Args:
        path: The folder.
        plan: What is evaluated.
        versions: Package -> version the evaluation was begun with.
        created: When it was begun, ISO 8601 in UTC.
    """

    def __init__(
        self, path: Path, plan: EvaluationPlan, versions: Mapping[str, str], created: str
    ) -> None:
        self.path = path
        self.plan = plan
        self.versions = versions
        self.created = created
        self.episodes_path = path / "episodes.jsonl"
        self.answers_path = path / "answers.jsonl"
        self._is_owned = False

    @classmethod
    def create(cls, path: str | Path, plan: EvaluationPlan) -> RunFolder:
        """Prepare an evaluation in a folder that holds none; `save_plan` writes its first file.

        Raises:
            RunFolderError: If it holds episodes or answers.
        """
        folder = Path(path)
        files = (folder / "episodes.jsonl", folder / "answers.jsonl")
        # run.json alone holds nothing: its policies could not be loaded, nothing was paid.
        if any(file.exists() and file.stat().st_size for file in files):
            raise RunFolderError(
                f"{folder} holds an evaluation already. Continue it (RunFolder.open; on "
                f"the command line --resume {shlex.quote(str(folder))}), or choose another folder "
                "(out)."
            )
        created = datetime.now(UTC).isoformat(timespec="seconds")
        return cls(folder, plan, _versions(plan.env_id), created)

    @classmethod
    def open(cls, path: str | Path, *, trust: bool = False) -> RunFolder:
        """Open the folder of an evaluation that was begun before.

        Args:
            path: The folder.
            trust: Whether it may name code and servers; see `pettingllms.trust`.

        Raises:
            RunFolderError: It is not the folder of an evaluation, or of another version.
        """
        folder = run_directory(path)
        file = folder / "run.json"
        damage = f"{file} cannot be read as the plan of an evaluation"
        try:
            with readable(RunFolderError, damage, "Restore it, or name another run."):
                data = load_json(file)
                if data["format"] != FORMAT:
                    raise RunFolderError(f"{file} is not that of an evaluation")
                if data["version"] != VERSION:
                    raise RunFolderError(
                        f"{folder} has format version {data['version']}; known: {VERSION}"
                    )
                plan = EvaluationPlan.from_json(data["plan"], file, trust=trust)
                return cls(folder, plan, data["versions"], data["created"])
        except OSError as error:
            raise RunFolderError(
                f"{folder} is not the folder of an evaluation: {error.strerror} "
                f"(run.json){nearby(folder) or '.'} "
                "Name a folder that `pettingllms eval` wrote."
            ) from error

    @contextmanager
    def owned(self) -> Generator[None]:
        """Hold the folder while it is written; within such a context nothing changes.

        Raises:
            RunFolderError: Another process writes into it.
        """
        if self._is_owned:
            yield
            return
        with owned(self.path):
            self._is_owned = True
            try:
                yield
            finally:
                self._is_owned = False

    @property
    def has_begun(self) -> bool:
        """Whether its plan is written."""
        return (self.path / "run.json").exists()

    def save_plan(self) -> None:
        """Write the plan, into a new folder if need be; a reader sees the old or the new one."""
        self.path.mkdir(parents=True, exist_ok=True)
        data = {
            "format": FORMAT,
            "version": VERSION,
            "created": self.created,
            "versions": dict(self.versions),
            "plan": self.plan.to_json(),
        }
        write_whole(self.path / "run.json", json.dumps(data, indent=2) + "\n")

    def write_report(self, data: Mapping[str, Any], text: str) -> None:
        """Write the report as JSON data and as Markdown."""
        with self.owned():
            report = json.dumps(data, indent=2, allow_nan=False)
            write_whole(self.path / "report.json", f"{report}\n")
            write_whole(self.path / "report.md", text)

    def results(self, *, with_steps: bool = False) -> Iterator[EpisodeResult]:
        """Yield the finished episodes, each once, in the order in which they ended.

        Args:
            with_steps: Whether to keep what was said; without it long runs fit into memory.

        Raises:
            RunFolderError: If a line other than an unfinished last one cannot be read.
        """
        read = partial(EpisodeResult.from_json, with_steps=with_steps)
        hint = "Delete that line; its episode is then played again on --resume."
        seen: set[Key] = set()
        for result in iter_lines(self.episodes_path, read, hint):
            # Where no lock holds, two may have resumed the run: an episode's first line counts.
            if result.key not in seen:
                seen.add(result.key)
                yield result

    def episode(self, variant: str, level: int, sample: int) -> EpisodeResult:
        """A finished episode, with what was said.

        Raises:
            InvalidArgument: If there is none of that variant, level and sample.
        """
        for result in self.results(with_steps=True):
            if result.key == (variant, level, sample):
                return result
        allowed = f"finished episodes: variants {', '.join(self.plan.variants)}, levels 0 to "
        allowed += f"{self.plan.num_levels - 1}, samples 0 to {self.plan.num_samples - 1}"
        given = f"variant {variant}, level {level}, sample {sample}"
        raise InvalidArgument("episode", given, allowed)

    def answers(self) -> Iterator[AnswerRecord]:
        """Yield the answers of all attempts, in the order in which they came.

        Raises:
            RunFolderError: If a line other than an unfinished last one cannot be read.
        """
        hint = "Delete that line; it is then missing on the bill."
        return iter_lines(self.answers_path, AnswerRecord.from_json, hint)

    def bill(self) -> Bill:
        """What was spent so far, on failed and interrupted episodes too."""
        return bill_of(self.answers(), self.results())

    @contextmanager
    def appending(
        self,
    ) -> Generator[tuple[Callable[[EpisodeResult], None], Callable[[AnswerRecord], None]]]:
        """Functions that append an episode, and an answer; unfinished last lines are dropped."""
        paths = (self.episodes_path, self.answers_path)
        with open_to_append(paths[0]) as episodes, open_to_append(paths[1]) as answers:
            yield partial(_append, episodes), partial(_append, answers)


def _append(file: IO[bytes], entry: EpisodeResult | AnswerRecord) -> None:
    file.write(json_line(entry.to_json()))
    file.flush()  # on its way to the disk


def _versions(env_id: Name) -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in dict.fromkeys(("pettingllms", spec(env_id).package)):
        if package:
            try:
                found[package] = version(package)
            except PackageNotFoundError:
                found[package] = "unknown"
    return found


_logger = logging.getLogger(__name__)


class EvaluationStopped(PettingLLMsError, RuntimeError):
    """An evaluation stopped before its end; what was played is kept."""


@dataclass
class Progress:
    """Progress of an evaluation; a *run* is one call of `evaluate`."""

    num_episodes: int
    """Episodes of the plan."""
    num_finished: int = 0
    """Finished episodes, including those of earlier runs."""
    num_success: int = 0
    """Finished episodes that were solved."""
    num_answers: int = 0
    """New answers of this run."""
    most_answers: int = 0
    """The most answers that one episode can have."""
    num_tokens: int = 0
    """Prompt and completion tokens spent so far, including failed episodes and earlier runs."""
    num_retries: int = 0
    """Requests of this run that had to be sent again."""
    failures: Counter[str] = field(default_factory=Counter[str])
    """Cause -> number of episodes that this run could not finish; resuming plays them again."""

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
        on_progress: Called at the start, after every answer and after every episode.

    Raises:
        InvalidArgument: If the plan does not fit the environment, or policies cannot play in it.
        PolicyUnavailable: If a policy cannot be used at all; before or in the middle.
        EvaluationStopped: If more episodes failed than allowed.
        RunFolderError: If another process writes into the folder, or a line of it is damaged.
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
    max_concurrency = check_whole("max_concurrency", max_concurrency, 1)
    with folder.owned():
        return await _evaluate(folder, settings, max_concurrency, max_failures, on_progress)


async def _evaluate(
    folder: RunFolder,
    settings: PolicySettings | None,
    max_concurrency: int,
    max_failures: int,
    on_progress: Callable[[Progress], None],
) -> Progress:
    plan = folder.plan
    env = plan.make_env()
    most_answers = env.max_turns * len(env.possible_agents)
    progress = Progress(plan.num_episodes, most_answers=most_answers)
    finished: set[Key] = set()
    for result in folder.results():
        finished.add(result.key)
        progress.count(result)
    # What earlier attempts spent is part of the bill; their retries are not news.
    for roles in folder.bill().values():
        for usage in roles.values():
            progress.charge(usage)
    progress.num_retries = 0
    # Lazily, since plans of a million episodes are played with 16 at a time.
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
        with folder.appending() as (keep, keep_answer):
            log = _log(folder, finished, keep_answer, progress, on_progress)
            assignments = {
                variant: {role: policies[str(name)] for role, name in assignment.items()}
                for variant, assignment in plan.variants.items()
            }

            async def play(spec: EpisodeSpec) -> None:
                team = assignments[spec.variant]
                result = await play_episode(env, spec, team, plan.sampling, plan.options, log)
                keep(result)
                progress.count(result)

            await play_all(
                pending,
                play,
                progress.failures,
                "episode",
                max_concurrency=min(max_concurrency, plan.num_episodes),
                max_failures=max_failures,
                after=lambda: on_progress(progress),
            )
    return progress


def _log(
    folder: RunFolder,
    finished: Set[Key],
    keep: Callable[[AnswerRecord], None],
    progress: Progress,
    on_progress: Callable[[Progress], None],
) -> AnswerLog:
    """The answers of unfinished episodes, of earlier attempts and of this one."""

    def write(record: AnswerRecord) -> None:
        keep(record)
        progress.charge(record.usage)
        progress.num_answers += 1
        on_progress(progress)

    unfinished = (
        record
        for record in folder.answers()
        if record.key not in finished and record.completion is not None
    )
    return AnswerLog(unfinished, write)


Item = TypeVar("Item")


async def play_all(
    items: Iterator[Item],
    play: Callable[[Item], Awaitable[None]],
    failures: Counter[str],
    what: str,
    *,
    max_concurrency: int,
    max_failures: int,
    after: Callable[[], None],
) -> None:
    """Play many at a time; the first reason to stop cancels what is running.

    Args:
        items: What is played.
        play: Plays one.
        failures: Gets cause -> how many failed; they are left out.
        what: What one of them is.
        max_concurrency: How many at the same time, at least 1.
        max_failures: How many may fail, at least 0.
        after: Called after every one.

    Raises:
        PolicyUnavailable: A policy cannot be used any more.
        EvaluationStopped: More failed than allowed.
        InvalidArgument: A limit is out of its range.
    """
    max_concurrency = check_whole("max_concurrency", max_concurrency, 1)
    max_failures = check_whole("max_failures", max_failures, 0)

    async def one(item: Item) -> None:
        try:
            await play(item)
        # Every other one would fail the same way: stop instead of counting failures.
        except PolicyUnavailable:
            raise
        except FOREIGN as error:
            # Of those that failed while a stop cancels them, none is counted.
            if failures.total() <= max_failures:
                _count(item, error)
        after()

    def _count(item: Item, error: BaseException) -> None:
        cause = told(error)
        if cause not in failures:
            # The traceback of an environment or plug-in is needed to fix it; logged once per cause.
            _logger.info("%s failed: %s", what, item, exc_info=error)
        failures[cause] += 1
        if failures.total() > max_failures:
            raise EvaluationStopped(
                f"{counted(failures.total(), what)} failed, more than the {max_failures} allowed "
                f"(max_failures). Most frequent cause: {failures.most_common(1)[0][0]}"
            ) from error

    await work_off(items, one, max_concurrency)
