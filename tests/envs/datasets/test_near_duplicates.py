"""Near-duplicates, against the plain definition."""

import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pettingllms.errors import InvalidArgument
from pettingllms_envs.datasets import MathProblem, load_problems, near_duplicates

WORDS = [f"w{i}" for i in range(400)]


def plain_similarity(a, b, n):
    def grams(text):
        words = re.findall(r"\w+|[^\w\s]", text.lower())
        return {tuple(words[i : i + n]) for i in range(max(1, len(words) - n + 1))}

    return len(grams(a) & grams(b)) / len(grams(a) | grams(b))


def text(rng, length=60):
    return " ".join(rng.choice(WORDS) for _ in range(length))


def changed(rng, original, count):
    words = original.split()
    for place in rng.sample(range(len(words)), count):
        words[place] = "changed"
    return " ".join(words)


def test_copies_are_found_and_others_are_not():
    rng = random.Random(0)
    train = [text(rng) for _ in range(200)]
    test = [text(rng) for _ in range(50)]
    test[7] = train[30].upper()
    test[9] = "  " + train[31].replace(" ", "  ")
    test[11] = changed(rng, train[32], 1)
    found = {(pair.first, pair.second): pair.similarity for pair in near_duplicates(train, test)}
    assert set(found) == {(30, 7), (31, 9), (32, 11)}
    assert found[30, 7] == found[31, 9] == 1.0
    assert found[32, 11] == pytest.approx(plain_similarity(train[32], test[11], 5))


@given(st.integers(0, 10**6))
def test_exactly_the_similar_pairs_are_reported(seed):
    rng = random.Random(seed)
    train = [text(rng, rng.randint(1, 30)) for _ in range(5)]
    test = [changed(rng, t, rng.randint(0, min(3, len(t.split())))) for t in train]
    found = {(a, b): s for a, b, s in near_duplicates(train, test, threshold=0.3, n=3)}
    exact = {
        (i, j): plain_similarity(a, b, 3) for i, a in enumerate(train) for j, b in enumerate(test)
    }
    assert found == pytest.approx({pair: s for pair, s in exact.items() if s >= 0.3})


def test_nothing_above_the_threshold_is_missed_on_real_texts(shared_data):
    problems = load_problems(MathProblem, shared_data("gsm8k_sample.jsonl")).problems
    rng = random.Random(1)
    train = [problem.question for problem in problems]
    test = [changed(rng, question, 2) for question in train]
    found = near_duplicates(train, test, threshold=0.6)
    wanted = {i for i in range(200) if plain_similarity(train[i], test[i], 5) >= 0.6}
    assert len(wanted) > 50
    assert wanted == {pair.first for pair in found if pair.first == pair.second}


def test_empty_collections_and_short_texts():
    assert near_duplicates([], ["a"]) == []
    assert near_duplicates(["a"], []) == []
    assert near_duplicates(["one two"], ["One Two", ""]) == [(0, 0, 1.0)]


@pytest.mark.parametrize("kwargs", [{"threshold": 0}, {"threshold": 1.5}, {"n": 0}, {"n": 2.5}])
def test_arguments_are_checked(kwargs):
    with pytest.raises(InvalidArgument, match=next(iter(kwargs))):
        near_duplicates(["a"], ["b"], **kwargs)
    with pytest.raises(InvalidArgument, match="second"):
        near_duplicates(["a"], "b")
