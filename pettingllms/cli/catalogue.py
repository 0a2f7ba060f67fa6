"""`pettingllms list` and `pettingllms info`."""

from __future__ import annotations

import inspect
import json
from typing import Any

import click
from rich.console import Console, Group
from rich.panel import Panel

from pettingllms.cli import options
from pettingllms.cli.app import plain_table, print_json, stdout
from pettingllms.env import TextEnv, roles_of
from pettingllms.errors import MissingDependency, PettingLLMsError, counted
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
def list_command(output: str | None) -> int:
    """List the installed environments."""
    entries = [_entry(env_id) for env_id in registered_ids()]
    if output:
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
    output: str | None,
) -> int:
    """Show the page of an environment: task, roles, rewards, arguments, and what agents read."""
    env: TextEnv[Any] = make(env_id, checks=False, **options.read_pairs(env_values, "--env"))
    env.reset(seed=seed, options=options.read_reset(option_values, env))
    if output:
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
    table.add_row("a turn", f"{stages}  (at most {counted(env.max_turns, 'turn')})")
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
        "arguments": {p.name: _default_json(p) for p in _arguments(env)},
        "sections": {
            name: text.strip() for name, text in sections_of(type(env).__doc__ or "").items()
        },
        "seed": env.episode_seed,
        "messages": {agent: env.messages(agent) for agent in env.possible_agents},
    }


def _default_json(parameter: inspect.Parameter) -> Any:
    default = "required" if parameter.default is parameter.empty else parameter.default
    try:
        json.dumps(default, allow_nan=False)
    except (TypeError, ValueError):
        # Defaults may be any value, such as a class: then JSON holds how it is written.
        return repr(default)
    return default
