"""`pettingllms new`: a game that works, to adapt; `pettingllms package`: a game for a hub."""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import json
import keyword
import random
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib.metadata import distribution
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import click
from rich.console import RenderableType
from rich.panel import Panel
from rich.table import Table

import pettingllms
from pettingllms.cli import options
from pettingllms.cli.app import stdout
from pettingllms.env import TextEnv
from pettingllms.errors import InvalidArgument
from pettingllms.registry import make
from pettingllms.sources import is_source
from pettingllms.tables import visible
from pettingllms.testing import play
from pettingllms.testing.play import scripted_actor

# Hub -> folder of its templates.
HUBS = {"verifiers": "verifiers", "openenv": "openenv", "harbor": "harbor", "nemo-gym": "nemo_gym"}
# Hub -> what to do with the package.
NEXT = {
    "verifiers": "pip install -e . && vf-eval {name}   # publish: prime env push",
    "openenv": "openenv validate && openenv build      # publish: openenv push",
    "harbor": "harbor run -p . -a oracle",
    "nemo-gym": "copy the folder to resources_servers/{name} of a checkout of NeMo Gym",
}
_FIELD = re.compile(r"@(\w+)@")
_ADDRESS = re.compile(r"(\w+\+)?\w+://")
_LONGEST_NAME = 80
_VERSION = f"pettingllms=={pettingllms.__version__}"


class HubPackage(NamedTuple):
    """An environment to be packaged for a hub."""

    env_id: str
    hub: str
    """One of `HUBS`."""
    arguments: Mapping[str, Any]
    requirement: str
    """How pettingllms is installed, as pip reads it."""
    levels: int
    """Number of levels, at least 1."""
    first_seed: int
    """Seed of the first level; the others follow it by one."""

    @property
    def name(self) -> str:
        """The name of the package as a Python identifier, made of the id and the arguments.

        Packages of one environment can be installed and published side by side.
        """
        words = [f"{key}_{value}" for key, value in self.arguments.items()]
        name = re.sub(r"[^a-z0-9]+", "_", "_".join([self.env_id, *words]).lower()).strip("_")
        # Long arguments, such as prompts, exceed what file systems take as a name.
        if len(name) <= _LONGEST_NAME:
            return name
        return f"{name[:_LONGEST_NAME]}_{hashlib.sha256(name.encode()).hexdigest()[:8]}"


@click.command("package")
@click.argument("env_id", metavar="ID", shell_complete=options.complete_id)
@click.option(
    "--for", "hub", type=click.Choice(tuple(HUBS)), required=True, help="The hub or framework."
)
@options.env_option
@options.number("--levels", help="Number of levels.  [default: 1000; harbor: 10]")
@options.number("--first-seed", default=0, least=0, help="Seed of the first level.")
@click.option(
    "--requirement",
    help="How the package installs pettingllms, as pip reads it: a version, an address or a path.  "
    "[default: as it is installed here]",
)
@options.parent("the folder of the package")
def package_command(
    env_id: str,
    hub: str,
    env_values: Sequence[str],
    levels: int | None,
    first_seed: int,
    requirement: str | None,
    parent: Path,
) -> int:
    """Package an environment for a hub: verifiers, OpenEnv, Harbor or NeMo Gym."""
    package = HubPackage(
        env_id,
        hub,
        options.read_pairs(env_values, "--env"),
        as_requirement(requirement) if requirement else requirement_here(),
        levels or (10 if hub == "harbor" else 1000),
        first_seed,
    )
    written = write_hub_package(package, parent)
    console = stdout()
    for path in written:
        console.print(visible(str(path), "green"))
    if "file:" in package.requirement:
        told = (
            f"It installs {package.requirement}, which no other machine has: before you publish it"
        )
        console.print(visible(f"{told}, give --requirement an address.", "yellow"))
    console.print(
        f"\nNext:\n  cd {parent / package.name}\n  {NEXT[hub].format(name=package.name)}",
        markup=False,
        highlight=False,
    )
    return 0


def as_requirement(text: str) -> str:
    """A requirement, a path or an address of pettingllms as a requirement."""
    if Path(text).is_dir():
        return f"pettingllms @ {Path(text).resolve().as_uri()}"
    return f"pettingllms @ {text}" if _ADDRESS.match(text) else text


def requirement_here() -> str:
    """How pettingllms is installed here: by its version, or from an address or a path.

    Source:
        What installers record of addresses (PEP 610).
    """
    recorded = distribution("pettingllms").read_text("direct_url.json")
    if recorded is None:
        return _VERSION
    found = json.loads(recorded)
    version = found.get("vcs_info")
    if version is None:
        return f"pettingllms @ {found['url']}"
    return f"pettingllms @ {version['vcs']}+{found['url']}@{version['commit_id']}"


def write_hub_package(package: HubPackage, parent: Path) -> list[Path]:
    """Write a package and return its files.

    Raises:
        UnknownEnvironment: If there is no such environment.
        InvalidArgument: If the environment is a source, which is on this machine only, or refuses
            an argument, the folder exists, or a Harbor task would need several agents: one agent
            writes all answers in advance there.
    """
    if is_source(package.env_id):
        raise InvalidArgument(
            "ID",
            package.env_id,
            "the id of an installed environment",
            "The package is played on other machines: announce the game in a package of your own "
            "(entry points of the group pettingllms.envs), and name that with --requirement.",
        )
    env = make(package.env_id, checks=False, **package.arguments)
    target = parent / package.name
    if target.exists():
        raise InvalidArgument("in", str(parent), f"a folder without {package.name} in it")
    fields = _fields(package, env)
    tree = f"hubs/{HUBS[package.hub]}"
    # Harbor's unit is a task, a folder per level; other hubs install one package for all of them.
    if package.hub != "harbor":
        return list(write_tree(tree, target, partial(_filled, fields)))
    if len(env.possible_agents) > 1:
        raise InvalidArgument(
            "env",
            dict(package.arguments),
            "arguments with which one agent plays",
            "In Harbor one agent writes all answers in advance; pass --env team=single, if the "
            "environment has such a team.",
        )
    written: list[Path] = []
    for seed in range(package.first_seed, package.first_seed + package.levels):
        level = {**fields, **_level_fields(env, seed)}
        written += write_tree(tree, target / f"{package.name}_{seed}", partial(_filled, level))
    return written


def _fields(package: HubPackage, env: TextEnv[Any]) -> dict[str, str]:
    summary = inspect.cleandoc(type(env).__doc__ or package.env_id).splitlines()[0]
    return {
        "id": package.env_id,
        "id_json": json.dumps(package.env_id),
        "name": package.name,
        "dashed": package.name.replace("_", "-"),
        "summary": summary,
        "summary_json": json.dumps(summary),
        "agents": ", ".join(env.possible_agents),
        "arguments": repr(dict(package.arguments)),
        "requirement": package.requirement,
        "requirement_json": json.dumps(package.requirement),
        "requirement_shell": shlex.quote(package.requirement),
        "levels": str(package.levels),
        "first_seed": str(package.first_seed),
        "max_turns": str(env.max_turns),
        "examples": "\n".join(_examples(package, env)) if package.hub == "nemo-gym" else "",
    }


def _level_fields(env: TextEnv[Any], seed: int) -> dict[str, str]:
    """What a Harbor task says of one level."""
    env.reset(seed=seed)
    fields = {"seed": str(seed), "observation": str(env.observe(env.agent_selection))}
    answers: list[str] = []
    if "oracle" in env.scripted_policies:
        steps = play(env, scripted_actor("oracle", random.Random(seed)))
        answers = [step["action"] for step in steps]
    return {**fields, "solution": json.dumps(answers, indent=2)}


def _examples(package: HubPackage, env: TextEnv[Any]) -> Iterator[str]:
    """Yield the rows of NeMo Gym's example data, five at most."""
    # NeMo Gym sends its rows to the model's API as they are: tools as OpenAI's Responses have them.
    tool = json.loads((files("pettingllms.cli") / "hubs" / "nemo_gym_tool.json").read_text("utf-8"))
    for seed in range(package.first_seed, package.first_seed + min(5, package.levels)):
        env.reset(seed=seed)
        params = {"input": env.messages(env.agent_selection), "tools": [tool]}
        yield json.dumps({"responses_create_params": params, "seed": seed})


def _filled(fields: Mapping[str, str], text: str) -> str:
    # One pass, so that what is filled in is not searched for fields again.
    return _FIELD.sub(lambda match: fields[match[1]], text)


# The suffix of every template; keeps tools from reading them as part of this package.
SUFFIX = ".tmpl"


def write_tree(name: str, target: Path, filled: Callable[[str], str]) -> Iterator[Path]:
    """Write the files of a tree of templates of this package; yield their paths."""
    tree = files("pettingllms.cli") / name
    for entry in sorted(tree.iterdir(), key=lambda entry: entry.name):
        path = target / filled(entry.name.removesuffix(SUFFIX))
        if entry.is_dir():
            yield from write_tree(f"{name}/{entry.name}", path, filled)
        elif entry.name.endswith(SUFFIX):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(filled(entry.read_text(encoding="utf-8")), encoding="utf-8")
            # A wheel does not keep the permissions of templates.
            if path.suffix == ".sh":
                path.chmod(0o755)
            yield path


_NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
_WHAT = {
    "train.toml": "teaches it to very small models",
    "pyproject.toml": "makes it a package whose environment is found by its id",
}


@click.command("new")
@click.argument("name")
@options.parent("the folder NAME")
def new_command(name: str, parent: Path) -> int:
    """Create an environment: a game for two agents in one file, with a test and a run file.

    It works at once; its comments say what to change.
    """
    written = write_package(name, parent)
    console = stdout()
    for path in written:
        line = visible(str(path), "green")
        what = "the game: make it yours" if path.name == f"{name}.py" else _WHAT.get(path.name)
        if what:
            line.append(f"  {what}", "dim")
        console.print(line, soft_wrap=True)
    console.print(_picture(_first_turn(name, parent / name)))
    console.print(
        f"\nNext:\n  cd {parent / name}\n  pip install -e .\n  python -m pytest\n"
        f"  pettingllms eval {name}_v0 --policy oracle\n  pettingllms-train train.toml",
        markup=False,
        highlight=False,
    )
    return 0


def _first_turn(name: str, folder: Path) -> list[tuple[str, str]]:
    """(title, text) of what is read, answered and earned in the first turn of the game.

    The new package is not installed: it is imported from where it lies, and leaves no cache between
    the author's files.
    """
    writes, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        return _played(make(str(folder / f"{name}.py"), checks=False, render_mode="ansi"))
    finally:
        sys.dont_write_bytecode = writes
        # The package will be installed under this name: a later import must not find this one.
        sys.modules.pop(name, None)


def _played(env: TextEnv[Any]) -> list[tuple[str, str]]:
    env.reset(seed=7)
    rng = random.Random(0)
    shown: list[tuple[str, str]] = []
    while env.turn == 0 and not any(env.terminations.values()):
        agent = env.agent_selection
        text = env.scripted_action(agent, "oracle", rng)
        prompt = env.messages(agent)[-1]["content"]
        env.step(text)
        reward = f"reward {env.rewards[agent]:+.3f}"
        shown.append((f"{agent} reads", prompt))
        shown.append((f"{agent} answers, {reward}", text))
    return [*shown, ("the state after one turn", str(env.render()))]


def _picture(turn: list[tuple[str, str]]) -> RenderableType:
    rows = Table.grid(padding=(0, 2))
    rows.add_column(style="dim", justify="right")
    for title, text in turn:
        rows.add_row(title, visible(text.strip()))
    return Panel(rows, title="the game as it is now", title_align="left", expand=False)


def write_package(name: str, parent: Path) -> list[Path]:
    """Write the package and return its files.

    Raises:
        InvalidArgument: If the name is ill-formed or taken, or the folder exists.
    """
    if not _NAME.fullmatch(name) or keyword.iskeyword(name):
        raise InvalidArgument("name", name, "lower-case words joined by _, such as my_game")
    target = parent / name
    if target.exists():
        raise InvalidArgument("name", name, f"a name that is not taken ({target} exists)")
    # The file is imported by its name: a taken one would import, or shadow, somebody else's module.
    if name in sys.stdlib_module_names or importlib.util.find_spec(name) is not None:
        raise InvalidArgument("name", name, "a name that no installed package has")
    words = name.split("_")
    names = {
        "my_game": name,
        "my-game": "-".join(words),
        "MyGame": "".join(word.capitalize() for word in words),
    }
    return list(write_tree("template", target, partial(_named, names)))


def _named(names: Mapping[str, str], text: str) -> str:
    for placeholder, name in names.items():
        text = text.replace(placeholder, name)
    return text
