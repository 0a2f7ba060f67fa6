"""Where programming problems come from: the built-in ones, or a data set."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from types import MappingProxyType

from pettingllms.arguments import check_texts, check_whole
from pettingllms.errors import InvalidArgument
from pettingllms_envs.datasets import CodeProblem
from pettingllms_envs.datasets.selection import (
    ProblemTable,
    check_source,
    of_difficulty,
    problems_of,
)

BUILTIN = "builtin"
_PATH = str(resources.files("pettingllms_envs.code").joinpath("builtin.jsonl"))


@functools.cache
def builtin_problems() -> Mapping[str, CodeProblem]:
    """The problems written for this project, by id, in a fixed order.

    The outputs of their tests were computed by a second program, independent of `solution`.
    """
    # Shared by all environments of the process, none of which may change it.
    return MappingProxyType({p.id: p for p in problems_of(CodeProblem, _PATH, None, None)})


def problem_table(
    source: str | Path | Sequence[CodeProblem],
    split: str | None,
    schema: str | None,
    labels: str | Sequence[str] | None,
    max_tests: int | None,
    play: Callable[[CodeProblem], tuple[CodeProblem, str]] | None = None,
) -> ProblemTable[CodeProblem]:
    """The problems of an environment, by id; arguments as those of `CodeEnv`.

    `play` plays a problem that is not built in with its own solution; see `ProblemTable`.

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
    if isinstance(source, str | Path):
        path = _PATH if source == BUILTIN else str(source)
        problems = problems_of(CodeProblem, path, split, schema)
    else:
        problems = tuple(source)
        for problem in problems:
            if not problem.tests:
                raise InvalidArgument("source", problem, "problems with at least one golden test")
    if wanted is not None:
        problems = of_difficulty(problems, wanted)
    # Tests are cut here, so that worth and rewards are over what is run.
    cut = [p._replace(tests=p.tests[:max_tests]) for p in problems]
    return ProblemTable(cut, None if source == BUILTIN else play)
