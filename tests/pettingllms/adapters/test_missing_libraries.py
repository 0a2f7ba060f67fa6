"""Without a library: a clear error, and nothing of it is imported by the package."""

import sys

import pytest

from pettingllms.adapters.optional import require
from pettingllms.errors import MissingDependency

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
