"""Exact searches over all states of a level, many player positions at a time.

A layer of a breadth-first search is a dict: boxes -> the cells on which the player can be. One step
of all these players costs a few shifts, so that a search visits box positions rather than states.
All lengths count moves (steps and pushes alike).
"""

from __future__ import annotations

from pettingllms.errors import UnreachableRequest
from pettingllms_envs.grid import deltas
from pettingllms_envs.sokoban.rules import Level

Layer = dict[int, int]
"""Boxes -> bit-board of the player's cells."""

NODE_LIMIT = 300_000
"""Maximum number of (boxes, layer) pairs that `solve` looks at."""


def solve(
    level: Level, player: int, boxes: int, alive: int, node_limit: int = NODE_LIMIT
) -> str | None:
    """Return a shortest solution, as letters, or None if there is none.

    Args:
        level: Floor and goals.
        player: Number of the player's cell.
        boxes: The cells with boxes.
        alive: The cells from which a single box can reach some goal (others are never entered).
        node_limit: Maximum number of search nodes.

    Raises:
        UnreachableRequest: If the search did not end within the node limit.
    """
    floor, goals, stride = level.floor, level.goals, level.stride
    # Every layer is kept: `_trace` walks back through them, so no state needs a parent pointer.
    # `seen[boxes]` has the player cells already visited with these boxes, in any layer.
    layers: list[Layer] = [{boxes: 1 << player}]
    seen: Layer = dict(layers[0])
    nodes = 0
    while goals not in layers[-1]:
        layer: Layer = {}
        for here, players in layers[-1].items():
            _advance(layer, seen, here, players, floor & ~here, alive, stride)
        nodes += len(layers[-1])
        if not layer:
            return None
        if nodes > node_limit:
            raise UnreachableRequest(
                f"a {level.rows}x{level.cols} level with {goals.bit_count()} boxes was not solved "
                f"within {node_limit} search nodes"
            )
        layers.append(layer)
    return _trace(layers, goals, stride)


def _advance(
    layer: Layer, seen: Layer, boxes: int, players: int, free: int, alive: int, stride: int
) -> None:
    """Add to `layer` what one move leads to and was not `seen`."""
    # Bit legend: every argument is a bitboard (bit = cell number). Shifting by 1 or `stride` moves
    # all players one cell at once; the guard column of `pettingllms_envs.grid` stops wrap-around.
    spread = players << 1 | players >> 1 | players << stride | players >> stride
    known = seen[boxes]
    walked = spread & free & ~known
    if walked:
        seen[boxes] = known | walked
        layer[boxes] = layer.get(boxes, 0) | walked
    # A box is pushed only if the cell opposite of the player is floor, free and not dead.
    touched, targets = spread & boxes, free & alive
    while touched:
        box = touched & -touched
        touched ^= box
        for beside, pushed in (
            (box >> 1, box << 1),
            (box << 1, box >> 1),
            (box >> stride, box << stride),
            (box << stride, box >> stride),
        ):
            # `beside` is where the player must come from, `pushed` where the box goes: opposite
            # sides of the box. The player ends on the box's old cell, so `box` is its new position.
            if beside & players and pushed & targets:
                after = boxes ^ box ^ pushed
                known = seen.get(after, 0)
                if not known & box:
                    seen[after] = known | box
                    layer[after] = layer.get(after, 0) | box


def _trace(layers: list[Layer], goals: int, stride: int) -> str:
    """Return the moves of one path from the first layer to a solved state of the last."""
    # Any player cell will do: all of them are equally many moves from the start.
    boxes, players = goals, layers[-1][goals]
    player = (players & -players).bit_length() - 1
    moves = ""
    for layer in layers[-2::-1]:
        move, boxes, player = _undo(layer, boxes, player, stride)
        moves += move
    return moves[::-1]


def _undo(layer: Layer, boxes: int, player: int, stride: int) -> tuple[str, int, int]:
    """Return a move that led from a state of `layer` to this one, and that state."""
    for move, change in deltas(stride).items():
        # Before a move the player was one cell back; a pushed box is now one cell ahead.
        before, pushed = player - change, 1 << player + change
        if layer.get(boxes, 0) >> before & 1:
            return move, boxes, before
        # A push: the box went from the player's cell to the one beyond.
        unpushed = boxes ^ pushed ^ 1 << player
        if boxes & pushed and layer.get(unpushed, 0) >> before & 1:
            return move, unpushed, before
    raise AssertionError("a state of a layer was reached from nowhere")


def backward_layers(
    floor: int, goals: int, stride: int, depth: int, node_limit: int = NODE_LIMIT
) -> list[Layer]:
    """Return the states from which the level is solved in exactly 0, 1, 2, ... moves.

    A breadth-first search backwards (by pulling) from all solved states, so that the index of a
    layer is the exact length of a shortest solution of its states.

    Args:
        floor: The cells that are no walls.
        goals: The goals.
        stride: Difference between the numbers of a cell and the cell below it.
        depth: Last layer that is wanted; fewer are returned when there are no more states.
        node_limit: The search stops early when it has looked at this many (boxes, layer) pairs.
    """
    # With all boxes on goals every player position is solved, so all are roots of the search.
    layers: list[Layer] = [{goals: floor & ~goals}]
    seen: Layer = dict(layers[0])
    nodes = 0
    while len(layers) <= depth and nodes <= node_limit:
        layer: Layer = {}
        for boxes, players in layers[-1].items():
            _retreat(layer, seen, boxes, players, floor & ~boxes, stride)
        nodes += len(layers[-1])
        if not layer:
            break
        layers.append(layer)
    return layers


def _retreat(layer: Layer, seen: Layer, boxes: int, players: int, free: int, stride: int) -> None:
    """Add to `layer` what one move backwards leads to and was not `seen`."""
    spread = players << 1 | players >> 1 | players << stride | players >> stride
    known = seen[boxes]
    walked = spread & free & ~known
    if walked:
        seen[boxes] = known | walked
        layer[boxes] = layer.get(boxes, 0) | walked
    # A pull reverses a push: box and player both step back, so two cells in a line beyond the box
    # must be free. Dead cells need no test: what was pulled can be pushed back.
    touched = spread & boxes
    while touched:
        box = touched & -touched
        touched ^= box
        for beside, behind in (
            (box << 1, box << 2),
            (box >> 1, box >> 2),
            (box << stride, box << 2 * stride),
            (box >> stride, box >> 2 * stride),
        ):
            if beside & players and behind & free:
                before = boxes ^ box ^ beside
                known = seen.get(before, 0)
                if not known & behind:
                    seen[before] = known | behind
                    layer[before] = layer.get(before, 0) | behind
