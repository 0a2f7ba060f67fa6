"""A game for a team of two in one file: no package, no registration. Its path is its name.

```
pettingllms check one_file_game.py
pettingllms eval one_file_game.py --policy oracle
pettingllms-train one_file_game.toml --trust
```
"""

import random
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

from pettingllms import ParseError, PromptTemplate, TextEnv, Transition


class Digits(NamedTuple):
    """The state: what is to be compared, and where the spotter points."""

    digits: str
    place: str = "?"


class LargestDigit(TextEnv[Digits]):
    """The spotter says where the largest digit is, counted from 0; the reader says which it is."""

    metadata: ClassVar[dict[str, Any]] = {
        "name": "largest_digit",
        "render_modes": ["ansi"],
        "cheap_share": 1.0,  # one of few digits: luck solves it
        "unseen_arguments": ("max_turns",),  # the reader ends the episode in the first turn
    }
    scripted_policies: ClassVar[tuple[str, ...]] = ("oracle", "random")
    prompt_fields: ClassVar[Mapping[str, str]] = {
        "digits": "the digits",
        "place": "where the spotter points; ? before it has spoken",
    }
    default_prompts: ClassVar[Mapping[str, PromptTemplate]] = {
        "spotter": PromptTemplate("", "{digits}"),
        "reader": PromptTemplate("", "{digits} {place}"),
    }

    def __init__(self, *, length: int = 3, max_turns: int = 1, **others: Any) -> None:
        self.length = length
        stages = (("spotter_0",), ("reader_0",))
        super().__init__(stages=stages, max_turns=max_turns, **others)

    def _generate(self, rng: random.Random, options: Mapping[str, Any]) -> Digits:
        return Digits("".join(map(str, rng.sample(range(10), self.length))))

    def _fields(self, state: Digits, agent: str, turn: int) -> Mapping[str, object]:
        return state._asdict()

    def _parse(self, state: Digits, agent: str, text: str) -> str | ParseError:
        answer = text.strip()
        return answer if answer in "0123456789" and len(answer) == 1 else ParseError("no digit")

    def _act(self, state: Digits, agent: str, action: str | ParseError) -> Transition:
        largest = max(state.digits)
        if agent == "spotter_0":
            place = "?" if isinstance(action, ParseError) else action
            is_right = place == str(state.digits.index(largest))
            return Transition(state._replace(place=place), team=0.0, local=float(is_right))
        is_right = action == largest
        return Transition(state, team=float(is_right), local=0.0, terminated=True, success=is_right)

    def _ansi(self, state: Digits) -> str:
        return f"{state.digits}, the spotter points at {state.place}"

    def _scripted(self, state: Digits, agent: str, policy: str, rng: random.Random) -> str:
        if policy == "random":
            return rng.choice("012" if agent == "spotter_0" else state.digits)
        largest = max(state.digits)
        return str(state.digits.index(largest)) if agent == "spotter_0" else largest
