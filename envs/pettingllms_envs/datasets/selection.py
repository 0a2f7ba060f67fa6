"""The problems that an environment draws from: a source, restricted to one split."""

from __future__ import annotations

import functools
import logging
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar, cast

from pettingllms.arguments import check_choice, check_kind
from pettingllms.errors import InvalidArgument, UnreachableRequest, suggestion
from pettingllms.seeding import check_split, split_of
from pettingllms_envs.datasets.loading import load_problems, path_of
from pettingllms_envs.datasets.records import CodeProblem, MathProblem
from pettingllms_envs.datasets.rows import SCHEMAS

_logger = logging.getLogger(__name__)

ProblemT = TypeVar("ProblemT", CodeProblem, MathProblem)


def problems_of(
    record: type[ProblemT], source: str, split: str | None, schema: str | None
) -> tuple[ProblemT, ...]:
    """The problems of a split of a source, loaded once per process.

    Args:
        record: Kind of problems.
        source: A file or hub data set; see `read_rows`.
        split: Hub: the data set's own split, required. File: `"train"`, `"validation"` or `"test"`
            is a share of the file decided by the problems' ids, so that one file never serves to
            train and to test; None is the whole file.
        schema: One of `SCHEMAS`; None: recognised by the fields.

    Raises:
        InvalidArgument: As in `load_problems`, or the split is none.
        UnreachableRequest: No problem of the file falls into the split.
    """
    path = path_of(source)
    if not path.is_file():
        return _loaded(record, source, split, schema, 0)
    # A file is read once for all splits and environments of a process.
    problems = _loaded(record, source, None, schema, path.stat().st_mtime_ns)
    check_split(split)
    if split is None:
        return problems
    chosen = tuple(p for p in problems if split_of(p.id.encode()) == split)
    if not chosen:
        raise UnreachableRequest(
            f"none of the {len(problems)} problems falls into split={split!r}. Use split=None (in "
            'a run file "all") for all of them, or a larger file.'
        )
    return chosen


def check_source(source: object, split: object, schema: object, record: type) -> None:
    """Refuse a source of the wrong kind: no name and no path, nor problems (`record`) in memory."""
    check_kind("split", split, str | None, "None or the name of a split")
    check_choice("schema", schema, SCHEMAS, none="recognised by the fields")
    if isinstance(source, str | Path):
        return
    allowed = f"a name, the path of a file, or a sequence of at least one {record.__name__}"
    check_kind("source", source, Sequence, allowed)
    problems = cast("Sequence[object]", source)
    for problem in problems:
        check_kind("source", problem, record, allowed)
    if not problems:
        raise InvalidArgument("source", source, allowed)


@functools.lru_cache(maxsize=16)
def _loaded(record: Any, source: str, split: str | None, schema: str | None, version: int) -> Any:
    del version  # a changed file is another entry of the cache
    loaded = load_problems(record, source, split=split, schema=schema)
    for reason, rows in loaded.skipped.items():
        _logger.info("%s: %d of %d rows left out: %s", source, len(rows), loaded.num_rows, reason)
    return loaded.problems


def of_difficulty(problems: Sequence[ProblemT], labels: Sequence[str]) -> tuple[ProblemT, ...]:
    """The problems of the given difficulties, in the source's own words.

    Raises:
        InvalidArgument: There is none of one of them.
    """
    known = sorted({problem.difficulty for problem in problems})
    # An empty list leaves no problem either.
    for label in labels or [None]:
        check_choice("labels", label, known)
    return tuple(problem for problem in problems if problem.difficulty in labels)


class ProblemTable(Mapping[str, ProblemT]):
    """Problems by id, each played with its own solution when it is first wanted.

    Args:
        problems: The problems.
        play: A problem -> the problem as its own solution solves it, and why that solves none of
            it, or ""; None for problems that were played when they were written.
    """

    def __init__(
        self,
        problems: Sequence[ProblemT],
        play: Callable[[ProblemT], tuple[ProblemT, str]] | None,
    ) -> None:
        self._problems = {problem.id: problem for problem in problems}
        self._play = play
        self._played: dict[str, tuple[ProblemT, str]] = {}

    def __getitem__(self, name: str) -> ProblemT:
        return self._of(name)[0]

    def __iter__(self) -> Iterator[str]:
        return iter(self._problems)

    def __len__(self) -> int:
        return len(self._problems)

    def __deepcopy__(self, memo: object) -> Self:
        # Copies of an environment share what was found; it is the same for all of them.
        return self

    def _of(self, name: str) -> tuple[ProblemT, str]:
        if self._play is None:
            return self._problems[name], ""
        if name not in self._played:
            found = self._played[name] = self._play(self._problems[name])
            if found[1]:
                _logger.warning("problem %s is left out: %s", name, found[1])
        return self._played[name]

    def draw(self, rng: random.Random, options: Mapping[str, Any]) -> ProblemT:
        """The problem that `options["problem"]` names, or a random one that can be solved.

        Raises:
            InvalidArgument: There is no such problem, or its own solution does not solve it.
            UnreachableRequest: No problem is solved by its own solution.
        """
        wanted = options.get("problem")
        if wanted is not None:
            allowed = f"the id of one of {len(self)} problems"
            if not isinstance(wanted, str) or wanted not in self:
                allowed += suggestion(wanted, self)
                raise InvalidArgument("options['problem']", wanted, allowed)
            problem, reason = self._of(wanted)
            if reason:
                raise InvalidArgument(
                    "options['problem']", wanted, allowed, f"Of this one {reason}."
                )
            return problem
        names, reason = list(self), ""
        while names:
            name = rng.choice(names)
            problem, reason = self._of(name)
            if not reason:
                return problem
            names.remove(name)
        raise UnreachableRequest(
            f"none of the {len(self)} problems can be used; of the last one {reason}. "
            "`pettingllms data check` reports them all."
        )
