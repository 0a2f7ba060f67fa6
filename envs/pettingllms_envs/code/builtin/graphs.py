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
    return [(a, b) if rng.random() < 0.5 else (b, a) for a, b in chosen]


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


def _tasks_case(rng: random.Random, size: int) -> str:
    n = rng.randint(1, scaled(size, 4, 60))
    order = rng.sample(range(1, n + 1), n)
    edges = [(order[a - 1], order[b - 1]) for a, b in map(sorted, _random_edges(rng, n, 1.2))]
    if edges and rng.random() < 0.25:
        edges.append((edges[0][1], edges[0][0]))
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
        id="task_order",
        difficulty="hard",
        task="Tasks 1 to n have to be done one after the other. A link a b says that a comes "
        "before b. Of all possible orders find the one with the smallest first task, then the "
        "smallest second task, and so on.",
        input_format="The first line holds n (1 to 60) and m. Each of the next m lines holds a "
        "link.",
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
            ('print(*order) if len(order) == n else print("impossible")', "print(*order)"),
        ),
    ),
    Exercise(
        id="two_teams",
        difficulty="medium",
        task="Divide people 1 to n into two teams so that no two people who dislike each other "
        "are in one team. Is that possible?",
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
        task="On a map # is land and . is water. Land fields that touch along an edge (not only "
        "at a corner) belong to one island. Count the islands and measure the largest.",
        input_format="The first line holds height and width (1 to 20), the next lines the map.",
        output_format="Two integers on one line: number of islands, fields of the largest (or 0).",
        example="3 4\n##..\n..#.\n#.##",
        edges=(
            "2 3\n#.#\n###",
            "3 2\n.#\n##\n#.",
            "1 1\n.",
            "1 1\n#",
            "2 2\n#.\n.#",
            "3 3\n###\n#.#\n###",
            "1 5\n#.###",
        ),
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
