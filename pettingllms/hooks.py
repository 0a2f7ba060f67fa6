"""`GameHooks`: what a game supplies; `pettingllms.env.TextEnv` does the rest."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Generic, TypeVar

from pettingllms.difficulty import Difficulty
from pettingllms.prompts import PromptTemplate
from pettingllms.types import Transition, to_jsonable

StateT = TypeVar("StateT")


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
