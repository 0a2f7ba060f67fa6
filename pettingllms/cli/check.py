"""`pettingllms check` and `pettingllms doctor`: does an environment, and this machine, work?"""

from __future__ import annotations

import platform
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import click
from rich.console import Console

from pettingllms.cli import options
from pettingllms.cli.app import plain_table, print_json, print_result, stdout
from pettingllms.errors import MissingDependency, install_command, requirements
from pettingllms.plugins import ALGORITHMS, POLICIES, installed
from pettingllms.registry import refused_ids, registered_ids
from pettingllms.sandbox import probe
from pettingllms.tables import visible
from pettingllms.testing import CheckStatus, examine_env


@click.command("check")
@click.argument("env_id", metavar="ID", shell_complete=options.complete_id)
@options.env_option
@options.json_option
def check_command(env_id: str, env_values: tuple[str, ...], output: str | None) -> int:
    """Check that an environment keeps the contract.

    Lists what holds, what is broken, what could not be checked and why, and what was measured. The
    exit status is 1 if a promise is broken.
    """
    report = examine_env(env_id, **options.read_pairs(env_values, "--env"))
    print_result(output, report)
    return 1 if report.of(CheckStatus.BROKEN) else 0


# Extras whose packages are listed; those of adapters and of the trainer's engines are not.
_EXTRAS = ("cli", "math", "data", "render", "tasks")
_ALWAYS = ("pettingllms", "pettingzoo", "gymnasium", "numpy")
_OF_TRAINER = ("pettingllms-trainers", "torch")

_RESET = "import sys, pettingllms as p; [p.make(x).reset(seed=0) for x in sys.argv[1:]]; print('+')"
_LOAD = """
import sys
from pettingllms.plugins import installed
print(*(installed(sys.argv[1]).usable[name].load() for name in sys.argv[2:]), "+")
"""
_TIMEOUT_S = 120.0
# Begins what Python says where an optional extra is absent: a state, and no defect.
_LACKS = f"{MissingDependency.__module__}.{MissingDependency.__qualname__}: "


@click.command("doctor")
@options.json_option
def doctor_command(output: str | None) -> int:
    """Report what works here: packages, environments, plug-ins, the sandbox.

    The exit status is 1 if something that is installed does not work.
    """
    environments = {**_problems(_RESET, registered_ids()), **refused_ids()}
    plug_ins = {
        group: {**_problems(_LOAD, sorted(found.usable), group), **found.refused}
        for group, found in ((group, installed(group)) for group in (POLICIES, ALGORITHMS))
    }
    findings = {
        "python": platform.python_version(),
        "executable": sys.executable,
        "platform": platform.platform(),
        "packages": {name: _version(name) for name in (*_ALWAYS, *_brought(), *_OF_TRAINER)},
        "environments": environments,
        "plug_ins": plug_ins,
        "sandbox": [asdict(tier) for tier in probe()],
    }
    problems = [environments, *plug_ins.values()]
    reasons = [why for found in problems for why in found.values() if why]
    is_well = all(why.startswith(_LACKS) for why in reasons)
    if output:
        print_json({**findings, "is_well": is_well})
    else:
        _print_findings(stdout(), findings)
    return 0 if is_well else 1


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def problem_of(code: str, *arguments: str) -> str | None:
    """Why code that uses installed packages does not work in a process of its own, or None."""
    try:
        done = subprocess.run(
            # Without the working directory on its path, which may have modules of any name.
            [sys.executable, "-P", "-c", code, *arguments],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        return f"did not end within {_TIMEOUT_S:g} s"
    if done.returncode == 0 and "+" in done.stdout:
        return None
    # The last line of a traceback says what happened; the others say where.
    lines = done.stderr.strip().splitlines()
    return lines[-1] if lines else f"ended with {done.returncode}"


def _problems(code: str, names: Sequence[str], *group: str) -> dict[str, str | None]:
    """Name -> why it does not work, or None."""
    # A package that crashes, hangs or ends Python is a finding, hence each in a process of its own;
    # but one process, of a second, is enough to see that all is well.
    if problem_of(code, *group, *names) is None:
        return dict.fromkeys(names)
    return {name: problem_of(code, *group, name) for name in names}


def _brought() -> dict[str, str]:
    """Distribution -> the extra that brings it."""
    found = [(line, extra) for extra in _EXTRAS for line in requirements(extra)]
    return {re.split(r"[^\w.-]", line)[0]: extra for line, extra in found}


def _print_findings(console: Console, findings: dict[str, Any]) -> None:
    console.print(f"Python {findings['python']}  {findings['executable']}", highlight=False)
    console.print(visible(findings["platform"]))
    packages = plain_table("package", "version", "")
    brought = _brought()
    for name, found in findings["packages"].items():
        how = "reinstall" if name in _ALWAYS else install_command(brought.get(name, ""))
        missing = visible(how, "dim")
        packages.add_row(name, found or visible("missing", "yellow"), "" if found else missing)
    rows = {f"environment {name}": why for name, why in findings["environments"].items()}
    for group, found in findings["plug_ins"].items():
        kind = group.rpartition(".")[2]
        rows |= {f"{kind} {name}": why for name, why in found.items()}
    plug_ins = plain_table("installed", "", "")
    for name, why in rows.items():
        lacks = (why or "").startswith(_LACKS)
        mark = visible("needs an extra", "yellow") if lacks else _mark(why is None)
        plug_ins.add_row(name, mark, visible((why or "").removeprefix(_LACKS)))
    tiers = plain_table("sandbox", "", "")
    for tier in findings["sandbox"]:
        facts = ", ".join(f"{key} {value}" for key, value in tier["facts"].items())
        tiers.add_row(
            tier["isolation"], _mark(tier["is_available"]), visible(tier["reason"] or facts)
        )
    for table in (packages, plug_ins, tiers):
        console.print()
        console.print(table)


def _mark(works: bool) -> Any:
    return visible("works", "green") if works else visible("does not work", "red")
