"""Built-in problems: stacks, notations and intervals."""

from __future__ import annotations

import random
from fractions import Fraction

from pettingllms_envs.code.builtin.exercise import Exercise, ints, row, rows, scaled


def _postfix_case(rng: random.Random, size: int) -> str:
    tokens = [str(rng.randint(1, 20))]
    for _ in range(rng.randint(0, 2 * size)):
        tokens += [str(rng.randint(1, 9)), rng.choice("+-*+-/")]
        if rng.random() < 0.3:
            tokens = [str(rng.randint(1, 9)), *tokens, rng.choice("+-")]
    return rows(" ".join(tokens))


def _postfix_answer(text: str) -> str:
    def value(tokens: list[str]) -> int:
        token = tokens.pop()
        if token not in ("+", "-", "*", "/"):
            return int(token)
        right = value(tokens)
        left = value(tokens)
        if token == "/":
            return int(Fraction(left, right))
        return {"+": left + right, "-": left - right, "*": left * right}[token]

    return str(value(text.split()))


def _next_larger_case(rng: random.Random, size: int) -> str:
    n = rng.randint(1, scaled(size, 3, 300))
    return rows(n, row(rng.randint(0, 4 * size) for _ in range(n)))


def _next_larger_answer(text: str) -> str:
    values = ints(text)[1:]
    return row(next((w for w in values[i:] if w > v), -1) for i, v in enumerate(values))


def _window_case(rng: random.Random, size: int) -> str:
    n = rng.randint(1, scaled(size, 4, 300))
    return rows(f"{n} {rng.randint(1, n)}", row(rng.randint(-30, 30) for _ in range(n)))


def _window_answer(text: str) -> str:
    n, k, *values = ints(text)
    return row(max(values[i : i + k]) for i in range(n - k + 1))


def _union_case(rng: random.Random, size: int) -> str:
    spread = scaled(size, 6, 500)
    starts = [rng.randint(-spread, spread) for _ in range(rng.randint(1, scaled(size, 3, 60)))]
    return rows(len(starts), *(f"{a} {a + rng.randint(1, 3 + 2 * size)}" for a in starts))


def _union_answer(text: str) -> str:
    values = ints(text)[1:]
    pairs = zip(values[::2], values[1::2], strict=True)
    return str(len({unit for a, b in pairs for unit in range(a, b)}))


_ROMAN = {
    "M": 1000, "CM": 900, "D": 500, "CD": 400, "C": 100, "XC": 90, "L": 50, "XL": 40,
    "X": 10, "IX": 9, "V": 5, "IV": 4, "I": 1,
}  # fmt: skip


def _to_roman(number: int) -> str:
    text = ""
    for letters, value in _ROMAN.items():
        text += letters * (number // value)
        number %= value
    return text


def _roman_answer(text: str) -> str:
    numbers = {_to_roman(n): n for n in range(1, 4000)}
    return str(sum(numbers[word] for word in text.split()))


def _depth_case(rng: random.Random, size: int) -> str:
    n = rng.randint(1, scaled(size, 3, 200))
    parents = [rng.randint(max(0, i - 1 - 2 * size), i - 1) for i in range(1, n)]
    names = rng.sample(range(1, n + 1), n)
    above = {names[i]: names[p] for i, p in enumerate(parents, 1)} | {names[0]: 0}
    return rows(n, row(above[v] for v in range(1, n + 1)))


def _depth_answer(text: str) -> str:
    n, *above = ints(text)
    levels: dict[int, int] = {}
    for v in range(1, n + 1):
        level, node = 0, v
        while above[node - 1]:
            level, node = level + 1, above[node - 1]
        levels[level] = levels.get(level, 0) + 1
    return f"{max(levels)} {max(levels.values())}"


EXERCISES = (
    Exercise(
        id="postfix_value",
        difficulty="medium",
        task="Work out an expression in postfix notation, where an operator stands after its two "
        "operands. The operators are + - * and /; division drops the part after the decimal point "
        "(so -7 / 2 is -3). No division by zero occurs.",
        input_format="One line of tokens separated by spaces: operators and integers from 1 to 20.",
        output_format="The value, an integer.",
        example="7 2 3 * -",
        edges=("5", "1 8 - 2 /", "9 4 /", "2 3 4 + *", "20 3 - 2 - 4 /"),
        case=_postfix_case,
        answer=_postfix_answer,
        solution="""
            stack = []
            for token in input().split():
                if token in ("+", "-", "*", "/"):
                    b, a = stack.pop(), stack.pop()
                    if token == "+":
                        stack.append(a + b)
                    elif token == "-":
                        stack.append(a - b)
                    elif token == "*":
                        stack.append(a * b)
                    else:
                        stack.append(abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1))
                else:
                    stack.append(int(token))
            print(stack[0])
        """,
        wrong=(
            ("b, a = stack.pop(), stack.pop()", "a, b = stack.pop(), stack.pop()"),
            ("abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)", "a // b"),
        ),
    ),
    Exercise(
        id="next_larger",
        difficulty="easy",
        task="For every number of a list find the nearest larger number to its right.",
        input_format="The first line holds n (1 to 300), the second n integers from 0 to 40.",
        output_format="n numbers on one line; -1 where no larger number follows.",
        example="5\n2 1 2 4 3",
        edges=("1\n0", "3\n5 5 5", "4\n4 3 2 1", "4\n1 2 3 4", "3\n0 0 1"),
        case=_next_larger_case,
        answer=_next_larger_answer,
        solution="""
            n = int(input())
            values = list(map(int, input().split()))
            result = [-1] * n
            waiting = []
            for i, v in enumerate(values):
                while waiting and values[waiting[-1]] < v:
                    result[waiting.pop()] = v
                waiting.append(i)
            print(*result)
        """,
        wrong=(
            ("values[waiting[-1]] < v", "values[waiting[-1]] <= v"),
            """
            n = int(input())
            values = list(map(int, input().split()))
            print(*(max(values[i:]) if max(values[i:]) > values[i] else -1 for i in range(n)))
            """,
        ),
    ),
    Exercise(
        id="window_maxima",
        difficulty="easy",
        task="Slide a window of k neighbouring numbers over a list and report the maximum of each "
        "window.",
        input_format="The first line holds n (1 to 300) and k (1 to n), the second n integers "
        "between -30 and 30.",
        output_format="The n - k + 1 maxima from left to right on one line.",
        example="5 3\n1 3 -2 0 5",
        edges=("1 1\n-9", "3 3\n-3 -1 -2", "3 1\n2 1 2", "4 2\n4 3 2 1"),
        case=_window_case,
        answer=_window_answer,
        solution="""
            from collections import deque

            n, k = map(int, input().split())
            values = list(map(int, input().split()))
            best, out = deque(), []
            for i, v in enumerate(values):
                while best and values[best[-1]] <= v:
                    best.pop()
                best.append(i)
                if best[0] <= i - k:
                    best.popleft()
                if i >= k - 1:
                    out.append(values[best[0]])
            print(*out)
        """,
        wrong=(("best[0] <= i - k", "best[0] < i - k"), ("i >= k - 1", "i >= k")),
    ),
    Exercise(
        id="covered_length",
        difficulty="medium",
        task="Find the total length of the line that is covered by at least one of several "
        "intervals.",
        input_format="The first line holds n (1 to 60). Each of the next n lines holds integers "
        "a < b between -600 and 600.",
        output_format="The covered length.",
        example="3\n0 3\n2 5\n7 8",
        edges=("1\n-1 1", "2\n0 9\n2 3", "2\n0 1\n1 2", "3\n5 6\n0 1\n-4 -2"),
        case=_union_case,
        answer=_union_answer,
        solution="""
            n = int(input())
            spans = sorted(tuple(map(int, input().split())) for _ in range(n))
            total, reach = 0, spans[0][0]
            for a, b in spans:
                total += max(0, b - max(a, reach))
                reach = max(reach, b)
            print(total)
        """,
        wrong=(("reach = max(reach, b)", "reach = b"), ("b - max(a, reach)", "b - a")),
    ),
    Exercise(
        id="roman_sum",
        difficulty="easy",
        task="Add up numbers written in Roman numerals (I 1, V 5, X 10, L 50, C 100, D 500, M "
        "1000; a smaller sign before a larger one is subtracted).",
        input_format="One line with 1 to 10 correctly written numerals below 4000, separated by "
        "spaces.",
        output_format="The sum as a decimal number.",
        example="XIV CM",
        edges=("I", "IV", "MMMCMXCIX", "XL XC CD", "VI IV"),
        case=lambda rng, size: rows(row(_to_roman(rng.randint(1, 3999)) for _ in range(size))),
        answer=_roman_answer,
        solution="""
            value = dict(I=1, V=5, X=10, L=50, C=100, D=500, M=1000)
            total = 0
            for word in input().split():
                for i, c in enumerate(word):
                    smaller = i + 1 < len(word) and value[c] < value[word[i + 1]]
                    total += -value[c] if smaller else value[c]
            print(total)
        """,
        wrong=(
            ("-value[c] if smaller else value[c]", "value[c]"),
            ("-value[c] if smaller", "0 if smaller"),
        ),
    ),
    Exercise(
        id="tree_levels",
        difficulty="easy",
        task="A company has one head; everyone else has exactly one superior. The head is on "
        "level 0, people reporting to the head are on level 1, and so on. Find the deepest level "
        "and the number of people on the level with the most people.",
        input_format="The first line holds n (1 to 200). The second holds, for person 1 to n, the "
        "number of the superior, or 0 for the head.",
        output_format="Two integers on one line: deepest level, people on the fullest level.",
        example="5\n0 1 1 2 2",
        edges=("1\n0", "3\n2 3 0", "4\n4 4 4 0", "3\n0 1 2"),
        case=_depth_case,
        answer=_depth_answer,
        solution="""
            n = int(input())
            above = [0] + list(map(int, input().split()))
            below = [[] for _ in range(n + 1)]
            for v in range(1, n + 1):
                below[above[v]].append(v)
            level, widest, depth = below[0], 0, -1
            while level:
                depth += 1
                widest = max(widest, len(level))
                level = [w for v in level for w in below[v]]
            print(depth, widest)
        """,
        wrong=(
            ("depth = below[0], 0, -1", "depth = below[0], 0, 0"),
            ("max(widest, len(level))", "len(level)"),
        ),
    ),
)
