"""Tables of the repository's packages and of its tests."""

from __future__ import annotations

import ast
from pathlib import Path

from document_tables.markdown import markdown, result

ROOT = Path(__file__).resolve().parents[2]
_PACKAGES = ("pettingllms", "envs/pettingllms_envs", "trainers/pettingllms_trainers")
_FOLDERS = {
    "benchmarks": "Measurements, their result files, and the tables that are made from them",
    "docs": "The site; its hooks generate reference pages",
    "examples": "Short scripts, which the tests run",
    "tests": "Mirror the packages, file by file",
}


def layout() -> str:
    """Return every package with the first sentence of its docstring, and the other folders."""
    rows: list[list[str]] = []
    for name in _PACKAGES:
        folder = ROOT / name
        rows.append([f"**`{name}/`**", _sentence(folder)])
        inner = sorted(path.parent for path in folder.glob("*/__init__.py"))
        rows += [[f"`{package.name}/`", _sentence(package)] for package in inner]
    rows += [[f"**`{name}/`**", text] for name, text in _FOLDERS.items()]
    return markdown(["folder", "what is in it"], rows)


def mutation() -> str:
    """Return how many mutants of each core module its tests kill."""
    data = result("mutation")
    figures = {
        f"`{path}`": (found["num_mutants"] - found["num_equivalent"], found["num_killed"])
        for path, found in data["modules"].items()
    }
    figures["together"] = tuple(map(sum, zip(*figures.values(), strict=True)))
    rows = [
        [name, str(num), str(killed), f"{100 * killed / num:.1f} %"]
        for name, (num, killed) in figures.items()
    ]
    made = f"Measured on {data['date']} at commit {data['git']['commit'][:7]}"
    table = markdown(["module", "mutants", "killed", "share"], rows)
    return f"{table}\n{made}, with `{data['command']}`.\n"


def _sentence(package: Path) -> str:
    """Return the first line of a package's docstring without its full stop."""
    tree = ast.parse((package / "__init__.py").read_text(encoding="utf-8"))
    return (ast.get_docstring(tree) or "").partition("\n")[0].removesuffix(".")
