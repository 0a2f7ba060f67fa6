"""Where programming problems come from: the built-in exercises, or a data set."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from pettingllms.arguments import check_choice, check_texts, check_whole
from pettingllms.errors import InvalidArgument, UnreachableRequest
from pettingllms.splits import check_split, split_of
from pettingllms_envs.code.builtin import DIFFICULTIES, EXERCISES, Exercise
from pettingllms_envs.datasets import CodeProblem, CodeTest
from pettingllms_envs.datasets.selection import check_source, code_problems, of_difficulty

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
    source: str | Path | Sequence[CodeProblem],
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
        max_tests: Maximum number of golden tests of a problem, the first ones; None: all.

    Raises:
        InvalidArgument: An argument is out of its range.
        UnreachableRequest: No problem is left.
    """
    if max_tests is not None:
        check_whole("max_tests", max_tests, 1)
    kept = (difficulty,) if isinstance(difficulty, str) else difficulty
    if kept is not None:
        check_texts("difficulty", kept, "None, a difficulty, or a sequence of difficulties")
    check_source(source, split, schema, CodeProblem)
    if source == BUILTIN and max_tests is None:
        return _Builtin(_builtin_ids(split, kept))
    if source == BUILTIN:
        problems = tuple(_Builtin(_builtin_ids(split, kept)).values())
    elif isinstance(source, str | Path):
        problems = code_problems(str(source), split, schema)
    else:
        problems = tuple(source)
        for problem in problems:
            if not problem.tests:
                raise InvalidArgument("source", problem, "problems with at least one golden test")
    if kept is not None:
        problems = of_difficulty(problems, kept)
    return {p.id: p._replace(tests=p.tests[:max_tests]) for p in problems}


def _builtin_ids(split: str | None, difficulty: Sequence[str] | None) -> list[str]:
    for name in difficulty or ():
        check_choice("difficulty", name, DIFFICULTIES)
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
