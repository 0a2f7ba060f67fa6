"""A process that keeps freed memory gets no new pages from the system for the next tensor."""

import subprocess
import sys

import pytest

from pettingllms_trainers.backends.hf.model import keep_freed_memory

PAGES = """
import resource, sys, torch
from pettingllms_trainers.backends.hf.model import keep_freed_memory
if sys.argv[1] == "keep":
    keep_freed_memory()
pages = []
for _ in range(12):  # the first rounds make room between small blocks that stay
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(8):
        torch.zeros(1 << 24)  # 64 MiB: 16384 pages
    pages.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
print(min(pages))
"""


def num_new_pages(argument):
    command = [sys.executable, "-c", PAGES, argument]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="a setting of glibc")
def test_freed_memory_is_used_again():
    assert num_new_pages("keep") < num_new_pages("return") / 2


def test_other_systems_are_left_alone(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr("ctypes.CDLL", None)
    keep_freed_memory()
