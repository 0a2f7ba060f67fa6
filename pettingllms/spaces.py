"""Text spaces that contain what language models really say."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Text

_PRINTABLE = "".join(map(chr, range(32, 127))) + "\n"
_SAMPLE_LENGTH = 64


class Observation(str):
    """A `str` with the `dtype` that PettingZoo's conformance tests read from observations.

    PettingZoo 1.25 and later compare `observation.dtype` with the space's; an ordinary string has
    none. Equality, hashing, slicing, pickling and JSON are those of `str`.
    """

    __slots__ = ()
    dtype = np.dtype(str)


class TokenCounts(NamedTuple):
    """Tokens that an answer took, as its policy counts them."""

    prompt: int = 0
    """Read; 0 by policies without a tokenizer, which read none."""
    completion: int = 0
    """Written, those of reasoning included."""
    cached: int = 0
    """Those of the prompt that a server had kept from earlier requests."""
    reasoning: int = 0
    """Those of the completion that were hidden reasoning."""


class Action(str):
    """A text of an agent, and how it was written; equal to the plain text.

    Environments that hand texts on to somebody else's code, as workflows do, tell it the rest. For
    all others, an action is a text.
    """

    def __new__(
        cls, text: str, finish_reason: str = "stop", tokens: TokenCounts | None = None
    ) -> Action:
        """Return a text as an action.

        Args:
            text: What was written.
            finish_reason: `"stop"`: it ended by itself; `"length"`: at the limit of tokens.
            tokens: What it took.
        """
        made = super().__new__(cls, text)
        made.finish_reason = finish_reason
        made.tokens = tokens or TokenCounts()
        return made

    finish_reason: str
    tokens: TokenCounts


class TextSpace(Text):
    """All unicode texts of 0 to `max_length` characters.

    `gymnasium.spaces.Text` allows a fixed alphabet only and looks at every character of every text.
    Here membership is a matter of type and length, and samples are short and printable, so that
    generic tools that sample actions stay fast.

    Args:
        max_length: Maximum number of characters, at least 1.
        seed: Seed of the space's own generator.
    """

    def __init__(self, max_length: int, *, seed: int | None = None) -> None:
        super().__init__(max_length, min_length=0, charset=_PRINTABLE, seed=seed)

    def contains(self, x: Any) -> bool:
        """Return whether `x` is a text of at most `max_length` characters."""
        return isinstance(x, str) and len(x) <= self.max_length

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        """Return a printable text of 0 to 64 characters (a gymnasium mask is honoured)."""
        if mask is not None or probability is not None:
            return super().sample(mask=mask, probability=probability)
        length = int(self.np_random.integers(0, min(self.max_length, _SAMPLE_LENGTH) + 1))
        return "".join(self.np_random.choice(list(_PRINTABLE), size=length))

    def __repr__(self) -> str:
        return f"TextSpace({self.max_length})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TextSpace) and self.max_length == other.max_length

    __hash__ = None  # pyright: ignore[reportAssignmentType]
