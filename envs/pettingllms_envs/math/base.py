"""What `MathEnv` and `MathEnsembleEnv` share: problems, attempts, their costs and verdicts.

Questions come from the built-in families, a data set, or the tasks of the package reasoning-gym.
"""

from __future__ import annotations

import functools
import random
import warnings
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, cast

from pettingllms.arguments import check_choice, check_kind, check_texts, check_whole
from pettingllms.env import ShellArguments, TextEnv
from pettingllms.errors import (
    InvalidArgument,
    MissingDependency,
    SandboxError,
    UnreachableRequest,
    suggestion,
)
from pettingllms.files import packaged
from pettingllms.hooks import Difficulty
from pettingllms.parsing import boxed_answer, lines_of, one_line
from pettingllms.prompts import PromptTemplate, resolve_prompts
from pettingllms.sandbox import Limits, Sandbox, Status, default_sandbox
from pettingllms.seeding import check_split, split_of
from pettingllms.types import ParseError, Transition, role_of, to_jsonable
from pettingllms_envs import datasets
from pettingllms_envs.datasets import MathProblem
from pettingllms_envs.datasets.loading import ProblemTable, check_source, problems_of
from pettingllms_envs.math.families import FAMILIES, MAX_DIFFICULTY, MIN_DIFFICULTY, Family
from pettingllms_envs.math.notation import MAX_ANSWER_CHARS, last_printed
from pettingllms_envs.math.rules import (
    Attempt,
    Equivalent,
    MathState,
    handed_in,
    next_turn,
    value_of,
    with_attempt,
)
from pettingllms_envs.math.text import (
    FIELDS,
    WORKED,
    Solution,
    board,
    excerpt,
    fields,
    read_solution,
    task_prompts,
    worked_answer,
)
from pettingllms_envs.math.verifier import Outcome, Verdict, Verifier, default_verifier

PREFIX = "reasoning_gym:"
"""Begins the sources of this module: `reasoning_gym:NAME`."""
NUM_ITEMS = 1_000_000
"""Questions of a task and a difficulty, over all splits."""
_REASONS: Mapping[str, list[str]] = packaged("pettingllms_envs.math", "refused_tasks.toml")
REFUSED: Mapping[str, str] = {name: why for why, names in _REASONS.items() for name in names}
"""Task -> why it is not played."""

_MAX_TASKS = 500


class Tasks(NamedTuple):
    """The questions of one task of reasoning-gym in one split, and their verdicts."""

    name: str
    """Name of the task, without `PREFIX`."""
    split: str | None
    """Split that questions are drawn from; None: all."""
    difficulty: tuple[int, int]
    """Minimum and maximum difficulty, each from 1 to 5."""

    def draw(self, rng: random.Random, options: Mapping[str, Any]) -> MathProblem:
        """A question by chance. Tasks have no options of `reset`.

        Raises:
            UnreachableRequest: If the split seems to be empty.
        """
        level = rng.randint(*self.difficulty)
        # reasoning-gym knows no splits: questions are drawn until one belongs to it.
        for _ in range(_MAX_TASKS):
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
            f"{_MAX_TASKS} questions of {PREFIX}{self.name} at difficulty {level} held none of "
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
    if source != BUILTIN:
        return ProblemTable(problems_of(MathProblem, source, split, schema), play).draw
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


NO_ANSWER_COST = -0.25
"""Local reward of an attempt without a readable answer, divided by the number of turns."""

MAX_FAILURES = 2
"""Comparisons between the answers of one turn that may exceed the verifier's limit."""

TOOL_LIMITS = Limits(wall_s=10.0, cpu_s=8.0, output_bytes=1 << 16)
"""What a tool's program may use."""


def played(verifier: Verifier, problem: MathProblem) -> tuple[MathProblem, str]:
    """A problem, and why its own answer or solution would not count as right, or ""."""
    boxed = boxed_answer(problem.solution or "")
    for said, reason in (
        (problem.answer, "its own answer is not accepted as right"),
        (boxed, "its own solution ends with another answer"),
    ):
        verdict = _verdict(verifier, problem, said or problem.answer)
        # What the verifier could not decide says nothing about the row.
        if verdict.outcome not in (Outcome.CORRECT, Outcome.VERIFIER_FAILED):
            return problem, reason
    return problem, ""


def _verdict(verifier: Verifier, problem: MathProblem, answer: str) -> Verdict:
    unit, tolerance, form = problem.unit, problem.tolerance, problem.form
    return verifier.judge(problem.answer, answer, unit=unit, tolerance=tolerance, form=form)


class AnswerArguments(ShellArguments, total=False):
    """Arguments of `AnswerEnv` that `MathEnv` and `MathEnsembleEnv` take and hand on to it."""

    source: str | Path | Sequence[MathProblem]
    split: str | None
    schema: str | None
    difficulty_range: tuple[int, int]
    families: Sequence[str] | None
    history: int
    sandbox: Sandbox | None
    verifier: Verifier | None


class AnswerEnv(TextEnv[MathState]):
    """Base of the environments in which agents answer a mathematical question.

    Args:
        stages: As in `TextEnv`; the standing answer of the last agent is handed in.
        templates: Role -> prompt for questions that are not tasks.
        max_turns: Turns of an episode.
        is_paid_twice: Whether the last agent earns its rises as local rewards, too, and not only
            for the team.
        source: Where the problems come from; see `problem_source`.
        split: Split of the source.
        schema: Schema of a file or hub data set.
        difficulty_range: Minimum and maximum difficulty of built-in questions.
        families: Built-in families to use.
        history: Number of past turns that prompts show.
        sandbox: Runs the tools' programs; None: the shared one.
        verifier: Compares answers; None: the shared one.
        **shell: Further arguments of `TextEnv`.

    Raises:
        InvalidArgument: An argument is out of its range.
        MissingDependency: math-verify is not installed.
    """

    prompt_fields: ClassVar[Mapping[str, str]] = FIELDS
    solves_in_one_turn: ClassVar[bool] = True
    data_checks: ClassVar[Any] = datasets
    difficulties: ClassVar[Difficulty] = Difficulty(
        {
            "easy": {"difficulty_range": [1, 2]},
            "medium": {"difficulty_range": [3, 3]},
            "hard": {"difficulty_range": [4, 4]},
            "expert": {"difficulty_range": [5, 5]},
        }
    )

    @staticmethod
    def played(problem: MathProblem) -> tuple[MathProblem, str]:
        """A problem, and why its own answer or solution would not count as right, or "".

        Raises:
            MissingDependency: math-verify is not installed.
        """
        return played(default_verifier(), problem)

    def __init__(
        self,
        *,
        stages: Sequence[Sequence[str]],
        templates: Mapping[str, PromptTemplate],
        max_turns: int,
        is_paid_twice: bool,
        source: str | Path | Sequence[MathProblem] = "builtin",
        split: str | None = "train",
        schema: str | None = None,
        difficulty_range: tuple[int, int] = (1, 5),
        families: Sequence[str] | None = None,
        history: int = 3,
        sandbox: Sandbox | None = None,
        verifier: Verifier | None = None,
        prompts: Mapping[str, Any] | None = None,
        **shell: Any,
    ) -> None:
        check_whole("history", history, 1)
        check_kind("sandbox", sandbox, Sandbox | None, "None or a pettingllms.sandbox.Sandbox")
        check_kind("verifier", verifier, Verifier | None, "None or a Verifier")
        shown = task_prompts(templates) if is_task(source) else templates
        prompts = resolve_prompts(shown, prompts, self.prompt_fields)
        super().__init__(stages=stages, max_turns=max_turns, prompts=prompts, **shell)
        self._counting_agent = stages[-1][-1]
        self._is_paid_twice = is_paid_twice
        bounds = checked_range(difficulty_range)
        self._tasks = tasks_of(source, split, bounds)
        # Tasks have scorers of their own: they need no verifier, and not its library.
        if self._tasks is None:
            self._verifier = verifier or default_verifier()
            play = functools.partial(played, self._verifier)
            self._draw = problem_source(source, split, schema, bounds, families, play)
        else:
            self._draw = self._tasks.draw
        self._is_builtin = source == BUILTIN
        self._history = history
        self._sandbox = sandbox or default_sandbox()

    def _generate(self, rng: random.Random, options: Mapping[str, Any]) -> MathState:
        return MathState(self._draw(rng, options))

    def _fields(self, state: MathState, agent: str, turn: int) -> Mapping[str, object]:
        return fields(state, self.max_turns)

    def _parse(self, state: MathState, agent: str, text: str) -> Solution | ParseError:
        return read_solution(text, is_program=role_of(agent) == "tool")

    def _state_json(self, state: MathState) -> Any:
        # How an answer is judged or comes about is not part of what a level is.
        found = to_jsonable(state)
        del found["problem"]["form"], found["problem"]["solution"]
        return found

    def _worked(self, state: MathState, agent: str, answer: str) -> Sequence[str]:
        found = worked_answer(state.problem, self._is_builtin, agent, answer)
        if found is None:
            allowed = (
                f"0 for problems that come without a solution, as {state.problem.id} does; the "
                f"families that come with one are {', '.join(WORKED)}"
            )
            raise InvalidArgument("solved_share", self.solved_share, allowed)
        return lines_of(found)

    def _ansi(self, state: MathState) -> str:
        return board(state)

    def _act(self, state: MathState, agent: str, action: Solution | ParseError) -> Transition:
        attempt, info = self._attempt(state, agent, action)
        after = with_attempt(state, attempt)
        rise = value_of(after, agent) - value_of(state, agent)
        local = NO_ANSWER_COST / self.max_turns if attempt.answer is None else 0.0
        if agent != self._counting_agent:
            return Transition(after, 0.0, rise + local, info=info)
        local += rise * self._is_paid_twice
        is_settled, facts = self._closing(state, after)
        info |= facts | {"final_answer": None}
        if not is_settled and state.turn + 1 < self.max_turns:
            return Transition(next_turn(after, self._history), rise, local, info=info)
        after = handed_in(after, agent)
        info["final_answer"] = after.final_answer
        success = value_of(after, agent) == 1
        return Transition(after, rise, local, terminated=True, success=success, info=info)

    @abstractmethod
    def _closing(self, before: MathState, after: MathState) -> tuple[bool, dict[str, Any]]:
        """Whether a turn settles the answer before the turns are over, and facts for `infos`."""

    def _attempt(
        self, state: MathState, agent: str, action: Solution | ParseError
    ) -> tuple[Attempt, dict[str, Any]]:
        """What an action amounts to, and the facts about it for `infos`."""
        info: dict[str, Any] = {"answer": None, "verdict": "", "problem": state.problem.id}
        if isinstance(action, ParseError):
            return Attempt(agent, None, "", action.reason, ""), info
        answer, report = action.answer, "ok"
        if role_of(agent) == "tool":
            answer, report = self._run(action.text)
            info["execution"] = report
        work = excerpt(action.text)
        if answer is None:
            return Attempt(agent, None, work, report, ""), info
        # Judged at once, for the local reward; no prompt ever shows it.
        if self._tasks is not None:
            verdict = self._tasks.judge(state.problem, answer)
        else:
            verdict = _verdict(self._verifier, state.problem, answer)
        info |= {"answer": answer, "verdict": str(verdict.outcome)}
        return Attempt(agent, answer, work, report, str(verdict.outcome)), info

    def _run(self, program: str) -> tuple[str | None, str]:
        """The answer that a program prints, or None, and how it ended."""
        result = self._sandbox.run(program, limits=TOOL_LIMITS)
        if result.status is Status.SANDBOX_ERROR:
            raise SandboxError(f"the sandbox failed: {one_line(result.stderr, 500)}")
        if result.status is not Status.OK:
            # The last line of a traceback names the error; the rest would fill the team's prompts.
            cause = one_line(last_printed(result.stderr) or "", 200)
            return None, f"{result.status}: {cause}" if cause else str(result.status)
        # Answers of tasks may have several lines: boards, grids, matrices.
        whole = result.stdout.strip() or None
        answer = last_printed(result.stdout) if self._tasks is None else whole
        if answer is None:
            return None, "the program printed nothing"
        if len(answer) > MAX_ANSWER_CHARS:
            return None, f"what is printed last is longer than {MAX_ANSWER_CHARS} characters"
        return answer, "ok"

    def _guess(self, state: MathState, rng: random.Random) -> str:
        """The answer of another question; 0 where the same one is drawn twice."""
        # A generator with the seed of the episode would draw the question of the episode first.
        drawn = (self._draw(rng, {}) for _ in range(2))
        return next((p.answer for p in drawn if p.id != state.problem.id), "0")

    def _is_terse(self, agent: str) -> bool:
        """Whether a prompt does not ask for the markup that an answer is in."""
        template = self.prompts[role_of(agent)]
        return not any(word in template.system + template.user for word in ("python", "\\boxed"))

    def _equivalent(self, state: MathState) -> Equivalent:
        """The comparison of the answers of a turn, with a budget of failures.

        An answer that the verifier could not compare with the reference is compared as text, and
        so are all answers after `MAX_FAILURES` comparisons that failed.
        """
        if self._tasks is not None:
            return same_text
        known = (*state.current, *state.standing)
        failed = {a.answer for a in known if a.verdict == Outcome.VERIFIER_FAILED}
        num_failures = 0

        def equivalent(first: str, second: str) -> bool:
            nonlocal num_failures
            # Equal texts agree, also those that no verifier can read.
            if first == second:
                return True
            if first in failed or second in failed or num_failures >= MAX_FAILURES:
                return False
            verdict = self._verifier.equivalence(first, second, unit=state.problem.unit)
            num_failures += verdict.outcome is Outcome.VERIFIER_FAILED
            return verdict.is_correct

        return equivalent
