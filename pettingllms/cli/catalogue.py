"""`pettingllms list`, `pettingllms info`, and `pettingllms data`: check and export data."""

from __future__ import annotations

import inspect
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.console import Console, Group
from rich.panel import Panel

from pettingllms.cli import options
from pettingllms.cli.app import plain_table, print_json, stdout
from pettingllms.cli.options import json_option, refuse_given, trust_option
from pettingllms.env import TextEnv, roles_of
from pettingllms.errors import InvalidArgument, MissingDependency, PettingLLMsError
from pettingllms.evaluation.rows import VIEWS, rows_of, write_rows
from pettingllms.pages import SECTIONS, sections_of
from pettingllms.registry import make, registered_ids, spec
from pettingllms.sources import is_source
from pettingllms.tables import visible

# Without the arguments, which are a table of their own, and the example, which is long.
_SHOWN_SECTIONS = tuple(name for name in SECTIONS if name not in ("Arguments", "Example"))

# Longer lines of prose are hard to read, however wide the terminal is.
_PAGE_WIDTH = 110


@click.command("list")
@options.json_option
def list_command(as_json: bool) -> int:
    """List the installed environments."""
    entries = [_entry(env_id) for env_id in registered_ids()]
    if as_json:
        print_json(entries)
        return _status(entries)
    console = stdout()
    if not entries:
        console.print(
            "No environments are installed. In a checkout run `pip install -e .`; to begin your "
            "own: pettingllms new my_game"
        )
        return 0
    table = plain_table(
        "environment", "what it is", "roles", "difficulties", "scripted policies", "package"
    )
    for entry in entries:
        if "error" in entry:
            error = visible(entry["error"], "yellow" if entry["needs_extra"] else "red")
            table.add_row(entry["id"], error, "", "", "", entry["package"])
            continue
        roles, scripted = ", ".join(entry["roles"]), ", ".join(entry["scripted_policies"])
        levels = str(entry["num_difficulties"])
        row = (visible(entry["summary"]), roles, levels, scripted or "none", entry["package"])
        table.add_row(visible(entry["id"], "cyan"), *row)
    console.print(table)
    console.print(
        "\n[dim]pettingllms info ID shows one of them, pettingllms play ID plays it[/dim]"
    )
    return _status(entries)


def _status(entries: list[dict[str, Any]]) -> int:
    """1 if an environment is broken; one whose optional extra is absent is not."""
    broken = [entry for entry in entries if "error" in entry and not entry["needs_extra"]]
    return 1 if broken else 0


def _entry(env_id: str) -> dict[str, Any]:
    package = spec(env_id).package
    try:
        env: TextEnv[Any] = make(env_id, checks=False)
    except PettingLLMsError as error:
        missing = isinstance(error, MissingDependency)
        return {"id": env_id, "package": package, "error": str(error), "needs_extra": missing}
    return {
        "id": env_id,
        "summary": summary_of(env),
        "roles": list(roles_of(env)),
        "agents": list(env.possible_agents),
        "max_turns": env.max_turns,
        "num_difficulties": len(env.difficulties),
        "scripted_policies": list(env.scripted_policies),
        "package": package,
    }


def summary_of(env: TextEnv[Any]) -> str:
    """The first line of the environment's page."""
    return (inspect.getdoc(type(env)) or "").partition("\n")[0]


@click.command("info")
@click.argument("env_id", metavar="ID", shell_complete=options.complete_id)
@options.env_option
@options.reset_option
@options.number("--seed", default=0, least=0, help="Seed of the level.")
@click.option("--prompts/--no-prompts", default=True, help="Show what agents read at the start.")
@options.json_option
def info_command(
    env_id: str,
    env_values: tuple[str, ...],
    option_values: tuple[str, ...],
    seed: int,
    prompts: bool,
    as_json: bool,
) -> int:
    """Show the page of an environment: task, roles, rewards, arguments, and what agents read."""
    env: TextEnv[Any] = make(env_id, checks=False, **options.read_pairs(env_values, "--env"))
    env.reset(seed=seed, options=options.read_reset(option_values, env))
    if as_json:
        print_json(_page_json(env_id, env))
        return 0
    console = stdout(max_width=_PAGE_WIDTH)
    console.print(visible(env_id, "bold cyan"), visible(summary_of(env)), sep="  ")
    console.print()
    console.print(_facts(env_id, env))
    # A stranger's class may have no docstring, or one without our sections: shown as it is.
    page = inspect.getdoc(type(env)) or ""
    sections = sections_of(page)
    if not sections:
        console.print(_markdown(page.partition("\n")[2]))
    for name in _SHOWN_SECTIONS:
        if name in sections:
            _heading(console, name)
            console.print(_markdown(sections[name].strip()))
    _heading(console, "Arguments")
    console.print(_arguments_table(env, sections.get("Arguments", "")))
    if prompts:
        _print_prompts(console, env, seed)
    return 0


def _markdown(text: str) -> Any:
    from rich.markdown import Markdown  # a twentieth of what `list` takes, which has no prose

    return Markdown(text)


def _heading(console: Console, text: str) -> None:
    console.print()
    console.print(visible(text, "bold yellow"))


def _facts(env_id: str, env: TextEnv[Any]) -> Any:
    table = plain_table("", "")
    table.show_header = False
    stages = "  then  ".join(" + ".join(stage) for stage in env.stages)
    table.add_row("a turn", f"{stages}  (at most {env.max_turns} turns)")
    table.add_row("scripted policies", ", ".join(env.scripted_policies) or "none")
    table.add_row("levels of difficulty", "\n".join(_levels(env)) or "none")
    table.add_row("placeholders of prompts", ", ".join(env.prompt_fields))
    unpackaged = f"none: {spec(env_id).id}" if is_source(env_id) else "registered by a call"
    table.add_row("package", spec(env_id).package or unpackaged)
    return table


def _levels(env: TextEnv[Any]) -> list[str]:
    """A line per level of difficulty: number, names, arguments."""
    return [
        f"{env.difficulties.names_of(number)}: "
        + ", ".join(f"{argument}={value!r}" for argument, value in attributes.items())
        for number, attributes in enumerate(env.difficulties.attributes)
    ]


def _arguments(env: TextEnv[Any]) -> list[inspect.Parameter]:
    parameters = inspect.signature(type(env)).parameters.values()
    return [p for p in parameters if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)]


def _arguments_table(env: TextEnv[Any], section: str) -> Any:
    meanings = _meanings(section)
    table = plain_table("argument", "default", "meaning")
    for parameter in _arguments(env):
        default = "required" if parameter.default is parameter.empty else repr(parameter.default)
        meaning = _markdown(meanings.get(parameter.name, ""))
        table.add_row(visible(parameter.name, "cyan"), visible(default), meaning)
    return table


def _meanings(section: str) -> dict[str, str]:
    """Argument -> meaning of a docstring section of lines "- `name`: meaning"."""
    found: dict[str, str] = {}
    for item in section.strip().split("\n- "):
        name, colon, meaning = item.removeprefix("- ").partition(":")
        if colon:
            found[name.strip(" `")] = " ".join(meaning.split())
    return found


def _print_prompts(console: Console, env: TextEnv[Any], seed: int) -> None:
    _heading(console, f"What the agents read at the start (seed {seed})")
    for agent in env.possible_agents:
        parts = [
            part
            for message in env.messages(agent)
            for part in (visible(message["role"], "bold magenta"), visible(message["content"]), "")
        ]
        console.print(Panel(Group(*parts[:-1]), title=agent, title_align="left"))


def _page_json(env_id: str, env: TextEnv[Any]) -> dict[str, Any]:
    return {
        "id": env_id,
        "package": spec(env_id).package,
        "summary": summary_of(env),
        "stages": env.stages,
        "max_turns": env.max_turns,
        "scripted_policies": list(env.scripted_policies),
        "difficulties": [dict(attributes) for attributes in env.difficulties.attributes],
        "difficulty_names": env.difficulties.names,
        "difficulty": env.difficulty,
        "prompt_fields": dict(env.prompt_fields),
        "arguments": {p.name: _default_json(p.default) for p in _arguments(env)},
        "sections": {
            name: text.strip() for name, text in sections_of(type(env).__doc__ or "").items()
        },
        "seed": env.episode_seed,
        "messages": {agent: env.messages(agent) for agent in env.possible_agents},
    }


def _default_json(default: Any) -> Any:
    try:
        json.dumps(default)
    except TypeError:
        # Defaults may be any value, such as a class: then JSON holds how it is written.
        return repr(default)
    return default


@click.group("data")
def data_group() -> None:
    """Check data files of problems before they are used; export what runs have recorded."""


@data_group.command("check")
@click.argument("source")
@click.option("--against", metavar="SOURCE", help="Look for near-duplicates of its entries here.")
@click.option("--split", help="Split of a hub data set.")
@click.option("--against-split", help="Split of the source in --against.")
@click.option("--schema", help="Layout of the rows.  [default: recognised]")
@click.option(
    "--threshold",
    type=click.FloatRange(0, 1, min_open=True),
    default=0.7,
    show_default=True,
    help="Smallest similarity of near-duplicates.",
)
@click.option(
    "--env", "env_id", default="code_v0", show_default=True, help="Environment that checks them."
)
@click.option(
    "--play/--no-play",
    default=True,
    show_default=True,
    help="Play every row with its own solution; programs run in the sandbox.",
)
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write the usable rows, repaired where they were, to a .jsonl file that loads as it is.",
)
@json_option
@click.pass_context
def check_command(
    context: click.Context,
    source: str,
    against: str | None,
    split: str | None,
    against_split: str | None,
    schema: str | None,
    threshold: float,
    env_id: str,
    play: bool,
    out: Path | None,
    as_json: bool,
) -> int:
    """Report rows, usable ones, and why others are not; and overlap with another source.

    A row is usable if its layout is read, its statement needs nothing that an agent lacks, and its
    own solution, where it has one, solves it.

    SOURCE is a file (.jsonl, .jsonl.gz, .json, .parquet) or the name of a hub data set.
    """
    if against is None:
        refuse_given(context, "data without --against", "against_split", "threshold")
    # Environments bring their checks: the core knows the layout of no data set.
    checks = getattr(spec(env_id).load(), "data_checks", None)
    if checks is None:
        raise InvalidArgument("environment", env_id, "one that can check data, such as code_v0")
    reports = {"data": checks.check(source, split=split, schema=schema, play=play, out=out)}
    if against is not None:
        reports["overlap"] = checks.check_overlap(
            source, against, splits=(split, against_split), threshold=threshold
        )
    if as_json:
        print_json({name: asdict(report) for name, report in reports.items()})
        return 0
    for report in reports.values():
        stdout().print(visible(str(report)))
    return 0


@data_group.command("export")
@click.argument("run", type=options.RunPath(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--view",
    type=click.Choice(VIEWS),
    default="rollouts",
    show_default=True,
    help="rollouts: every recorded answer; sft: prompts and answers of solved episodes; "
    "preference: the best and the worst candidate of every decision of a tree.",
)
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    required=True,
    metavar="FILE",
    help="A .parquet or .jsonl file, for datasets.load_dataset and for TRL's trainers.",
)
@trust_option
def export_command(run: Path, view: str, out: Path, trust: bool) -> int:
    """Write the answers that a run has recorded as a data set.

    RUN is a training run or an evaluation. Its episodes are played again, so that prompts are the
    chats that the agents read.
    """
    num_rows = write_rows(rows_of(run, view, trust=trust), out)
    stdout().print(visible(f"{out}: {num_rows} rows"), soft_wrap=True)
    return 0
