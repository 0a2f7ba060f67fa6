"""The fixed program: what a tool agent would write once for all levels."""

PROGRAM = """\
import json
import sys

rows = [line for line in sys.stdin.read().splitlines() if line and " " not in line]
size = len(rows)
now = [size - len(row.lstrip(".")) for row in rows]
still = [row.strip(".") == "F" or row.islower() for row in rows]


def place(columns):
    row = len(columns)
    if row == size:
        return columns
    stay = [now[row]]
    others = [] if still[row] else [col for col in range(size) if col != now[row]]
    for col in stay + others:
        if all(col != c and abs(col - c) != row - r for r, c in enumerate(columns)):
            found = place(columns + [col])
            if found:
                return found


print(json.dumps([[row, col] for row, col in enumerate(place([])) if col != now[row]]))
"""
"""Backtracking that leaves pieces where they are first, and takes all of them for queens."""
