"""Where programming problems come from: the built-in ones, or a data set."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import Final

from pettingllms.arguments import check_choice, check_texts, check_whole
from pettingllms.errors import InvalidArgument, UnreachableRequest
from pettingllms.seeding import check_split, split_of
from pettingllms_envs.datasets import CodeProblem, load_code_problems
from pettingllms_envs.datasets.selection import check_source, code_problems, of_difficulty

BUILTIN = "builtin"
DIFFICULTIES: Final = ("introductory", "easy", "medium", "hard")


@functools.cache
def builtin_problems() -> Mapping[str, CodeProblem]:
    """The problems written for this project, by id, in a fixed order.

    The outputs of their tests were computed by a second program, independent of `solution`.
    """
    # Read when a problem is first asked for: an import of the package costs nothing.
    path = resources.files("pettingllms_envs.code").joinpath("builtin.jsonl")
    # Shared by all environments of the process, none of which may change it.
    return MappingProxyType({p.id: p for p in load_code_problems(str(path)).problems})


def problem_table(
    source: str | Path | Sequence[CodeProblem],
    split: str | None,
    schema: str | None,
    labels: str | Sequence[str] | None,
    max_tests: int | None,
) -> Mapping[str, CodeProblem]:
    """The problems of an environment, by id; arguments as those of `CodeEnv`.

    Raises:
        InvalidArgument: An argument is out of its range.
        UnreachableRequest: No problem is left.
    """
    if max_tests is not None:
        check_whole("max_tests", max_tests, 1)
    wanted = (labels,) if isinstance(labels, str) else labels
    if wanted is not None:
        check_texts("labels", wanted, "None, a difficulty, or a sequence of difficulties")
    check_source(source, split, schema, CodeProblem)
    if source == BUILTIN:
        problems = _selected_builtin(split, wanted)
    elif isinstance(source, str | Path):
        problems = code_problems(str(source), split, schema)
    else:
        problems = tuple(source)
        for problem in problems:
            if not problem.tests:
                raise InvalidArgument("source", problem, "problems with at least one golden test")
    if wanted is not None and source != BUILTIN:
        problems = of_difficulty(problems, wanted)
    # Tests are cut here, so that worth and rewards are over what is run.
    return {p.id: p._replace(tests=p.tests[:max_tests]) for p in problems}


def _selected_builtin(split: str | None, labels: Sequence[str] | None) -> tuple[CodeProblem, ...]:
    for name in labels or ():
        check_choice("labels", name, DIFFICULTIES)
    check_split(split)
    chosen = tuple(
        problem
        for problem in builtin_problems().values()
        if split in (None, split_of(problem.id.encode()))
        and (labels is None or problem.difficulty in labels)
    )
    if not chosen:
        raise UnreachableRequest(
            f"no built-in problem has split={split!r} and labels={labels!r}. "
            "Allow more difficulties, or use split=None."
        )
    return chosen
