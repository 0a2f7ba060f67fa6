"""The scripted policies of witness and builder: a protocol of words, in both directions."""

from __future__ import annotations

import random
from itertools import accumulate, product

from pettingllms_envs.relay.rules import (
    EMPTY,
    Board,
    Fill,
    RelayState,
    painted,
)
from pettingllms_envs.relay.text import described, terse, understood


def message_of(
    state: RelayState, policy: str, rng: random.Random, max_chars: int, is_terse: bool
) -> str:
    """Return what a scripted witness says: rectangles in words, as many as fit into a message.

    Args:
        state: The state.
        policy: `"oracle"`: the rectangles that the level was made of, which may cover one another;
            `"greedy"`: the largest rectangle of one symbol with a wrong cell, again and again;
            `"random"`: any rectangle.
        rng: Source of chance.
        max_chars: Limit of a message.
        is_terse: Whether symbols are named by their numbers instead of by words.
    """
    if policy == "random":
        fills = (_any_fill(state, rng),)
    else:
        fills = _left(state) if policy == "oracle" else _largest(state, max_chars)
    said = ""
    for fill in fills:
        one = terse((fill,)) if is_terse else described(state.level, fill)
        longer = f"{said}{(',' if is_terse else ';') if said else ''}{one}"
        if len(longer) > max_chars:
            break
        said = longer
    return said


def fills_of(state: RelayState, policy: str, rng: random.Random) -> tuple[Fill, ...]:
    """Return what a scripted builder paints: what the last message says, or anything (random)."""
    if policy == "random":
        return (_any_fill(state, rng),)
    return understood(state.level, state.messages[-1].text) if state.messages else ()


def _any_fill(state: RelayState, rng: random.Random) -> Fill:
    size = len(state.board)
    rows, columns = (sorted(rng.choices(range(size), k=2)) for _ in range(2))
    symbol = rng.randint(1, len(state.level.palette))
    return Fill(symbol, rows[0], columns[0], rows[1], columns[1])


def _left(state: RelayState) -> tuple[Fill, ...]:
    """Return the fewest last rectangles of the level that make the target of what is built."""
    level = state.level
    for number in range(1, len(level.fills) + 1):
        if painted(state.board, *level.fills[-number:]) == level.target:
            return level.fills[-number:]
    end = len(level.target) - 1
    return (Fill(EMPTY, 0, 0, end, end), *level.fills)


def _largest(state: RelayState, max_chars: int) -> tuple[Fill, ...]:
    """Return rectangles of one symbol, the one with the most wrong cells first.

    What is painted is never painted over, which takes more rectangles than the level was made of.
    """
    board, target = state.board, state.level.target
    rectangles = _uniform(target)
    fills: list[Fill] = []
    while board != target and 4 * len(fills) < max_chars:
        wrong = _wrong_before(board, target)
        fill = max(rectangles, key=lambda one, wrong=wrong: _num_mended(wrong, one))
        board = painted(board, fill)
        fills.append(fill)
    return tuple(fills)


def _uniform(target: Board) -> list[Fill]:
    """Return the rectangles of one symbol that reach as far to the right as they can."""
    size = len(target)
    found: list[Fill] = []
    for top, left in product(range(size), repeat=2):
        symbol, width = target[top][left], size - left
        for bottom in range(top, size):
            row = target[bottom][left : left + width]
            width = next((n for n, cell in enumerate(row) if cell != symbol), width)
            if not width:
                break
            found.append(Fill(symbol, top, left, bottom, left + width - 1))
    return found


def _wrong_before(board: Board, target: Board) -> list[list[int]]:
    """Return the number of wrong cells above and to the left of every corner between cells."""
    above = [0] * (len(board) + 1)
    sums = [above]
    for here, there in zip(board, target, strict=True):
        so_far = accumulate((one != two for one, two in zip(here, there, strict=True)), initial=0)
        above = [one + two for one, two in zip(above, so_far, strict=True)]
        sums.append(above)
    return sums


def _num_mended(wrong: list[list[int]], fill: Fill) -> int:
    upper, lower = wrong[fill.top], wrong[fill.bottom + 1]
    return lower[fill.right + 1] - lower[fill.left] - upper[fill.right + 1] + upper[fill.left]
