"""What the words of a problem say about its answers, and whether they are all that is needed.

The golden tests of public data sets hold one output per input even where a statement allows
several, and right programs fail them. Other statements need a partner, a file or a picture that no
agent has. The searches are by the usual sentences, and can be wrong either way; each takes linear
time.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Any

from pettingllms.files import packaged

_STATEMENTS: Mapping[str, Any] = packaged("pettingllms_envs.datasets", "statements.toml")
REASONS: Mapping[str, str] = _STATEMENTS["reasons"]
"""What keeps everybody from solving a problem -> the reason that reports give."""


def _patterns(kind: str) -> tuple[re.Pattern[str], ...]:
    words = [(f"<{name}>", pattern) for name, pattern in _STATEMENTS["words"].items()]
    patterns: list[str] = _STATEMENTS["patterns"][kind]
    for name, word in reversed(words):  # a word may be made of those before it
        patterns = [pattern.replace(name, word) for pattern in patterns]
    return tuple(re.compile(pattern, re.IGNORECASE) for pattern in patterns)


_SEVERAL, _ANY_CASE = _patterns("several"), _patterns("any_case")
_OBJECTIONS = {
    name: _patterns(name) for name in ("interactive", "files", "formula", "picture", "choices")
}
_ASKED = {
    "code": ("interactive", "files", "formula"),
    "judged": ("interactive", "files", "formula"),
    "math": ("picture", "choices"),
}
_NOTE = re.compile(r"^[^\w\n]*(?:notes?|explanations?)[^\w\n]*$", re.IGNORECASE | re.MULTILINE)
_DRAWN = re.compile(r"\[asy\]|\\begin\{tikzpicture\}")
_SENTENCE = re.compile(r"(?<=[.!?;])\s+|\n\s*\n")
_MAX_SENTENCE_CHARS = 400


def objection(statement: str, kind: str) -> str:
    """Why nobody can solve a problem with these words, or "".

    Args:
        statement: What the agents read.
        kind: `"math"`, `"code"`, or `"judged"` for programs whose outputs a checker judges.
    """
    # Remarks on examples may show pictures of them; and a picture may be drawn in words.
    told = _NOTE.split(statement, maxsplit=1)[0] if kind != "math" else statement
    if kind != "math" or not _DRAWN.search(statement):
        for name in _ASKED[kind]:
            if any(pattern.search(told) for pattern in _OBJECTIONS[name]):
                return REASONS[name]
    return REASONS["several"] if kind == "code" and accepts_several(statement) else ""


def needed_columns(row: Mapping[str, Any], read: Collection[str]) -> str:
    """Why a row is more than what its schema reads of it, or "".

    Args:
        row: The row.
        read: Columns that the schema reads.
    """
    for column, name in _STATEMENTS["columns"].items():
        # Arrays of Parquet have no truth value.
        value = row.get(column)
        if column not in read and value is not None and str(value) not in ("", "[]", "{}"):
            return REASONS[name].format(column=column)
    return ""


def accepts_several(statement: str) -> bool:
    """Whether a statement says that any of several outputs will do."""
    flat = " ".join(statement.replace("\n\n", ". ").split())
    return any(
        pattern.search(sentence[:_MAX_SENTENCE_CHARS])
        for sentence in _SENTENCE.split(flat)
        for pattern in _SEVERAL
    )


@lru_cache(maxsize=1024)
def accepts_any_case(statement: str) -> bool:
    """Whether a statement says that letters of the output may be large or small."""
    flat = " ".join(statement.split())
    return any(pattern.search(flat) for pattern in _ANY_CASE)
