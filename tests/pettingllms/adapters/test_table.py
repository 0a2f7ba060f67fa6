"""The table of the documentation is true: its tests, extras and versions exist."""

import ast
import importlib.util
import tomllib

import pytest

import pettingllms


@pytest.fixture
def table(repository):
    return tomllib.loads((repository / "docs" / "adapters.toml").read_text(encoding="utf-8"))


def test_every_row_that_names_a_test_has_it(table, repository):
    folder = repository / "tests" / "pettingllms" / "adapters"
    for library in table["library"]:
        names = set()
        for path in {folder / library["tests"], folder / "test_tokenised.py"}:
            tree = ast.parse(path.read_text(encoding="utf-8"))
            names |= {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        for row in library["capabilities"]:
            assert row["works"] in ("yes", "numbers", "no")
            assert "test" in row or row.get("note"), f"{row['what']!r} says neither how nor why"
            if "test" in row:
                assert row["test"] in names, f"{library['name']}: {row['test']} does not exist"


def test_every_script_is_shown_and_run(table, repository):
    libraries = {entry["script"]: entry for entry in table["library"] if "script" in entry}
    scripts = {path.name for path in (repository / "examples" / "adapters").glob("*.py")}
    assert set(libraries) == scripts
    assert len(scripts) == 9
    for name, library in libraries.items():
        tests = repository / "tests" / "pettingllms" / "adapters" / library["tests"]
        assert f'"{name}"' in tests.read_text(encoding="utf-8")


def test_adapters_and_extras_exist(table, repository):
    project = tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for library in table["library"]:
        if library["extra"]:
            (requirement,) = [
                r for r in project["optional-dependencies"][library["extra"]] if "torch" not in r
            ]
            assert requirement.startswith(library["package"])
        if library["adapter"]:
            assert importlib.util.find_spec(library["adapter"])
    assert pettingllms.__version__ == project["version"]


def test_versions_are_those_that_are_tested(table, repository):
    locks = (repository / "requirements").rglob("*.txt")
    pins = "".join(path.read_text(encoding="utf-8") for path in locks)
    for library in table["library"]:
        assert f"\n{library['package']}=={library['version']} " in pins
