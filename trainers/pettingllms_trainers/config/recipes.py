"""Run files that come with the package: `recipe:NAME` names one, wherever a run file is named."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError

from pettingllms_trainers.config.section import Section
from pettingllms_trainers.errors import ConfigError

PREFIX = "recipe:"
"""What the name of a run file begins with when it comes with the package."""
TABLE = "recipe"
"""Key of the table in a run file that says what is known about it."""

_FOLDER = Path(str(files("pettingllms_trainers"))) / "recipes"
_Share = Annotated[float, Field(ge=0, le=1)]


class Recorded(Section):
    """What training with a recipe gave, over several seeds on two CPU cores."""

    seeds: int = Field(ge=1)
    """Runs."""
    minutes: float = Field(gt=0)
    """Time of the fastest run; others shared the machine."""
    cpu_minutes: float = Field(gt=0)
    """Processor time, all threads together: that of the median run."""
    before: tuple[_Share, _Share]
    """Held-out success of greedy play after the warm start, lowest and highest run."""
    after: tuple[_Share, _Share]
    """Held-out success of greedy play in the end, lowest and highest run."""


class Planned(Section):
    """What a recipe is made for that has never run."""

    gpus: int = Field(ge=1)
    """GPUs of 80 GB, for which the dry run says that it fits."""
    start: str = Field(min_length=1)
    """Command that starts it."""


class Recipe(Section):
    """What is known about a run file: the table [recipe]. It changes nothing in a run."""

    task: str = Field(min_length=1)
    """What is learnt, or what a part of a run file is for."""
    needs: str = ""
    """What must be there before; empty: nothing."""
    recorded: Recorded | None = None
    """What came of it; None: no run is recorded."""
    planned: Planned | None = None
    """For recipes that need more than two cores; None: it does not."""


def recipe_names() -> list[str]:
    """Return the names of all recipes, parts that are laid over another one included."""
    return sorted(
        path.relative_to(_FOLDER).with_suffix("").as_posix() for path in _FOLDER.rglob("*.toml")
    )


def recipe_path(name: str) -> Path:
    """Return the file of a recipe.

    Raises:
        ConfigError: There is none of this name.
    """
    known = recipe_names()
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {PREFIX}{near[0]}?" if near else f"there are: {', '.join(known)}"
        raise ConfigError(f"there is no {PREFIX}{name}; {hint}")
    return _FOLDER / f"{name}.toml"


def read_recipe(name: str) -> tuple[Recipe, dict[str, Any]]:
    """Return what is known about a recipe, and the rest of its file."""
    path = recipe_path(name)
    table = tomllib.loads(path.read_text(encoding="utf-8"))
    return recipe_of(table.pop(TABLE), PREFIX + name), table


def recipe_of(table: Any, source: str) -> Recipe:
    """Return the checked table [recipe] of a run file.

    Raises:
        ConfigError: A key is unknown, missing or wrong.
    """
    try:
        return Recipe.model_validate(table)
    except ValidationError as error:
        problems = "; ".join(
            f"'{'.'.join(map(str, (TABLE, *detail['loc'])))}': {detail['msg']}"
            for detail in error.errors()
        )
        raise ConfigError(f"{source}: {problems}. The table may be left out") from None


def team_of(table: Mapping[str, Any]) -> list[str]:
    """Return the roles of a run file; of several environments each role once."""
    return list(dict.fromkeys(role.rpartition(".")[2] for role in table.get("roles", {})))
