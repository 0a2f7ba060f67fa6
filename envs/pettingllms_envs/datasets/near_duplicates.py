"""Near-duplicates between two collections of texts, by shared word n-grams."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from pettingllms.arguments import check_number, check_texts, check_whole

_WORD = re.compile(r"\w+|[^\w\s]")
_ROUNDING = 1e-9


class Duplicate(NamedTuple):
    """Two texts that share much of their wording."""

    first: int
    """Index into the first collection."""
    second: int
    """Index into the second collection."""
    similarity: float
    """Jaccard similarity of their sets of n-grams: 1 for equal texts."""


def near_duplicates(
    first: Sequence[str], second: Sequence[str], *, threshold: float = 0.7, n: int = 5
) -> list[Duplicate]:
    """Return the pairs of nearly equal texts of two collections, the most similar first.

    Sets of similarity t share at least t of the n-grams of either, so that each has one of them
    among its rarest: only texts that share a rare n-gram are compared. No pair is missed, and the
    time grows with the number of texts, not of pairs.

    Args:
        first: Texts, for example of a training set.
        second: Texts, for example of a test set.
        threshold: Smallest similarity that is reported, 0.01 to 1.
        n: Number of words of an n-gram, at least 1. Case, spaces and markup commands do not matter;
            a text of fewer words is one n-gram.

    Raises:
        InvalidArgument: `threshold` or `n` is out of its range.

    Source:
        The prefix filter of Chaudhuri, Ganti and Kaushik, "A primitive operator for similarity
        joins in data cleaning" (2006), with the order of Bayardo, Ma and Srikant, "Scaling up all
        pairs similarity search" (2007).
    """
    check_number("threshold", threshold, 0.01, 1)
    check_whole("n", n, 1)
    for name, texts in (("first", first), ("second", second)):
        check_texts(name, texts, "a sequence of texts")
    grams = [[_ngrams(text, n) for text in texts] for texts in (first, second)]
    counts = Counter(gram for side in grams for shingles in side for gram in shingles)
    index: defaultdict[int, list[int]] = defaultdict(list)
    # Only the first collection is indexed; the second is looked up, so pairs within one do not
    # show.
    for number, shingles in enumerate(grams[0]):
        for gram in _rarest(shingles, counts, threshold):
            index[gram].append(number)
    found: list[Duplicate] = []
    for number, shingles in enumerate(grams[1]):
        rare = _rarest(shingles, counts, threshold)
        for other in {other for gram in rare for other in index.get(gram, ())}:
            similarity = _jaccard(grams[0][other], shingles)
            if similarity >= threshold:
                found.append(Duplicate(other, number, similarity))
    return sorted(found, key=lambda pair: (-pair.similarity, pair.first, pair.second))


def _ngrams(text: str, n: int) -> frozenset[int]:
    """Return the n-grams of a text as the hashes of this process: they take less than texts."""
    words = _WORD.findall(text.lower())
    spans = (" ".join(words[i : i + n]) for i in range(max(1, len(words) - n + 1)))
    return frozenset(map(hash, spans))


def _rarest(shingles: frozenset[int], counts: Counter[int], threshold: float) -> list[int]:
    """Return so many n-grams that a set which is similar enough must have one of them, too."""
    # One order for all sets, of ties too: else two prefixes could miss each other.
    ordered = sorted(shingles, key=lambda gram: (counts[gram], gram))
    return ordered[: len(ordered) - math.ceil(threshold * len(ordered) - _ROUNDING) + 1]


def _jaccard(a: frozenset[int], b: frozenset[int]) -> float:
    return len(a & b) / len(a | b)
