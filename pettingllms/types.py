"""Values that pass between environments, agents and policies, and states as data."""

from __future__ import annotations

import copy
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields as dataclass_fields
from dataclasses import is_dataclass
from enum import Enum
from hashlib import blake2b
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, TypeVar, cast

import numpy as np
from gymnasium.spaces import Box, Text
from gymnasium.spaces.utils import flatten, flatten_space, unflatten
from numpy.typing import NDArray

from pettingllms.arguments import check_kind, check_texts
from pettingllms.errors import InvalidArgument

ValueT = TypeVar("ValueT")


class Snapshot(NamedTuple):
    """The whole dynamic state of an environment; see `TextEnv.snapshot`. Picklable."""

    owner: tuple[str, tuple[str, ...], int, str]
    """What an environment must have in common with the one that the snapshot is of, to be restored
    from it."""
    values: tuple[Any, ...]
    """The state and what the shell keeps beside it, in an order of its own."""


def to_jsonable(value: Any) -> Any:
    """A state value as JSON data; named tuples and dataclasses become objects.

    A named tuple may list, in a class attribute `ADDED`, fields that it gained later: they are left
    out at their defaults, so that states which do without them keep their hash.

    Raises:
        TypeError: If a part of the value is mutable or unknown, so that it cannot identify a state.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Enum):
        # By name, not by value: values of enums may be anything, names are stable texts.
        return value.name
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, tuple):
        names = getattr(cast(Any, value), "_fields", None)
        parts = [to_jsonable(part) for part in cast(tuple[Any, ...], value)]
        if names is None:
            return parts
        found = dict(zip(names, parts, strict=True))
        for name in getattr(value, "ADDED", ()):
            if getattr(value, name) == cast(Any, value)._field_defaults[name]:
                del found[name]
        return found
    if isinstance(value, frozenset):
        # Sets have no order across processes; `repr` orders mixed types too.
        return sorted((to_jsonable(part) for part in cast(frozenset[Any], value)), key=repr)
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_jsonable(getattr(value, f.name)) for f in dataclass_fields(value)}
    raise TypeError(
        f"a state holds a {type(value).__name__}; allowed: None, bool, int, float, str, bytes, "
        "enums, and tuples, frozensets and frozen dataclasses of these"
    )


class CopyOnRead(Generic[ValueT]):
    """A mutable object of another library inside an immutable state: only copies come out.

    Args:
        value: The object; nobody else may keep a reference to it.
    """

    __slots__ = ("_value",)

    def __init__(self, value: ValueT) -> None:
        self._value = value

    def opened(self) -> ValueT:
        """A copy of the object."""
        return copy.deepcopy(self._value)


def mutable_parts(value: object, path: str) -> Iterator[str]:
    """Yield where a value holds something that can be changed, as `path[2].name: list`.

    Branches share states and the facts in infos, so neither may hold such a thing: the change of
    one branch would show in all others.
    """
    if value is None or isinstance(value, bool | int | float | str | bytes | Enum | CopyOnRead):
        return
    if isinstance(value, tuple | frozenset):
        items = cast("tuple[object, ...]", value)
        parts = {f"{path}[{index}]": part for index, part in enumerate(items)}
    elif is_dataclass(value) and cast(Any, value).__dataclass_params__.frozen:
        parts = {f"{path}.{f.name}": getattr(value, f.name) for f in dataclass_fields(value)}
    else:
        yield f"{path}: {type(value).__name__}"
        return
    # what a cached property keeps is part of the value too, as far as others can reach it
    parts |= {f"{path}.{name}": part for name, part in getattr(value, "__dict__", {}).items()}
    for place, part in parts.items():
        yield from mutable_parts(part, place)


def digest(value: Any) -> str:
    """32 hexadecimal digits that identify JSON data, the same in every process."""
    # One canonical text: sorted keys and no spaces, so that equal data has equal bytes.
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return blake2b(text.encode(), digest_size=16).hexdigest()


def flat_table(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The values of nested tables by their dotted keys."""
    flat: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, dict) and value:
            flat |= flat_table(cast(dict[str, Any], value), f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat


_AGENT = re.compile(r"[^\W\d_][\w-]*_[0-9]+")

NOTHING: Mapping[str, Any] = MappingProxyType({})
"""No info and no options."""


class Transition(NamedTuple):
    """What one action did to the world."""

    state: Any
    """The new state."""
    team: float = 0.0
    """Team part of the reward: credited to every agent, times `alpha`."""
    local: float = 0.0
    """Local part of the reward: credited to the acting agent only."""
    terminated: bool = False
    """Whether the episode ends with this action (for all agents)."""
    success: bool = False
    """Whether the task is solved. A time-out is never a success."""
    info: Mapping[str, Any] = NOTHING
    """Further facts for `infos` of the acting agent: numbers, texts, and tuples of these.

    Branches share them, so they hold nothing that can be changed: no lists, no dicts.
    """
    common: Mapping[str, Any] = NOTHING
    """Further facts for the `infos` of every agent, with the same bounds as `info`: what
    simultaneous actions have done together."""


class ParseError(NamedTuple):
    """A model text that could not be read. It is an outcome with a reward, never an exception."""

    reason: str
    """What is wrong with the text, as part of a sentence."""


def is_agent(name: str) -> bool:
    """Whether a name has the form `<role>_<number>`.

    A role begins with a letter; letters, digits, `_` and `-` follow.
    """
    return _AGENT.fullmatch(name) is not None


def role_of(agent: str) -> str:
    """The role of an agent: the part of its name before the number (`"planner_0"`)."""
    return agent.rpartition("_")[0]


def order_of(stages: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """The agents of all stages in playing order.

    Raises:
        InvalidArgument: If there are none, or names repeat or are not those of agents; see
            `is_agent`.
    """
    allowed = "sequences of different names of the form <role>_<number>"
    check_kind("stages", stages, Sequence, allowed)
    for stage in stages:
        check_texts("stages", stage, allowed)
    order = tuple(agent for stage in stages for agent in stage)
    if not order or not all(map(is_agent, order)) or len(set(order)) != len(order):
        raise InvalidArgument("stages", stages, allowed)
    return order


def stage_openings(stages: Sequence[Sequence[str]]) -> tuple[bool, ...]:
    """For every agent, in playing order, whether it is the first of its stage."""
    return tuple(index == 0 for stage in stages for index in range(len(stage)))


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
    """Tokens of the prompt; 0 by policies without a tokenizer, which read none."""
    completion: int = 0
    """Tokens of the answer, those of its reasoning included."""
    cached: int = 0
    """Tokens of the prompt that a server had kept from earlier requests."""
    reasoning: int = 0
    """Tokens of the answer that were hidden reasoning."""


class Action(str):
    """A text of an agent, and how it was written; equal to the plain text.

    Environments that hand texts on to somebody else's code, as workflows do, tell it the rest. For
    all others, an action is a text.
    """

    def __new__(
        cls, text: str, finish_reason: str = "stop", tokens: TokenCounts | None = None
    ) -> Action:
        """A text as an action.

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
    """`"stop"`: the text ended by itself; `"length"`: at the limit of tokens."""
    tokens: TokenCounts
    """What the text took; all 0 where that is unknown."""


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
        """Whether `x` is a text of at most `max_length` characters."""
        return isinstance(x, str) and len(x) <= self.max_length

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        """A printable text of 0 to 64 characters (a gymnasium mask is honoured)."""
        if mask is not None or probability is not None:
            return super().sample(mask=mask, probability=probability)
        length = int(self.np_random.integers(0, min(self.max_length, _SAMPLE_LENGTH) + 1))
        return "".join(self.np_random.choice(list(_PRINTABLE), size=length))

    def __repr__(self) -> str:
        return f"TextSpace({self.max_length})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TextSpace) and self.max_length == other.max_length

    __hash__ = None  # pyright: ignore[reportAssignmentType]


# Gymnasium would look every character up in its alphabet, of which a text here need have none.
@flatten_space.register(TextSpace)
def _code_space(space: TextSpace) -> Box:
    """The code points of a text, each plus one; 0 follows its end."""
    return Box(0, sys.maxunicode + 1, (space.max_length,), np.int32)


@flatten.register(TextSpace)
def _codes(space: TextSpace, x: str) -> NDArray[np.int32]:
    codes = np.zeros(space.max_length, np.int32)
    codes[: len(x)] = [ord(character) + 1 for character in x]
    return codes


@unflatten.register(TextSpace)
def _text_of_codes(space: TextSpace, x: NDArray[np.int32]) -> str:
    return "".join(chr(code - 1) for code in x if code)


class Constraints(NamedTuple):
    """Bounds of an answer, which policies keep to as far as they can."""

    stop: tuple[str, ...] = ()
    """Texts that end the answer before them, besides those of the policy's own settings."""
    max_tokens: int | None = None
    """Longest answer in tokens; None, or where the policy's own limit is lower: that limit."""
    grammar: str = ""
    """Form that the answer must have, as a structural tag of xgrammar in JSON, for engines that can
    enforce one; empty: any."""


UNBOUND = Constraints()
"""Any text will do."""
