"""Loading problems from a source, with every row that could not be used accounted for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, Literal, TypeVar, cast

from pettingllms.errors import InvalidArgument
from pettingllms_envs.datasets.fields import RowError
from pettingllms_envs.datasets.records import CodeProblem, MathProblem
from pettingllms_envs.datasets.schemas import SCHEMAS, Schema, detect_schema, find_schema
from pettingllms_envs.datasets.several_answers import accepts_several
from pettingllms_envs.datasets.sources import BadRow, Row, read_rows

SEVERAL_ANSWERS = "several outputs are right by its statement, and there is no checker"

ProblemT = TypeVar("ProblemT", CodeProblem, MathProblem)


@dataclass(frozen=True)
class Loaded(Generic[ProblemT]):
    """What a source holds.

    Attributes:
        schema: Name of the schema of its rows.
        problems: The usable problems, in order.
        skipped: Reason -> row numbers (from 0) that were skipped for it.
    """

    schema: str
    problems: tuple[ProblemT, ...]
    skipped: Mapping[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])

    @property
    def num_rows(self) -> int:
        """Number of rows of the source, usable or not."""
        return len(self.problems) + sum(map(len, self.skipped.values()))


def load_code_problems(
    source: str | Path, *, split: str | None = None, schema: str | None = None
) -> Loaded[CodeProblem]:
    """Load programming problems.

    Problems whose statement accepts any of several outputs are skipped, because their tests hold
    only one of them (see `accepts_several`); `skipped` has their rows under `SEVERAL_ANSWERS`.

    Args:
        source: A file or hub data set; see `read_rows`.
        split: Split of a hub data set.
        schema: One of the code schemas in `SCHEMAS`; None: recognised by the fields.

    Raises:
        InvalidArgument: The source does not exist, its schema is unknown or of another kind, or not
            one of its rows can be used (the message gives the reasons).
        MissingDependency: The source needs the extra `data`.
    """
    return cast("Loaded[CodeProblem]", load(source, split=split, schema=schema, kind="code"))


def load_math_problems(
    source: str | Path, *, split: str | None = None, schema: str | None = None
) -> Loaded[MathProblem]:
    """Load mathematical problems; arguments and errors as in `load_code_problems`."""
    return cast("Loaded[MathProblem]", load(source, split=split, schema=schema, kind="math"))


def load(
    source: str | Path,
    *,
    split: str | None = None,
    schema: str | None = None,
    kind: Literal["code", "math"] | None = None,
) -> Loaded[CodeProblem] | Loaded[MathProblem]:
    """Load problems of either kind; arguments and errors as in `load_code_problems`."""
    if schema is not None:
        find_schema(schema)
    rows = list(read_rows(source, split))
    chosen = _recognised(source, rows) if schema is None else find_schema(schema)
    if kind is not None and chosen.kind != kind:
        allowed = ", ".join(s.name for s in SCHEMAS.values() if s.kind == kind)
        raise InvalidArgument("schema", chosen.name, f"a schema of {kind} problems: {allowed}")
    loaded = _converted(rows, chosen)
    if not loaded.problems:
        raise InvalidArgument(
            "source", str(source), f"rows of the schema {chosen.name}", _why_empty(loaded)
        )
    return loaded


def _recognised(source: str | Path, rows: Iterable[Row | BadRow]) -> Schema:
    first = next((row for row in rows if not isinstance(row, BadRow)), None)
    if first is None:
        raise InvalidArgument("source", str(source), "a source with at least one readable row")
    found = detect_schema(first)
    if found is None:
        raise InvalidArgument(
            "schema",
            None,
            ", ".join(SCHEMAS),
            f"The fields {sorted(first)} of {source} belong to none of them; rename the fields, "
            "or name the schema.",
        )
    return found


def _converted(rows: Iterable[Row | BadRow], schema: Schema) -> Loaded[CodeProblem]:
    problems: list[CodeProblem] = []
    skipped: dict[str, list[int]] = {}
    seen: set[str] = set()
    for number, row in enumerate(rows):
        try:
            if isinstance(row, BadRow):
                raise RowError(row.reason)
            problem = schema.convert(row, number)
            if problem.id in seen:
                raise RowError("the id of an earlier row")
            if isinstance(problem, CodeProblem) and accepts_several(problem.statement):
                raise RowError(SEVERAL_ANSWERS)
        except RowError as error:
            skipped.setdefault(str(error), []).append(number)
            continue
        seen.add(problem.id)
        problems.append(cast("CodeProblem", problem))
    return Loaded(schema.name, tuple(problems), {why: tuple(n) for why, n in skipped.items()})


def _why_empty(loaded: Loaded[CodeProblem]) -> str:
    if not loaded.skipped:
        return "It has no rows."
    common = Counter({reason: len(rows) for reason, rows in loaded.skipped.items()}).most_common(3)
    reasons = "; ".join(f"{reason} ({count} rows)" for reason, count in common)
    return f"None of its {loaded.num_rows} rows can be used: {reasons}."
