"""Where mathematical questions come from: the built-in families, or a data set."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pettingllms.errors import InvalidArgument, UnreachableRequest, suggestion
from pettingllms.splits import check_split, split_of
from pettingllms_envs.datasets import MathProblem
from pettingllms_envs.datasets.selection import draw, math_problems
from pettingllms_envs.math.families import FAMILIES, MAX_DIFFICULTY, MIN_DIFFICULTY, Family

BUILTIN = "builtin"
_MAX_DRAWS = 5000

Draw = Callable[[random.Random, Mapping[str, Any]], MathProblem]
"""Chance and the options of `reset` -> a problem."""


def problem_source(
    source: str | Sequence[MathProblem],
    split: str | None,
    schema: str | None,
    difficulty: tuple[int, int],
    families: Sequence[str] | None,
) -> Draw:
    """Return the function that draws the problem of an episode.

    Args:
        source: `"builtin"`, a file or hub data set, or problems in memory.
        split: See `math_problems`; for `"builtin"` by the content of a question; None: all.
        schema: Schema of a file or hub data set.
        difficulty: Least and greatest difficulty of built-in questions.
        families: Names of the built-in families to use; None: all.

    Raises:
        InvalidArgument: An argument is out of its range.
        UnreachableRequest: The split is empty.
    """
    if not isinstance(source, str):
        if not source:
            raise InvalidArgument("source", source, "at least one problem")
        return _from_table(source)
    if source != BUILTIN:
        return _from_table(math_problems(source, split, schema))
    low, high = difficulty
    if not MIN_DIFFICULTY <= low <= high <= MAX_DIFFICULTY:
        allowed = f"(least, greatest) from {MIN_DIFFICULTY} to {MAX_DIFFICULTY}"
        raise InvalidArgument("difficulty", difficulty, allowed)
    if split is not None:
        check_split(split)
    chosen = _chosen(families)
    return lambda rng, options: _generated(rng, options, chosen, (low, high), split)


def _from_table(problems: Sequence[MathProblem]) -> Draw:
    table = {problem.id: problem for problem in problems}
    return lambda rng, options: draw(table, rng, options)


def _chosen(names: Sequence[str] | None) -> tuple[Family, ...]:
    if names is None:
        return FAMILIES
    known = {family.name: family for family in FAMILIES}
    for name in names:
        if name not in known:
            raise InvalidArgument("families", name, ", ".join(known) + suggestion(name, known))
    if not names:
        raise InvalidArgument("families", names, "at least one of " + ", ".join(known))
    return tuple(known[name] for name in names)


def _generated(
    rng: random.Random,
    options: Mapping[str, Any],
    families: tuple[Family, ...],
    difficulty: tuple[int, int],
    split: str | None,
) -> MathProblem:
    wanted = options.get("family")
    family = rng.choice(families) if wanted is None else _chosen([wanted])[0]
    level = rng.randint(*difficulty)
    for _ in range(_MAX_DRAWS):
        params = family.sample(rng, level)
        if split is None or split_of(family.content(params)) == split:
            return MathProblem(
                id=f"{family.name}:{'/'.join(map(str, params))}",
                question=family.question(params),
                answer=family.answer(params),
                difficulty=str(level),
            )
    raise UnreachableRequest(
        f"{_MAX_DRAWS} questions of the family {family.name} at difficulty {level} held none of "
        f"split={split!r}. Choose other families or difficulties."
    )
