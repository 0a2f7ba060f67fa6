"""Episodes played by an environment's own scripted policies, without any model."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pettingllms import TextEnv, role_of
from pettingllms.seeding import derive_seed
from pettingllms_trainers.rollout.settings import RolloutSpec


class ScriptedDecision(NamedTuple):
    """What a scripted policy was shown, what it wrote, and what it earned."""

    role: str
    messages: Sequence[Mapping[str, str]]
    text: str
    reward: float
    parse_error: str | None


class ScriptedEpisode(NamedTuple):
    """An episode that scripted policies played."""

    initial_state_hash: str
    decisions: tuple[ScriptedDecision, ...]
    success: bool
    num_turns: int


def play_scripted_episode(
    env: TextEnv[Any], spec: RolloutSpec, policies: Mapping[str, Mapping[str, float]]
) -> ScriptedEpisode:
    """Play one episode with scripted policies.

    Args:
        env: Environment to take a fork of; it is not changed.
        spec: Which episode.
        policies: Role to scripted policies of the environment with their weights, for every
            role; one is drawn anew for every action.

    Raises:
        InvalidArgument: The environment has no such scripted policy.
    """
    env = env.fork()
    env.reset(seed=spec.env_seed)
    initial = env.state_hash()
    rng = random.Random(derive_seed(spec.seed, "reference"))
    decisions: list[ScriptedDecision] = []
    agent, turn = env.agent_selection, env.turn
    while not (env.terminations[agent] or env.truncations[agent]):
        role, turn = role_of(agent), env.turn
        messages = env.messages(agent)
        (name,) = rng.choices(list(policies[role]), list(policies[role].values()))
        text = env.scripted_action(agent, name, rng)
        env.step(text)
        info = env.infos[agent]
        decisions.append(
            ScriptedDecision(role, messages, text, env.rewards[agent], info["parse_error"])
        )
        agent = env.agent_selection
    return ScriptedEpisode(initial, tuple(decisions), env.infos[agent]["success"], turn + 1)
