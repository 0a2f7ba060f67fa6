"""How many programs run at a time by default."""

import os

import pytest

from pettingllms.sandbox import Sandbox, processors


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, 8),
        ({"cpu.max": "max 100000"}, 8),
        ({"cpu.max": "350000 100000"}, 3),
        ({"cpu.max": "20000 100000"}, 1),
        ({"cpu.max": "1600000 100000"}, 8),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 8),
        ({"cpu/cpu.cfs_quota_us": "200000", "cpu/cpu.cfs_period_us": "100000"}, 2),
        ({"cpu.max": ""}, 8),
    ],
)
def test_quota_of_a_container(monkeypatch, tmp_path, files, expected):
    monkeypatch.setattr(processors, "CGROUPS", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert processors.num_processors() == expected
    assert Sandbox().workers == expected
