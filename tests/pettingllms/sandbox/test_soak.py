"""The soak of the benchmarks, scaled down: every result right and nothing left behind."""

import importlib

import pytest

from pettingllms.sandbox import Sandbox


@pytest.fixture
def suite(repository, monkeypatch):
    """The module that also makes the recorded soak of 20,000 runs."""
    monkeypatch.syspath_prepend(repository / "benchmarks" / "suites")
    return importlib.import_module("sandbox_soak")


@pytest.mark.nightly
@pytest.mark.slow
def test_soak(any_jail, suite):
    with Sandbox(isolation=any_jail.describe()["isolation"], workers=4) as sandbox:
        report = suite.soak(sandbox, 500, seed=7)
    before, after = report["before"], report["after"]
    assert report["num_wrong"] == 0, report["wrong"]
    assert report["num_restarts"] == 0
    assert after["zombies"] == after["processes_left"] == after["files_left"] == 0
    assert after["parent_descriptors"] <= before["parent_descriptors"]
    assert after["server_descriptors"] == before["server_descriptors"]
    for now, then in zip(after["server_rss_kib"], before["server_rss_kib"], strict=True):
        assert now < then + 4096
