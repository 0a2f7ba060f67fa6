"""Which run files come with the package, and copies of them: `pettingllms-train recipes`."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

from pettingllms_trainers.config.loading import (
    PREFIX,
    Recorded,
    read_recipe,
    recipe_names,
    recipe_path,
    team_of,
)
from pettingllms_trainers.errors import ConfigError

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
    lines = [f"\n  {name}", f"{known.task}; team: {', '.join(team_of(rest))}"]
    if known.planned:
        number = known.planned.gpus
        lines.append(f"planned for {number} GPU{'s' * (number > 1)} of 80 GB, never run")
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
