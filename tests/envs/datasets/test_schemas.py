"""Rows: read from files and hubs, of every schema, and every way in which one can be bad."""

import contextlib
import gzip
import json
import sys
import types
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pettingllms.errors import InvalidArgument, MissingDependency
from pettingllms_envs.code import builtin_problems
from pettingllms_envs.datasets import (
    SCHEMAS,
    CodeProblem,
    MathProblem,
    RowError,
    detect_schema,
    load_problems,
)
from pettingllms_envs.datasets.asserts import UnreadableTest, read_tests
from pettingllms_envs.datasets.loading import problems_of, read_rows
from pettingllms_envs.datasets.statements import (
    REASONS,
    accepts_any_case,
    accepts_several,
    objection,
)

ROWS = json.loads(Path(__file__).with_name("rows.json").read_text(encoding="utf-8"))
"""`good`: rows of every schema; `read`: row, change, fields; `bad`: schema, change, reason."""
GOOD = {name: row for name, row in ROWS["good"].items() if name in SCHEMAS}
APPS, GSM8K = GOOD["apps"], GOOD["question_answer"]


def convert(name, row):
    return SCHEMAS[name].convert(row, 0)


def test_every_schema_is_recognised_by_its_fields():
    assert set(GOOD) == set(SCHEMAS)
    for name, row in GOOD.items():
        assert detect_schema(row).name == name
        assert convert(name, row) is not None
    assert detect_schema({"text": "hello"}) is None


@pytest.mark.parametrize(("name", "change", "fields"), ROWS["read"])
def test_what_is_read_of_a_row(name, change, fields):
    problem = convert(name.partition(",")[0], {**ROWS["good"][name], **change})
    found = {field: getattr(problem, field) for field in fields}
    assert json.loads(json.dumps(found)) == fields


def test_rows_of_mixed_data_sets_are_read_by_their_task():
    code, maths = GOOD["synthetic_1_code"], GOOD["synthetic_1_math"]
    assert detect_schema(code, MathProblem).name == detect_schema(maths).name == "synthetic_1_math"


@pytest.mark.parametrize(("name", "change", "reason"), ROWS["bad"])
def test_bad_rows_are_refused_with_their_reason(name, change, reason):
    with pytest.raises(RowError) as error:
        convert(name, {**GOOD[name], **change})
    assert reason in str(error.value)


OWN = {"code_problem": CodeProblem, "math_problem": MathProblem}


@pytest.mark.parametrize(
    ("name", "change", "reason"),
    [
        *(bad for bad in ROWS["bad"] if bad[0] in OWN),
        ("code_problem", {"tests": []}, "no tests"),
        ("code_problem", {"time_limit_s": 10**400}, "time_limit_s is not from 0.001"),
    ],
)
def test_problems_in_memory_are_refused_as_rows_are(name, change, reason):
    good, bad = (OWN[name](**{**GOOD[name], **changed}) for changed in ({}, change))
    assert problems_of(OWN[name], [good], None, None)[0].id == good.id
    for problems, why in (
        ([good, bad._replace(id="other")], reason),
        ([good] * 2, "the id of an earlier row"),
    ):
        with pytest.raises(InvalidArgument) as error:
            problems_of(OWN[name], problems, None, None)
        assert why in str(error.value).partition("Problem 1: ")[2]


@pytest.mark.parametrize("name", GOOD)
def test_any_single_field_may_be_damaged_in_any_way(name):
    for field in GOOD[name]:
        for value in (
            None,
            "",
            5,
            [],
            {},
            [None],
            {"a": None},
            "\x00",
            b"bytes",
            float("nan"),
            10**400,
        ):
            with contextlib.suppress(RowError):
                assert convert(name, {**GOOD[name], field: value}).id


def test_bad_rows_are_skipped_counted_and_explained(tmp_path):
    rows = [APPS, {**APPS, "problem_id": 8, "question": ""}, {**APPS, "problem_id": 9}, APPS]
    loaded = load_problems(CodeProblem, write(tmp_path / "a.jsonl", rows))
    assert [problem.id for problem in loaded.problems] == ["7", "9"]
    assert loaded.skipped == {"question is empty": (1,), "the id of an earlier row": (3,)}
    assert loaded.num_rows == 4


def test_a_source_without_a_usable_row_is_an_error(tmp_path):
    rows = [{**APPS, "question": ""}] * 3
    with pytest.raises(InvalidArgument, match="question is empty \\(3 rows\\)"):
        load_problems(CodeProblem, write(tmp_path / "a.jsonl", rows))
    with pytest.raises(InvalidArgument, match="at least one readable row"):
        load_problems(CodeProblem, write(tmp_path / "b.jsonl", []))


def test_unknown_or_unfit_schemas_are_errors(tmp_path):
    path = write(tmp_path / "a.jsonl", [{"text": "hello"}])
    with pytest.raises(InvalidArgument, match="rename the fields"):
        load_problems(MathProblem, path)
    with pytest.raises(InvalidArgument, match='did you mean "apps"'):
        load_problems(MathProblem, path, schema="app")
    path = write(tmp_path / "b.jsonl", [GSM8K])
    with pytest.raises(InvalidArgument, match="a schema of a CodeProblem"):
        load_problems(CodeProblem, path)
    assert load_problems(MathProblem, path, schema="question_answer").problems[0].answer == "1002"


def test_the_real_samples_load_completely(shared_data):
    loaded = load_problems(CodeProblem, shared_data("code_contests_sample.jsonl"))
    skipped = {why: len(rows) for why, rows in loaded.skipped.items()}
    assert skipped == {REASONS["several"]: 5, REASONS["formula"]: 6}
    assert len(loaded.problems) == 69
    assert all(problem.solution and problem.tests for problem in loaded.problems)
    for name, count in {"aime_2024": 30, "olympiadbench_sample": 150, "gsm8k_sample": 200}.items():
        loaded = load_problems(MathProblem, shared_data(f"{name}.jsonl"))
        assert len(loaded.problems) == count
        assert not loaded.skipped


CASES = json.loads(Path(__file__).with_name("several_answers.json").read_text("utf-8"))


@pytest.mark.parametrize(
    ("sentence", "is_any"),
    [(one, kind == "several") for kind in ("several", "one") for one in CASES[kind]],
)
def test_any_of_several_answers_may_do(sentence, is_any):
    for statement in (sentence, f"Do something. {sentence} Good luck!"):
        assert accepts_several(statement) == is_any


@pytest.mark.parametrize(
    ("sentence", "is_any"),
    [(one, kind == "any case") for kind in ("any case", "one case") for one in CASES[kind]],
)
def test_the_case_of_letters_may_be_free(sentence, is_any):
    assert accepts_any_case(f"Do something. {sentence} Good luck!") == is_any


@pytest.mark.parametrize("is_free", [accepts_several, accepts_any_case])
def test_the_built_in_problems_have_one_answer(is_free):
    assert not [p.id for p in builtin_problems().values() if is_free(p.statement)]


@given(st.text())
def test_no_statement_raises(text):
    accepts_several(text)
    accepts_any_case(text)


LONG = """
from pettingllms_envs.datasets.statements import objection
for unit in ("\\n", " ", "![", "\\n!"):
    for kind in ("code", "math"):
        assert not objection("Print 1" + unit * 300_000 + "x", kind)
"""


def test_long_statements_are_searched_in_linear_time(ends):
    ends(LONG)


@pytest.mark.parametrize("note", ["Note", "-----Notes:-----", "  *Explanation*  "])
def test_pictures_of_examples_are_no_objection(note):
    statement = f"Print 1.\n\n{note}\nSum = <image> a"
    assert objection(statement, "code") == ""
    assert objection(statement.replace(note, f"{note} this"), "code") == REASONS["formula"]


SUMS = [{"question": "1+1?", "answer": "2"}, {"question": "2+2?", "answer": "4"}]


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
    assert list(read_rows(write(tmp_path / name, SUMS))) == SUMS


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
    parquet.write_table(arrow.Table.from_pylist(SUMS), path)
    assert list(read_rows(path)) == SUMS
    whole = path.read_bytes()
    for damaged in (b"PAR1", whole[:4] + bytes(60) + whole[64:]):
        path.write_bytes(damaged)
        with pytest.raises(InvalidArgument, match="a Parquet file"):
            list(read_rows(path))


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
            (f"a.{suffix}", json.dumps(SUMS[0]).encode(encoding), r"write it as UTF-8")
            for suffix in ("jsonl", "json")
            for encoding in ("utf-16", "utf-16-le", "utf-32-be")
        ),
        ("a.jsonl", json.dumps(SUMS).encode(), r"one JSON array; name it \.json"),
        ("a.jsonl", json.dumps(SUMS, indent=1).encode(), r"one JSON array; name it \.json"),
        ("a.json", b'{"a": 1}\n{"a": 2}\n', r"JSON Lines: name it \.jsonl"),
        ("a.jsonl.gz", json.dumps(SUMS[0]).encode(), "a whole gzip file"),
        ("a.jsonl.gz", gzip.compress(b"{}", mtime=0)[:-9], "a whole gzip file"),
        ("a.jsonl.gz", gzip.compress(b"", mtime=0)[:10] + b"\xff" * 9, "a whole gzip file"),
        ("a.jsonl", '{"question": "caf\xe9", "answer": "1"}'.encode("latin-1"), "perhaps Latin-1"),
    ],
    ids=repr,
)
def test_files_in_another_form_are_named_as_such(tmp_path, name, data, reason):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(InvalidArgument, match=reason):
        load_problems(MathProblem, tmp_path / name)


def test_a_mark_of_utf_8_is_no_text(tmp_path):
    for name, data in (("a.jsonl", json.dumps(SUMS[0])), ("b.json", json.dumps(SUMS[:1]))):
        (tmp_path / name).write_text(data, encoding="utf-8-sig")
        assert list(read_rows(tmp_path / name)) == SUMS[:1]


@pytest.mark.parametrize("name", ["missing.jsonl", "missing", "folder/missing.parquet"])
def test_a_missing_file_is_an_error(tmp_path, name):
    with pytest.raises(InvalidArgument, match="check the path"):
        read_rows(str(tmp_path / name))


@pytest.mark.parametrize("source", [None, 3, [SUMS], b"a.jsonl"], ids=repr)
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
        return SUMS

    module = types.SimpleNamespace(load_dataset=load_dataset)
    monkeypatch.setitem(sys.modules, "datasets", module)
    assert list(read_rows("owner/name:main", "train")) == SUMS
    assert list(read_rows("owner/name", "test")) == SUMS
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


ASSERTS = json.loads(Path(__file__).with_name("asserts.json").read_text("utf-8"))

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=6,
)


@given(st.lists(VALUES, max_size=3), VALUES)
def test_literal_calls_become_tests(arguments, wanted):
    text = f"assert f({', '.join(map(repr, arguments))}) == {wanted!r}"
    name, tests = read_tests(text)
    assert name == "f"
    assert json.loads(tests[0].input) == arguments
    assert json.loads(tests[0].output) == wanted


@pytest.mark.parametrize(("text", "wanted"), ASSERTS["read"])
def test_other_forms_of_asserts(text, wanted):
    _, tests = read_tests(text)
    assert json.loads(tests[0].output) == wanted


@pytest.mark.parametrize("text", [*ASSERTS["refused"], *ASSERTS["checks"]])
def test_anything_else_is_refused(text):
    with pytest.raises(UnreadableTest):
        read_tests(text)


def test_asserts_of_several_functions_are_refused():
    with pytest.raises(UnreadableTest, match="2 functions"):
        read_tests("assert f(1) == 1\nassert g(1) == 1")


def test_checks_of_humaneval():
    source = '''
METADATA = {"author": "x"}

def check(candidate):
    """Says nothing."""
    assert candidate([1], 2) == 3, "first"
    assert True, "always"
    assert abs(candidate([], 0) - 0.25) < 1e-3
    print("done")
'''
    name, tests = read_tests(source)
    assert name == "candidate"
    assert [json.loads(test.input) for test in tests] == [[[1], 2], [[], 0]]
    assert [json.loads(test.output) for test in tests] == [3, 0.25]
