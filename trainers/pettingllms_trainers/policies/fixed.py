"""Players: policies without weights in a run, who answer by text and are never trained."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pettingllms import TextEnv
from pettingllms import policies as core
from pettingllms_trainers.config import Config
from pettingllms_trainers.types import Completion, Sampling

__all__ = ["Player", "open_players"]

_NUM_SEEDS = 2**31
"""Seeds of prompts are smaller than this."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Player:
    """A policy of `pettingllms.policies` that plays roles of a run."""

    name: str
    """Name in the run file."""
    policy: core.Policy
    """Who answers."""

    async def answer(
        self,
        messages: Sequence[Mapping[str, str]],
        agent: str,
        env: TextEnv[Any],
        sampling: Sampling,
        seed: int,
    ) -> Completion:
        """Return one answer as a completion without tokens.

        Args:
            messages: The prompt.
            agent: Who is asked, ``<role>_<n>``.
            env: The environment at this moment, for policies that look at its state.
            sampling: How to draw, where the policy can.
            seed: Decides what is drawn, where the policy honours seeds.

        Raises:
            PolicyFailure: The prompt could not be answered.
        """
        wanted = core.Sampling(
            temperature=sampling.temperature,
            max_completion_tokens=sampling.max_completion_tokens,
            stop=sampling.stop,
        )
        prompt = core.Prompt(messages, agent, seed % _NUM_SEEDS, env)
        (answer,) = await self.policy.sample([prompt], 1, wanted)
        text, reason = answer.completions[0]
        is_cut = reason == "length"
        return Completion(
            token_ids=(), logprobs=(), text=text, finish_reason="length" if is_cut else "stop"
        )


@contextlib.contextmanager
def open_players(
    config: Config, env: TextEnv[Any], runner: asyncio.Runner
) -> Iterator[dict[str, Player]]:
    """Give the players of a run by name, and close them at the end.

    Args:
        config: The run's configuration.
        env: What is played.
        runner: Runs everything that players do.

    Raises:
        PettingLLMsError: A player cannot be loaded or reached, or cannot play this environment.
    """
    players: dict[str, Player] = {}
    try:
        for name, policy in config.policies.items():
            if policy.player:
                settings = core.PolicySettings(**policy.requests.model_dump())
                loaded = core.load_policy(policy.player, settings)
                players[name] = Player(name=name, policy=loaded)
        runner.run(_check(players, env))
        yield players
    finally:
        runner.run(_close(players))


async def _check(players: Mapping[str, Player], env: TextEnv[Any]) -> None:
    for player in players.values():
        await player.policy.check(env)


async def _close(players: Mapping[str, Player]) -> None:
    for player in players.values():
        await player.policy.aclose()
