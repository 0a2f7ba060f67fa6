"""Built-in problems: ways through networks and what they cost."""

from __future__ import annotations

import itertools
import random

from pettingllms_envs.code.builtin.exercise import Exercise, ints, row, rows, scaled

Edge = tuple[int, int]


def _random_edges(rng: random.Random, n: int, density: float) -> list[Edge]:
    pairs = list(itertools.combinations(range(1, n + 1), 2))
    chosen = rng.sample(pairs, min(len(pairs), round(density * n)))
    return [(a, b) if rng.random() < 0.5 else (b, a) for a, b in chosen]


def _read_edges(text: str) -> tuple[int, list[Edge]]:
    n, m, *flat = ints(text)
    return n, list(zip(flat[: 2 * m : 2], flat[1 : 2 * m : 2], strict=True))


def _hops_case(rng: random.Random, size: int) -> str:
    n = rng.randint(2, scaled(size, 4, 60))
    edges = _random_edges(rng, n, rng.uniform(0.6, 1.6))
    return rows(
        f"{n} {len(edges)}", *(row(edge) for edge in edges), row(rng.sample(range(1, n + 1), 2))
    )


def _hops_answer(text: str) -> str:
    n, edges = _read_edges(text)
    start, goal = ints(text)[-2:]
    reached = {start}
    for hops in range(n):
        if goal in reached:
            return str(hops)
        reached |= {b for a, b in edges if a in reached} | {a for a, b in edges if b in reached}
    return "-1"


def _roads_case(rng: random.Random, size: int) -> str:
    n = rng.randint(2, scaled(size, 3, 40))
    edges = _random_edges(rng, n, rng.uniform(1.0, 2.0))
    return rows(
        f"{n} {len(edges)}", *(f"{a} {b} {rng.randint(1, 5 + 10 * size)}" for a, b in edges)
    )


def _read_roads(text: str) -> tuple[int, list[tuple[int, int, int]]]:
    n, _, *flat = ints(text)
    return n, list(zip(flat[::3], flat[1::3], flat[2::3], strict=True))


def _cheapest_answer(text: str) -> str:
    n, roads = _read_roads(text)
    cost = [0 if v == 1 else 10**9 for v in range(n + 1)]
    for _ in range(n):
        for a, b, w in (*roads, *((b, a, w) for a, b, w in roads)):
            cost[b] = min(cost[b], cost[a] + w)
    return str(cost[n]) if cost[n] < 10**9 else "-1"


def _spanning_answer(text: str) -> str:
    n, roads = _read_roads(text)
    inside, total = {1}, 0
    while len(inside) < n:
        leaving = [(w, a, b) for a, b, w in roads if (a in inside) != (b in inside)]
        if not leaving:
            return "-1"
        w, a, b = min(leaving)
        inside |= {a, b}
        total += w
    return str(total)


_GRAPH = (
    "The first line holds n (1 to 60) and m. Each of the next m lines holds two different nodes; "
    "no pair occurs twice."
)
_ROADS = (
    "The first line holds n (2 to 40) and m. Each of the next m lines holds two different towns "
    "and the cost of the road between them (1 to 105), which can be used both ways."
)


EXERCISES = (
    Exercise(
        id="fewest_hops",
        difficulty="medium",
        task="Find the fewest links on a way from one node of a network to another. Links can be "
        "used in both directions.",
        input_format=_GRAPH + " The last line holds the start and the goal, which differ.",
        output_format="The fewest links, or -1 if there is no way.",
        example="4 3\n1 2\n2 3\n3 4\n1 4",
        edges=("2 0\n1 2", "2 1\n2 1\n1 2", "4 4\n1 2\n2 3\n3 4\n4 1\n1 4", "3 1\n1 2\n1 3"),
        case=_hops_case,
        answer=_hops_answer,
        solution="""
            import sys
            from collections import deque

            data = list(map(int, sys.stdin.read().split()))
            n, m = data[:2]
            near = [[] for _ in range(n + 1)]
            for i in range(m):
                a, b = data[2 + 2 * i : 4 + 2 * i]
                near[a].append(b)
                near[b].append(a)
            start, goal = data[-2:]
            hops = {start: 0}
            queue = deque([start])
            while queue:
                v = queue.popleft()
                for w in near[v]:
                    if w not in hops:
                        hops[w] = hops[v] + 1
                        queue.append(w)
            print(hops.get(goal, -1))
        """,
        wrong=(("near[b].append(a)", "pass"), ("queue.popleft()", "queue.pop()")),
    ),
    Exercise(
        id="cheapest_route",
        difficulty="hard",
        task="Find the cheapest route from town 1 to town n.",
        input_format=_ROADS,
        output_format="The total cost of the cheapest route, or -1 if there is none.",
        example="3 3\n1 2 4\n2 3 1\n1 3 7",
        edges=("2 0", "2 1\n2 1 9", "4 4\n1 2 1\n2 4 10\n1 3 5\n3 4 2", "3 1\n1 2 3"),
        case=_roads_case,
        answer=_cheapest_answer,
        solution="""
            import heapq

            n, m = map(int, input().split())
            near = [[] for _ in range(n + 1)]
            for _ in range(m):
                a, b, w = map(int, input().split())
                near[a].append((b, w))
                near[b].append((a, w))
            best = {}
            heap = [(0, 1)]
            while heap:
                cost, v = heapq.heappop(heap)
                if v in best:
                    continue
                best[v] = cost
                for w, price in near[v]:
                    heapq.heappush(heap, (cost + price, w))
            print(best.get(n, -1))
        """,
        wrong=(("near[b].append((a, w))", "pass"), ("(cost + price, w)", "(max(cost, price), w)")),
    ),
    Exercise(
        id="cheapest_network",
        difficulty="hard",
        task="Keep some of the roads so that every town can still be reached from every other, "
        "at the smallest total cost.",
        input_format=_ROADS,
        output_format="The smallest total cost, or -1 if the towns are not connected to begin "
        "with.",
        example="3 3\n1 2 4\n2 3 1\n1 3 7",
        edges=("2 0", "2 1\n1 2 5", "4 5\n1 2 1\n2 3 1\n3 1 1\n3 4 9\n2 4 8", "4 2\n1 2 1\n3 4 1"),
        case=_roads_case,
        answer=_spanning_answer,
        solution="""
            n, m = map(int, input().split())
            roads = sorted(tuple(map(int, input().split()))[::-1] for _ in range(m))
            group = list(range(n + 1))
            total, left = 0, n - 1
            for w, a, b in roads:
                if group[a] != group[b]:
                    old, new = group[a], group[b]
                    group = [new if g == old else g for g in group]
                    total += w
                    left -= 1
            print(total if left == 0 else -1)
        """,
        wrong=(
            ("total if left == 0 else -1", "total"),
            """
            n, m = map(int, input().split())
            cheapest = {}
            for _ in range(m):
                a, b, w = map(int, input().split())
                cheapest[a] = min(w, cheapest.get(a, w))
                cheapest[b] = min(w, cheapest.get(b, w))
            print(sum(cheapest.values()) - max(cheapest.values()) if len(cheapest) == n else -1)
            """,
        ),
    ),
)
