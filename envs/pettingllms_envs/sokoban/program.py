"""The fixed program: what a tool agent would write once for all levels."""

PROGRAM = """\
import heapq
import json
import sys

rows = [line.strip() for line in sys.stdin if ":" not in line]
at = {(r, c): s for r, row in enumerate(rows) for c, s in enumerate(row) if s != "#"}
start = next(cell for cell, s in at.items() if s in "@+")
goals = [cell for cell, s in at.items() if s in ".*+"]
STEPS = {"U": (-1, 0), "D": (1, 0), "L": (0, -1), "R": (0, 1)}

pushes = dict.fromkeys(goals, 0)  # of a box that is alone, to the nearest goal
queue = list(goals)
for r, c in queue:
    for dr, dc in STEPS.values():
        near = r - dr, c - dc
        if near in at and (r - 2 * dr, c - 2 * dc) in at and near not in pushes:
            pushes[near] = pushes[r, c] + 1
            queue.append(near)


def walks(player, boxes):
    found, queue = {player: ""}, [player]
    for r, c in queue:
        for move, (dr, dc) in STEPS.items():
            near = r + dr, c + dc
            if near in at and near not in boxes and near not in found:
                found[near] = found[r, c] + move
                queue.append(near)
    return found


boxes = frozenset(cell for cell, s in at.items() if s in "$*")
heap, seen, number = [(0, 0, start, boxes, "")], set(), 0
while heap:
    _, _, player, boxes, path = heapq.heappop(heap)
    if boxes == frozenset(goals):
        print(json.dumps(list(path)))
        break
    ways = walks(player, boxes)
    if (min(ways), boxes) in seen:
        continue
    seen.add((min(ways), boxes))
    for r, c in boxes:
        for move, (dr, dc) in STEPS.items():
            target = r + dr, c + dc
            if (r - dr, c - dc) in ways and target in pushes and target not in boxes:
                pushed, number = boxes - {(r, c)} | {target}, number + 1
                longer = path + ways[r - dr, c - dc] + move
                left = sum(pushes[box] for box in pushed)
                heapq.heappush(heap, (len(longer) + 3 * left, number, (r, c), pushed, longer))
"""
"""A search over pushes, first where few of them are left."""
