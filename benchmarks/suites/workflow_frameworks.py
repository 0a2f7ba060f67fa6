"""Do programs and teams train, with the pinned and the newest versions of their libraries?

    python benchmarks/suites/workflow_frameworks.py [--only NAME...] [--versions newest] [--missing]

Every library of `workflow_frameworks.toml` gets an environment with the versions that are pinned,
and one with the newest ones. In it run those tests that say whether a program of
tests/pettingllms/workflows/programs.toml plays, forks, replays and trains. Ends with 1 if one does
not.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from measuring import REPOSITORY, frame, parser_of, write

SUITE = Path(__file__).stem
ENVIRONMENTS = REPOSITORY / ".cache" / "workflow_frameworks"
PROGRAMS = REPOSITORY / "tests" / "pettingllms" / "workflows" / "programs.toml"
TESTS = (
    "tests/pettingllms/workflows/test_programs.py::test_a_program_plays_forks_and_replays",
    "tests/trainers/runs/test_workflow_run.py::test_a_program_trains",
)
VERSIONS = ("pinned", "newest")
TIMEOUT_S = 7200
_SHOWN = 300


def main() -> None:
    parser = parser_of(SUITE, __doc__)
    parser.add_argument("--only", nargs="*", default=[""], help="Parts of names of programs.")
    parser.add_argument("--versions", nargs="*", choices=VERSIONS, default=VERSIONS)
    parser.add_argument("--missing", action="store_true", help="Only what has no row yet.")
    parser.add_argument("--torch", default="torch", help="Requirement of torch.")
    parser.add_argument("--torch-index", help="A further package index, for torch.")
    given = parser.parse_args()
    result = frame(SUITE, seeds=[0])
    made = {"date": result["date"], "commit": result["git"]["commit"]}
    # One of some programs or versions keeps the rows of the others.
    kept = json.loads(given.output.read_text())["rows"] if given.output.is_file() else []
    rows = {(row["program"], row["versions"]): row for row in kept}
    failed: list[str] = []
    for versions in given.versions:
        for library, requirements in _table(Path(__file__).with_suffix(".toml")).items():
            names = [
                name
                for name, program in _table(PROGRAMS).items()
                if program["library"] == library
                and any(part in name for part in given.only)
                and not (given.missing and (name, versions) in rows)
            ]
            if not names:
                continue
            packages, causes = tested(library, requirements, versions, names, given)
            head = {"library": library, "versions": versions, "packages": packages}
            for name in names:
                row = {"program": name, **head, "cause": causes[name], **made}
                rows[name, versions] = row
                failed += [f"{name}, {versions}: {row['cause']}"] if row["cause"] else []
            write({**result, "rows": [*rows.values()]}, given.output)
    sys.exit("\n".join(failed) or None)


def tested(
    library: str,
    requirements: Mapping[str, Sequence[str]],
    versions: str,
    names: Sequence[str],
    given: Any,
) -> tuple[dict[str, str], dict[str, str]]:
    """The versions of packages, and of every program why it does not train, or `""`."""
    try:
        python = installed(library, requirements[versions], versions == "newest", given)
    # Versions that cannot be installed together are a result.
    except subprocess.CalledProcessError as error:
        return {}, dict.fromkeys(names, f"installation: {error.output.strip().splitlines()[-1]}")
    report = python.with_name("report.xml")
    report.unlink(missing_ok=True)
    nodes = [f"{test}[{name}]" for test in TESTS for name in names]
    options = ["-m", "nightly or not nightly", "-W", "ignore", f"--junitxml={report}"]
    # Bytecode is kept whatever the shell says: compiling all packages takes longer than the runs.
    variables = {"PYTHONDONTWRITEBYTECODE": "", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    env = {**os.environ, **variables, "PYTHONHASHSEED": "0", "NO_PROXY": "127.0.0.1"}
    command = [str(python), "-m", "pytest", "-q", *options, *nodes]
    done = subprocess.run(command, cwd=REPOSITORY, env=env, timeout=TIMEOUT_S, check=False)
    wanted = [*(re.split(r"[\[<>=]", one)[0] for one in requirements["newest"]), "openai"]
    code = "import json, sys; from importlib.metadata import version; "
    code += "print(json.dumps({name: version(name) for name in sys.argv[1:]}))"
    packages = json.loads(run([str(python), "-c", code, *wanted]))
    if not report.is_file():
        return packages, dict.fromkeys(names, f"pytest ended with {done.returncode}")
    return packages, causes_of(report, names)


def causes_of(report: Path, names: Sequence[str]) -> dict[str, str]:
    """Program to the first line of what failed or was skipped, `""` for one that passed all."""
    found: dict[str, list[str]] = {name: [] for name in names}
    for case in ET.parse(report).iter("testcase"):
        name = case.attrib["name"].partition("[")[2].removesuffix("]")
        ends = [f"{end.tag}: {end.get('message') or ''}"[:_SHOWN] for end in case]
        found[name].append(" ".join(" ".join(ends).split()))
    return {
        name: "; ".join(filter(None, ends)) if len(ends) == len(TESTS) else "a test did not run"
        for name, ends in found.items()
    }


def installed(library: str, requirements: Sequence[str], is_new: bool, given: Any) -> Path:
    """The Python of an environment with a library, which is made anew for newest versions."""
    name = re.sub(r"[^a-z0-9]+", "-", f"{library.lower()} {'newest' if is_new else 'pinned'}")
    folder = ENVIRONMENTS / name
    python, ready = folder / "bin" / "python", folder / ".ready"
    wanted = json.dumps([given.torch, *requirements])
    # The newest versions of today are others than yesterday's.
    if not is_new and ready.is_file() and ready.read_text() == wanted:
        return python
    print(f"installing {', '.join(requirements)}", flush=True)
    ready.unlink(missing_ok=True)
    has_uv = shutil.which("uv") is not None
    bare = ["--without-pip"] if has_uv else []
    run([sys.executable, "-m", "venv", "--clear", *bare, str(folder)])
    index = ["--extra-index-url", given.torch_index] if given.torch_index else []
    own = ["-e", f"{REPOSITORY}[cli]", "-e", str(REPOSITORY / "trainers"), "pytest", "hypothesis"]
    pip = [str(python), "-m", "pip", "install"]
    installer = ["uv", "pip", "install", "--python", str(python)] if has_uv else pip
    run([*installer, "--quiet", *index, given.torch, *requirements, *own])
    ready.write_text(wanted)
    return python


def run(command: Sequence[str]) -> str:
    """What a command prints, errors included."""
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True
    )
    return done.stdout


def _table(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
