"""What CONTRIBUTING and the walks say about the code is what is there and what runs."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = {"game": "walks", "train": "walks", "eval": "walk-evaluation"}
HEADINGS = {"game": "## A step of a game", "train": "## A train step", "eval": "# "}


def listed(name):
    """The files of a walk, with what its page says about each."""
    page = (ROOT / "docs" / f"{PAGES[name]}.md").read_text(encoding="utf-8")
    part = page.partition(HEADINGS[name])[2].partition("\n## ")[0]
    return dict(re.findall(r"(?m)^\d+\. `(\S+)`: (.+)$", part))


@pytest.mark.parametrize("name", PAGES)
def test_a_walk_lists_the_files_that_are_entered(name, tmp_path):
    command = [sys.executable, str(Path(__file__).with_name("walks.py")), name, str(tmp_path)]
    subprocess.run(command, check=True, capture_output=True, text=True, cwd=tmp_path)
    entered = set((tmp_path / "walk.txt").read_text().split())
    files = listed(name)
    assert files.keys() - entered == set(), "listed, but not entered"
    assert entered - files.keys() == set(), "entered, but not listed"
    assert all(len(said.split()) >= 3 for said in files.values())


def test_every_room_is_a_tool_or_a_leaf():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rooms = []
    for rank in ("tools", "leaves"):
        part = re.search(rf"<!-- rooms:{rank} -->(.*?)<!-- /rooms:{rank} -->", text, re.DOTALL)[1]
        for line in re.split(r"(?m)^- ", part)[1:]:
            package, _, rest = line.partition(":")
            rooms += [f"{package.strip('`')}{name}" for name in re.findall(r"`(\w+)`", rest)]
    packages = ("pettingllms", "envs/pettingllms_envs", "trainers/pettingllms_trainers")
    there = [path.parent for name in packages for path in (ROOT / name).glob("*/__init__.py")]
    assert sorted(rooms) == sorted(path.relative_to(ROOT).as_posix() for path in there)


def test_the_core_is_ten_files():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    core = re.findall(r"(?m)^\d+\. `(\S+\.py)`: ", text.partition("**Tools**")[0])
    assert len(core) == 10
    assert all((ROOT / path).is_file() for path in core)
