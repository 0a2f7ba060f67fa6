"""Rows of a data source: a JSON Lines, JSON or Parquet file, or a data set of the Hugging Face hub.

Sources are read row by row; nothing is executed, and no remote code is ever trusted.
"""

from __future__ import annotations

import gzip
import importlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

from pettingllms.arguments import check_kind
from pettingllms.errors import InvalidArgument, MissingDependency

FILE_SUFFIXES = (".jsonl", ".jsonl.gz", ".json", ".parquet")
_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+(:[\w.-]+)?")

Row = Mapping[str, Any]


class BadRow(NamedTuple):
    """A row that could not even be read."""

    reason: str


def read_rows(source: str | Path, split: str | None = None) -> Iterator[Row | BadRow]:
    """Yield the rows of a source, in order.

    Args:
        source: Path of a file with one of `FILE_SUFFIXES`, or the name of a hub data set
            (`owner/name` or `owner/name:configuration`).
        split: The split of a hub data set. A file is read whole.

    Raises:
        InvalidArgument: The file does not exist or has another suffix, the source is neither a file
            nor a hub name, or a hub data set is asked for without a split.
        MissingDependency: Parquet or hub data without the extra `data`.
    """
    check_kind("source", source, str | Path, "the path of a file, or the name of a hub data set")
    check_kind("split", split, str | None, "None or the name of a split")
    path = Path(source)
    if path.is_file():
        return _rows_of_file(path)
    name = str(source)
    if name.endswith(FILE_SUFFIXES) or path.exists() or not _HUB_NAME.fullmatch(name):
        raise InvalidArgument(
            "source",
            name,
            f"an existing file ({', '.join(FILE_SUFFIXES)}) or a hub name such as owner/name",
            "There is no such file; check the path.",
        )
    if not split:
        raise InvalidArgument("split", split, f"the name of a split of {name}, such as 'train'")
    return _rows_of_hub(name, split)


def _rows_of_file(path: Path) -> Iterator[Row | BadRow]:
    name = path.name
    if name.endswith(".parquet"):
        return _parquet_rows(path)
    if name.endswith(".jsonl.gz"):
        return _json_lines(path, compressed=True)
    if name.endswith(".jsonl"):
        return _json_lines(path, compressed=False)
    if name.endswith(".json"):
        return _json_rows(path)
    raise InvalidArgument("source", str(path), "a file with suffix " + ", ".join(FILE_SUFFIXES))


def _json_lines(path: Path, compressed: bool) -> Iterator[Row | BadRow]:
    with gzip.open(path, "rb") if compressed else path.open("rb") as file:
        for line in file:
            if line.strip():
                yield _json_row(line)


def _json_row(line: bytes) -> Row | BadRow:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        return BadRow(f"not JSON ({error})")
    return _as_row(value)


def _as_row(value: object) -> Row | BadRow:
    if isinstance(value, dict):
        return cast("Row", value)
    return BadRow(f"a {type(value).__name__} instead of an object with named fields")


def _json_rows(path: Path) -> Iterator[Row | BadRow]:
    try:
        values = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise InvalidArgument("source", str(path), f"a JSON file ({error})") from error
    if not isinstance(values, list):
        raise InvalidArgument("source", str(path), "a JSON file that holds a list of objects")
    yield from map(_as_row, cast("list[object]", values))


def _parquet_rows(path: Path) -> Iterator[Row | BadRow]:
    try:
        parquet = cast("Any", importlib.import_module("pyarrow.parquet"))
    except ImportError as error:
        raise MissingDependency(f"reading {path.name}", "pyarrow", "data") from error
    with parquet.ParquetFile(path) as file:
        for batch in file.iter_batches(batch_size=256):
            yield from map(_as_row, batch.to_pylist())


def _rows_of_hub(name: str, split: str) -> Iterator[Row | BadRow]:
    try:
        datasets = cast("Any", importlib.import_module("datasets"))
    except ImportError as error:
        raise MissingDependency(f"the data set {name}", "datasets", "data") from error
    repository, _, configuration = name.partition(":")
    for row in datasets.load_dataset(repository, configuration or None, split=split):
        yield _as_row(row)
