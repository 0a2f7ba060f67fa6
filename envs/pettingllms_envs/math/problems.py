"""Where mathematical questions come from: the built-in families, or a data set."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from pettingllms.arguments import check_choice, check_kind, check_texts, check_whole
from pettingllms.errors import InvalidArgument, UnreachableRequest
from pettingllms.seeding import check_split, split_of
from pettingllms_envs.datasets import MathProblem
from pettingllms_envs.datasets.selection import ProblemTable, check_source, problems_of
from pettingllms_envs.math.families import FAMILIES
from pettingllms_envs.math.family import MAX_DIFFICULTY, MIN_DIFFICULTY, Family

BUILTIN = "builtin"
_MAX_DRAWS = 5000
_FAMILIES: Mapping[str, Family] = {family.name: family for family in FAMILIES}

Draw = Callable[[random.Random, Mapping[str, Any]], MathProblem]
"""Chance and the options of `reset` -> a problem."""


def problem_source(
    source: str | Path | Sequence[MathProblem],
    split: str | None,
    schema: str | None,
    difficulty: tuple[int, int],
    families: Sequence[str] | None,
    play: Callable[[MathProblem], tuple[MathProblem, str]],
) -> Draw:
    """The function that draws the problem of an episode; arguments as those of `MathEnv`, checked.

    `play` plays a problem that is not built in with its own solution; see `ProblemTable`.

    Raises:
        InvalidArgument: An argument is out of its range.
        UnreachableRequest: The split is empty.
    """
    check_source(source, split, schema, MathProblem)
    chosen = _chosen(families)
    if not isinstance(source, str | Path):
        return ProblemTable(source, play).draw
    if source != BUILTIN:
        return ProblemTable(problems_of(MathProblem, str(source), split, schema), play).draw
    check_split(split)
    return lambda rng, options: _generated(rng, options, chosen, difficulty, split)


def checked_range(difficulty: object) -> tuple[int, int]:
    """A range of difficulties, refuse all else."""
    allowed = f"(minimum, maximum) from {MIN_DIFFICULTY} to {MAX_DIFFICULTY}"
    check_kind("difficulty_range", difficulty, tuple | list, allowed)
    bounds = tuple(cast("Sequence[int]", difficulty))
    for bound in bounds:
        check_whole("difficulty_range", bound, MIN_DIFFICULTY, MAX_DIFFICULTY)
    if len(bounds) != 2 or bounds[0] > bounds[1]:
        raise InvalidArgument("difficulty_range", difficulty, allowed)
    return bounds


def _chosen(names: Sequence[str] | None) -> tuple[Family, ...]:
    if names is None:
        return FAMILIES
    allowed = "None, or a sequence of at least one of " + ", ".join(_FAMILIES)
    check_texts("families", names, allowed)
    for name in names:
        check_choice("families", name, _FAMILIES)
    if not names:
        raise InvalidArgument("families", names, allowed)
    return tuple(_FAMILIES[name] for name in names)


def _generated(
    rng: random.Random,
    options: Mapping[str, Any],
    families: tuple[Family, ...],
    difficulty: tuple[int, int],
    split: str | None,
) -> MathProblem:
    wanted = options.get("family")
    check_choice("options['family']", wanted, _FAMILIES, none="any")
    family = rng.choice(families) if wanted is None else _FAMILIES[wanted]
    level = rng.randint(*difficulty)
    # Split by what is asked, not by seeds: no question of one split is drawn in another.
    for _ in range(_MAX_DRAWS):
        params = family.sample(rng, level)
        if split is None or split_of(family.content(params)) == split:
            return MathProblem(
                id=f"{family.name}:{'/'.join(map(str, params))}",
                question=family.question(params),
                answer=family.answer(params),
                difficulty=str(level),
                form=family.form,
            )
    raise UnreachableRequest(
        f"{_MAX_DRAWS} questions of the family {family.name} at difficulty {level} held none of "
        f"split={split!r}. Choose other families or difficulties."
    )
