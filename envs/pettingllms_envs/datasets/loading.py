"""Loading problems from a source, with every row that could not be used accounted for.

A source is a JSON Lines, JSON or Parquet file, or a data set of the Hugging Face hub. It is read
row by row; nothing is executed, and no remote code is ever trusted. An environment draws from a
source restricted to one split.
"""

from __future__ import annotations

import codecs
import functools
import gzip
import importlib
import json
import logging
import random
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, Generic, Self, TypeVar, cast

from pettingllms.arguments import check_choice, check_kind
from pettingllms.errors import (
    InvalidArgument,
    MissingDependency,
    UnreachableRequest,
    counted,
    suggestion,
)
from pettingllms.seeding import check_split, split_of
from pettingllms_envs.datasets.records import CodeProblem, MathProblem
from pettingllms_envs.datasets.rows import SCHEMAS, Row, RowError, Schema, detect_schema

ProblemT = TypeVar("ProblemT", CodeProblem, MathProblem)


@dataclass(frozen=True)
class Loaded(Generic[ProblemT]):
    """What a source holds.

    Attributes:
        schema: Name of the schema of its rows.
        problems: The usable problems, in order.
        rows: Their row numbers, from 0.
        skipped: Reason -> row numbers that were skipped for it.
    """

    schema: str
    problems: tuple[ProblemT, ...]
    rows: tuple[int, ...]
    skipped: Mapping[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])

    @property
    def num_rows(self) -> int:
        """Number of rows of the source, usable or not."""
        return len(self.problems) + sum(map(len, self.skipped.values()))


def load_problems(
    record: type[ProblemT] | None,
    source: str | Path,
    *,
    split: str | None = None,
    schema: str | None = None,
) -> Loaded[ProblemT]:
    """Load the problems of a source.

    Problems that nobody can solve are skipped; `skipped` has their rows and the reasons, of which
    `REASONS` of `statements` has those that the words of a problem give.

    Args:
        record: Kind of problems, `CodeProblem` or `MathProblem`; None: either.
        source: A file or hub data set; see `read_rows`.
        split: Split of a hub data set.
        schema: One of `SCHEMAS`; None: recognised by the fields.

    Raises:
        InvalidArgument: The source does not exist, its schema is unknown or of another kind, or not
            one of its rows can be used (the message gives the reasons).
        MissingDependency: The source needs the extra `data`.
    """
    check_choice("schema", schema, SCHEMAS, none="recognised by the fields")
    rows = list(read_rows(source, split))
    chosen = _recognised(source, rows, record) if schema is None else SCHEMAS[schema]
    if record is not None and record is not chosen.record:
        allowed = ", ".join(s.name for s in SCHEMAS.values() if s.record is record)
        raise InvalidArgument("schema", chosen.name, f"a schema of a {record.__name__}: {allowed}")
    loaded: Loaded[Any] = _converted(rows, chosen)
    if not loaded.problems:
        raise InvalidArgument(
            "source", str(source), f"rows of the schema {chosen.name}", _why_empty(loaded)
        )
    return loaded


def _recognised(source: str | Path, rows: Sequence[Row | RowError], record: type | None) -> Schema:
    first = next((row for row in rows if not isinstance(row, RowError)), None)
    if first is None:
        hint = f"Its first row is {rows[0]}." if rows else "It has no rows."
        raise InvalidArgument(
            "source", str(source), "a source with at least one readable row", hint
        )
    found = detect_schema(first, record)
    if found is None:
        raise InvalidArgument(
            "schema",
            None,
            ", ".join(SCHEMAS),
            f"The fields {sorted(first)} of {source} belong to none of them; rename the fields, "
            "or name the schema.",
        )
    return found


def _converted(rows: Iterable[Row | RowError], schema: Schema) -> Loaded[Any]:
    problems: dict[int, Any] = {}
    skipped: dict[str, list[int]] = {}
    seen: set[str] = set()
    for number, row in enumerate(rows):
        try:
            if isinstance(row, RowError):
                raise row
            problem = schema.convert(row, number)
            # Ids decide the split: a second one could be in training and test at once.
            if problem.id in seen:
                raise RowError("the id of an earlier row")
        except RowError as error:
            skipped.setdefault(str(error), []).append(number)
            continue
        seen.add(problem.id)
        problems[number] = problem
    reasons = {why: tuple(numbers) for why, numbers in skipped.items()}
    return Loaded(schema.name, tuple(problems.values()), tuple(problems), reasons)


def _why_empty(loaded: Loaded[Any]) -> str:
    if not loaded.skipped:
        return "It has no rows."
    # Three reasons explain a file that was meant otherwise; more would hide them.
    common = Counter({reason: len(rows) for reason, rows in loaded.skipped.items()}).most_common(3)
    reasons = "; ".join(f"{reason} ({counted(count, 'row')})" for reason, count in common)
    return f"None of its {loaded.num_rows} rows can be used: {reasons}."


FILE_SUFFIXES = (".jsonl", ".jsonl.gz", ".json", ".parquet")
PACKAGED = "packaged:"
"""Begins the names of files that come with this package; `benchmarks/problems.py` makes them."""
_PACKAGED = resources.files("pettingllms_envs.datasets").joinpath("packaged")
_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+(:[\w.-]+)?")


def read_rows(source: str | Path, split: str | None = None) -> Iterator[Row | RowError]:
    """The rows of a source, in order; an error stands for a row that could not even be read.

    Args:
        source: Path of a file with one of `FILE_SUFFIXES`, `packaged:NAME` for a file that comes
            with this package, or the name of a hub data set (`owner/name` or
            `owner/name:configuration`).
        split: The split of a hub data set. A file is read whole.

    Raises:
        InvalidArgument: The file does not exist, is damaged or has another suffix, the source is
            neither a file nor a hub name, or a hub data set is asked for without a split.
        MissingDependency: Parquet or hub data without the extra `data`.
    """
    check_kind("source", source, str | Path, "the path of a file, or the name of a hub data set")
    check_kind("split", split, str | None, "None or the name of a split")
    path, name = path_of(source), str(source)
    if path.is_file():
        if not path.name.endswith(FILE_SUFFIXES):
            raise InvalidArgument("source", name, "a file with suffix " + ", ".join(FILE_SUFFIXES))
        return map(_as_row, _values_of_file(path))
    if name.endswith(FILE_SUFFIXES) or path.exists() or not _HUB_NAME.fullmatch(name):
        raise InvalidArgument(
            "source",
            name,
            f"an existing file ({', '.join(FILE_SUFFIXES)}) or a hub name such as owner/name",
            "There is no such file; check the path.",
        )
    if not split:
        raise InvalidArgument("split", split, f"the name of a split of {name}, such as 'train'")
    return map(_as_row, _values_of_hub(name, split))


def path_of(source: str | Path) -> Path:
    """Where the file of a source is, if it is one.

    Raises:
        InvalidArgument: No file of this name comes with the package.
    """
    if not str(source).startswith(PACKAGED):
        return Path(source)
    files = {
        PACKAGED + path.name.partition(".")[0]: path for path in Path(str(_PACKAGED)).iterdir()
    }
    check_choice("source", source, sorted(files))
    return files[str(source)]


def _as_row(value: object) -> Row | RowError:
    # An error takes the place of a line, so that numbers of rows stay those of the file.
    if isinstance(value, dict | RowError):
        return cast("Row | RowError", value)
    return RowError(f"a {type(value).__name__} instead of an object with named fields")


def _values_of_file(path: Path) -> Iterator[object]:
    if path.name.endswith(".parquet"):
        parquet = _library("pyarrow.parquet", f"reading {path.name}", "pyarrow")
        try:
            with parquet.ParquetFile(path) as file:
                for batch in file.iter_batches(batch_size=256):
                    yield from batch.to_pylist()
        except (ValueError, OSError) as error:
            # What the system refuses has a number; pyarrow's own errors have none.
            if getattr(error, "errno", None):
                raise
            raise InvalidArgument("source", str(path), f"a Parquet file ({error})") from error
    elif path.name.endswith(".json"):
        yield from _array_of(path)
    else:
        try:
            with gzip.open(path, "rb") if path.name.endswith(".gz") else path.open("rb") as file:
                yield from _values_of_lines(path, (line for line in file if line.strip()))
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise InvalidArgument("source", str(path), f"a whole gzip file ({error})") from error


def _array_of(path: Path) -> list[object]:
    try:
        values = json.loads(_plain(path, path.read_bytes()).decode())
    except UnicodeDecodeError as error:
        hint = "It may be Latin-1; write it as UTF-8."
        raise InvalidArgument("source", str(path), "a file of UTF-8 text", hint) from error
    except (ValueError, RecursionError) as error:
        hint = "With an object a line it is JSON Lines: name it .jsonl."
        raise InvalidArgument("source", str(path), f"a JSON file ({error})", hint) from error
    if not isinstance(values, list):
        raise InvalidArgument("source", str(path), "a JSON file that holds a list of objects")
    return cast("list[object]", values)


def _values_of_lines(path: Path, lines: Iterator[bytes]) -> Iterator[object]:
    if first := _plain(path, next(lines, b"")):
        value = _value_of_line(first)
        inner = cast("list[object]", value) if isinstance(value, list) else []
        # An array may be one line, or begin with one that is not JSON yet.
        is_open = first.lstrip().startswith(b"[") and isinstance(value, RowError)
        if is_open or any(isinstance(one, dict) for one in inner):
            hint = "It holds one JSON array; name it .json."
            raise InvalidArgument("source", str(path), "a file with a JSON object a line", hint)
        yield value
    yield from map(_value_of_line, lines)


def _plain(path: Path, data: bytes) -> bytes:
    """The start of a file without its mark; refused if it is in a wide encoding."""
    if b"\0" in data[:4]:
        hint = "It is UTF-16 or UTF-32; write it as UTF-8."
        raise InvalidArgument("source", str(path), "a file of UTF-8 text", hint)
    return data.removeprefix(codecs.BOM_UTF8)


def _value_of_line(line: bytes) -> object:
    try:
        return json.loads(line.decode())
    except UnicodeDecodeError as error:
        return RowError(f"not UTF-8, but perhaps Latin-1 (byte {line[error.start]:#04x})")
    except (ValueError, RecursionError) as error:
        return RowError(f"not JSON ({error})")


def _values_of_hub(name: str, split: str) -> Iterator[object]:
    datasets = _library("datasets", f"the data set {name}", "datasets")
    repository, _, configuration = name.partition(":")
    yield from datasets.load_dataset(repository, configuration or None, split=split)


def _library(module: str, purpose: str, package: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingDependency(purpose, package, "data") from error


_logger = logging.getLogger(__name__)


def problems_of(
    record: type[ProblemT],
    source: str | Path | Sequence[ProblemT],
    split: str | None,
    schema: str | None,
) -> tuple[ProblemT, ...]:
    """The problems of a split of a source, loaded once per process.

    Args:
        record: Kind of problems.
        source: A file or hub data set; see `read_rows`. Or problems, which have no splits.
        split: Hub: the data set's own split, required. File: `"train"`, `"validation"` or `"test"`
            is a share of the file decided by the problems' ids, so that one file never serves to
            train and to test; None is the whole file.
        schema: One of `SCHEMAS`; None: recognised by the fields.

    Raises:
        InvalidArgument: As in `load_problems`, or the split is none, or a problem in memory could
            not be a row of a file.
        UnreachableRequest: No problem of the file falls into the split.
    """
    if not isinstance(source, str | Path):
        return _checked(record, tuple(source))
    path, name = path_of(source), str(source)
    if not path.is_file():
        return _loaded(record, name, split, schema, 0)
    # A file is read once for all splits and environments of a process.
    problems = _loaded(record, name, None, schema, path.stat().st_mtime_ns)
    check_split(split)
    if split is None:
        return problems
    chosen = tuple(p for p in problems if split_of(p.id.encode()) == split)
    if not chosen:
        raise UnreachableRequest(
            f"none of the {len(problems)} problems falls into split={split!r}. Use split=None (in "
            'a run file "all") for all of them, or a larger file.'
        )
    return chosen


def check_source(source: object, split: object, schema: object, record: type) -> None:
    """Refuse a source of the wrong kind: no name and no path, nor problems (`record`) in memory."""
    check_kind("split", split, str | None, "None or the name of a split")
    check_choice("schema", schema, SCHEMAS, none="recognised by the fields")
    if isinstance(source, str | Path):
        return
    allowed = f"a name, the path of a file, or a sequence of at least one {record.__name__}"
    check_kind("source", source, Sequence, allowed)
    problems = cast("Sequence[object]", source)
    for problem in problems:
        check_kind("source", problem, record, allowed)
    if not problems:
        raise InvalidArgument("source", source, allowed)


def _checked(record: Any, problems: tuple[Any, ...]) -> Any:
    """Problems in memory, as they would be read from a file of their own layout."""
    schema = SCHEMAS["code_problem" if record is CodeProblem else "math_problem"]
    loaded = _converted((problem._asdict() for problem in problems), schema)
    for reason, (first, *_) in loaded.skipped.items():
        allowed = f"problems that could be rows of the schema {schema.name}"
        raise InvalidArgument("source", problems[first].id, allowed, f"Problem {first}: {reason}.")
    return loaded.problems


@functools.lru_cache(maxsize=16)
def _loaded(record: Any, source: str, split: str | None, schema: str | None, version: int) -> Any:
    del version  # a changed file is another entry of the cache
    loaded = load_problems(record, source, split=split, schema=schema)
    for reason, rows in loaded.skipped.items():
        _logger.info("%s: %d of %d rows left out: %s", source, len(rows), loaded.num_rows, reason)
    return loaded.problems


def of_difficulty(problems: Sequence[ProblemT], labels: Sequence[str]) -> tuple[ProblemT, ...]:
    """The problems of the given difficulties, in the source's own words.

    Raises:
        InvalidArgument: There is none of one of them.
    """
    known = sorted({problem.difficulty for problem in problems})
    # An empty list leaves no problem either.
    for label in labels or [None]:
        check_choice("labels", label, known)
    return tuple(problem for problem in problems if problem.difficulty in labels)


class ProblemTable(Mapping[str, ProblemT]):
    """Problems by id, each played with its own solution when it is first wanted.

    Args:
        problems: The problems.
        play: A problem -> the problem as its own solution solves it, and why that solves none of
            it, or ""; None for problems that were played when they were written.
        num_starved: How many runs so far had too little of the machine. A refusal is not kept if
            this grew meanwhile.
    """

    def __init__(
        self,
        problems: Sequence[ProblemT],
        play: Callable[[ProblemT], tuple[ProblemT, str]] | None,
        num_starved: Callable[[], int] = int,
    ) -> None:
        self._problems = {problem.id: problem for problem in problems}
        self._play = play
        self._num_starved = num_starved
        self._played: dict[str, tuple[ProblemT, str]] = {}

    def __getitem__(self, name: str) -> ProblemT:
        return self._of(name)[0]

    def __iter__(self) -> Iterator[str]:
        return iter(self._problems)

    def __len__(self) -> int:
        return len(self._problems)

    def __deepcopy__(self, memo: object) -> Self:
        # Copies of an environment share what was found; it is the same for all of them.
        return self

    def _of(self, name: str) -> tuple[ProblemT, str]:
        if self._play is None:
            return self._problems[name], ""
        if name in self._played:
            return self._played[name]
        num_starved = self._num_starved()
        found = self._play(self._problems[name])
        if found[1]:
            _logger.warning("problem %s is left out: %s", name, found[1])
        # A slow moment of the machine must not leave a problem out for good.
        if not found[1] or self._num_starved() == num_starved:
            self._played[name] = found
        return found

    def draw(self, rng: random.Random, options: Mapping[str, Any]) -> ProblemT:
        """The problem that `options["problem"]` names, or a random one that can be solved.

        Raises:
            InvalidArgument: There is no such problem, or its own solution does not solve it.
            UnreachableRequest: No problem is solved by its own solution.
        """
        wanted = options.get("problem")
        if wanted is not None:
            allowed = f"the id of one of {len(self)} problems"
            if not isinstance(wanted, str) or wanted not in self:
                allowed += suggestion(wanted, self)
                raise InvalidArgument("options['problem']", wanted, allowed)
            problem, reason = self._of(wanted)
            if reason:
                raise InvalidArgument(
                    "options['problem']", wanted, allowed, f"Of this one {reason}."
                )
            return problem
        names, reason = list(self), ""
        while names:
            name = rng.choice(names)
            problem, reason = self._of(name)
            if not reason:
                return problem
            names.remove(name)
        raise UnreachableRequest(
            f"none of the {len(self)} problems can be used; of the last one {reason}. "
            "`pettingllms data check` reports them all."
        )
