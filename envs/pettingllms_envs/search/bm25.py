"""BM25 over the few documents of one task.

Kept here because a task has 1,000 documents at most: ranking them takes a millisecond in plain
Python, and few indices have to be kept. rank-bm25 is not maintained any more; bm25s is made for
large corpora.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

K1, B = 1.2, 0.75
"""Saturation of term frequencies and weight of document lengths, as in Lucene."""

_WORD = re.compile(r"\w+")


class _Index(NamedTuple):
    frequencies: tuple[Counter[str], ...]
    """Term -> frequency, per document."""
    norms: tuple[float, ...]
    """K1 * (1 - B + B * length / mean length), per document."""
    weights: dict[str, float]
    """Term -> inverse document frequency."""


def words(text: str) -> list[str]:
    """Return the words of a text, in lower case."""
    return _WORD.findall(text.casefold())


@lru_cache(maxsize=64)
def _index(documents: tuple[str, ...]) -> _Index:
    frequencies = tuple(Counter(words(text)) for text in documents)
    lengths = [one.total() for one in frequencies]
    mean = sum(lengths) / len(lengths) or 1.0
    norms = tuple(K1 * (1 - B + B * length / mean) for length in lengths)
    found_in = Counter(term for one in frequencies for term in one)
    num = len(documents)
    weights = {t: math.log(1 + (num - n + 0.5) / (n + 0.5)) for t, n in found_in.items()}
    return _Index(frequencies, norms, weights)


def scores(query: str, documents: tuple[str, ...]) -> list[float]:
    """Return the score of every document, at least 0.

    Args:
        query: Any text; words that no document has count nothing, repeated ones as often as they
            occur.
        documents: At least one text.

    Source: Robertson and Zaragoza 2009, "The Probabilistic Relevance Framework", with the inverse
    document frequency of Lucene, which is never negative.
    """
    index = _index(documents)
    terms = [term for term in words(query) if term in index.weights]
    return [
        sum(index.weights[t] * one[t] * (K1 + 1) / (one[t] + norm) for t in terms if t in one)
        for one, norm in zip(index.frequencies, index.norms, strict=True)
    ]


def best(query: str, documents: tuple[str, ...], limit: int) -> Sequence[int]:
    """Return the numbers of the best documents, best first, without those that share no word.

    Of documents with equal scores, the first comes first.
    """
    ranked = sorted((-score, number) for number, score in enumerate(scores(query, documents)))
    return [number for score, number in ranked[:limit] if score < 0]
