"""The folder of an evaluation: written line by line, so that nothing played is ever lost.

```
RUN/run.json          the plan, the versions, when it was begun
RUN/episodes.jsonl    one line per finished episode
RUN/report.json       figures with intervals, written at the end
RUN/report.md         the same for people
```
"""

from __future__ import annotations

import json
import logging
import os
import platform
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from pettingllms.errors import PettingLLMsError
from pettingllms.evaluation.episode import EpisodeResult
from pettingllms.evaluation.plan import EvaluationPlan
from pettingllms.registry import spec

FORMAT = "pettingllms-evaluation"
VERSION = 1

_logger = logging.getLogger(__name__)


class RunFolderError(PettingLLMsError, ValueError):
    """A folder is not that of an evaluation, is damaged, or is in the way of a new one."""


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

    @classmethod
    def create(cls, path: str | Path, plan: EvaluationPlan) -> RunFolder:
        """Begin an evaluation in a folder that holds no finished episode.

        Raises:
            RunFolderError: If it holds one.
        """
        folder = Path(path)
        episodes = folder / "episodes.jsonl"
        if episodes.exists() and episodes.stat().st_size:
            raise RunFolderError(
                f"{folder} holds an evaluation already. Go on with it (--resume {folder}), or "
                "choose another folder (--out)."
            )
        created = datetime.now(UTC).isoformat(timespec="seconds")
        run = cls(folder, plan, _versions(plan.env_id), created)
        folder.mkdir(parents=True, exist_ok=True)
        run.save_plan()
        return run

    @classmethod
    def open(cls, path: str | Path) -> RunFolder:
        """Open the folder of an evaluation that was begun before.

        Raises:
            RunFolderError: If it is not one, or one of a later version.
        """
        folder = Path(path)
        try:
            data = json.loads((folder / "run.json").read_text(encoding="utf-8"))
            if data["format"] != FORMAT:
                raise RunFolderError(f"{folder}/run.json is not that of an evaluation")
            if data["version"] != VERSION:
                raise RunFolderError(
                    f"{folder} has format version {data['version']}; known: {VERSION}"
                )
            plan = EvaluationPlan.from_json(data["plan"])
            return cls(folder, plan, data["versions"], data["created"])
        except OSError as error:
            raise RunFolderError(
                f"{folder} is not the folder of an evaluation: {error.strerror} (run.json). "
                "Name a folder that `pettingllms eval` wrote."
            ) from error
        except RunFolderError:
            raise
        except (ValueError, KeyError, TypeError) as error:
            raise RunFolderError(
                f"{folder}/run.json cannot be read: {type(error).__name__}: {error}"
            ) from error

    def save_plan(self) -> None:
        """Write the plan; a reader sees the old one or the new one."""
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
        """Write a file of the folder; a reader sees the whole file or none."""
        partial = self.path / f"{name}.partial"
        partial.write_text(text, encoding="utf-8")
        os.replace(partial, self.path / name)

    def results(self, *, with_steps: bool = False) -> Iterator[EpisodeResult]:
        """Yield the finished episodes, each once, in the order in which they ended.

        Args:
            with_steps: Whether to keep what was said; without it long runs fit into memory.

        Raises:
            RunFolderError: If a line other than an unfinished last one cannot be read.
        """
        if not self.episodes_path.exists():
            return
        seen: set[tuple[str, int, int]] = set()
        with self.episodes_path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if not line.endswith(b"\n"):
                    return  # the line being written when the run was interrupted
                result = self._result(line, number, with_steps)
                if result.key not in seen:
                    seen.add(result.key)
                    yield result

    def _result(self, line: bytes, number: int, with_steps: bool) -> EpisodeResult:
        try:
            return EpisodeResult.from_json(json.loads(line), with_steps=with_steps)
        except (ValueError, KeyError, TypeError) as error:
            raise RunFolderError(
                f"{self.episodes_path}, line {number} is damaged "
                f"({type(error).__name__}: {error}). "
                "Delete that line; its episode is then played again on --resume."
            ) from error

    @contextmanager
    def appending(self) -> Generator[ResultWriter]:
        """Open the episodes for appending; an unfinished last line is dropped first."""
        _drop_unfinished_line(self.episodes_path)
        with self.episodes_path.open("ab") as file:
            yield ResultWriter(file)


class ResultWriter:
    """Appends results; each is on its way to the disk when `add` returns."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def add(self, result: EpisodeResult) -> None:
        """Append one finished episode."""
        # Model text may hold lone surrogates; JSON escapes keep them.
        self._file.write(json.dumps(result.to_json()).encode("ascii") + b"\n")
        self._file.flush()


def _drop_unfinished_line(path: Path) -> None:
    if not path.exists():
        return
    content = path.read_bytes()
    kept = content.rfind(b"\n") + 1
    if kept < len(content):
        _logger.warning(
            "%s: dropping an unfinished last line (%d bytes)", path, len(content) - kept
        )
        os.truncate(path, kept)


def _versions(env_id: str) -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in dict.fromkeys(("pettingllms", spec(env_id).package)):
        if package:
            try:
                found[package] = version(package)
            except PackageNotFoundError:
                found[package] = "unknown"
    return found
