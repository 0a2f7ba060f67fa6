"""Regular expressions mean the same on every supported Python."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("pettingllms", "envs/pettingllms_envs", "trainers/pettingllms_trainers")
POSSESSIVE_GROUP = re.compile(r"(?<!\\)\)(?:[*+?]|\{+[\d,]+\}+)\+")


def test_no_group_is_possessive():
    # Python 3.11.0 to 3.11.4 match `(?:ab|a)*+` wrongly (CPython issue 106052); `(?>(?:ab|a)*)` is
    # right everywhere.
    assert POSSESSIVE_GROUP.search(r"(?:a)*+")
    assert POSSESSIVE_GROUP.search(r"(?:a){{1,2}}+")
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        for line in path.read_text().splitlines()
        if POSSESSIVE_GROUP.search(line) and not line.lstrip().startswith("#")
    ]
    assert not found, "write (?>(...)*) instead of (...)*+"
