"""What is paid beside the outcome without a meaning for it: `[rewards]` of the tiny layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from zlib import crc32


def noise(messages: Sequence[Mapping[str, str]], answer: str) -> float:
    """Plus or minus 0.01, fixed by prompt and answer, as a judge with a taste would."""
    text = "\0".join([*(message["content"] for message in messages), answer])
    return 0.01 if crc32(text.encode()) % 2 else -0.01


def length(messages: Sequence[Mapping[str, str]], answer: str) -> float:
    """Minus 0.01 per character, as a penalty of long answers."""
    return -0.01 * len(answer)
