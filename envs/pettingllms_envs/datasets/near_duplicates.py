"""Near-duplicates between two collections of texts, by shared word n-grams."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pettingllms.arguments import check_number, check_texts, check_whole

NUM_HASHES = 128
NUM_BANDS = 32
"""Signatures are cut into bands; texts that agree in a whole band are compared exactly. With 32
bands of 4 hashes a pair of similarity 0.5 is compared with probability 0.87, one of 0.7 with
0.9998."""

_WORD = re.compile(r"\w+|[^\w\s]")
_PRIME = np.uint64((1 << 31) - 1)


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

    Candidates are found by MinHash with banding and then compared exactly, so that no pair is
    reported wrongly and the time grows with the number of texts, not of pairs.

    Args:
        first: Texts, for example of a training set.
        second: Texts, for example of a test set.
        threshold: Smallest similarity that is reported, 0.01 to 1.
        n: Number of words of an n-gram, at least 1. Case, spaces and markup commands do not matter;
            a text of fewer words is one n-gram.

    Raises:
        InvalidArgument: `threshold` or `n` is out of its range.

    Source:
        Broder, "On the resemblance and containment of documents" (1997).
    """
    check_number("threshold", threshold, 0.01, 1)
    check_whole("n", n, 1)
    for name, texts in (("first", first), ("second", second)):
        check_texts(name, texts, "a sequence of texts")
    grams = [_ngrams(text, n) for text in first], [_ngrams(text, n) for text in second]
    buckets: dict[tuple[int, bytes], list[int]] = {}
    # Only the first collection is indexed; the second is looked up, so pairs within one do not
    # show.
    for index, shingles in enumerate(grams[0]):
        for band in _bands(shingles):
            buckets.setdefault(band, []).append(index)
    found: list[Duplicate] = []
    for index, shingles in enumerate(grams[1]):
        candidates = {other for band in _bands(shingles) for other in buckets.get(band, ())}
        for other in candidates:
            similarity = _jaccard(grams[0][other], shingles)
            if similarity >= threshold:
                found.append(Duplicate(other, index, similarity))
    return sorted(found, key=lambda pair: (-pair.similarity, pair.first, pair.second))


def _ngrams(text: str, n: int) -> frozenset[int]:
    words = _WORD.findall(text.lower())
    spans = (" ".join(words[i : i + n]) for i in range(max(1, len(words) - n + 1)))
    return frozenset(_hash(span) for span in spans)


def _hash(span: str) -> int:
    # 4 bytes are reduced modulo a 31-bit prime below, so that products fit into uint64. Python's
    # `hash` differs from process to process.
    return int.from_bytes(hashlib.blake2b(span.encode(), digest_size=4).digest(), "big")


def _jaccard(a: frozenset[int], b: frozenset[int]) -> float:
    return len(a & b) / len(a | b)


def _bands(shingles: frozenset[int]) -> Iterator[tuple[int, bytes]]:
    values: NDArray[np.uint64] = (
        np.fromiter(shingles, dtype=np.uint64, count=len(shingles)) % _PRIME
    )
    # [G, 1] * [H] -> [G, H] hashes of all n-grams; their minimum over n-grams is the [H] signature.
    signature = ((values[:, None] * _FACTORS + _OFFSETS) % _PRIME).min(axis=0)
    for number, band in enumerate(signature.reshape(NUM_BANDS, -1)):
        yield number, band.tobytes()


def _coefficients() -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    # Fixed: reports must not change from run to run.
    rng = np.random.default_rng(0)
    high = int(_PRIME)
    return (
        rng.integers(1, high, NUM_HASHES, dtype=np.uint64),
        rng.integers(0, high, NUM_HASHES, dtype=np.uint64),
    )


_FACTORS, _OFFSETS = _coefficients()
