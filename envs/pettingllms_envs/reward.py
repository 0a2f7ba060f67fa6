"""The terms of reward that the games share, and why they are what they are.

A solved episode pays `SUCCESS`. What everything else of an episode pays (the rise of a potential,
the costs of bad answers) differs by less than twice `PROGRESS`, and so

- every solved episode returns more than every unsolved one;
- the mean return orders policies by their share of solved episodes, unless these shares differ by
  less than what the rest of an unsolved episode can differ by, 0.2 of a solved one;
- where facts are gathered for one answer (Search, Panel), an episode without an answer returns no
  more to any agent than any episode with one, so that a team that gathers and never answers is paid
  no more than one that answers and is seldom right, however badly the latter writes.

The second was found by measuring. With a potential as large as the bonus, policies were paid for
looking busy: in Sokoban with one box, walking to the best cell and never pushing returned +0.18
without solving anything, and in Sudoku with one turn, filling in what is seen at once returned
+0.39 without solving anything, more than solving one puzzle in ten. With a lost level at -1, honest
trying was punished: random moves solved 18 % of the Sokoban levels and returned less than silence.
With the terms below the ladder of `pettingllms.testing.ladder` is in order for all games, teams,
sizes and numbers of boxes.
"""

from __future__ import annotations

from typing import NamedTuple

SUCCESS = 1.0
"""The bonus for solving."""

PROGRESS = 0.1
"""The potential of a solved state; that of the start is 0."""

LOST = -0.01
"""The potential of a state that cannot be solved any more, and the limit of those that lead away
from the goal. It must be small: trying is how a policy begins to solve, and it loses most levels
before it solves some."""

MALFORMED, EMPTY, ILLEGAL = 0.05, 0.04, 0.04
"""What an episode of unreadable answers, of empty ones, or of illegal ones costs an agent."""

UNANSWERED = LOST - MALFORMED
"""The potential where time ran out without an answer: that of a wrong answer less all that bad
texts can cost. Gathering leaves nothing then, for potentials add up to that of the end. Bad texts
cost as much as ever, or nothing would teach a team that never answers to be readable; a team that
is unreadable except where it is right, in less than 1 of 23 episodes, is thus still below one that
gathers in readable texts."""


class Costs(NamedTuple):
    """The costs of one answer, all negative."""

    malformed: float
    """For a text without a readable answer, or a program that fails."""
    empty: float
    """For an empty answer, one that changes nothing, or calls that are all refused."""
    illegal: float
    """For each illegal move or refused fill."""


def costs(max_turns: int, max_illegal: int) -> Costs:
    """The costs of one answer; those of an episode add up to at most 0.05 per agent.

    So many illegal moves (`max_illegal`) cost as much as an empty answer.
    """
    return Costs(-MALFORMED / max_turns, -EMPTY / max_turns, -ILLEGAL / max_turns / max_illegal)


def shaped(distance: float, start: float) -> float:
    """The potential at a distance d from solved, in [`LOST`, `PROGRESS`].

    With d0 > 0 the distance of the first state it is `PROGRESS` * (1 - d / d0) up to d0, and beyond
    it `LOST` * (1 - d0 / d); it is `LOST` for d < 0, a state that certainly cannot be solved any
    more. The team's reward is its difference, undiscounted, so that every closed loop adds up to 0.

    Source: potential-based shaping (Ng, Harada, Russell 1999).
    """
    if distance < 0:
        return LOST
    if distance <= start:
        return PROGRESS * (1 - distance / start)
    return LOST * (1 - start / distance)


def costs_text(costs: Costs, illegal: str, reward: str) -> str:
    """The sentence that prompts say about costs; `illegal` says of what: `"illegal move"`."""
    if reward == "outcome":
        return "Only a solved task is rewarded."
    malformed, empty, each = (f"{-cost:.3g}" for cost in costs)
    return (
        f"Costs: an answer that cannot be read {malformed}; one that is empty or changes nothing "
        f"{empty}; each {illegal} {each}."
    )


def fault_text(costs: Costs, fault: str, rewarded: str, reward: str) -> str:
    """The sentence on costs of a game in which one answer is one choice.

    `fault` is what an empty answer's cost is for (`"a search that finds nothing new"`), `rewarded`
    what alone is rewarded if only the outcome is.
    """
    if reward == "outcome":
        return f"Only {rewarded} is rewarded."
    return (
        f"Costs: an answer that cannot be read {-costs.malformed:.3g}; {fault} {-costs.empty:.3g}."
    )
