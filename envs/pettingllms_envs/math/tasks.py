"""Tasks of the package reasoning-gym: its questions, its scorers, its curricula as difficulties."""

from __future__ import annotations

import random
import tomllib
import warnings
from collections.abc import Mapping
from functools import cache, lru_cache
from importlib import import_module, resources
from typing import Any, NamedTuple

from pettingllms.errors import (
    InvalidArgument,
    MissingDependency,
    UnreachableRequest,
    suggestion,
)
from pettingllms.seeding import check_split, split_of
from pettingllms_envs.datasets import MathProblem
from pettingllms_envs.math.family import MAX_DIFFICULTY, MIN_DIFFICULTY
from pettingllms_envs.math.notation import MAX_ANSWER_CHARS
from pettingllms_envs.math.verifier import Outcome, Verdict

PREFIX = "reasoning_gym:"
"""Begins the sources of this module: `reasoning_gym:NAME`."""
NUM_ITEMS = 1_000_000
"""Questions of a task and a difficulty, over all splits."""
_REASONS: Mapping[str, list[str]] = tomllib.loads(
    resources.files("pettingllms_envs.math").joinpath("refused_tasks.toml").read_text("utf-8")
)
REFUSED: Mapping[str, str] = {name: why for why, names in _REASONS.items() for name in names}
"""Task -> why it is not played."""

_MAX_DRAWS = 500


class Tasks(NamedTuple):
    """The questions of one task in one split, and their verdicts."""

    name: str
    split: str | None
    difficulty: tuple[int, int]

    def draw(self, rng: random.Random, options: Mapping[str, Any]) -> MathProblem:
        """A question by chance. Tasks have no options of `reset`.

        Raises:
            UnreachableRequest: If the split seems to be empty.
        """
        level = rng.randint(*self.difficulty)
        # reasoning-gym knows no splits: questions are drawn until one belongs to it.
        for _ in range(_MAX_DRAWS):
            number = rng.randrange(NUM_ITEMS)
            found = _item(self.name, level, number)
            if self.split is None or split_of(found["question"].encode()) == self.split:
                return MathProblem(
                    id=f"{self.name}:{level}:{number}",
                    question=found["question"],
                    answer=found["answer"],
                    difficulty=str(level),
                )
        raise UnreachableRequest(
            f"{_MAX_DRAWS} questions of {PREFIX}{self.name} at difficulty {level} held none of "
            f"split={self.split!r}; choose another difficulty or split"
        )

    def judge(self, problem: MathProblem, answer: str) -> Verdict:
        """The verdict of the task's own scorer: right if it gives the full score."""
        if len(answer) > MAX_ANSWER_CHARS:
            return Verdict(Outcome.UNPARSABLE, f"longer than {MAX_ANSWER_CHARS} characters")
        name, level, number = problem.id.split(":")
        entry = _item(name, int(level), int(number))
        try:
            score = _dataset(name, int(level)).score_answer(answer, entry)
        except Exception as error:  # noqa: BLE001  scorers of others; an answer is never an error
            return Verdict(Outcome.VERIFIER_FAILED, f"{type(error).__name__}: {error}")
        return Verdict(Outcome.CORRECT if score >= 1 else Outcome.WRONG, f"score {score:g}")


def is_task(source: object) -> bool:
    """Whether a source names a task of reasoning-gym."""
    return isinstance(source, str) and source.startswith(PREFIX)


def same_text(first: str, second: str) -> bool:
    """Whether two answers are the same but for case and white space."""
    return first.casefold().split() == second.casefold().split()


def tasks_of(source: object, split: str | None, difficulty: tuple[int, int]) -> Tasks | None:
    """The tasks of a source `reasoning_gym:NAME`; None if it is another kind of source.

    A question's text decides on its split. Of `difficulty`, from 1 to 5, all attributes of the
    task's curriculum go from their lowest level to their highest one; a fixed value is a fixed
    difficulty.

    Raises:
        MissingDependency: If reasoning-gym is not installed.
        InvalidArgument: If there is no such task, or it is refused; says why.
    """
    if not is_task(source):
        return None
    check_split(split)
    name = str(source).removeprefix(PREFIX)
    known = [one for one in _library("factory").CURRICULA if one not in REFUSED]
    if name in REFUSED:
        raise InvalidArgument("source", source, "another task", f"{name}: {REFUSED[name]}.")
    if name not in known:
        raise InvalidArgument("source", source, ", ".join(known) + suggestion(name, known))
    return Tasks(name, split, difficulty)


def _library(module: str) -> Any:
    # No test and no run may depend on when a library was first imported.
    chance = random.getstate()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what it depends on
            return import_module(f"reasoning_gym.{module}")
    except ModuleNotFoundError as error:
        raise MissingDependency("tasks of reasoning_gym", "reasoning-gym", "tasks") from error
    finally:
        random.setstate(chance)  # importing it draws from the global generator


@cache
def _dataset(name: str, difficulty: int) -> Any:
    """The generator and scorer of a task at a difficulty."""
    factory = _library("factory")
    curriculum = factory.create_curriculum(name)
    share = (difficulty - MIN_DIFFICULTY) / (MAX_DIFFICULTY - MIN_DIFFICULTY)
    for attribute, values in curriculum.attributes.items():
        curriculum.set_attr_level(attribute, round(share * (len(values.levels) - 1)))
    config = curriculum.generate_configuration({"seed": 0, "size": NUM_ITEMS})
    return factory.DATASETS[name][0](config)


@lru_cache(maxsize=1024)
def _item(name: str, difficulty: int, number: int) -> Any:
    return _dataset(name, difficulty)[number]
