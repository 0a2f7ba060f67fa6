"""The state of a mathematics episode and what attempts do to it. No text, no rewards."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from pettingllms_envs.datasets import MathProblem

MAX_COMPARED_GROUPS = 8
"""Different answers that a further answer is compared with when a majority is looked for."""

Equivalent = Callable[[str, str], bool]


class Attempt(NamedTuple):
    """What one agent came up with in one turn."""

    agent: str
    answer: str | None
    """The final answer as written; None where there was none to read."""
    work: str
    """The end of the reasoning, or the program; shown to the team in later turns."""
    report: str
    """The result, in a few words: `ok`, `timeout`, `no \\boxed answer`, ..."""
    verdict: str
    """Outcome of the comparison with the reference; never shown. Empty without an answer."""

    @property
    def is_correct(self) -> bool:
        """Whether the answer is right."""
        return self.verdict == "correct"


class MathState(NamedTuple):
    """Everything that an episode depends on."""

    problem: MathProblem
    """The question and its reference answer; the same in all states of an episode."""
    turn: int = 0
    """Number of the present turn, from 0."""
    current: tuple[Attempt, ...] = ()
    """Attempts of the running turn, in the order of action."""
    past: tuple[tuple[Attempt, ...], ...] = ()
    """Attempts of earlier turns, the latest last; as many as the history holds."""
    standing: tuple[Attempt, ...] = ()
    """Latest attempt with an answer of each agent that ever gave one."""
    final_answer: str | None = None
    """The answer that was handed in; None while the episode runs or where there was none."""


def standing_of(state: MathState, agent: str) -> Attempt | None:
    """The agent's latest attempt that has an answer."""
    return next((attempt for attempt in state.standing if attempt.agent == agent), None)


def value_of(state: MathState, agent: str) -> float:
    """1 if the agent's standing answer is right, else 0."""
    attempt = standing_of(state, agent)
    return float(attempt is not None and attempt.is_correct)


def with_attempt(state: MathState, attempt: Attempt) -> MathState:
    """The state after an attempt of the running turn."""
    standing = state.standing
    # An unreadable text leaves the answer before it: a slip must not cost what was right.
    if attempt.answer is not None:
        others = tuple(a for a in standing if a.agent != attempt.agent)
        standing = (*others, attempt)
    return state._replace(current=(*state.current, attempt), standing=standing)


def next_turn(state: MathState, history: int) -> MathState:
    """The state at the start of the next turn; at most `history` past turns are kept."""
    past = (*state.past, state.current)[-history:]
    return state._replace(turn=state.turn + 1, current=(), past=past)


def handed_in(state: MathState, agent: str) -> MathState:
    """The state in which an agent's standing answer has been handed in."""
    attempt = standing_of(state, agent)
    return state._replace(final_answer=attempt.answer if attempt else None)


def all_agree(attempts: Sequence[Attempt], equivalent: Equivalent) -> bool:
    """Whether every attempt has an answer and all answers mean the same."""
    answers = [attempt.answer for attempt in attempts]
    # All with the first: every pair would be quadratic work for the verifier.
    first, *others = answers
    if first is None:
        return False
    return all(other is not None and equivalent(first, other) for other in others)


def majority(answers: Iterable[str], equivalent: Equivalent) -> str | None:
    """The answer with the most equivalent ones, the earliest of several; None for none.

    Equal texts are one answer; another text is compared with the first `MAX_COMPARED_GROUPS`
    different answers, so that the work is linear in the number of answers.
    """
    sizes: Counter[str] = Counter()
    group_of: dict[str, str] = {}
    for answer in answers:
        if answer not in group_of:
            # A turn with an answer of its own from everybody must not take quadratic time.
            known = itertools.islice(sizes, MAX_COMPARED_GROUPS)
            group_of[answer] = next((one for one in known if equivalent(one, answer)), answer)
        sizes[group_of[answer]] += 1
    return max(sizes, key=sizes.__getitem__) if sizes else None
