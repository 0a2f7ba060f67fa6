"""The locks name what the packages ask for, with hashes, in one version per environment."""

from __future__ import annotations

import re
import tomllib

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PIN = re.compile(
    r"^(?P<name>[A-Za-z0-9][\w.-]*)==(?P<version>\S+)(?: ; (?P<marker>.*?))? \\$", re.M
)
OURS = {"pettingllms", "pettingllms-trainers"}
UNLOCKED = OURS | {"torch"}


@pytest.fixture
def asked_for(repository):
    """Requirements by the name that requirements/*.in give them: `.[cli]`, `trainers[gguf]`."""
    found = {}
    for folder in (".", "./trainers"):
        text = (repository / folder / "pyproject.toml").read_text(encoding="utf-8")
        project = tomllib.loads(text)["project"]
        found[folder] = project["dependencies"]
        for extra, requirements in project.get("optional-dependencies", {}).items():
            found[f"{folder}[{extra}]"] = requirements
    return found


def read_lock(path):
    text = path.read_text(encoding="utf-8")
    entries = re.split(r"\n(?=\S)", text.strip())
    assert all(PIN.match(entry) and "--hash=sha256:" in entry for entry in entries), path
    return {canonicalize_name(m["name"]): m["version"] for m in PIN.finditer(text)}


def wanted(path, asked_for):
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("-r "):
            yield from wanted(path.parent / line[3:], asked_for)
        elif line.startswith("-e "):
            folder, _, extras = line[3:].partition("[")
            yield from asked_for[folder]
            for extra in filter(None, extras.rstrip("]").split(",")):
                yield from asked_for[f"{folder}[{extra}]"]
        elif line and not line.startswith("#"):
            yield line


@pytest.mark.parametrize(
    "name",
    ["build", "train", "dev", "backends"]
    + [f"adapters/{name}" for name in ("models", "agents", "harbor", "nemo-gym")],
)
def test_a_lock_meets_every_requirement_with_a_hash(repository, asked_for, name):
    lock = read_lock(repository / "requirements" / f"{name}.txt")
    requirements = [
        Requirement(r) for r in wanted(repository / "requirements" / f"{name}.in", asked_for)
    ]
    here = {**default_environment(), "sys_platform": "linux", "platform_machine": "x86_64"}
    for requirement in requirements:
        package = canonicalize_name(requirement.name)
        if package not in UNLOCKED and (
            not requirement.marker or requirement.marker.evaluate(here)
        ):
            assert lock[package] in requirement.specifier, requirement
    assert not UNLOCKED & set(lock)


def test_what_make_train_and_make_test_share_has_one_version(repository):
    train, dev = (
        read_lock(repository / "requirements" / f"{name}.txt") for name in ("train", "dev")
    )
    assert {name: dev[name] for name in train} == train
