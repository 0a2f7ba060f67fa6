"""Policies without a model: an environment's scripted policies, and noise."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from pettingllms.env import TextEnv
from pettingllms.errors import InvalidArgument, suggestion
from pettingllms.policies.protocol import Answer, Completion, Prompt, Sampling

_PRINTABLE = "".join(map(chr, range(32, 127))) + "\n"
_MAX_NOISE = 64


class ScriptedPolicy:
    """Answers what one of the environment's scripted policies would.

    Args:
        name: One of the environment's `scripted_policies`, such as `"oracle"`.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    async def check(self, env: TextEnv[Any]) -> None:
        """See `Policy.check`."""
        known = env.scripted_policies
        if self.name not in known:
            raise InvalidArgument(
                "policy",
                self.name,
                "the environment's scripted policies ("
                + (", ".join(known) or "it has none")
                + "), noise, openai:MODEL@URL, hf:PATH"
                + suggestion(self.name, (*known, "noise")),
            )

    async def sample(self, prompts: Sequence[Prompt], n: int, sampling: Sampling) -> list[Answer]:
        """See `Policy.sample`. Prompts must carry their environment; `sampling` has no effect."""
        return [self._answer(prompt, n) for prompt in prompts]

    def _answer(self, prompt: Prompt, n: int) -> Answer:
        env = prompt.env
        if env is None:
            raise InvalidArgument(
                "prompt.env", None, "the environment", "Scripted policies look at its state."
            )
        rng = random.Random(prompt.seed)
        texts = [env.scripted_action(prompt.agent, self.name, rng) for _ in range(n)]
        return Answer(tuple(Completion(text, "stop") for text in texts))

    async def aclose(self) -> None:
        """Nothing to release."""


class NoisePolicy:
    """Answers 0 to 64 random printable characters: the floor that any model should beat."""

    async def check(self, env: TextEnv[Any]) -> None:
        """Noise plays everywhere."""

    async def sample(self, prompts: Sequence[Prompt], n: int, sampling: Sampling) -> list[Answer]:
        """See `Policy.sample`; `sampling` has no effect."""
        return [self._answer(prompt, n) for prompt in prompts]

    def _answer(self, prompt: Prompt, n: int) -> Answer:
        rng = random.Random(prompt.seed)
        lengths = [rng.randrange(_MAX_NOISE + 1) for _ in range(n)]
        texts = ["".join(rng.choices(_PRINTABLE, k=length)) for length in lengths]
        return Answer(tuple(Completion(text, "stop") for text in texts))

    async def aclose(self) -> None:
        """Nothing to release."""
