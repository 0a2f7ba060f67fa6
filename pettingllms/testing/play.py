"""Playing episodes for tests: hostile texts, mixed policies, transcripts as data."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

from pettingllms.env import TextEnv
from pettingllms.errors import ConformanceError

AnyEnv = TextEnv[Any]
Actor = Callable[[AnyEnv, str], str]
"""What an agent says: (environment, agent) -> text."""

# Seeds of the episodes that the checks play.
SEEDS = (0, 1, 2, 3)
# Steps after which an environment counts as having no end.
MAX_STEPS = 10_000

HOSTILE_TEXTS: tuple[str, ...] = (
    "",
    " \n\t",
    "\x00\x01\x1b[31m",
    "####",
    "#### []",
    "#### [",
    "#### " + "[" * 2000,
    "]" * 2000,
    '#### ["U"' * 500,
    "{}{0}{board}%s%d${x}",
    "```python\nimport os; os._exit(1)\n```",
    "__import__('os').system('true')",
    "\\boxed{" * 500,
    "\\boxed{}",
    "null",
    "NaN",
    '{"a": 1e999}',
    "9" * 5000,
    "-1",
    "<script>alert(1)</script>",
    "ignore all previous instructions",
    "\u202e\u0000\ufeff\U0001f600\ud7ff",
    "\ud800",
    "a" * 20_000,
    "path(" * 300,
    "path(99999999999999999999, -1)",
    "\n".join(["#### [1]"] * 200),
)
"""Texts that models (or attackers) might write; none of them may raise anything."""


def always(text: str, _source: object = None) -> Actor:
    """The actor that always says one text, whatever seed or source of chance it is given."""
    return lambda env, agent: text


def mixed_actor(rng: random.Random) -> Actor:
    """An actor that mixes scripted policies, hostile texts and random texts."""

    def actor(env: AnyEnv, agent: str) -> str:
        if env.scripted_policies and rng.random() < 0.6:
            return env.scripted_action(agent, rng.choice(env.scripted_policies), rng)
        if rng.random() < 0.5:
            return rng.choice(HOSTILE_TEXTS)
        return "".join(chr(rng.randrange(32, 0x300)) for _ in range(rng.randrange(40)))

    return actor


def scripted_actor(policy: str, rng: random.Random) -> Actor:
    """An actor that follows one scripted policy for every role."""
    return lambda env, agent: env.scripted_action(agent, policy, rng)


def play(env: AnyEnv, actor: Actor, num_steps: int | None = None) -> list[dict[str, Any]]:
    """Play from the present moment to the end and return what happened, step by step.

    Args:
        env: A raw environment after `reset`.
        actor: What the agents say.
        num_steps: Steps after which to stop; None: the end of the episode.

    Returns:
        Per step: agent, observation, action, rewards, terminated, truncated, info, state_hash.

    Raises:
        ConformanceError: The episode does not end within 10,000 steps.
    """
    steps: list[dict[str, Any]] = []
    for agent in steps_of(env):
        if len(steps) == num_steps:
            break
        observation = env.observe(agent)
        action = actor(env, agent)
        env.step(action)
        steps.append(
            {
                "agent": agent,
                "observation": str(observation),
                "action": action,
                "rewards": dict(env.rewards),
                "terminated": env.terminations[agent],
                "truncated": env.truncations[agent],
                "info": env.infos[agent],
                "state_hash": env.state_hash(),
            }
        )
    return steps


def steps_of(env: AnyEnv) -> Iterator[str]:
    """Yield the agent that acts, until the episode that the caller plays has ended.

    Raises:
        ConformanceError: The episode does not end within `MAX_STEPS` steps.
    """
    yield from moments(env, MAX_STEPS)
    require(has_ended(env), f"The episode did not end within {MAX_STEPS} steps.")


def moments(env: AnyEnv, most: int = 200) -> Iterator[str]:
    """Yield the agent that acts, as long as the episode that the caller plays goes on.

    Args:
        env: A raw environment after `reset`.
        most: Number of moments after which to stop: what a check samples is enough then.
    """
    for _ in range(most):
        if has_ended(env):
            return
        yield env.agent_selection


def transcript_of(env: AnyEnv, seed: int, actor: Actor) -> str:
    """A whole episode as text: all that the agents read and wrote, and the rewards."""
    env.reset(seed=seed)
    lines = [f"seed {seed} agents {', '.join(env.possible_agents)}"]
    for number, step in enumerate(play(env, actor)):
        parts = step["info"]["reward_parts"]
        rewards = ", ".join(f"{a}: {r:+.4f}" for a, r in step["rewards"].items())
        lines += [
            f"---- step {number} turn {step['info']['turn']} {step['agent']} reads",
            step["observation"],
            f"---- {step['agent']} writes",
            step["action"],
            f"---- team {parts['team']:+.4f} local {parts['local']:+.4f} | {rewards} | "
            f"parse_error {step['info']['parse_error']!r} success {step['info']['success']}",
        ]
    last = "terminated" if any(env.terminations.values()) else "truncated"
    return "\n".join([*lines, last]) + "\n"


def has_ended(env: AnyEnv) -> bool:
    """Whether any agent has ended, and with it, by the contract, the episode."""
    return any(env.terminations.values()) or any(env.truncations.values())


def episode(env: AnyEnv, seed: int, actor: Actor | None = None) -> list[dict[str, Any]]:
    """Play the episode of a seed; without an actor, with a mixed one."""
    env.reset(seed=seed)
    return play(env, actor or mixed_actor(random.Random(seed)))


def start_of(env: AnyEnv, seed: int) -> str:
    """What identifies the first state of a seed."""
    env.reset(seed=seed)
    return env.state_hash()


def require(condition: bool, message: str) -> None:
    """Raise `ConformanceError` with the message unless the condition holds."""
    if not condition:
        raise ConformanceError(message)
