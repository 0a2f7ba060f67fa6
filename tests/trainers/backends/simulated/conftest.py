"""Simulated machines: real processes, real launchers, and cards that only keep accounts."""

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

GIB = 1 << 30
HERE = Path(__file__).parent


class Machine:
    """Cards of one size on one machine or several, and what was asked of them and claimed there."""

    def __init__(self, folder, num_cards, card_gib=80, scale=1):
        self.log, self.num_bytes = folder / "ledger.jsonl", card_gib * GIB
        self.num_cards = num_cards
        self.log.touch()
        paths = [HERE / "shim", HERE / "engine", *sys.path]
        self._variables = {
            "PYTHONPATH": os.pathsep.join(map(str, paths)),
            "SIMULATED_LOG": str(self.log),
            "SIMULATED_CARDS": str(num_cards),
            "SIMULATED_CARD_BYTES": str(self.num_bytes),
            "SIMULATED_SCALE": str(scale),
            "OMP_NUM_THREADS": "1",
            "PYTHONDONTWRITEBYTECODE": "",  # else each process compiles all that it loads
        }

    @property
    def variables(self):
        """The environment of its processes."""
        kept = {name: os.environ[name] for name in os.environ if name != "CUDA_VISIBLE_DEVICES"}
        return kept | self._variables

    def run(self, *command, **variables):
        """Run a Python process to its end, and make sure that it succeeds."""
        done = subprocess.run(
            [sys.executable, *map(str, command)],
            env=self.variables | variables,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr[-4000:]

    @property
    def entries(self):
        """All that was asked and claimed, in order."""
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def claims(self, *what):
        """Claims of some kinds; all without a kind."""
        return [e for e in self.entries if "card" in e and (not what or e["what"] in what)]

    def check(self):
        """Every process sees one set of cards, from its first question on, and no card is full."""
        seen = {}
        for entry in self.entries:
            assert seen.setdefault(entry["pid"], entry["visible"]) == entry["visible"], entry
        over = [entry for entry in self.claims() if entry["total"] > self.num_bytes]
        assert not over

    def cards_of(self, *what):
        """The cards on which each process has made claims of some kinds, sorted."""
        found = {}
        for entry in self.claims(*what):
            found.setdefault(entry["pid"], set()).add(entry["card"])
        return sorted(tuple(sorted(cards)) for cards in found.values())


@pytest.fixture
def machine(tmp_path):
    """A function that makes a simulated machine."""
    return partial(Machine, tmp_path)


@pytest.fixture
def line(small_run_file, tmp_path):
    """The documented command of a run, after the launcher."""
    flags = ("--engine.precision", "bfloat16", "--engine.max-logprob-gap", "100")
    out = ("--output-dir", tmp_path / "run")
    return ("-m", "pettingllms_trainers.cli", small_run_file(2), *flags, *out)
