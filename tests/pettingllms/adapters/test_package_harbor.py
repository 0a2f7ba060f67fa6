"""Tasks for Harbor: read back by Harbor's own loader."""

import json
import subprocess

import pytest

from pettingllms.cli.package import Parcel, write_parcel

LIBRARY = "harbor"
LIBRARY_DRAWS = True
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]


def test_harbor_reads_the_tasks(library, tmp_path):
    from harbor.models.task.task import Task

    parcel = Parcel("queens_v0", "harbor", {"team": "single"}, "pettingllms==0.1.0", 2, 3)
    write_parcel(parcel, tmp_path)
    for seed in (3, 4):
        folder = tmp_path / parcel.name / f"{parcel.name}_{seed}"
        assert Task.is_valid_dir(folder)
        task = Task(folder)
        assert task.config.metadata["seed"] == seed
        assert task.config.verifier.timeout_sec == 300
        assert "Move queens" in task.instruction


def test_the_solution_writes_the_answers(library, tmp_path):
    parcel = Parcel("queens_v0", "harbor", {"team": "single"}, "pettingllms==0.1.0", 1, 3)
    write_parcel(parcel, tmp_path)
    script = tmp_path / parcel.name / f"{parcel.name}_3" / "solution" / "solve.sh"
    text = script.read_text().replace("/app/answers.json", str(tmp_path / "answers.json"))
    subprocess.run(["bash", "-c", text], check=True)
    assert json.loads((tmp_path / "answers.json").read_text())[0].startswith("#### [[")
