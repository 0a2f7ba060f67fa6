"""The fixed program: what a tool agent would write once for all levels."""

PROGRAM = """\
import json
import sys

rows = sys.stdin.read().split()
size = len(rows)
now = [max(row.find("Q"), row.find("F")) for row in rows]


def place(columns):
    row = len(columns)
    if row == size:
        return columns
    stay = [now[row]]
    others = [] if "F" in rows[row] else [col for col in range(size) if col != now[row]]
    for col in stay + others:
        if all(col != c and abs(col - c) != row - r for r, c in enumerate(columns)):
            found = place(columns + [col])
            if found:
                return found


print(json.dumps([[row, col] for row, col in enumerate(place([])) if col != now[row]]))
"""
"""Backtracking that leaves queens where they are first."""
