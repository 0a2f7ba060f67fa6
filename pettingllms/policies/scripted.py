"""Policies without a model: an environment's scripted policies, the fixed program, and noise."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from pettingllms.env import TextEnv
from pettingllms.errors import InvalidArgument, suggestion
from pettingllms.policies.protocol import Answer, Completion, Prompt, Sampling
from pettingllms.types import role_of

PROGRAM = "program"
"""Name of the policy whose tool agent hands in the environment's `fixed_program`."""
_PRINTABLE = "".join(map(chr, range(32, 127))) + "\n"
_MAX_NOISE = 64


class _LocalPolicy:
    """A policy that answers at once and costs nothing; prompts must carry their environment."""

    async def check(self, env: TextEnv[Any]) -> None:
        """Refuse an environment in which it cannot play."""

    async def sample(self, prompts: Sequence[Prompt], n: int, sampling: Sampling) -> list[Answer]:
        """One answer of n completions per prompt; `sampling` has no effect."""
        texts = [self._texts(prompt, n) for prompt in prompts]
        return [Answer(tuple(Completion(text, "stop") for text in some)) for some in texts]

    async def aclose(self) -> None:
        """Nothing to release."""

    def _texts(self, prompt: Prompt, n: int) -> list[str]:
        raise NotImplementedError


class NoisePolicy(_LocalPolicy):
    """Answers 0 to 64 random printable characters: the floor that any model should beat."""

    def _texts(self, prompt: Prompt, n: int) -> list[str]:
        rng = random.Random(prompt.seed)
        lengths = [rng.randrange(_MAX_NOISE + 1) for _ in range(n)]
        return ["".join(rng.choices(_PRINTABLE, k=length)) for length in lengths]


class ScriptedPolicy(_LocalPolicy):
    """Answers what one of the environment's scripted policies would.

    Args:
        name: One of the environment's `scripted_policies`, such as `"oracle"`.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    async def check(self, env: TextEnv[Any]) -> None:
        """Refuse an environment that has no such policy, and name those that it has."""
        known = env.scripted_policies
        if self.name not in known:
            raise InvalidArgument(
                "policy",
                self.name,
                "the environment's scripted policies ("
                + (", ".join(known) or "it has none")
                + "), noise, program, openai:MODEL@URL, hf:PATH"
                + suggestion(self.name, (*known, "noise")),
            )

    def _texts(self, prompt: Prompt, n: int) -> list[str]:
        env, rng = _env_of(prompt), random.Random(prompt.seed)
        return [env.scripted_action(prompt.agent, self.name, rng) for _ in range(n)]


class ProgramPolicy(_LocalPolicy):
    """The fixed program: the baseline of games with a tool agent.

    The tool agent hands in the environment's `fixed_program`, the same on every level, and others
    take over what is proposed.
    """

    async def check(self, env: TextEnv[Any]) -> None:
        """Refuse an environment without a fixed program."""
        if not has_program(env):
            allowed = "a policy other than the fixed program"
            hint = "It needs a game that has one, and a tool agent that writes programs."
            raise InvalidArgument("policy", PROGRAM, allowed, hint)

    def _texts(self, prompt: Prompt, n: int) -> list[str]:
        return [program_action(_env_of(prompt), prompt.agent)] * n


def has_program(env: TextEnv[Any]) -> bool:
    """Whether the policy `program` can play an environment."""
    roles = {role_of(agent) for agent in env.possible_agents}
    return bool(env.fixed_program) and "tool" in roles and getattr(env, "tool", "") == "python"


def program_action(env: TextEnv[Any], agent: str) -> str:
    """What the policy `program` answers for an agent."""
    if role_of(agent) == "tool":
        return f"```python\n{env.fixed_program}```"
    return f"#### {env.fields(agent)['proposal']}"


def _env_of(prompt: Prompt) -> TextEnv[Any]:
    if prompt.env is None:
        raise InvalidArgument(
            "prompt.env", None, "the environment", "Scripted policies look at its state."
        )
    return prompt.env
