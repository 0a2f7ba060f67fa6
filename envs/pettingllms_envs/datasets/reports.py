"""What a data source holds, and what two of them share: readable reports and near-duplicates."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pettingllms.arguments import check_number, check_texts, check_whole
from pettingllms.errors import InvalidArgument, counted
from pettingllms.registry import spec
from pettingllms_envs.datasets.loading import Loaded, load_problems
from pettingllms_envs.datasets.records import CodeProblem, MathProblem
from pettingllms_envs.datasets.rows import SCHEMAS

Problem = CodeProblem | MathProblem

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
        repaired: Numbers of the rows whose tests were read otherwise after their solution failed.
        facts: Further counts by name, such as problems with a solution.
    """

    source: str
    schema: str
    kind: str
    num_rows: int
    num_usable: int
    skipped: Mapping[str, tuple[int, ...]]
    repaired: tuple[int, ...]
    facts: Mapping[str, int]

    def __str__(self) -> str:
        lines = [
            f"{self.source}: {self.kind} problems, schema {self.schema}",
            f"  {counted(self.num_rows, 'row')}, {self.num_usable} usable, "
            f"{self.num_rows - self.num_usable} skipped",
        ]
        lines += [f"  {count} {name}" for name, count in self.facts.items()]
        found = sorted(self.skipped.items(), key=lambda entry: -len(entry[1]))
        noted = [(f"skipped {len(rows)}: {reason}", rows) for reason, rows in found]
        if self.repaired:
            how = "return values are lists of one, as the solution returns them"
            noted.append((f"repaired {len(self.repaired)}: {how}", self.repaired))
        for note, rows in noted:
            shown = ", ".join(map(str, rows[:MAX_SHOWN])) + (", ..." if rows[MAX_SHOWN:] else "")
            lines.append(f"  {note} (rows {shown})")
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
        affected = len({second for _, second, _ in self.pairs})
        lines = [
            f"{affected} of {self.num_second} problems of {self.second} have a near-duplicate in "
            f"{self.first}"
        ]
        lines += [f"  {a}  ~  {b}  ({s:.2f})" for a, b, s in self.pairs[:MAX_SHOWN]]
        if len(self.pairs) > MAX_SHOWN:
            lines.append(f"  and {counted(len(self.pairs) - MAX_SHOWN, 'more pair')}")
        return "\n".join(lines)


def check(
    source: str | Path,
    *,
    split: str | None = None,
    schema: str | None = None,
    play: bool = False,
    out: Path | None = None,
) -> DataReport:
    """What a source holds: rows, usable problems, and the reason of every skipped row.

    Args:
        source: As in `load_problems`; errors are the same.
        split: Split of a hub data set.
        schema: Layout of the rows; None: recognised.
        play: Play every problem with its own solution. One that this does not solve is skipped, or
            repaired where another reading of its tests fits the solution.
        out: Where the usable problems are written, as repaired: a `.jsonl` that loads as it is.

    Raises:
        InvalidArgument: Also if `out` has another suffix, or there is nothing to write.
    """
    if out is not None and out.suffix != ".jsonl":  # now, not after hours of playing
        raise InvalidArgument("out", str(out), "a file whose name ends in .jsonl")
    loaded: Loaded[Any] = load_problems(None, source, split=split, schema=schema)
    kind = "code" if SCHEMAS[loaded.schema].record is CodeProblem else "math"
    skipped = {why: [*rows] for why, rows in loaded.skipped.items()}
    problems: list[Problem] = []
    repaired: list[int] = []
    # The games that judge are above this package: they are found by their names.
    player: Any = spec(f"{kind}_v0").load() if play else None
    for row, problem in zip(loaded.rows, loaded.problems, strict=True):
        usable, reason = player.played(problem) if play else (problem, "")
        if reason:
            skipped.setdefault(reason, []).append(row)
            continue
        problems.append(usable)
        if usable != problem:
            repaired.append(row)
    if out is not None and not problems:
        reasons = f"None can: {'; '.join(skipped)}."
        raise InvalidArgument("source", str(source), "one with rows that can be used", reasons)
    if out is not None:
        from pettingllms.evaluation.rows import write_rows  # `list` needs no evaluation

        write_rows((problem._asdict() for problem in problems), out)
    return DataReport(
        source=str(source),
        schema=loaded.schema,
        kind=kind,
        num_rows=loaded.num_rows,
        num_usable=len(problems),
        skipped={why: tuple(rows) for why, rows in skipped.items()},
        repaired=tuple(repaired),
        facts=_facts(problems, is_played=play),
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
        InvalidArgument: As in `load_problems` and `near_duplicates`.
        MissingDependency: A source needs the extra `data`.
    """
    sides: list[tuple[Problem, ...]] = [
        load_problems(None, s, split=split).problems
        for s, split in zip((first, second), splits, strict=True)
    ]
    texts = [[_text(problem) for problem in problems] for problems in sides]
    pairs = near_duplicates(texts[0], texts[1], threshold=threshold)

    def named(pair: Duplicate) -> tuple[str, str, float]:
        return sides[0][pair.first].id, sides[1][pair.second].id, pair.similarity

    return OverlapReport(str(first), str(second), tuple(map(named, pairs)), len(sides[1]))


def _text(problem: CodeProblem | MathProblem) -> str:
    return problem.statement if isinstance(problem, CodeProblem) else problem.question


def _facts(problems: Sequence[Problem], *, is_played: bool) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for problem in problems:
        if is_played:
            # Of mathematics the end of a solution can be compared where a box marks it.
            is_marked = isinstance(problem, CodeProblem) or "\\boxed" in (problem.solution or "")
            counts["played with their own solution"] += bool(problem.solution) and is_marked
        if isinstance(problem, CodeProblem):
            counts["with a solution"] += problem.solution is not None
            counts["with known-bad programs"] += bool(problem.wrong_programs)
            counts["with a checker"] += bool(problem.checker)
            counts["that ask for a function"] += problem.function_name is not None
            counts["golden tests"] += len(problem.tests)
        else:
            counts["with a unit"] += bool(problem.unit)
        if problem.difficulty:
            counts[f"of difficulty {problem.difficulty}"] += 1
    return dict(counts)


_WORD = re.compile(r"\w+|[^\w\s]")
_ROUNDING = 1e-9


class Duplicate(NamedTuple):
    """Two texts that share much of their wording."""

    first: int
    """Index into the first collection."""
    second: int
    """Index into the second collection."""
    similarity: float
    """Jaccard similarity of their sets of n-grams: 1 for equal texts."""


def near_duplicates(
    first: Sequence[str], second: Sequence[str], *, threshold: float = 0.7, n: int = 5
) -> list[Duplicate]:
    """The pairs of nearly equal texts of two collections, the most similar first.

    Sets of similarity t share at least t of the n-grams of either, so that each has one of them
    among its rarest: only texts that share a rare n-gram are compared. No pair is missed, and the
    time grows with the number of texts, not of pairs.

    Args:
        first: Texts, for example of a training set.
        second: Texts, for example of a test set.
        threshold: Smallest similarity that is reported, 0.01 to 1.
        n: Number of words of an n-gram, at least 1. Case, spaces and markup commands do not matter;
            a text of fewer words is one n-gram.

    Raises:
        InvalidArgument: `threshold` or `n` is out of its range.

    Source:
        The prefix filter of Chaudhuri, Ganti and Kaushik, "A primitive operator for similarity
        joins in data cleaning" (2006), with the order of Bayardo, Ma and Srikant, "Scaling up all
        pairs similarity search" (2007).
    """
    check_number("threshold", threshold, 0.01, 1)
    check_whole("n", n, 1)
    for name, texts in (("first", first), ("second", second)):
        check_texts(name, texts, "a sequence of texts")
    # Both sides are counted together: what is rare must be so in both.
    grams = [[_ngrams(text, n) for text in texts] for texts in (first, second)]
    counts = Counter(gram for side in grams for shingles in side for gram in shingles)
    index: defaultdict[int, list[int]] = defaultdict(list)
    # The first collection alone is indexed, the second looked up: pairs within one do not show.
    for number, shingles in enumerate(grams[0]):
        for gram in _rarest(shingles, counts, threshold):
            index[gram].append(number)
    found: list[Duplicate] = []
    for number, shingles in enumerate(grams[1]):
        rare = _rarest(shingles, counts, threshold)
        for other in {other for gram in rare for other in index.get(gram, ())}:
            similarity = _jaccard(grams[0][other], shingles)
            if similarity >= threshold:
                found.append(Duplicate(other, number, similarity))
    return sorted(found, key=lambda pair: (-pair.similarity, pair.first, pair.second))


def _ngrams(text: str, n: int) -> frozenset[int]:
    """The n-grams of a text as the hashes of this process: they take less than texts."""
    words = _WORD.findall(text.lower())
    spans = (" ".join(words[i : i + n]) for i in range(max(1, len(words) - n + 1)))
    return frozenset(map(hash, spans))


def _rarest(shingles: frozenset[int], counts: Counter[int], threshold: float) -> list[int]:
    """So many n-grams that a set which is similar enough must have one of them, too."""
    # One order for all sets, of ties too: else two prefixes could miss each other.
    ordered = sorted(shingles, key=lambda gram: (counts[gram], gram))
    return ordered[: len(ordered) - math.ceil(threshold * len(ordered) - _ROUNDING) + 1]


def _jaccard(a: frozenset[int], b: frozenset[int]) -> float:
    return len(a & b) / len(a | b)
