"""Checks of rewards: their parts, their documented bounds, and the price of unreadable texts."""

from __future__ import annotations

import inspect
import math
import random
import re
from collections.abc import Iterator, Mapping
from typing import Any

from pettingllms.testing.documentation import sections_of
from pettingllms.testing.play import (
    SEEDS,
    Actor,
    AnyEnv,
    mixed_actor,
    moments,
    play,
    require,
    scripted_actor,
)
from pettingllms.testing.report import NotPromised
from pettingllms.testing.subject import Subject

_BOUNDS = re.compile(r"\b[Aa] (team|local) part (?:lies )?in \[([^,\]]+),\s*([^,\]]+)\]")
_NUMBER = re.compile(r"(-?[0-9]+(?:\.[0-9]+)?)( / T)?")
_ROUNDING = 1e-9


def check_rewards(subject: Subject) -> None:
    """rewards[i] = alpha * team + local for the acting agent, alpha * team for all others."""
    env = subject()
    for seed in SEEDS:
        env.reset(seed=seed)
        for step in _paid(env, mixed_actor(random.Random(seed))):
            _check_parts(step)


def _paid(env: AnyEnv, actor: Actor) -> Iterator[dict[str, Any]]:
    """Play an episode; yield its steps, and prove that `last` pays their rewards and no others."""
    owed = dict.fromkeys(env.possible_agents, 0.0)

    def paid(env: AnyEnv, agent: str) -> str:
        _, reward, *_ = env.last(observe=False)
        require(
            math.isclose(reward, owed[agent], abs_tol=_ROUNDING),
            f"`last` pays {agent} {reward}, and its rewards since its last action sum to "
            f"{owed[agent]}.",
        )
        owed[agent] = 0.0
        return actor(env, agent)

    for _ in moments(env):
        (step,) = play(env, paid, num_steps=1)
        for agent, reward in step["rewards"].items():
            owed[agent] += reward
        yield step


def _check_parts(step: Mapping[str, Any]) -> None:
    parts = step["info"]["reward_parts"]
    for agent, reward in step["rewards"].items():
        expected = parts["team"] + (parts["local"] if agent == step["agent"] else 0.0)
        require(
            math.isclose(reward, expected, abs_tol=1e-12),
            f"rewards[{agent!r}] is {reward}, its parts sum to {expected}.",
        )


def check_outcome(subject: Subject) -> None:
    """With reward="outcome" solving the task pays the team alpha, and nothing else pays."""
    subject.require_argument("reward")
    env = subject(reward="outcome")
    for seed in SEEDS:
        rng = random.Random(seed)
        actors: list[Actor] = [mixed_actor(rng), lambda _env, _agent: ""]
        actors += [scripted_actor(policy, rng) for policy in env.scripted_policies]
        for actor in actors:
            env.reset(seed=seed)
            for step in _paid(env, actor):
                _check_parts(step)
                expected = {"team": env.alpha * step["info"]["success"], "local": 0.0}
                require(
                    step["info"]["reward_parts"] == expected,
                    f"Seed {seed}: {step['agent']} is paid {step['info']['reward_parts']} with "
                    f'reward="outcome", not {expected}.',
                )


def check_bounds(subject: Subject) -> None:
    """Reward parts stay within the bounds that the docstring states.

    It states them in its section Reward as "a team part lies in [-2, 3]", "a local part in
    [-0.24 / T, 0]", with numbers, or numbers divided by T, which is `max_turns`.
    """
    env = subject()
    text = sections_of(inspect.getdoc(type(env)) or "").get("Reward", "")
    bounds = {
        part: (_value(low, env.max_turns), _value(high, env.max_turns))
        for part, low, high in _BOUNDS.findall(" ".join(text.split()))
    }
    if not bounds:
        raise NotPromised('The section Reward states no bounds ("a team part lies in [-2, 3]").')
    scale = {"team": env.alpha, "local": 1.0}
    for seed in SEEDS:
        rng = random.Random(seed)
        actors = [scripted_actor(policy, rng) for policy in env.scripted_policies]
        for actor in (mixed_actor(rng), *actors):
            env.reset(seed=seed)
            for step in play(env, actor):
                for part, (low, high) in bounds.items():
                    value = step["info"]["reward_parts"][part] / (scale[part] or 1.0)
                    require(
                        low - _ROUNDING <= value <= high + _ROUNDING,
                        f"Seed {seed}: the {part} part of {step['agent']} is {value:.4f}, outside "
                        f"of the documented [{low:.4f}, {high:.4f}].",
                    )


def check_parse_errors(subject: Subject) -> None:
    """A text that cannot be read earns no local reward."""
    env = subject()
    for seed in SEEDS:
        actors: list[Actor] = [mixed_actor(random.Random(seed)), lambda _env, _agent: ""]
        for actor in actors:
            env.reset(seed=seed)
            for step in play(env, actor):
                local = step["info"]["reward_parts"]["local"]
                require(
                    step["info"]["parse_error"] is None or local <= 0,
                    f"The parse error {step['info']['parse_error']!r} earns {step['agent']} "
                    f"{local:+.4f}.",
                )


def _value(text: str, max_turns: int) -> float:
    match = _NUMBER.fullmatch(text.strip())
    require(
        match is not None,
        f"The documented bound {text!r} is neither a number nor a number divided by T.",
    )
    assert match is not None
    return float(match[1]) / (max_turns if match[2] else 1)
