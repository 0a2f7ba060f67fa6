"""Where programming problems come from: the built-in exercises, or a data set."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence

from pettingllms.errors import InvalidArgument, UnreachableRequest
from pettingllms.splits import check_split, split_of
from pettingllms_envs.code.builtin import DIFFICULTIES, EXERCISES, Exercise
from pettingllms_envs.datasets import CodeProblem, CodeTest
from pettingllms_envs.datasets.selection import code_problems, of_difficulty

BUILTIN = "builtin"

_EXERCISES: Mapping[str, Exercise] = {exercise.id: exercise for exercise in EXERCISES}


class _Builtin(Mapping[str, CodeProblem]):
    """Built-in problems by id; each is worked out when it is first looked up."""

    def __init__(self, ids: Sequence[str]) -> None:
        self._ids = dict.fromkeys(ids)

    def __getitem__(self, problem_id: str) -> CodeProblem:
        if problem_id not in self._ids:
            raise KeyError(problem_id)
        return builtin_problem(problem_id)

    def __iter__(self) -> Iterator[str]:
        return iter(self._ids)

    def __len__(self) -> int:
        return len(self._ids)


@functools.cache
def builtin_problem(problem_id: str) -> CodeProblem:
    """Return a built-in problem; `problem_id` is the id of one of `EXERCISES`."""
    exercise = _EXERCISES[problem_id]
    shown = CodeTest(exercise.example + "\n", exercise.answer(exercise.example))
    hidden = (text for text in exercise.hidden_inputs() if text.split() != shown.input.split())
    return CodeProblem(
        id=exercise.id,
        statement=exercise.statement(),
        tests=tuple(CodeTest(text, exercise.answer(text)) for text in hidden),
        public_tests=(shown,),
        solution=exercise.reference(),
        wrong_programs=exercise.wrong_programs(),
        time_limit_s=exercise.time_limit_s,
        difficulty=exercise.difficulty,
    )


def problem_table(
    source: str | Sequence[CodeProblem],
    split: str | None,
    schema: str | None,
    difficulty: str | Sequence[str] | None,
    max_tests: int | None,
) -> Mapping[str, CodeProblem]:
    """Return the problems of an environment, by id.

    Args:
        source: `"builtin"`, a file or hub data set, or problems in memory.
        split: See `code_problems`; None: all.
        schema: Schema of a file or hub data set.
        difficulty: Difficulties to keep, in the source's own words; None: all.
        max_tests: Most golden tests of a problem that are used, the first ones; None: all.

    Raises:
        InvalidArgument: An argument is out of its range.
        UnreachableRequest: No problem is left.
    """
    if max_tests is not None and max_tests < 1:
        raise InvalidArgument("max_tests", max_tests, "None or a whole number of at least 1")
    kept = (difficulty,) if isinstance(difficulty, str) else difficulty
    if source == BUILTIN and max_tests is None:
        return _Builtin(_builtin_ids(split, kept))
    if isinstance(source, str):
        problems = (
            tuple(_Builtin(_builtin_ids(split, kept)).values())
            if source == BUILTIN
            else code_problems(source, split, schema)
        )
    else:
        problems = tuple(source)
        if not problems:
            raise InvalidArgument("source", source, "at least one problem")
    if kept is not None:
        problems = of_difficulty(problems, kept)
    return {p.id: p._replace(tests=p.tests[:max_tests]) for p in problems}


def _builtin_ids(split: str | None, difficulty: Sequence[str] | None) -> list[str]:
    for name in difficulty or ():
        if name not in DIFFICULTIES:
            raise InvalidArgument("difficulty", name, ", ".join(DIFFICULTIES))
    if split is not None:
        check_split(split)
    ids = [
        exercise.id
        for exercise in EXERCISES
        if split in (None, split_of(exercise.id.encode()))
        and (difficulty is None or exercise.difficulty in difficulty)
    ]
    if not ids:
        raise UnreachableRequest(
            f"no built-in problem has split={split!r} and difficulty={difficulty!r}. "
            "Allow more difficulties, or use split=None."
        )
    return ids
