"""A package for the Environments Hub: found and configured by verifiers' own loader."""

import sys

import pytest

from pettingllms.cli.package import Parcel, write_parcel

LIBRARY = "verifiers"
LIBRARY_DRAWS = True
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]


@pytest.fixture
def module(library, tmp_path, monkeypatch):
    arguments = {"team": "proposer-planner", "split": "test"}
    parcel = Parcel("blocksworld_v0", "verifiers", arguments, "pettingllms==0.1.0", 4, 9)
    write_parcel(parcel, tmp_path)
    monkeypatch.syspath_prepend(tmp_path / parcel.name)
    monkeypatch.setenv("HOME", str(tmp_path))
    yield parcel.name
    sys.modules.pop(parcel.name, None)


def test_verifiers_loads_levels_and_seats(module):
    from verifiers.v1.utils.loaders import env_config_type, load_environment

    config = env_config_type(module)(taskset={"id": module})
    env = load_environment(config)
    assert [task.data.seed for task in env.taskset] == [9, 10, 11, 12]
    assert {"proposer_0", "planner_0"} <= set(type(config).model_fields)
