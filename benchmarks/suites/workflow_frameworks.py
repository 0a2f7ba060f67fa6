"""Do teams train that are written as their frameworks' documents show it, with which versions?

    python benchmarks/suites/workflow_frameworks.py [--only NAME...] [--versions newest]

Every framework of `workflow_frameworks.toml` gets an environment with the versions that are pinned,
and one with the newest ones. In it every team of examples/frameworks plays by its script, with a
fork at every turn; trains twice for three steps on tiny models whose words are whole answers; and
must teach every role, have whole trees that are the same when they are played again, and repeat by
its seed. Ends with 1 if one does not.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from measuring import REPOSITORY, frame, parser_of, write

SUITE = Path(__file__).stem
ENVIRONMENTS = REPOSITORY / ".cache" / "workflow_frameworks"
VERSIONS = ("pinned", "newest")
TIMEOUT_S = 3600
_SHOWN = 4000


def main() -> None:
    parser = parser_of(SUITE, __doc__)
    parser.add_argument("--only", nargs="*", help="Parts of names of teams.")
    parser.add_argument("--versions", nargs="*", choices=VERSIONS, default=VERSIONS)
    parser.add_argument("--torch", default="torch", help="Requirement of torch.")
    parser.add_argument("--torch-index", help="A further package index, for torch.")
    given = parser.parse_args()
    result = frame(SUITE, seeds=[0])
    made = {"date": result["date"], "commit": result["git"]["commit"]}
    rows = {(row["team"], row["versions"]): row for row in recorded(given.output)}
    failed: list[dict[str, Any]] = []
    for versions in given.versions:
        for framework in frameworks():
            for row in measured(framework, versions, given):
                rows[row["team"], versions] = {**row, **made}
                failed += [] if row["works"] else [row]
                write({**result, "rows": [*rows.values()]}, given.output)
    for row in failed:
        print(f"{row['team']} with {row['versions']}: {row['cause']}")
    sys.exit(bool(failed))


def recorded(path: Path) -> list[dict[str, Any]]:
    """The rows of earlier runs, which one of some teams or versions keeps."""
    return json.loads(path.read_text(encoding="utf-8"))["rows"] if path.is_file() else []


def frameworks() -> list[dict[str, Any]]:
    """What is declared."""
    text = Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
    return tomllib.loads(text)["framework"]


def measured(framework: dict[str, Any], versions: str, given: Any) -> Iterator[dict[str, Any]]:
    """What was found about every team of a framework."""
    teams = [
        team
        for team in framework["teams"]
        if not given.only or any(part in team for part in given.only)
    ]
    if not teams:
        return
    head = {"framework": framework["name"], "versions": versions}
    try:
        python = installed(framework, versions, given)
    # Versions that cannot be installed together are a result.
    except subprocess.CalledProcessError as error:
        cause = f"cannot be installed: {error.output.strip().splitlines()[-1]}"
        yield from ({**head, "team": team, "works": False, "cause": cause} for team in teams)
        return
    packages = versions_of(python, framework["newest"])
    for team in teams:
        found = probed(python, team)
        print(f"{team}, {versions}: {found}", flush=True)
        yield {**head, "team": team, "packages": packages, **found}


def installed(framework: dict[str, Any], versions: str, given: Any) -> Path:
    """The Python of an environment with a framework, which is made anew for newest ones."""
    folder = ENVIRONMENTS / f"{framework['name'].replace(' ', '-').lower()}-{versions}"
    python, ready = folder / "bin" / "python", folder / ".ready"
    wanted = json.dumps([given.torch, *framework[versions]])
    # The newest versions of today are others than yesterday's.
    if versions == "pinned" and ready.is_file() and ready.read_text() == wanted:
        return python
    print(f"installing {', '.join(framework[versions])}", flush=True)
    ready.unlink(missing_ok=True)
    has_uv = shutil.which("uv") is not None
    bare = ["--without-pip"] if has_uv else []
    run([sys.executable, "-m", "venv", "--clear", *bare, str(folder)])
    index = ["--extra-index-url", given.torch_index] if given.torch_index else []
    own = ["-e", f"{REPOSITORY}[cli]", "-e", str(REPOSITORY / "trainers")]
    pip = [str(python), "-m", "pip", "install"]
    installer = ["uv", "pip", "install", "--python", str(python)] if has_uv else pip
    run([*installer, "--quiet", *index, given.torch, *framework[versions], *own])
    ready.write_text(wanted)
    return python


def versions_of(python: Path, requirements: Sequence[str]) -> dict[str, str]:
    """The versions of the packages that were asked for, and of the client of OpenAI."""
    names = [*(re.split(r"[\[<>=]", one)[0] for one in requirements), "openai"]
    code = "import json, sys; from importlib.metadata import version; "
    code += "print(json.dumps({name: version(name) for name in sys.argv[1:]}))"
    return json.loads(run([str(python), "-c", code, *names]))


def probed(python: Path, team: str) -> dict[str, Any]:
    """What the probe found, or why it ended without a word."""
    probe = Path(__file__).with_name(f"{SUITE}_probe.py")
    # Bytecode is kept whatever the shell says: compiling all packages takes longer than the runs.
    variables = {
        "PYTHONDONTWRITEBYTECODE": "",
        "PYTHONHASHSEED": "0",
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "NO_PROXY": "127.0.0.1",
    }
    command, env = [str(python), str(probe), team], {**os.environ, **variables}
    try:
        done = subprocess.run(
            command,
            cwd=REPOSITORY,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        return {"works": False, "cause": f"the probe took more than {TIMEOUT_S} s"}
    print(done.stderr[-_SHOWN:], file=sys.stderr)
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        return {"works": False, "cause": f"the probe ended with {done.returncode}"}
    return json.loads(lines[-1])


def run(command: Sequence[str]) -> str:
    """What a command prints, errors included."""
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True
    )
    return done.stdout


if __name__ == "__main__":
    main()
