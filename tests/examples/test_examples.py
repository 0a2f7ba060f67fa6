"""The scripts in `examples` run, in a folder of their own, without a warning."""

import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "examples"
EXPECTED = {
    "evaluate_scripted_policy.py": "paired difference: -",
    "fork_and_branch.py": "continues with",
    "gymnasium_single_role.py": "solved: True",
    "record_and_replay.py": "replayed to the same state: True",
    "train_tiny_team.py": "the run has written",
}
"""Script -> what it must say."""


def test_every_script_is_tested():
    others = {"at_grpo.py", "one_file_game.py"}
    assert {path.name for path in FOLDER.glob("*.py")} - others == set(EXPECTED)


@pytest.mark.slow
@pytest.mark.parametrize("script", sorted(EXPECTED))
def test_the_script_runs(script, tmp_path):
    done = subprocess.run(
        [sys.executable, "-W", "error", FOLDER / script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert EXPECTED[script] in done.stdout
    assert not list(tmp_path.iterdir()), "the script left something in the folder it was run in"
