"""The fixed program: what a tool agent would write once for all levels."""

PROGRAM = """\
import heapq
import json
import sys

start, goal = ([tuple(stack) for stack in json.loads(line)] for line in list(sys.stdin)[:2])
below = {block: stack[:i] for stack in goal for i, block in enumerate(stack)}


def left(stacks):
    moves = 0
    for stack in stacks:
        wrong = set()
        for i, block in enumerate(stack):
            if wrong or below[block] != stack[:i]:
                moves += 1 if wrong.isdisjoint(below[block]) else 2
                wrong.add(block)
    return moves


heap, seen, number = [(0, 0, 0, tuple(sorted(start)), [])], set(), 0
while heap:
    _, _, cost, stacks, plan = heapq.heappop(heap)
    if sorted(goal) == list(stacks):
        print(json.dumps(plan))
        break
    if stacks in seen:
        continue
    seen.add(stacks)
    for stack in stacks:
        rest = [other for other in stacks if other != stack]
        targets = rest + [()] if len(stack) > 1 else rest
        for target in targets:
            after = [other for other in rest if other != target]
            after = tuple(sorted(filter(None, [*after, stack[:-1], target + stack[-1:]])))
            if after not in seen:
                number -= 1
                move = [stack[-1], target[-1] if target else "table"]
                entry = (cost + 1 + left(after), number, cost + 1, after, plan + [move])
                heapq.heappush(heap, entry)
"""
"""A* with the moves that misplaced blocks need at least; it knows no weights."""
