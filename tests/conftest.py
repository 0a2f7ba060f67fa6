"""Options and fixtures of the whole suite."""

import gc
import os
import random
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

REPOSITORY = Path(__file__).resolve().parents[1]

# How long an example takes says what else the machine does, nothing about the code.
settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")


def pytest_addoption(parser):
    parser.addoption(
        "--update-transcripts",
        action="store_true",
        help="write the golden transcripts anew instead of comparing with them",
    )


@pytest.fixture
def repository():
    """The root folder of the checkout."""
    return REPOSITORY


@pytest.fixture
def shared_data():
    """A function from a file name to the path of a real data sample, or skip."""
    default = REPOSITORY.parent / "shared" / "data"
    folder = Path(os.environ.get("PETTINGLLMS_SHARED_DATA", default))

    def path(name):
        found = folder / name
        if not found.exists():
            pytest.skip(f"the data sample {name} is not here; set PETTINGLLMS_SHARED_DATA")
        return found

    return path


@pytest.fixture
def golden(request, repository):
    """A function that compares a text with a golden transcript, or writes it."""
    folder = repository / "tests" / "envs" / "transcripts"

    def check(name, text):
        path = folder / f"{name}.txt"
        if request.config.getoption("--update-transcripts"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.exists(), f"{path} is missing; run pytest --update-transcripts"
        assert text == path.read_text(encoding="utf-8")

    return check


@pytest.fixture(autouse=True)
def global_rngs_untouched():
    """No test and nothing under test may touch the global generators."""
    before, numpy_before = random.getstate(), np.random.get_state()[1].tolist()
    yield
    assert random.getstate() == before, "the global `random` state was changed"
    assert np.random.get_state()[1].tolist() == numpy_before, "numpy's global state was changed"


def pytest_collection_modifyitems(items):
    # Here, not in the fixture: filters are read before a test is set up.
    for item in items:
        if "others_program" in getattr(item, "fixturenames", ()):
            for warning in ("ignore::ResourceWarning", "ignore:coroutine .* was never awaited"):
                item.add_marker(pytest.mark.filterwarnings(warning))


@pytest.fixture
def others_program():
    """For tests of programs that are not ours: they close nothing, and end in their own time.

    The Agents SDK wraps a coroutine in one that may be cancelled before it begins.
    """
    before = threading.enumerate()
    yield
    for thread in threading.enumerate():
        if thread not in before and thread.name == "pettingllms-workflow":
            thread.join(60)  # of a fork that nobody followed
    gc.collect()


@pytest.fixture(autouse=True)
def imports_restored(tmp_path_factory):
    """A test leaves `sys.path` as it was, and no module of a file that it wrote itself.

    A name such as `reward` would otherwise be another test's file for the rest of the run.
    """
    path, places, known = sys.path, [*sys.path], set(sys.modules)
    yield
    sys.path, sys.path[:] = path, places
    written = str(tmp_path_factory.getbasetemp())
    for name in set(sys.modules) - known:
        fields = getattr(sys.modules[name], "__dict__", {})
        files = [fields.get("__file__"), *(fields.get("__path__") or ())]  # a folder has no file
        if any(str(file).startswith(written) for file in files):
            del sys.modules[name]
