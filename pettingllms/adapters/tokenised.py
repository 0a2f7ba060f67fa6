"""Texts as fixed-length integer arrays, for learners that only know numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, cast

import numpy as np
from gymnasium.spaces import Box, Discrete, MultiDiscrete, Space
from numpy.typing import NDArray
from pettingzoo import AECEnv

from pettingllms.arguments import check_choice, check_texts, check_whole
from pettingllms.env import TextEnv
from pettingllms.errors import InvalidArgument
from pettingllms.plain_text import PlainText


class Tokenizer(Protocol):
    """What a tokenizer must offer; those of `transformers` do."""

    def __len__(self) -> int:
        """The number of token ids."""
        ...

    def encode(self, text: str, /) -> list[int]:
        """The token ids of a text, each in [0, len(self))."""
        ...

    def decode(self, token_ids: list[int], /) -> str:
        """The text of token ids."""
        ...


class CharacterTokenizer:
    """One token per character of an alphabet; characters outside of it share one id.

    Args:
        alphabet: Characters in the order of their ids; the unknown character has the next id.
    """

    def __init__(self, alphabet: str = "".join(map(chr, range(32, 127))) + "\n") -> None:
        if not alphabet or len(set(alphabet)) != len(alphabet):
            raise InvalidArgument(
                "alphabet", alphabet, "at least one character, none of them twice"
            )
        self.alphabet = alphabet
        self._ids = {character: number for number, character in enumerate(alphabet)}

    def __len__(self) -> int:
        return len(self.alphabet) + 1

    def encode(self, text: str, /) -> list[int]:
        """One id per character."""
        unknown = len(self.alphabet)
        return [self._ids.get(character, unknown) for character in text]

    def decode(self, token_ids: list[int], /) -> str:
        """The text of ids; the unknown character is written as U+FFFD."""
        characters = [*self.alphabet, "\ufffd"]
        return "".join(characters[number] for number in token_ids)


class TextCodec:
    """Between texts and the numbers of a learner.

    Observations become arrays of a fixed length in a `Box`: 0 is padding, token id i is written as
    i + 1. A longer text loses its beginning, since the present situation is at the end of a
    prompt; the number of lost tokens is reported in `infos`. No text becomes a control token; see
    `pettingllms.plain_text`.

    Actions are either the index of a text from a list (`Discrete`), or a sequence of tokens up to
    the first padding (`MultiDiscrete`), so that any text of that length can be said.

    Args:
        observation_length: Tokens of an observation, at least 1.
        actions: The texts an agent can say, or the maximum number of tokens of a free text.
        tokenizer: See `Tokenizer`; None: `CharacterTokenizer()`.
        dtype: Type of the numbers of an observation: `"int64"`, or `"float32"` for networks that
            do not convert integers, such as RLlib's default ones.

    Raises:
        InvalidArgument: If a length is below 1, there is no text to say, or the dtype is another.
    """

    def __init__(
        self,
        observation_length: int,
        actions: Sequence[str] | int,
        tokenizer: Tokenizer | None = None,
        dtype: str = "int64",
    ) -> None:
        check_whole("observation_length", observation_length, 1)
        check_choice("dtype", dtype, ("int64", "float32"))
        self.tokenizer: Tokenizer = CharacterTokenizer() if tokenizer is None else tokenizer
        self._plain = PlainText(self.tokenizer)
        self.observation_length = observation_length
        self.texts: tuple[str, ...] | None = None
        size = len(self.tokenizer) + 1
        number = np.int64 if dtype == "int64" else np.float32
        self.observation_space = Box(0, size - 1, (observation_length,), number)
        self.action_space: Space[Any]
        allowed = "a list of at least one text, or a number of at least 1 token"
        if isinstance(actions, int):
            if actions < 1 or isinstance(actions, bool):
                raise InvalidArgument("actions", actions, allowed)
            self.action_space = MultiDiscrete([size] * actions)
        else:
            check_texts("actions", actions, allowed)
            if not actions:
                raise InvalidArgument("actions", actions, allowed)
            self.texts = tuple(actions)
            self.action_space = Discrete(len(self.texts))

    def encode(self, text: str) -> tuple[NDArray[Any], int]:
        """An observation as numbers, and how many tokens were dropped at its beginning."""
        ids = self._plain.encode(text)
        cut = max(0, len(ids) - self.observation_length)
        padded = np.zeros(self.observation_length, self.observation_space.dtype)
        kept = ids[cut:]
        # One more than the ids: 0 is the padding.
        padded[: len(kept)] = np.add(kept, 1)
        return padded, cut

    def decode(self, action: Any) -> str:
        """The text of a numeric action.

        Raises:
            InvalidArgument: If the action is not in the action space.
        """
        if self.texts is not None:
            if not 0 <= int(action) < len(self.texts):
                raise InvalidArgument("action", action, f"0 to {len(self.texts) - 1}")
            return self.texts[int(action)]
        numbers = [int(number) for number in np.asarray(action)]
        if not self.action_space.contains(np.asarray(numbers)):
            raise InvalidArgument("action", action, f"a member of {self.action_space}")
        ids = numbers[: numbers.index(0)] if 0 in numbers else numbers
        return self.tokenizer.decode([number - 1 for number in ids])


def scalar_info(info: Mapping[str, Any]) -> dict[str, Any]:
    """What numbers an info of an agent has, the same in all steps.

    These are `team` and `local` (the parts of the reward), `success`, `turn`, and `is_readable`
    (whether the agent's last text could be read).
    """
    return {
        **info["reward_parts"],
        "success": info["success"],
        "turn": info["turn"],
        "is_readable": info["parse_error"] is None,
    }


class TokenisedEnv(AECEnv[str, NDArray[Any], Any]):
    """A team environment whose observations and actions are numbers; see `TextCodec`.

    `infos[agent]["cut_tokens"]` counts the tokens of the observation that did not fit.

    Args:
        env: A raw or wrapped environment.
        codec: How texts become numbers, the same for all agents.
        scalar_infos: Whether infos are reduced to numbers, by `scalar_info`.
    """

    metadata: dict[str, Any]

    def __init__(self, env: Any, codec: TextCodec, *, scalar_infos: bool = False) -> None:
        super().__init__()
        self._scalar_infos = scalar_infos
        self.env = cast(TextEnv[Any], env.unwrapped)
        self.codec = codec
        self.metadata = self.env.metadata
        self.render_mode = self.env.render_mode
        self.possible_agents = self.env.possible_agents
        self.observation_spaces = dict.fromkeys(self.possible_agents, codec.observation_space)
        self.action_spaces = dict.fromkeys(self.possible_agents, codec.action_space)

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Start a new episode; see `TextEnv.reset`."""
        self.env.reset(seed=seed, options=options)
        self._mirror()

    def step(self, action: Any) -> None:
        """Step the selected agent: a member of the action space, or None once it has ended."""
        self.env.step(None if action is None else self.codec.decode(action))
        self._mirror()

    def acting(self) -> tuple[str, ...]:
        """The agents whose actions come next; see `TextEnv.acting`."""
        return self.env.acting()

    def observe(self, agent: str) -> NDArray[Any]:
        """What an agent reads now, as numbers."""
        # A copy, since learners write into what they are given.
        return self._encoded[agent][0].copy()

    def _mirror(self) -> None:
        env = self.env
        self._encoded = {
            agent: self.codec.encode(env.observe(agent)) for agent in self.possible_agents
        }
        self.agents = list(env.agents)
        self.agent_selection = env.agent_selection
        self.rewards = dict(env.rewards)
        self.terminations = dict(env.terminations)
        self.truncations = dict(env.truncations)
        # PettingZoo's `last` reads this attribute of the object that it is called on.
        self._cumulative_rewards = dict(env._cumulative_rewards)
        self.infos = {
            agent: {
                **(scalar_info(info) if self._scalar_infos else info),
                "cut_tokens": self._encoded[agent][1],
            }
            for agent, info in env.infos.items()
        }

    def observation_space(self, agent: str) -> Space[Any]:
        """The space of observations (one object for all agents)."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> Space[Any]:
        """The space of actions (one object for all agents)."""
        return self.action_spaces[agent]

    def state(self) -> Any:
        """The immutable state value of the environment."""
        return self.env.state()

    def render(self) -> Any:
        """Render the present state in the environment's render mode."""
        return self.env.render()

    def close(self) -> None:
        """Close the environment."""
        self.env.close()
