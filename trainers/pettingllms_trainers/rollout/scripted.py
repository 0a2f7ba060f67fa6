"""Episodes played by an environment's own reference policies, without any model."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pettingllms import TextEnv, role_of
from pettingllms.seeding import derive_seed
from pettingllms_trainers.rollout.tree import EpisodeSpec

__all__ = ["ReferenceDecision", "ReferenceEpisode", "play_reference"]


class ReferenceDecision(NamedTuple):
    """What a reference policy was shown, what it wrote, and what it earned."""

    role: str
    messages: Sequence[Mapping[str, str]]
    text: str
    reward: float
    parse_error: str | None


class ReferenceEpisode(NamedTuple):
    """An episode that reference policies played."""

    initial_state_hash: str
    decisions: tuple[ReferenceDecision, ...]
    success: bool
    num_turns: int


def play_reference(
    env: TextEnv[Any], spec: EpisodeSpec, policies: Mapping[str, Mapping[str, float]]
) -> ReferenceEpisode:
    """Play one episode with reference policies.

    Args:
        env: Environment to take a fork of; it is not changed.
        spec: Which episode.
        policies: Role to reference policies of the environment with their weights, for every
            role; one is drawn anew for every action.

    Raises:
        InvalidArgument: The environment has no such reference policy.
    """
    env = env.fork()
    env.reset(seed=spec.env_seed)
    initial = env.state_hash()
    rng = random.Random(derive_seed(spec.seed, "reference"))
    decisions: list[ReferenceDecision] = []
    agent, turn = env.agent_selection, env.turn
    while not (env.terminations[agent] or env.truncations[agent]):
        role, turn = role_of(agent), env.turn
        messages = env.messages(agent)
        (name,) = rng.choices(list(policies[role]), list(policies[role].values()))
        text = env.reference_action(agent, name, rng)
        env.step(text)
        info = env.infos[agent]
        decisions.append(
            ReferenceDecision(role, messages, text, env.rewards[agent], info["parse_error"])
        )
        agent = env.agent_selection
    return ReferenceEpisode(initial, tuple(decisions), env.infos[agent]["success"], turn + 1)
