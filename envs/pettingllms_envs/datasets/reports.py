"""What a data source holds, and what two of them share, as readable reports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pettingllms_envs.datasets.loading import load
from pettingllms_envs.datasets.near_duplicates import Duplicate, near_duplicates
from pettingllms_envs.datasets.records import CodeProblem, MathProblem
from pettingllms_envs.datasets.schemas import SCHEMAS

MAX_SHOWN = 20
"""Maximum number of entries of one kind that a report prints; the rest is counted."""


@dataclass(frozen=True)
class DataReport:
    """What one source holds.

    Attributes:
        source: The file or hub name.
        schema: Name of the schema.
        kind: `"code"` or `"math"`.
        num_rows: Rows of the source.
        num_usable: Rows that became problems.
        skipped: Reason -> numbers of the rows (from 0) skipped for it.
        facts: Further counts by name, such as problems with a solution.
    """

    source: str
    schema: str
    kind: str
    num_rows: int
    num_usable: int
    skipped: Mapping[str, tuple[int, ...]]
    facts: Mapping[str, int]

    def __str__(self) -> str:
        """The report as text."""
        lines = [
            f"{self.source}: {self.kind} problems, schema {self.schema}",
            f"  {self.num_rows} rows, {self.num_usable} usable, "
            f"{self.num_rows - self.num_usable} skipped",
        ]
        lines += [f"  {count} {name}" for name, count in self.facts.items()]
        for reason, rows in sorted(self.skipped.items(), key=lambda entry: -len(entry[1])):
            shown = ", ".join(map(str, rows[:MAX_SHOWN])) + (", ..." if rows[MAX_SHOWN:] else "")
            lines.append(f"  skipped {len(rows)}: {reason} (rows {shown})")
        return "\n".join(lines)


@dataclass(frozen=True)
class OverlapReport:
    """Near-duplicates between two sources.

    Attributes:
        first: The first source, for example the training set.
        second: The second source, for example the test set.
        pairs: Id in the first, id in the second, similarity; the most similar first.
        num_second: Problems of the second source.
    """

    first: str
    second: str
    pairs: tuple[tuple[str, str, float], ...]
    num_second: int

    def __str__(self) -> str:
        """The report as text."""
        affected = len({second for _, second, _ in self.pairs})
        lines = [
            f"{affected} of {self.num_second} problems of {self.second} have a near-duplicate in "
            f"{self.first}"
        ]
        lines += [f"  {a}  ~  {b}  ({s:.2f})" for a, b, s in self.pairs[:MAX_SHOWN]]
        if len(self.pairs) > MAX_SHOWN:
            lines.append(f"  and {len(self.pairs) - MAX_SHOWN} more pairs")
        return "\n".join(lines)


def check(source: str | Path, *, split: str | None = None, schema: str | None = None) -> DataReport:
    """Report what a source holds: rows, usable problems, and the reason of every skipped row.

    Args:
        source: A file or hub data set; see `read_rows`.
        split: Split of a hub data set.
        schema: One of `SCHEMAS`; None: recognised by the fields.

    Raises:
        InvalidArgument: As in `load_code_problems`.
        MissingDependency: The source needs the extra `data`.
    """
    loaded = load(source, split=split, schema=schema)
    kind = SCHEMAS[loaded.schema].kind
    return DataReport(
        source=str(source),
        schema=loaded.schema,
        kind=kind,
        num_rows=loaded.num_rows,
        num_usable=len(loaded.problems),
        skipped=loaded.skipped,
        facts=_facts(loaded.problems),
    )


def check_overlap(
    first: str | Path,
    second: str | Path,
    *,
    splits: tuple[str | None, str | None] = (None, None),
    threshold: float = 0.7,
) -> OverlapReport:
    """Report the problems of one source that nearly repeat a problem of another.

    Args:
        first: A source, for example the training set.
        second: A source, for example the test set.
        splits: Splits of the two, where they are hub data sets.
        threshold: Smallest similarity that is reported; see `near_duplicates`.

    Raises:
        InvalidArgument: As in `load_code_problems` and `near_duplicates`.
        MissingDependency: A source needs the extra `data`.
    """
    sides = [
        load(s, split=split).problems for s, split in zip((first, second), splits, strict=True)
    ]
    texts = [[_text(problem) for problem in problems] for problems in sides]
    pairs = near_duplicates(texts[0], texts[1], threshold=threshold)

    def named(pair: Duplicate) -> tuple[str, str, float]:
        return sides[0][pair.first].id, sides[1][pair.second].id, pair.similarity

    return OverlapReport(str(first), str(second), tuple(map(named, pairs)), len(sides[1]))


def _text(problem: CodeProblem | MathProblem) -> str:
    return problem.statement if isinstance(problem, CodeProblem) else problem.question


def _facts(problems: tuple[CodeProblem, ...] | tuple[MathProblem, ...]) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for problem in problems:
        if isinstance(problem, CodeProblem):
            counts["with a solution"] += problem.solution is not None
            counts["with known-bad programs"] += bool(problem.wrong_programs)
            counts["that ask for a function"] += problem.function_name is not None
            counts["golden tests"] += len(problem.tests)
        else:
            counts["with a unit"] += bool(problem.unit)
        if problem.difficulty:
            counts[f"of difficulty {problem.difficulty}"] += 1
    return dict(counts)
