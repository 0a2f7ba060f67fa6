"""Built-in problems: reading and rewriting text."""

from __future__ import annotations

import itertools
import random
import re
import string
from collections import Counter

from pettingllms_envs.code.builtin.exercise import Exercise, rows, scaled


def _letters(rng: random.Random, alphabet: str, low: int, high: int) -> str:
    return "".join(rng.choice(alphabet) for _ in range(rng.randint(low, high)))


def _phrase_case(rng: random.Random, size: int) -> str:
    half = _letters(rng, "abcABC", 1, scaled(size, 2, 200))
    text = half + half[::-1].swapcase()
    if rng.random() < 0.5:
        spot = rng.randrange(len(text))
        text = text[:spot] + rng.choice("xyz") + text[spot + 1 :]
    return rows(re.sub(r"(?<=[bC])", rng.choice((" ", ", ", "! ", "-")), text).strip())


def _phrase_answer(text: str) -> str:
    kept = re.sub("[^a-z]", "", text.lower())
    return "yes" if all(kept[i] == kept[~i] for i in range(len(kept))) else "no"


def _caesar_case(rng: random.Random, size: int) -> str:
    shift = rng.randint(-scaled(size, 3, 10**6), scaled(size, 3, 10**6))
    return rows(shift, ("x" + _letters(rng, string.ascii_letters + " .,!?", 0, 20 * size)).strip())


def _caesar_answer(text: str) -> str:
    shift, _, message = text.strip("\n").partition("\n")
    k = int(shift) % 26
    low, up = string.ascii_lowercase, string.ascii_uppercase
    return message.translate(str.maketrans(low + up, low[k:] + low[:k] + up[k:] + up[:k]))


def _run_length_case(rng: random.Random, size: int) -> str:
    runs = [
        rng.choice("abc") * rng.choice((1, 1, 2, rng.randint(1, 3 * size))) for _ in range(2 * size)
    ]
    return rows("".join(runs))


def _run_length_answer(text: str) -> str:
    groups = ((letter, len(list(run))) for letter, run in itertools.groupby(text.strip()))
    return "".join(letter + (str(n) if n > 1 else "") for letter, n in groups)


def _frequent_case(rng: random.Random, size: int) -> str:
    words = [_letters(rng, "aB", 1, 3) for _ in range(rng.randint(1, scaled(size, 3, 400)))]
    return rows(" ".join(words))


def _frequent_answer(text: str) -> str:
    counts = Counter(text.lower().split())
    word, count = min(counts.items(), key=lambda item: (-item[1], item[0]))
    return f"{word} {count}"


def _anagram_case(rng: random.Random, size: int) -> str:
    words = [_letters(rng, "abc", 1, 4) for _ in range(rng.randint(1, scaled(size, 3, 300)))]
    return rows(len(words), *words)


def _unique_answer(text: str) -> str:
    word = text.strip()
    best = 0
    for start in range(len(word)):
        seen: set[str] = set()
        for letter in word[start:]:
            if letter in seen:
                break
            seen.add(letter)
        best = max(best, len(seen))
    return str(best)


def _brackets_case(rng: random.Random, size: int) -> str:
    text = ""
    for _ in range(rng.randint(1, scaled(size, 3, 300))):
        pair = rng.choice(("()", "[]", "{}"))
        spot = rng.randint(0, len(text))
        text = text[:spot] + pair + text[spot:]
    if rng.random() < 0.5:
        spot = rng.randrange(len(text))
        text = text[:spot] + rng.choice("()[]{}") + text[spot + 1 :]
    return rows(text)


def _brackets_answer(text: str) -> str:
    word, before = text.strip(), ""
    while word != before:
        word, before = word.replace("()", "").replace("[]", "").replace("{}", ""), word
    return "no" if word else "yes"


EXERCISES = (
    Exercise(
        id="palindrome_phrase",
        difficulty="introductory",
        task="Decide whether a phrase reads the same in both directions when everything but the "
        "letters a-z is ignored and upper and lower case are the same.",
        input_format="One line of at most 2000 characters with at least one letter.",
        output_format="yes or no.",
        example="Never odd, or even!",
        edges=("a", "ab", "Aa", "No 1 on", "abca", "a.b,c-b A"),
        case=_phrase_case,
        answer=_phrase_answer,
        solution="""
            letters = [c for c in input().lower() if "a" <= c <= "z"]
            print("yes" if letters == letters[::-1] else "no")
        """,
        wrong=(
            ("input().lower()", "input()"),
            """
            text = input().lower().replace(" ", "")
            print("yes" if text == text[::-1] else "no")
            """,
        ),
    ),
    Exercise(
        id="caesar_shift",
        difficulty="easy",
        task="Move every letter of a message k places on in the alphabet, going round from z to a. "
        "Capitals stay capitals; anything that is not a letter stays as it is. "
        "A negative k moves backwards.",
        input_format="The first line holds k (-10^6 to 10^6), the second the message: 1 to 300 "
        "letters a-z and A-Z, spaces and punctuation.",
        output_format="The shifted message.",
        example="3\nHello, xyz!",
        edges=("-1\naA", "26\nSame", "0\nzero", "-27\nBb c"),
        case=_caesar_case,
        answer=_caesar_answer,
        solution="""
            k = int(input())
            message = input()
            out = []
            for c in message:
                if c.islower():
                    out.append(chr((ord(c) - 97 + k) % 26 + 97))
                elif c.isupper():
                    out.append(chr((ord(c) - 65 + k) % 26 + 65))
                else:
                    out.append(c)
            print("".join(out))
        """,
        wrong=(
            ("chr((ord(c) - 97 + k) % 26 + 97)", "chr(ord(c) + k % 26)"),
            ("k = int(input())", "k = abs(int(input()))"),
        ),
    ),
    Exercise(
        id="run_length",
        difficulty="introductory",
        task="Shorten a word: replace each longest run of one letter by the letter followed by the "
        "length of the run. A run of length one is just the letter.",
        input_format="One word of 1 to 1000 letters a-z.",
        output_format="The shortened word.",
        example="aaabccaa",
        edges=("a", "zz", "abc", "aaaaaaaaaaaa", "abbb"),
        case=_run_length_case,
        answer=_run_length_answer,
        solution="""
            word = input().strip()
            out = ""
            count = 1
            for i in range(1, len(word) + 1):
                if i < len(word) and word[i] == word[i - 1]:
                    count += 1
                else:
                    out += word[i - 1] + (str(count) if count > 1 else "")
                    count = 1
            print(out)
        """,
        wrong=(
            ('(str(count) if count > 1 else "")', "str(count)"),
            ("range(1, len(word) + 1)", "range(1, len(word))"),
        ),
    ),
    Exercise(
        id="frequent_word",
        difficulty="easy",
        task="Find the most frequent word of a text; upper and lower case are the same. "
        "Of several such words take the one that comes first in the alphabet.",
        input_format="One line of 1 to 400 words made of letters, separated by single spaces.",
        output_format="The word in lower case, a space, and how often it occurs.",
        example="Be or not to be or",
        edges=("A", "b a B A", "z z a a m", "Zeta alpha"),
        case=_frequent_case,
        answer=_frequent_answer,
        solution="""
            counts = {}
            for word in input().lower().split():
                counts[word] = counts.get(word, 0) + 1
            best = sorted(counts, key=lambda w: (-counts[w], w))[0]
            print(best, counts[best])
        """,
        wrong=(("input().lower()", "input()"), ("(-counts[w], w)", "-counts[w]")),
    ),
    Exercise(
        id="anagram_groups",
        difficulty="easy",
        task="Two words belong to one group if one can be rearranged into the other. "
        "Count the groups and give the size of the largest. Equal words count each time.",
        input_format="The first line holds n (1 to 300), then n lines follow with a word each "
        "(1 to 4 letters a-z).",
        output_format="Two integers on one line: number of groups and size of the largest.",
        example="5\nabc\ncab\nab\nba\naab",
        edges=("1\na", "2\nac\nbb", "3\na\na\na", "4\naab\nabb\nbba\nab"),
        case=_anagram_case,
        answer=lambda text: (lambda c: f"{len(c)} {max(c.values())}")(
            Counter("".join(sorted(word)) for word in text.split()[1:])
        ),
        solution="""
            n = int(input())
            groups = {}
            for _ in range(n):
                key = tuple(sorted(input().strip()))
                groups[key] = groups.get(key, 0) + 1
            print(len(groups), max(groups.values()))
        """,
        wrong=(
            ("tuple(sorted(input().strip()))", "frozenset(input().strip())"),
            ("tuple(sorted(input().strip()))", "sum(map(ord, input().strip()))"),
        ),
    ),
    Exercise(
        id="longest_distinct_stretch",
        difficulty="medium",
        task="Find the length of the longest stretch of neighbouring letters of a word in which no "
        "letter occurs twice.",
        input_format="One word of 1 to 1000 letters a-z.",
        output_format="The length.",
        example="abcabdd",
        edges=("a", "aaaa", "abba", "dvdf", "abcdefghijklmnopqrstuvwxyz"),
        case=lambda rng, size: rows(
            _letters(rng, string.ascii_lowercase[: 2 + 2 * size], 1, scaled(size, 5, 900))
        ),
        answer=_unique_answer,
        solution="""
            word = input().strip()
            last = {}
            start = best = 0
            for i, c in enumerate(word):
                if last.get(c, -1) >= start:
                    start = last[c] + 1
                last[c] = i
                best = max(best, i - start + 1)
            print(best)
        """,
        wrong=(
            ("if last.get(c, -1) >= start:", "if c in last:"),
            ("print(best)", "print(len(set(word)))"),
        ),
    ),
    Exercise(
        id="balanced_brackets",
        difficulty="easy",
        task="Decide whether a sequence of brackets ( ) [ ] { } is balanced: every opening bracket "
        "is closed by one of its own kind, and pairs are properly nested.",
        input_format="One line of 1 to 600 bracket characters.",
        output_format="yes or no.",
        example="([]{})",
        edges=("(", ")", "([)]", "()()", "}{", "((())"),
        case=_brackets_case,
        answer=_brackets_answer,
        solution="""
            pairs = {")": "(", "]": "[", "}": "{"}
            stack = []
            fine = True
            for c in input().strip():
                if c in pairs:
                    if not stack or stack.pop() != pairs[c]:
                        fine = False
                        break
                else:
                    stack.append(c)
            print("yes" if fine and not stack else "no")
        """,
        wrong=(
            ("fine and not stack", "fine"),
            """
            text = input().strip()
            same = all(text.count(a) == text.count(b) for a, b in ("()", "[]", "{}"))
            print("yes" if same else "no")
            """,
        ),
    ),
)
