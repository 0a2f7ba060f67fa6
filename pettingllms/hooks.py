"""What a game supplies, hooks and `Difficulty`; `pettingllms.env.TextEnv` does the rest."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Generic, TypeVar

from pettingllms.arguments import plain
from pettingllms.errors import InvalidArgument, counted, suggestion
from pettingllms.prompts import PromptTemplate
from pettingllms.types import Transition, to_jsonable

StateT = TypeVar("StateT")


Attributes = Mapping[str, Any]
"""Argument of the environment -> its value."""


class Difficulty:
    """Difficulties, numbered 0, 1, 2, ... from easy to hard; the first ones have names.

    A difficulty is a set of attributes: arguments of the environment such as size, boxes, hops,
    turns. `pettingllms.make(id, difficulty=2)` and `make(id, difficulty="medium")` take them from
    here.

    Args:
        named: Name -> attributes, from difficulty 0 on; or the name of one that it names too.
        beyond: Number of a difficulty without a name -> its attributes.
        last: Number of the hardest one: as far as levels can be certified. None: the last name.
        toys: Name of a difficulty whose test split has fewer than 100 levels, up to symmetry, ->
            how many it has: no evaluation has more.
    """

    def __init__(
        self,
        named: Mapping[str, Attributes | str] | None = None,
        beyond: Callable[[int], Attributes] | None = None,
        last: int | None = None,
        toys: Mapping[str, int] | None = None,
    ) -> None:
        found: list[Attributes] = []
        self.names: dict[str, int] = {}
        """Name -> number."""
        for name, attributes in (named or {}).items():
            if isinstance(attributes, str):
                self.names[name] = self.names[attributes]
            else:
                self.names[name] = len(found)
                found.append(attributes)
        if beyond is not None and last is not None:
            found += map(beyond, range(len(found), last + 1))
        self.toys = {self.names[name]: levels for name, levels in (toys or {}).items()}
        """Number of a toy -> how many test levels it has."""
        self.attributes = tuple(found)
        """Number -> arguments of the environment that it stands for."""

    def __len__(self) -> int:
        """How many there are; 0 if the environment has no such axis."""
        return len(self.attributes)

    def names_of(self, number: int) -> str:
        """A number with its names: `1 (paper)`; a toy says so: `0 (easy: a toy, 6 test levels)`."""
        names = ", ".join(name for name, named in self.names.items() if named == number)
        if number in self.toys:
            names += f": a toy, {counted(self.toys[number], 'test level')}"
        return f"{number} ({names})" if names else str(number)

    def number(self, env_id: str, difficulty: object) -> int:
        """The number of a difficulty that is given by number or name.

        Raises:
            InvalidArgument: If there is none of that number or name; says which there are.
        """
        difficulty = plain(difficulty)
        if isinstance(difficulty, str) and difficulty in self.names:
            return self.names[difficulty]
        known = range(len(self))
        if isinstance(difficulty, int) and not isinstance(difficulty, bool) and difficulty in known:
            return difficulty
        what = f"difficulty of {env_id}"
        if not self.attributes:
            raise InvalidArgument(what, difficulty, "none: it has no difficulties")
        allowed = f"0 to {len(self) - 1}, or {', '.join(self.names)}"
        raise InvalidArgument(what, difficulty, allowed + suggestion(difficulty, self.names))

    def of(self, arguments: Attributes, defaults: Attributes) -> int | None:
        """The number of the difficulty that an environment's arguments are; None if they are none.

        Args:
            arguments: The arguments that are given.
            defaults: Those of all others.
        """
        axis = {name for attributes in self.attributes for name in attributes}

        def place(given: Attributes) -> dict[str, Any]:
            return {name: {**defaults, **given}.get(name) for name in axis}

        here = place(arguments)
        return next((k for k, one in enumerate(self.attributes) if place(one) == here), None)


class GameHooks(ABC, Generic[StateT]):
    """The hooks of a game: functions of what they are given, and of the constructor's arguments.

    A hook gets everything that changes during an episode as an argument. It neither reads nor
    writes attributes that `reset` or `step` set: forks, snapshots, replays and `state_hash` are
    exact only as long as the future depends on the state value and on nothing else.
    """

    scripted_policies: ClassVar[tuple[str, ...]] = ()
    """Names of the scripted policies that `scripted_action` knows, for every role."""
    default_prompts: ClassVar[Mapping[str, PromptTemplate]]
    """Role -> prompt template."""
    prompt_fields: ClassVar[Mapping[str, str]]
    """Placeholder -> its meaning; what `_fields` provides."""
    private_fields: ClassVar[tuple[str, ...]] = ()
    """Placeholders whose values only their reader may know, until the reader has written them."""
    difficulties: ClassVar[Difficulty] = Difficulty()
    """From easy to hard; see `pettingllms.make`."""
    fixed_program: ClassVar[str] = ""
    """A Python program that a tool agent can hand in on every level, written once: the baseline of
    what is not a program for this level. The policy `program` plays it; empty if there is none."""

    fetched_arguments: ClassVar[tuple[str, ...]] = ()
    """Arguments of the constructor that may name a data set of a hub."""
    data_checks: ClassVar[Any] = None
    """What checks such data for `pettingllms data check`: a module, say, with functions
    `check(source, *, split, schema, play, out)` and `check_overlap(first, second, *, splits,
    threshold)`, which return dataclasses that print as text."""

    @abstractmethod
    def _generate(self, rng: random.Random, options: Mapping[str, Any]) -> StateT:
        """The initial state of an episode.

        Args:
            rng: The only source of chance.
            options: What was passed to `reset`; unknown keys are ignored.
        """

    @abstractmethod
    def _fields(self, state: StateT, agent: str, turn: int) -> Mapping[str, object]:
        """The values of the placeholders in `prompt_fields`.

        Args:
            state: What the agent sees: the world at the start of the running stage.
            agent: The agent that reads.
            turn: The turn, 0 to `max_turns - 1`; after the last one it stays at `max_turns - 1`.

        Returns:
            The values by name. Only those that a template names are looked up, so a mapping that
            computes them on demand saves the others.
        """

    @abstractmethod
    def _parse(self, state: StateT, agent: str, text: str) -> Any:
        """The action that a text asks for, or a `ParseError`. Never raises.

        Args:
            state: The state before the action, for answers whose form depends on it.
            agent: The agent that wrote the text.
            text: Any text.
        """

    @abstractmethod
    def _act(self, state: StateT, agent: str, action: Any) -> Transition:
        """What an action does.

        Args:
            state: The state before the action.
            agent: The agent that acts.
            action: What `_parse` returned, possibly a `ParseError`.
        """

    @abstractmethod
    def _ansi(self, state: StateT) -> str:
        """The state as readable text."""

    def _next_agent(self, state: StateT) -> str | None:
        """Who acts next, for a game that decides that itself; None: the order of stages.

        Such a game always returns an agent, and every agent then is a stage of its own; a turn is
        as many actions as there are agents.
        """
        return None

    def _scripted(self, state: StateT, agent: str, policy: str, rng: random.Random) -> str:
        """The text that a scripted policy answers in this state."""
        raise NotImplementedError(f"{type(self).__name__} lists {policy!r} but does not play it")

    def _worked(self, state: StateT, agent: str, answer: str) -> Sequence[str]:
        """The pieces of a right answer, of which prompts show the first; see `solved_share`.

        Args:
            state: The first state of the episode.
            agent: Who answers.
            answer: What the policy `oracle` answers, whose characters are the default. Text that is
                work to read, such as a program, comes by its lines (`parsing.lines_of`), and where
                the oracle writes no more than a result, a game shows how one comes to it.
        """
        return answer

    def _rgb_array(self, state: StateT) -> Any:
        """The state as an image, uint8 of shape [height, width, 3]."""
        raise NotImplementedError(f"{type(self).__name__} lists 'rgb_array' but does not draw it")

    def _state_json(self, state: StateT) -> Any:
        """What identifies a state, as JSON data (the default: the whole value)."""
        return to_jsonable(state)

    def _key_json(self, state: StateT) -> Any:
        """What counts of a state, as JSON data: what is done, not how it was written.

        A game whose states hold texts of agents returns what decides what can still be earned, such
        as the tests that pass, and as much of what agents read as it can. Credit by state averages
        over the states that agree in it; it is biased where agents that read different texts act
        differently. The default is the state itself.
        """
        return self._state_json(state)

    def _level_json(self, state: StateT) -> Any:
        """What identifies the level of an initial state, as JSON data.

        A game whose levels have symmetries returns the same for all images of a level. The default
        is the state itself.
        """
        return self._state_json(state)
