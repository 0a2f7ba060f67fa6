"""Built-in problems: queues, rooms, caches and scores."""

from __future__ import annotations

import random
from collections import OrderedDict

from pettingllms_envs.code.builtin.exercise import Exercise, ints, row, rows, scaled


def _counters_case(rng: random.Random, size: int) -> str:
    customers = rng.randint(1, scaled(size, 3, 100))
    desks = rng.randint(1, 1 + size // 2)
    return rows(f"{customers} {desks}", row(rng.randint(1, 9) for _ in range(customers)))


def _counters_answer(text: str) -> str:
    _, desks, *waiting = ints(text)
    busy: list[int] = []
    minute = 0
    while waiting or busy:
        while waiting and len(busy) < desks:
            busy.append(waiting.pop(0))
        minute += 1
        busy = [left - 1 for left in busy if left > 1]
    return str(minute)


def _cache_case(rng: random.Random, size: int) -> str:
    keys = [rng.randint(1, 2 + size) for _ in range(scaled(size, 3, 200))]
    return rows(f"{rng.randint(1, 1 + size // 2)} {len(keys)}", row(keys))


def _cache_answer(text: str) -> str:
    room, _, *keys = ints(text)
    cache: OrderedDict[int, None] = OrderedDict()
    hits = 0
    for key in keys:
        hits += key in cache
        cache[key] = None
        cache.move_to_end(key)
        if len(cache) > room:
            cache.popitem(last=False)
    return f"{hits} {row(sorted(cache))}"


def _bowling_case(rng: random.Random, size: int) -> str:
    frames: list[list[int]] = []
    for frame in range(10):
        first = rng.choice((10, rng.randint(0, 10)))
        rolls = [first]
        if first < 10:
            rolls.append(rng.choice((10 - first, rng.randint(0, 10 - first))))
        if frame == 9 and sum(rolls) >= 10:
            while len(rolls) < 3:
                rolls.append(rng.randint(0, 10 if rolls[-1] == 10 else 10 - (rolls[-1] % 10)))
            if rolls[0] == 10 and rolls[1] < 10:
                rolls[2] = min(rolls[2], 10 - rolls[1])
        frames.append(rolls if size > 1 else [0, 0])
    return rows(row(roll for rolls in frames for roll in rolls))


def _bowling_answer(text: str) -> str:
    rolls, total = ints(text), 0
    for frame in range(10):
        if frame == 9:
            return str(total + sum(rolls))
        strike = rolls[0] == 10
        bonus = strike or rolls[0] + rolls[1] == 10
        total += sum(rolls[: 3 if bonus else 2])
        rolls = rolls[1 if strike else 2 :]
    raise AssertionError("ten frames always end")


def _meeting_case(rng: random.Random, size: int) -> str:
    starts = [
        rng.randint(0, scaled(size, 5, 300)) for _ in range(rng.randint(1, scaled(size, 3, 200)))
    ]
    return rows(len(starts), *(f"{start} {start + rng.randint(1, 5 + size)}" for start in starts))


def _meeting_answer(text: str) -> str:
    values = ints(text)[1:]
    meetings = list(zip(values[::2], values[1::2], strict=True))
    return str(max(sum(a <= t < b for a, b in meetings) for t, _ in meetings))


EXERCISES = (
    Exercise(
        id="rooms_needed",
        difficulty="medium",
        task="Each meeting needs a room from its start until just before its end; a room that "
        "becomes free at some time can be used by a meeting that starts at that time. Find the "
        "fewest rooms that are enough.",
        input_format="The first line holds n (1 to 200). Each of the next n lines holds the "
        "integers start and end of a meeting, 0 <= start < end <= 400.",
        output_format="The number of rooms.",
        example="3\n1 4\n2 5\n4 6",
        edges=("1\n0 1", "2\n0 5\n5 9", "3\n1 2\n1 2\n1 2", "3\n1 10\n2 3\n4 5"),
        case=_meeting_case,
        answer=_meeting_answer,
        solution="""
            n = int(input())
            events = []
            for _ in range(n):
                start, end = map(int, input().split())
                events.append((start, 1))
                events.append((end, -1))
            rooms = best = 0
            for _, change in sorted(events):
                rooms += change
                best = max(best, rooms)
            print(best)
        """,
        wrong=(
            ("sorted(events)", "sorted(events, key=lambda e: (e[0], -e[1]))"),
            """
            n = int(input())
            meetings = sorted(tuple(map(int, input().split())) for _ in range(n))
            rooms, last = 1, meetings[0][1]
            for start, end in meetings[1:]:
                if start < last:
                    rooms += 1
                last = max(last, end)
            print(rooms)
            """,
        ),
    ),
    Exercise(
        id="service_counters",
        difficulty="easy",
        task="Customers queue in one line for several counters. As soon as a counter is free, "
        "the next customer goes there at once. After how many minutes has the last customer been "
        "served?",
        input_format="The first line holds the number of customers (1 to 100) and of counters (1 "
        "to 6), the second the minutes (1 to 9) each customer needs, in queue order.",
        output_format="The number of minutes.",
        example="4 2\n5 3 2 4",
        edges=("1 3\n7", "3 1\n1 2 3", "3 2\n2 2 2", "5 2\n9 1 1 1 1", "4 4\n1 2 3 4"),
        case=_counters_case,
        answer=_counters_answer,
        solution="""
            n, k = map(int, input().split())
            free = [0] * k
            for need in map(int, input().split()):
                first = free.index(min(free))
                free[first] += need
            print(max(free))
        """,
        wrong=(
            ("map(int, input().split()):", "sorted(map(int, input().split()), reverse=True):"),
            """
            n, k = map(int, input().split())
            free = [0] * k
            for i, need in enumerate(map(int, input().split())):
                free[i % k] += need
            print(max(free))
            """,
        ),
    ),
    Exercise(
        id="least_recently_used",
        difficulty="medium",
        task="A cache holds at most c keys. Asking for a key that is in it is a hit. A key that "
        "is not in it is put in; if the cache is full, the key whose last request (hit or not) is "
        "longest ago is thrown out first.",
        input_format="The first line holds c (1 to 6) and the number of requests (1 to 200), the "
        "second the requested keys (1 to 12) in order. The cache starts empty.",
        output_format="The number of hits, then the keys in the cache at the end in ascending "
        "order, all on one line.",
        example="2 5\n1 2 1 3 2",
        edges=("1 3\n4 4 4", "1 2\n1 2", "3 4\n5 4 3 5", "2 6\n1 2 1 3 1 2"),
        case=_cache_case,
        answer=_cache_answer,
        solution="""
            room, n = map(int, input().split())
            cache = []
            hits = 0
            for key in map(int, input().split()):
                if key in cache:
                    hits += 1
                    cache.remove(key)
                elif len(cache) == room:
                    cache.pop(0)
                cache.append(key)
            print(hits, *sorted(cache))
        """,
        wrong=(
            """
            room, n = map(int, input().split())
            cache = []
            hits = 0
            for key in map(int, input().split()):
                if key in cache:
                    hits += 1
                    continue
                if len(cache) == room:
                    cache.pop(0)
                cache.append(key)
            print(hits, *sorted(cache))
            """,
            ("cache.pop(0)", "cache.pop()"),
        ),
    ),
    Exercise(
        id="bowling_score",
        difficulty="hard",
        task="Score a complete game of ten-pin bowling. A frame is up to two rolls at ten pins. "
        "If the first roll takes all ten (strike) the frame ends and also earns the pins of the "
        "next two rolls; if both rolls together take all ten (spare) it also earns the pins of "
        "the next roll. After a strike or spare in the tenth frame one goes on until three rolls "
        "are made in it; they just count as they are.",
        input_format="One line with the pins of each roll in order.",
        output_format="The score.",
        example="10 3 7 4 2 0 0 0 0 0 0 0 0 0 0 0 0 5 5 8",
        edges=(
            row([10] * 12),
            row([0] * 20),
            row([5] * 21),
            row([9, 1] * 10 + [10]),
            row([0, 10] * 10 + [0]),
        ),
        case=_bowling_case,
        answer=_bowling_answer,
        solution="""
            rolls = list(map(int, input().split()))
            score = i = 0
            for _ in range(10):
                if rolls[i] == 10:
                    score += sum(rolls[i : i + 3])
                    i += 1
                elif rolls[i] + rolls[i + 1] == 10:
                    score += sum(rolls[i : i + 3])
                    i += 2
                else:
                    score += sum(rolls[i : i + 2])
                    i += 2
            print(score)
        """,
        wrong=(
            """
            rolls = list(map(int, input().split()))
            score = i = 0
            for _ in range(10):
                bonus = rolls[i] == 10 or rolls[i] + rolls[i + 1] == 10
                score += sum(rolls[i : i + (3 if bonus else 2)])
                i += 2
                if i >= len(rolls) - 1:
                    break
            print(score)
            """,
            """
            print(sum(map(int, input().split())))
            """,
        ),
    ),
)
