"""The table of the documentation is true, and a library that is not there is a clear error."""

import ast
import importlib.util
import sys
import tomllib

import pytest

import pettingllms
from pettingllms.adapters.optional import require
from pettingllms.errors import MissingDependency


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


LIBRARIES = ("openenv", "ray", "tianshou", "trl", "verifiers", "textarena", "supersuit", "torch")


@pytest.fixture
def without_libraries(monkeypatch):
    """Hide the optional libraries, wherever they are installed."""

    class Absent:
        def find_spec(self, name, path=None, target=None):
            if name.partition(".")[0] in LIBRARIES:
                raise ModuleNotFoundError(f"No module named {name!r}", name=name.partition(".")[0])

    for name in list(sys.modules):
        package = name.partition(".")[0]
        adapter = name.startswith("pettingllms.adapters.")
        if package in LIBRARIES or (adapter and name.rpartition(".")[2] in LIBRARIES):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [Absent(), *sys.meta_path])


@pytest.mark.parametrize("module", ["openenv", "verifiers"])
def test_adapters_that_derive_from_a_library_need_it(without_libraries, module):
    with pytest.raises(MissingDependency, match=rf'pip install "{module}>='):
        __import__(f"pettingllms.adapters.{module}")


def test_adapters_that_call_a_library_need_it(without_libraries):
    from pettingllms.adapters.rllib import make_rllib_env, register_env
    from pettingllms.adapters.textarena import TextArenaEnv
    from pettingllms.adapters.tianshou import make_tianshou_env

    with pytest.raises(MissingDependency, match=r"needs the package .ray\[rllib\]"):
        make_rllib_env("plan_path_v0")
    with pytest.raises(MissingDependency, match=r'pip install "ray\[rllib\]>=[^"]*" "torch>='):
        register_env("plan_path_v0")
    with pytest.raises(MissingDependency, match=r"pip install .tianshou>="):
        make_tianshou_env("plan_path_v0")
    with pytest.raises(MissingDependency, match=r"pip install .textarena>="):
        TextArenaEnv("TicTacToe-v0")


def test_a_broken_library_is_not_called_missing(tmp_path, monkeypatch):
    (tmp_path / "broken_library.py").write_text("import a_module_that_is_not_there")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="a_module_that_is_not_there") as caught:
        require("broken_library", "x", "broken-library")
    assert not isinstance(caught.value, MissingDependency)
