"""The scripted policies, for every role: oracle plans, greedy reacts, random draws.

There-and-back walks towards the goal without entering it, and home again; it shows what idling
returns.
"""

from __future__ import annotations

import random

from pettingllms_envs.grid import cells_of
from pettingllms_envs.plan_path.rules import Level, Maze, legal_moves, maze_of, shortest_path, walk

SEARCH_PROGRAM = """\
import json
import sys

board = [line.strip() for line in sys.stdin if ":" not in line]
cells = {(r, c): s for r, row in enumerate(board) for c, s in enumerate(row) if s != "#"}
start = next(cell for cell, symbol in cells.items() if symbol == "P")
paths = {start: []}
queue = [start]
for r, c in queue:
    if cells[r, c] == "G":
        print(json.dumps(paths[r, c]))
        break
    for move, near in zip("UDLR", [(r - 1, c), (r + 1, c), (r, c - 1), (r, c + 1)]):
        if near in cells and near not in paths:
            paths[near] = paths[r, c] + [move]
            queue.append(near)
"""
"""A breadth-first search, as a tool agent would write it."""


def moves_of(level: Level, position: int, policy: str, num_moves: int, rng: random.Random) -> str:
    """The moves of a policy, at most `num_moves`, fewer only if they end at the goal.

    Oracle follows a shortest path; greedy: see `greedy_walk`; random draws legal moves uniformly;
    there-and-back: see `idle_walk`.
    """
    maze = maze_of(level)
    if policy == "oracle":
        path = shortest_path(maze, position, maze.level.goal)
        return (path or "")[:num_moves]  # by drawn rules there may be no way any more
    if policy == "there-and-back":
        return idle_walk(maze, position)[:num_moves]
    return (greedy_walk if policy == "greedy" else random_walk)(maze, position, num_moves, rng)


def target_cell(
    level: Level, position: int, policy: str, num_moves: int, rng: random.Random
) -> int:
    """The cell to which the policy of a tool agent asks for a path.

    Oracle names the goal; there-and-back the cell where `idle_walk` ends; greedy the cell of a
    greedy walk of `num_moves` that is nearest to the goal by Manhattan distance; random any free
    cell but the player's.
    """
    maze = maze_of(level)
    if policy == "oracle" or position % level.area == level.goal:
        return maze.level.goal
    if policy == "there-and-back":
        return walk(maze, position, idle_walk(maze, position)[:num_moves]).position % level.area
    if policy == "random":
        return rng.choice(cells_of(maze.free & ~(1 << position % level.area)))
    moves = greedy_walk(maze, position, num_moves, rng)
    visited = [walk(maze, position, moves[:end]).position for end in range(1, len(moves) + 1)]
    # A call for the cell under the player is refused, so any other cell is better.
    others = [cell for cell in visited if cell != position] or [position]
    return min((cell % level.area for cell in others), key=lambda cell: manhattan(level, cell))


def idle_walk(maze: Maze, position: int) -> str:
    """The way back to the start; from there, the way to the last cell before the goal."""
    level = maze.level
    if position != level.start:
        return shortest_path(maze, position, level.start) or ""
    return (shortest_path(maze, position, level.goal) or "")[:-1]


def manhattan(level: Level, position: int) -> int:
    """The distance of a position to the goal that a person without walls would walk."""
    row, col = divmod(position % level.area, level.stride)
    goal_row, goal_col = divmod(level.goal, level.stride)
    return abs(row - goal_row) + abs(col - goal_col)


def greedy_walk(maze: Maze, position: int, num_moves: int, rng: random.Random) -> str:
    """The moves of a reactive rule that plans nothing.

    Each move goes to the free neighbour that is nearest to the goal by Manhattan distance, ties
    broken at random. The rule never bumps and remembers nothing, so a dead end can hold it.
    """
    moves = ""
    for _ in range(num_moves):
        legal = legal_moves(maze, position)
        if position % maze.level.area == maze.level.goal or not legal:
            break
        ranked = [(manhattan(maze.level, maze.step(position, move)), move) for move in legal]
        # Ties are broken by chance, or the order of U, D, L, R would be a plan of its own.
        nearest = min(ranked)[0]
        move = rng.choice([move for rank, move in ranked if rank == nearest])
        moves += move
        position = maze.step(position, move)
    return moves


def random_walk(maze: Maze, position: int, num_moves: int, rng: random.Random) -> str:
    """Legal moves drawn uniformly, as many as asked for or until the goal."""
    moves = ""
    for _ in range(num_moves):
        legal = legal_moves(maze, position)
        if position % maze.level.area == maze.level.goal or not legal:
            break
        moves += (move := rng.choice(legal))
        position = maze.step(position, move)
    return moves
