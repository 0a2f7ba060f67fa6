"""The fixed program: what a tool agent would write once for all levels."""

PROGRAM = """\
import json
import math
import sys

lines = sys.stdin.read().splitlines()
size = len(lines[0].split())
grid = [list(map(int, line.split())) for line in lines[:size]]
high = math.isqrt(size)
wide = size // high
units = {(r, c): (r, size + c, 2 * size + r // high * high + c // wide)
         for r in range(size) for c in range(size)}
free = [(1 << size) - 1] * (3 * size)


def toggle(cell, value):
    for unit in units[cell]:
        free[unit] ^= 1 << value - 1


def candidates(cell):
    a, b, c = units[cell]
    return free[a] & free[b] & free[c]


def solve(empty):
    if not empty:
        return True
    cell = min(empty, key=lambda one: candidates(one).bit_count())
    mask, rest = candidates(cell), [one for one in empty if one != cell]
    for value in range(1, size + 1):
        if mask >> value - 1 & 1:
            grid[cell[0]][cell[1]] = value
            toggle(cell, value)
            if solve(rest):
                return True
            toggle(cell, value)
    return False


for cell in units:
    value = grid[cell[0]][cell[1]]
    if value:
        if not candidates(cell) >> value - 1 & 1:
            sys.exit("these are not the rules of Sudoku")
        toggle(cell, value)
solve([cell for cell in units if not grid[cell[0]][cell[1]]])
print(json.dumps(grid))
"""
"""Backtracking, the cell with the fewest candidates first; drawn rules are not read."""
