"""Tests against the real libraries: skipped without them, unless they are demanded.

A module or class of tests that needs a library says so with `LIBRARY = "trl"`, and the module with
`LIBRARY_DRAWS = True` if that library draws from the global random generators. In the environments
that tests/adapters.mk makes, PETTINGLLMS_ADAPTERS names the libraries that must be there.
"""

import importlib
import os
import random
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

DEMANDED = set(os.environ.get("PETTINGLLMS_ADAPTERS", "").split())


@pytest.fixture(autouse=True)
def library(request):
    """Import the LIBRARY of class or module; skip when it is absent and not demanded."""
    name = getattr(request.cls, "LIBRARY", None) or getattr(request.module, "LIBRARY", None)
    if name is None:
        return None
    state = random.getstate()  # some libraries draw when they are imported
    try:
        if name in DEMANDED:
            return importlib.import_module(name)
        reason = f"needs {name}; `make -f tests/adapters.mk` tests with it"
        return pytest.importorskip(name, reason=reason, exc_type=ModuleNotFoundError)
    finally:
        random.setstate(state)


@pytest.fixture(autouse=True)
def global_rngs_untouched(request):
    """As everywhere, unless the library under test draws itself: then they are put back."""
    state, numpy_state = random.getstate(), np.random.get_state()
    yield
    if getattr(request.module, "LIBRARY_DRAWS", False):
        random.setstate(state)
        np.random.set_state(numpy_state)
    assert random.getstate() == state, "the global `random` state was changed"
    assert np.random.get_state()[1].tolist() == numpy_state[1].tolist(), "numpy's was changed"


@pytest.fixture
def free_port():
    """A port of the loopback interface that nobody listens to."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def run_script(tmp_path):
    """Return a function that runs a script of examples/adapters and returns what it prints."""
    folder = Path(__file__).resolve().parents[3] / "examples" / "adapters"

    def run(name, *arguments, **variables):
        done = subprocess.run(
            [sys.executable, folder / name, *arguments],
            cwd=tmp_path,
            env=os.environ | variables,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run
