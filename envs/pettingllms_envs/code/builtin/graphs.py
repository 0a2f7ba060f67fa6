"""Built-in problems: networks and grids."""

from __future__ import annotations

import itertools
import random
from collections import deque

from pettingllms_envs.code.builtin.exercise import Exercise, ints, row, rows, scaled

Edge = tuple[int, int]


def _random_edges(rng: random.Random, n: int, density: float) -> list[Edge]:
    pairs = list(itertools.combinations(range(1, n + 1), 2))
    chosen = rng.sample(pairs, min(len(pairs), round(density * n)))
    return [pair if rng.random() < 0.5 else pair[::-1] for pair in chosen]


def _graph_case(rng: random.Random, size: int) -> str:
    n = rng.randint(1, scaled(size, 4, 60))
    edges = _random_edges(rng, n, rng.uniform(0.3, 1.2))
    return rows(f"{n} {len(edges)}", *(row(edge) for edge in edges))


def _read_edges(text: str) -> tuple[int, list[Edge]]:
    n, m, *flat = ints(text)
    return n, list(zip(flat[: 2 * m : 2], flat[1 : 2 * m : 2], strict=True))


def _groups_answer(text: str) -> str:
    n, edges = _read_edges(text)
    label = list(range(n + 1))
    for _ in range(n):
        for a, b in edges:
            label[a] = label[b] = min(label[a], label[b])
    return str(len(set(label[1:])))


def _hops_case(rng: random.Random, size: int) -> str:
    n = rng.randint(2, scaled(size, 4, 60))
    edges = _random_edges(rng, n, rng.uniform(0.6, 1.6))
    return rows(f"{n} {len(edges)}", *(row(edge) for edge in edges), row(rng.sample(range(1, n + 1), 2)))


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
    return rows(f"{n} {len(edges)}", *(f"{a} {b} {rng.randint(1, 5 + 10 * size)}" for a, b in edges))


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


def _tasks_case(rng: random.Random, size: int) -> str:
    n = rng.randint(1, scaled(size, 4, 60))
    order = rng.sample(range(1, n + 1), n)
    edges = [(order[a - 1], order[b - 1]) for a, b in map(sorted, _random_edges(rng, n, 1.2))]
    if edges and rng.random() < 0.25:
        edges.append(edges[0][::-1])
    return rows(f"{n} {len(edges)}", *(row(edge) for edge in edges))


def _tasks_answer(text: str) -> str:
    n, edges = _read_edges(text)
    order: list[int] = []
    while len(order) < n:
        blocked = {b for a, b in edges if a not in order}
        free = [v for v in range(1, n + 1) if v not in order and v not in blocked]
        if not free:
            return "impossible"
        order.append(free[0])
    return row(order)


def _two_teams_answer(text: str) -> str:
    n, edges = _read_edges(text)
    side: dict[int, int] = {}
    for root in range(1, n + 1):
        queue = deque([root] if root not in side else [])
        side.setdefault(root, 0)
        while queue:
            v = queue.popleft()
            for w in [b if a == v else a for a, b in edges if v in (a, b)]:
                if w not in side:
                    side[w] = 1 - side[v]
                    queue.append(w)
    return "yes" if all(side[a] != side[b] for a, b in edges) else "no"


def _map_case(rng: random.Random, size: int) -> str:
    height, width = rng.randint(1, 2 * size), rng.randint(1, 2 * size)
    lines = ["".join(rng.choice("#..") for _ in range(width)) for _ in range(height)]
    return rows(f"{height} {width}", *lines)


def _islands_answer(text: str) -> str:
    lines = text.split()[2:]
    land = {(y, x) for y, line in enumerate(lines) for x, c in enumerate(line) if c == "#"}
    sizes: list[int] = []
    while land:
        frontier = {land.pop()}
        size = 0
        while frontier:
            size += len(frontier)
            near = {(y + d, x) for y, x in frontier for d in (-1, 1)}
            near |= {(y, x + d) for y, x in frontier for d in (-1, 1)}
            frontier = near & land
            land -= frontier
        sizes.append(size)
    return f"{len(sizes)} {max(sizes, default=0)}"


_GRAPH = (
    "The first line holds n (1 to 60) and m. Each of the next m lines holds two different nodes; "
    "no pair occurs twice."
)
_ROADS = (
    "The first line holds n (2 to 40) and m. Each of the next m lines holds two different towns and "
    "the cost of the road between them (1 to 105), which can be used both ways."
)

EXERCISES = (
    Exercise(
        id="friend_groups",
        difficulty="easy",
        task="People 1 to n are linked by friendships. Two people are in one group if a chain of "
        "friendships connects them. Count the groups.",
        input_format=_GRAPH,
        output_format="The number of groups.",
        example="5 3\n1 2\n2 3\n5 4",
        edges=("1 0", "3 0", "4 3\n1 2\n3 4\n2 3", "3 3\n1 2\n2 3\n3 1"),
        case=_graph_case,
        answer=_groups_answer,
        solution="""
            n, m = map(int, input().split())
            parent = list(range(n + 1))

            def find(v):
                while parent[v] != v:
                    parent[v] = parent[parent[v]]
                    v = parent[v]
                return v

            for _ in range(m):
                a, b = map(int, input().split())
                parent[find(a)] = find(b)
            print(sum(find(v) == v for v in range(1, n + 1)))
        """,
        wrong=(
            """
            n, m = map(int, input().split())
            print(n - m)
            """,
            ("parent[find(a)] = find(b)", "parent[a] = b"),
        ),
    ),
    Exercise(
        id="fewest_hops",
        difficulty="medium",
        task="Find the fewest links on a way from one node of a network to another. Links can be used "
        "in both directions.",
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
        task="Keep some of the roads so that every town can still be reached from every other, at the "
        "smallest total cost.",
        input_format=_ROADS,
        output_format="The smallest total cost, or -1 if the towns are not connected to begin with.",
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
    Exercise(
        id="task_order",
        difficulty="hard",
        task="Tasks 1 to n have to be done one after the other. A link a b says that a comes before b. "
        "Of all possible orders find the one with the smallest first task, then the smallest second "
        "task, and so on.",
        input_format="The first line holds n (1 to 60) and m. Each of the next m lines holds a link.",
        output_format="The order on one line, or impossible.",
        example="4 2\n3 1\n4 2",
        edges=("1 0", "3 0", "2 2\n1 2\n2 1", "5 3\n5 1\n1 2\n4 3"),
        case=_tasks_case,
        answer=_tasks_answer,
        solution="""
            import heapq

            n, m = map(int, input().split())
            after = [[] for _ in range(n + 1)]
            waits = [0] * (n + 1)
            for _ in range(m):
                a, b = map(int, input().split())
                after[a].append(b)
                waits[b] += 1
            heap = [v for v in range(1, n + 1) if waits[v] == 0]
            order = []
            while heap:
                v = heapq.heappop(heap)
                order.append(v)
                for w in after[v]:
                    waits[w] -= 1
                    if waits[w] == 0:
                        heapq.heappush(heap, w)
            print(*order) if len(order) == n else print("impossible")
        """,
        wrong=(
            ("v = heapq.heappop(heap)", "v = heap.pop(0)"),
            ("print(*order) if len(order) == n else print(\"impossible\")", "print(*order)"),
        ),
    ),
    Exercise(
        id="two_teams",
        difficulty="medium",
        task="Divide people 1 to n into two teams so that no two people who dislike each other are in "
        "one team. Is that possible?",
        input_format=_GRAPH,
        output_format="yes or no.",
        example="3 2\n1 2\n2 3",
        edges=("1 0", "3 3\n1 2\n2 3\n3 1", "4 4\n1 2\n2 3\n3 4\n4 1", "6 4\n1 2\n4 5\n5 6\n6 4"),
        case=_graph_case,
        answer=_two_teams_answer,
        solution="""
            n, m = map(int, input().split())
            near = [[] for _ in range(n + 1)]
            for _ in range(m):
                a, b = map(int, input().split())
                near[a].append(b)
                near[b].append(a)
            team = [None] * (n + 1)
            fine = True
            for root in range(1, n + 1):
                if team[root] is None:
                    team[root] = 0
                    stack = [root]
                    while stack:
                        v = stack.pop()
                        for w in near[v]:
                            if team[w] is None:
                                team[w] = 1 - team[v]
                                stack.append(w)
                            elif team[w] == team[v]:
                                fine = False
            print("yes" if fine else "no")
        """,
        wrong=(
            ("for root in range(1, n + 1):", "for root in range(1, 2):"),
            """
            n, m = map(int, input().split())
            print("yes" if m < n else "no")
            """,
        ),
    ),
    Exercise(
        id="island_sizes",
        difficulty="medium",
        task="On a map # is land and . is water. Land fields that touch along an edge (not only at a "
        "corner) belong to one island. Count the islands and measure the largest.",
        input_format="The first line holds height and width (1 to 20), the next lines the map.",
        output_format="Two integers on one line: number of islands, fields of the largest (or 0).",
        example="3 4\n##..\n..#.\n#.##",
        edges=("1 1\n.", "1 1\n#", "2 2\n#.\n.#", "3 3\n###\n#.#\n###", "1 5\n#.###"),
        case=_map_case,
        answer=_islands_answer,
        solution="""
            height, width = map(int, input().split())
            grid = [list(input().strip()) for _ in range(height)]
            count = largest = 0
            for y in range(height):
                for x in range(width):
                    if grid[y][x] != "#":
                        continue
                    count += 1
                    size, stack = 0, [(y, x)]
                    grid[y][x] = "."
                    while stack:
                        r, c = stack.pop()
                        size += 1
                        for i, j in ((r + 1, c), (r - 1, c), (r, c + 1), (r, c - 1)):
                            if 0 <= i < height and 0 <= j < width and grid[i][j] == "#":
                                grid[i][j] = "."
                                stack.append((i, j))
                    largest = max(largest, size)
            print(count, largest)
        """,
        wrong=(
            ("(r, c - 1)):", "(r, c - 1), (r + 1, c + 1), (r + 1, c - 1)):"),
            ("(r + 1, c), (r - 1, c),", "(r + 1, c),"),
        ),
    ),
)
