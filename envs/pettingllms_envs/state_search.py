"""Searches over all states that moves lead to, for rules that no bit-board can follow."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from pettingllms.errors import UnreachableRequest

MAX_STATES = 200_000
"""States of a level that distances are found for."""

StateT = TypeVar("StateT")
After = Callable[[StateT], Iterable[tuple[str, StateT]]]
"""State -> the legal moves, and the states to which they lead."""


def ways_from(start: StateT, after: After[StateT]) -> dict[StateT, str]:
    """State -> moves of a shortest way to it, the nearest states first.

    Among moves that lead to the same state, the first in the order of `after` is preferred.
    """
    ways = {start: ""}
    queue = [start]
    for state in queue:
        for move, following in after(state):
            if following not in ways:
                ways[following] = ways[state] + move
                queue.append(following)
    return ways


def distances_left(
    start: StateT, after: After[StateT], is_solved: Callable[[StateT], bool]
) -> dict[StateT, int]:
    """The exact number of moves left from each state that can be reached from `start`.

    A state that cannot be solved any more is left out; moves of a solved one are not followed.

    Raises:
        UnreachableRequest: If there are more than `MAX_STATES` states.
    """
    before: dict[StateT, list[StateT]] = {start: []}
    queue = [start]
    left: dict[StateT, int] = {}
    for state in queue:
        if is_solved(state):
            left[state] = 0
            continue
        if len(queue) > MAX_STATES:
            raise UnreachableRequest(f"a level with rules has more than {MAX_STATES} states")
        for _, following in after(state):
            if following not in before:
                before[following] = []
                queue.append(following)
            before[following].append(state)
    queue = list(left)
    for state in queue:
        for earlier in before[state]:
            if earlier not in left:
                left[earlier] = left[state] + 1
                queue.append(earlier)
    return left
