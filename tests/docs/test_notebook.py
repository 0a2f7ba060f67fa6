"""The notebook of the documents: every cell runs, and is stored as it was executed."""

import json
from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).resolve().parents[2] / "docs" / "first-run.ipynb"
FULL = "num_steps=25,"
SHORT = (
    "num_steps=1, warm_start={'num_steps': 2, 'num_episodes': 8}, "
    "rollout={'num_levels': 2}, evaluation={'num_episodes': 4, 'swap_roles': False},"
)


def test_every_cell_is_stored_as_it_was_executed():
    found = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    cells = [cell for cell in found if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    assert not any(one["output_type"] == "error" for cell in cells for one in cell["outputs"])
    assert "find_spec" in "".join(cells[0]["source"]), (
        "a hosted notebook installs what it needs first"
    )
    assert "data:image/png;base64," in NOTEBOOK.read_text(encoding="utf-8")


@pytest.mark.slow
def test_every_cell_runs(tmp_path):
    # Here, for they take seconds to import.
    nbformat, nbclient = map(pytest.importorskip, ("nbformat", "nbclient"))
    pytest.importorskip("ipykernel")
    notebook = nbformat.read(NOTEBOOK, 4)
    (training,) = [cell for cell in notebook.cells if FULL in cell.source]
    training.source = training.source.replace(FULL, SHORT)
    (evaluating,) = [cell for cell in notebook.cells if "num_levels=50" in cell.source]
    evaluating.source = evaluating.source.replace("num_levels=50", "num_levels=2")
    place = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=600, resources=place).execute()
    (shown,) = [output for output in training.outputs if "text/html" in output.get("data", {})][-1:]
    assert "1 of 1 train step)" in shown["data"]["text/html"]
    assert (tmp_path / "runs" / "plan_path" / "eval.json").is_file()
