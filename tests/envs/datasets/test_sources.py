"""Reading rows: files, hub names, damaged lines."""

import gzip
import json
import sys
import types

import pytest

from pettingllms.errors import InvalidArgument, MissingDependency
from pettingllms_envs.datasets import MathProblem, RowError, load_problems
from pettingllms_envs.datasets.loading import read_rows

ROWS = [{"question": "1+1?", "answer": "2"}, {"question": "2+2?", "answer": "4"}]


def write(path, rows):
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    if path.name.endswith(".gz"):
        path.write_bytes(gzip.compress(lines.encode()))
    elif path.suffix == ".json":
        path.write_text(json.dumps(rows))
    else:
        path.write_text(lines)
    return path


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.json"])
def test_files_are_read_in_order(tmp_path, name):
    assert list(read_rows(write(tmp_path / name, ROWS))) == ROWS


def test_parquet_is_read_or_asks_for_the_extra(tmp_path):
    path = tmp_path / "a.parquet"
    path.write_bytes(b"PAR1")
    try:
        import pyarrow as arrow
        import pyarrow.parquet as parquet
    except ImportError:
        with pytest.raises(MissingDependency, match=r"pip install .datasets>="):
            list(read_rows(path))
        return
    parquet.write_table(arrow.Table.from_pylist(ROWS), path)
    assert list(read_rows(path)) == ROWS


def test_damaged_lines_are_rows_with_a_reason(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"a": 1}\n\n{"a": \n[1, 2]\n"text"\n\xff\xfe\n{"a": 2}\n')
    rows = list(read_rows(path))
    assert [row for row in rows if not isinstance(row, RowError)] == [{"a": 1}, {"a": 2}]
    reasons = [str(row) for row in rows if isinstance(row, RowError)]
    assert len(reasons) == 4
    assert "a list instead of an object" in reasons[1]
    assert reasons[3] == "not UTF-8, but perhaps Latin-1 (byte 0xff)"


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        *(
            (f"a.{suffix}", json.dumps(ROWS[0]).encode(encoding), r"write it as UTF-8")
            for suffix in ("jsonl", "json")
            for encoding in ("utf-16", "utf-16-le", "utf-32-be")
        ),
        ("a.jsonl", json.dumps(ROWS).encode(), r"one JSON array; name it \.json"),
        ("a.jsonl", json.dumps(ROWS, indent=1).encode(), r"one JSON array; name it \.json"),
        ("a.json", b'{"a": 1}\n{"a": 2}\n', r"JSON Lines: name it \.jsonl"),
        ("a.jsonl", '{"question": "caf\xe9", "answer": "1"}'.encode("latin-1"), "perhaps Latin-1"),
    ],
    ids=repr,
)
def test_files_in_another_form_are_named_as_such(tmp_path, name, data, reason):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(InvalidArgument, match=reason):
        load_problems(MathProblem, tmp_path / name)


def test_a_mark_of_utf_8_is_no_text(tmp_path):
    for name, data in (("a.jsonl", json.dumps(ROWS[0])), ("b.json", json.dumps(ROWS[:1]))):
        (tmp_path / name).write_text(data, encoding="utf-8-sig")
        assert list(read_rows(tmp_path / name)) == ROWS[:1]


@pytest.mark.parametrize("name", ["missing.jsonl", "missing", "folder/missing.parquet"])
def test_a_missing_file_is_an_error(tmp_path, name):
    with pytest.raises(InvalidArgument, match="check the path"):
        read_rows(str(tmp_path / name))


@pytest.mark.parametrize("source", [None, 3, [ROWS], b"a.jsonl"], ids=repr)
def test_what_is_no_source_is_refused(source):
    with pytest.raises(InvalidArgument, match="invalid source: got"):
        load_problems(MathProblem, source)
    with pytest.raises(InvalidArgument, match="invalid schema: got"):
        load_problems(MathProblem, "a.jsonl", schema=[source])


def test_other_files_are_refused(tmp_path):
    (tmp_path / "a.csv").write_text("a,b\n")
    with pytest.raises(InvalidArgument, match="jsonl"):
        read_rows(tmp_path / "a.csv")
    with pytest.raises(InvalidArgument):
        read_rows(tmp_path)
    (tmp_path / "a.json").write_text('{"a": 1}')
    with pytest.raises(InvalidArgument, match="list of objects"):
        list(read_rows(tmp_path / "a.json"))
    (tmp_path / "a.json").write_text("[1, ")
    with pytest.raises(InvalidArgument, match="a JSON file"):
        list(read_rows(tmp_path / "a.json"))


def test_hub_data_sets_go_through_datasets(monkeypatch):
    calls = []

    def load_dataset(*args, **kwargs):
        calls.append((args, kwargs))
        return ROWS

    module = types.SimpleNamespace(load_dataset=load_dataset)
    monkeypatch.setitem(sys.modules, "datasets", module)
    assert list(read_rows("owner/name:main", "train")) == ROWS
    assert list(read_rows("owner/name", "test")) == ROWS
    assert calls == [
        (("owner/name", "main"), {"split": "train"}),
        (("owner/name", None), {"split": "test"}),
    ]
    with pytest.raises(InvalidArgument, match="split"):
        read_rows("owner/name")


def test_hub_data_sets_without_datasets_ask_for_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingDependency, match=r"pip install .datasets>="):
        list(read_rows("owner/name", "train"))
