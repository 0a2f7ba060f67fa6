"""The folder of an evaluation: written line by line, so that nothing played is ever lost.

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
import platform
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from pettingllms.errors import RunFolderError
from pettingllms.evaluation.answer_log import AnswerRecord, Bill, Key, bill_of
from pettingllms.evaluation.episode import EpisodeResult
from pettingllms.evaluation.plan import EvaluationPlan
from pettingllms.files import iter_lines, open_to_append, write_whole
from pettingllms.policies import Usage
from pettingllms.registry import spec
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

    @classmethod
    def create(cls, path: str | Path, plan: EvaluationPlan) -> RunFolder:
        """Prepare an evaluation in a folder that holds none; `save_plan` writes its first file.

        Raises:
            RunFolderError: If it holds episodes or answers.
        """
        folder = Path(path)
        files = (folder / "episodes.jsonl", folder / "answers.jsonl")
        if any(file.exists() and file.stat().st_size for file in files):
            raise RunFolderError(
                f"{folder} holds an evaluation already. Continue it (--resume {folder}), or "
                "choose another folder (--out)."
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
            RunFolderError: If it is not one, or one of a later version.
        """
        folder = Path(path)
        try:
            file = folder / "run.json"
            data = json.loads(file.read_text(encoding="utf-8"))
            if data["format"] != FORMAT:
                raise RunFolderError(f"{folder}/run.json is not that of an evaluation")
            if data["version"] != VERSION:
                raise RunFolderError(
                    f"{folder} has format version {data['version']}; known: {VERSION}"
                )
            plan = EvaluationPlan.from_json(data["plan"], file, trust=trust)
            return cls(folder, plan, data["versions"], data["created"])
        except OSError as error:
            raise RunFolderError(
                f"{folder} is not the folder of an evaluation: {error.strerror} (run.json). "
                "Name a folder that `pettingllms eval` wrote."
            ) from error
        except RunFolderError:
            raise
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise RunFolderError(
                f"{folder}/run.json cannot be read: {type(error).__name__}: {error}"
            ) from error

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
        self._write("run.json", json.dumps(data, indent=2) + "\n")

    def write_report(self, data: Mapping[str, Any], text: str) -> None:
        """Write the report as JSON data and as Markdown."""
        self._write("report.json", json.dumps(data, indent=2, allow_nan=False) + "\n")
        self._write("report.md", text)

    def _write(self, name: str, text: str) -> None:
        write_whole(self.path / name, text)

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
            if result.key not in seen:
                seen.add(result.key)
                yield result

    def answers(self) -> Iterator[AnswerRecord]:
        """Yield the answers of all attempts, in the order in which they came.

        Raises:
            RunFolderError: If a line other than an unfinished last one cannot be read.
        """
        hint = "Delete that line; it is then missing on the bill."
        return iter_lines(self.answers_path, AnswerRecord.from_json, hint)

    def bill(self) -> Bill:
        """Return what was spent so far, on failed and interrupted episodes too."""
        finished = ((one.key, _usages(one)) for one in self.results())
        return bill_of(self.answers(), finished)

    @contextmanager
    def appending(self) -> Generator[tuple[LineWriter, LineWriter]]:
        """Open episodes and answers for appending; unfinished last lines are dropped first."""
        paths = (self.episodes_path, self.answers_path)
        with open_to_append(paths[0]) as episodes, open_to_append(paths[1]) as answers:
            yield LineWriter(episodes), LineWriter(answers)


class LineWriter:
    """Appends lines; each is on its way to the disk when `add` returns."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def add(self, entry: EpisodeResult | AnswerRecord) -> None:
        """Append one finished episode, or one answer."""
        # Model text may hold lone surrogates; JSON escapes keep them.
        self._file.write(json.dumps(entry.to_json()).encode("ascii") + b"\n")
        self._file.flush()


def _usages(result: EpisodeResult) -> dict[str, Usage]:
    return {role: part.usage for role, part in result.roles.items()}


def _versions(env_id: Name) -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in dict.fromkeys(("pettingllms", spec(env_id).package)):
        if package:
            try:
                found[package] = version(package)
            except PackageNotFoundError:
                found[package] = "unknown"
    return found
