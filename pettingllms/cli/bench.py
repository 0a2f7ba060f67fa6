"""`pettingllms bench`."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click

from pettingllms.cli import options
from pettingllms.cli.app import print_result, stderr
from pettingllms.cli.playing import played
from pettingllms.env import roles_of
from pettingllms.errors import InvalidArgument
from pettingllms.evaluation.bench import (
    FORMAT,
    FULL,
    QUICK,
    BenchResult,
    GameResult,
    Suite,
    cell_plan,
    checked_about,
    climbed,
)
from pettingllms.evaluation.plan import MAIN
from pettingllms.evaluation.report import Report, VariantReport
from pettingllms.evaluation.run_folder import RunFolder
from pettingllms.evaluation.statistics import special_functions
from pettingllms.files import load_json, owned, write_whole
from pettingllms.policies import PolicySettings
from pettingllms.registry import make
from pettingllms.tables import as_markdown
from pettingllms.trust import FoundName, Name
from pettingllms.viewer import write_parts

_EXAMPLES = """\b
Examples:
  pettingllms bench -p openai:qwen3:4b@http://localhost:11434/v1 --quick
  pettingllms bench -p hf:runs/team/policies/planner -p tool=program --name my_team
  pettingllms bench --resume runs/bench-my_team
"""
_FILE = "bench.json"


@click.command("bench", epilog=_EXAMPLES)
@options.policy_option
@options.sampling_option
@options.flag("--quick", help="Three levels of each game, eight boards each.")
@click.option("--name", help="Name of the entry.  [default: the policies]")
@options.price_option
@options.policy_settings_options
@options.max_failures_option("Episodes of a level", 10)
@options.path("--out", help="Folder of the result.  [default: runs/bench-TIME]")
@options.path("--resume", help="Continue an interrupted benchmark.")
@options.json_option
@click.pass_context
def bench_command(context: click.Context, output: str | None, **values: Any) -> int:
    """Find the hardest level of every game that the team passes, and measure success there.

    Writes result.json, an entry of the leader board, and index.html. Boards, seed and levels are
    the same for everybody; a game that the policies cannot play counts as 0.
    """
    special_functions()  # raises now, not at the end of a long run
    if values["resume"]:
        options.refuse_given(
            context, "--resume", "policy_values", "sampling_values", "quick", "name",
            "price_values", "out",
        )  # fmt: skip
    folder = values["resume"] or values["out"] or options.free_folder("bench", "games")
    with owned(folder):
        return _measured(folder, output, values)


def _measured(folder: Path, output: str | None, values: Mapping[str, Any]) -> int:
    about = _resumed(folder) if values["resume"] else _begun(folder, values)
    # The file of a resumed benchmark, perhaps a stranger's, names its policies; others were typed.
    found = partial(FoundName, file=str(folder / _FILE), is_trusted=values["trust"])
    named: Callable[[str], Name] = found if values["resume"] else str
    suite = next(one for one in (FULL, QUICK) if one.name == about["suite"])
    settings = options.policy_settings(values)
    games: dict[str, GameResult] = {}
    reports: list[Report] = []
    refused: InvalidArgument | None = None
    for env_id, levels in suite.levels.items():
        try:
            games[env_id] = _climbed(
                folder, about, suite, env_id, named, settings, values["max_failures"], reports
            )
        except InvalidArgument as error:
            # A game that the team cannot play at all is a result, too: none of its levels.
            refused = error
            games[env_id] = GameResult(levels, skipped=f"it has no policy {error.got!r}")
    if not reports:
        reasons = "; ".join({game.skipped for game in games.values()})
        raise refused or InvalidArgument("policies", about["policies"], "some that play", reasons)
    result = BenchResult(about, games, reports)
    _write(folder / "result.json", result.to_json())
    write_parts(result.parts(), folder / "index.html", title=f"{about['name']} on {suite.name}")
    print_result(output, result)
    stderr().print(f"written: {folder}/result.json and index.html", style="dim", highlight=False)
    return 0


def _begun(folder: Path, values: Mapping[str, Any]) -> dict[str, Any]:
    policies = list(values["policy_values"])
    if not policies:
        raise click.UsageError("name a policy for all roles (--policy oracle), or one for each")
    if (folder / _FILE).exists():
        resume = f"--resume {shlex.quote(str(folder))}"
        raise click.UsageError(f"{folder} holds a benchmark; continue it with {resume}")
    suite = QUICK if values["quick"] else FULL
    # Now, since a role that is misspelt would show in the last game only.
    _check_roles(policies, suite)
    about = {
        "format": FORMAT,
        "name": values["name"] or ", ".join(policies),
        "suite": suite.name,
        "policies": policies,
        "sampling": list(values["sampling_values"]),
        "prices": list(values["price_values"]),
        # One seed for everybody: entries of one suite have played the same boards.
        "seed": 0,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {"pettingllms": version("pettingllms")},
    }
    _write(folder / _FILE, about)
    return about


def _check_roles(policies: Iterable[str], suite: Suite) -> None:
    roles = {role for env_id in suite.levels for role in roles_of(make(env_id, checks=False))}
    for text in policies:
        if (role := options.role_named(text)) is not None and role not in roles:
            raise InvalidArgument("--policy", text, "a role of " + ", ".join(sorted(roles)))


def _resumed(folder: Path) -> dict[str, Any]:
    try:
        data = load_json(folder / _FILE)
    except (OSError, ValueError):
        data = None
    return checked_about(data, folder)


def _climbed(
    folder: Path,
    about: Mapping[str, Any],
    suite: Suite,
    env_id: str,
    named: Callable[[str], Name],
    settings: PolicySettings,
    max_failures: int,
    reports: list[Report],
) -> GameResult:
    """Look for the hardest level of a game that is passed; reports are added to `reports`."""
    levels = suite.levels[env_id]
    roles = roles_of(make(env_id, checks=False, difficulty=levels[0]))
    texts = [text for text in about["policies"] if options.role_named(text) in (None, *roles)]
    assignment = {role: named(text) for role, text in options.read_policies(texts, roles).items()}
    if missing := [role for role in roles if role not in assignment]:
        return GameResult(levels, skipped=f"no policy for {', '.join(missing)}")
    sampling = options.read_sampling(about["sampling"], roles)
    prices = options.read_prices(about["prices"], assignment)

    def play(level: int, num_tried: int | None, num_boards: int) -> VariantReport:
        part = "" if num_tried is None else f"-try-{num_tried}"
        path = folder / f"{env_id}-{level}{part}"
        # Each cell is an evaluation of its own: a finished one is read, one that was cut goes on.
        if (path / "run.json").exists():
            run = RunFolder.open(path, trust=settings.trust)
        else:
            cell = (env_id, level, num_tried, num_boards, about["seed"], assignment)
            run = RunFolder.create(path, cell_plan(*cell, sampling=sampling, prices=prices))
        doing = "measured" if num_tried is None else "tried"
        stderr().print(f"{env_id}, level {level}, {doing}", style="bold", highlight=False)
        report = played(run, settings, max_failures, f"bench --resume {shlex.quote(str(folder))}")
        run.write_report(report.to_json(), as_markdown(report.parts()))
        reports.append(report)
        return report.variants[MAIN]

    return climbed(levels, suite.num_boards, play)


def _write(path: Path, data: Mapping[str, Any]) -> None:
    write_whole(path, json.dumps(data, indent=2, allow_nan=False) + "\n")
