"""Built-in problems: following a procedure exactly."""

from __future__ import annotations

import random

from pettingllms_envs.code.builtin.exercise import Exercise, ints, row, rows, scaled


def _robot_case(rng: random.Random, size: int) -> str:
    commands = (
        rng.choice(("L", "R", f"F{rng.randint(1, 9)}")) for _ in range(scaled(size, 2, 200))
    )
    return rows(" ".join(commands))


def _robot_answer(text: str) -> str:
    place, heading = 0j, 1j
    for command in text.split():
        if command[0] == "F":
            place += heading * int(command[1:])
        else:
            heading *= 1j if command == "L" else -1j
    return f"{int(place.real)} {int(place.imag)}"


def _life_case(rng: random.Random, size: int) -> str:
    height, width = rng.randint(1, 1 + size), rng.randint(1, 1 + size)
    lines = ["".join(rng.choice("#..") for _ in range(width)) for _ in range(height)]
    return rows(f"{height} {width} {rng.randint(0, 1 + size)}", *lines)


def _life_answer(text: str) -> str:
    tokens = text.split()
    height, width, steps = map(int, tokens[:3])
    alive = {(y, x) for y in range(height) for x in range(width) if tokens[3 + y][x] == "#"}
    fields = [(y, x) for y in range(height) for x in range(width)]
    for _ in range(steps):
        near = {
            (y, x): sum((y + i, x + j) in alive for i in (-1, 0, 1) for j in (-1, 0, 1) if i or j)
            for y, x in fields
        }
        alive = {f for f in fields if near[f] == 3 or (near[f] == 2 and f in alive)}
    lines = ("".join(".#"[(y, x) in alive] for x in range(width)) for y in range(height))
    return "\n".join(lines)


def _spiral_case(rng: random.Random, size: int) -> str:
    height, width = rng.randint(1, size), rng.randint(1, size)
    lines = (row(rng.randint(0, 99) for _ in range(width)) for _ in range(height))
    return rows(f"{height} {width}", *lines)


def _spiral_answer(text: str) -> str:
    _, width, *flat = ints(text)
    grid = [flat[i : i + width] for i in range(0, len(flat), width)]
    order: list[int] = []
    while grid:
        order += grid[0]
        grid = [list(column) for column in zip(*grid[1:], strict=True)][::-1]
    return row(order)


EXERCISES = (
    Exercise(
        id="robot_walk",
        difficulty="introductory",
        task="A robot stands at (0, 0) and faces north (the second coordinate grows). L turns it "
        "left on the spot, R turns it right, and F followed by a number moves it that far ahead. "
        "Where does it end?",
        input_format="One line of 1 to 200 commands L, R or Fk (k from 1 to 9), separated by "
        "spaces.",
        output_format="The two coordinates on one line.",
        example="F2 R F3 L F1",
        edges=("F1", "L F4", "R R F5", "L L L F2", "L R"),
        case=_robot_case,
        answer=_robot_answer,
        solution="""
            x = y = 0
            dx, dy = 0, 1
            for command in input().split():
                if command == "L":
                    dx, dy = -dy, dx
                elif command == "R":
                    dx, dy = dy, -dx
                else:
                    x += dx * int(command[1:])
                    y += dy * int(command[1:])
            print(x, y)
        """,
        wrong=(("dx, dy = -dy, dx", "dx, dy = dy, dx"), ("dx, dy = 0, 1", "dx, dy = 1, 0")),
    ),
    Exercise(
        id="life_steps",
        difficulty="medium",
        task="Cells live on a grid and each has up to eight neighbours, also across corners; "
        "beyond the border nothing lives. In each step, all at once, a living cell stays alive "
        "with two or three living neighbours and otherwise dies, and a dead cell with exactly "
        "three becomes alive. Show the grid after k steps.",
        input_format="The first line holds height, width (1 to 11) and k (0 to 11). The next "
        "lines show the grid: # alive, . dead.",
        output_format="The grid after k steps.",
        example="3 3 1\n.#.\n.#.\n.#.",
        edges=(
            "1 1 1\n#",
            "2 2 3\n##\n##",
            "3 3 0\n#.#\n...\n#.#",
            "4 4 2\n.#..\n..#.\n###.\n....",
        ),
        case=_life_case,
        answer=_life_answer,
        solution="""
            height, width, k = map(int, input().split())
            grid = [input().strip() for _ in range(height)]
            for _ in range(k):
                after = []
                for y in range(height):
                    line = ""
                    for x in range(width):
                        near = 0
                        for i in range(max(0, y - 1), min(height, y + 2)):
                            for j in range(max(0, x - 1), min(width, x + 2)):
                                near += grid[i][j] == "#" and (i, j) != (y, x)
                        line += "#" if near == 3 or near == 2 and grid[y][x] == "#" else "."
                    after.append(line)
                grid = after
            print("\\n".join(grid))
        """,
        wrong=((" and (i, j) != (y, x)", ""), ("range(k)", "range(min(k, 1))")),
    ),
    Exercise(
        id="spiral_order",
        difficulty="medium",
        task="Read a table of numbers in a clockwise spiral from the top left corner inwards.",
        input_format="The first line holds height and width (1 to 10), the next lines the table "
        "with numbers from 0 to 99.",
        output_format="The numbers in spiral order on one line.",
        example="3 3\n1 2 3\n4 5 6\n7 8 9",
        edges=("1 1\n7", "1 3\n1 2 3", "3 1\n1\n2\n3", "2 3\n1 2 3\n4 5 6", "3 2\n1 2\n3 4\n5 6"),
        case=_spiral_case,
        answer=_spiral_answer,
        solution="""
            height, width = map(int, input().split())
            table = [input().split() for _ in range(height)]
            seen = set()
            y = x = 0
            dy, dx = 0, 1
            order = []
            for _ in range(height * width):
                order.append(table[y][x])
                seen.add((y, x))
                i, j = y + dy, x + dx
                if not (0 <= i < height and 0 <= j < width) or (i, j) in seen:
                    dy, dx = dx, -dy
                    i, j = y + dy, x + dx
                y, x = i, j
            print(*order)
        """,
        wrong=(
            """
            height, width = map(int, input().split())
            table = [input().split() for _ in range(height)]
            order = []
            for y in range(height):
                order += table[y] if y % 2 == 0 else table[y][::-1]
            print(*order)
            """,
            """
            height, width = map(int, input().split())
            table = [input().split() for _ in range(height)]
            order = table[0] + [table[y][-1] for y in range(1, height)]
            if height > 1:
                order += table[-1][-2::-1]
            order += [table[y][0] for y in range(height - 2, 0, -1)]
            print(*order)
            """,
        ),
    ),
)
