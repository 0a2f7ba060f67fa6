"""Checks of rewards and ends: parts, bounds, prices of unreadable texts, flags, time-outs."""

from __future__ import annotations

import inspect
import math
import random
import re
from collections.abc import Iterator, Mapping
from typing import Any

from pettingllms.pages import sections_of
from pettingllms.testing.play import (
    SEEDS,
    Actor,
    AnyEnv,
    always,
    episode,
    mixed_actor,
    moments,
    play,
    require,
    scripted_actor,
)
from pettingllms.testing.report import NotPromised, SkippedCheck, Subject

_BOUNDS = re.compile(r"\b[Aa] (team|local) part (?:lies )?in \[([^,\]]+),\s*([^,\]]+)\]")
_NUMBER = re.compile(r"(-?[0-9]+(?:\.[0-9]+)?)( / T)?")
_ROUNDING = 1e-9


def check_rewards(subject: Subject) -> None:
    """rewards[i] = alpha * team + local for the acting agent, alpha * team for all others."""
    env = subject()
    for seed in SEEDS:
        env.reset(seed=seed)
        for _ in paid_steps(env, mixed_actor(random.Random(seed))):
            pass


def paid_steps(env: AnyEnv, actor: Actor) -> Iterator[dict[str, Any]]:
    """Play an episode; yield its steps, and prove that rewards are their parts and are paid."""
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
        _check_parts(step)
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
    for seed, actor in _starts(env):
        for step in paid_steps(env, actor):
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
    for seed, actor in _starts(env):
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
    for _, actor in _starts(env):
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


# Turns by which episodes are made longer, to see whether they become so.
ADDED_TURNS = 2


def check_ending(subject: Subject) -> None:
    """All agents end in the same step with one kind of flag, within max_turns turns."""
    for env, last in _played(subject):
        check_end(env, last)
        for _ in env.possible_agents:
            env.step(None)
        require(not env.agents, "Agents are left after each has been given None.")


def check_end(env: AnyEnv, last: Mapping[str, Any]) -> None:
    """Prove that an episode has ended as it should, after its last step."""
    flags = {(env.terminations[a], env.truncations[a]) for a in env.possible_agents}
    require(len(flags) == 1, f"Agents ended with different flags: {flags}.")
    require(flags != {(True, True)}, "An episode was terminated and truncated at once.")
    require(last["info"]["turn"] < env.max_turns, "More than max_turns turns were played.")
    if last["truncated"]:
        at_limit = env.turn == env.max_turns
        require(at_limit, "An episode was truncated before max_turns turns were played.")
        require(not last["info"]["success"], "A time-out is counted as success.")


def check_success_ends(subject: Subject) -> None:
    """Success terminates the episode, and all agents are informed of it."""
    env = subject()
    for seed, actor in _starts(env):
        steps = play(env, actor)
        require(
            all(step["terminated"] for step in steps if step["info"]["success"]),
            f"Seed {seed}: a success that does not terminate the episode.",
        )
        seen = {agent: info["success"] for agent, info in env.infos.items()}
        equal = len(set(seen.values())) == 1 or not steps[-1]["terminated"]
        require(equal, f"Seed {seed}: agents differ about the success: {seen}.")


def check_max_turns(subject: Subject) -> Mapping[str, float]:
    """An episode may last as many turns as the argument `max_turns` says.

    With more turns the teams that solve nothing must either use all of them, or none of the added
    ones.
    """
    subject.require_argument("max_turns")
    promised = subject().max_turns
    lasted: dict[int, int] = {}
    # A game that ends of itself is fine; one that counts other than max_turns is not.
    for num_turns in (promised, promised + ADDED_TURNS):
        env = subject(max_turns=num_turns)
        given = f"max_turns={num_turns}"
        require(env.max_turns == num_turns, f"{given} makes episodes of {env.max_turns} turns.")
        lasted[num_turns] = max(_turns_of(env, seed) for seed in SEEDS)
    most, most_with_more = lasted.values()
    require(
        most in (promised, most_with_more),
        f"Of {promised} turns a team that solves nothing plays {most}, of {promised + ADDED_TURNS} "
        f"{most_with_more}: fewer than promised.",
    )
    return {f"turns of {promised} that a team which solves nothing can play": most}


def _turns_of(env: AnyEnv, seed: int) -> int:
    """The turns that teams which solve nothing play at most."""
    most = 0
    for actor in (always(""), mixed_actor(random.Random(seed))):
        last = episode(env, seed, actor)[-1]
        most = max(most, 0 if last["info"]["success"] else last["info"]["turn"] + 1)
    return most


def check_timeouts(subject: Subject) -> dict[str, float]:
    """Running out of turns is not a success, for teams that say nothing least of all."""
    env = subject()
    at_limit = num_truncated = 0
    for name, text in (("silent", ""), ("talking", "so " * 50)):
        for seed in SEEDS:
            last = episode(env, seed, always(text))[-1]
            success = any(info["success"] for info in env.infos.values())
            require(not success, f"Seed {seed}: the episode of a {name} team is a success.")
            at_limit += last["info"]["turn"] == env.max_turns - 1
            num_truncated += last["truncated"]
    num_truncated += sum(last["truncated"] for _, last in _played(subject))
    if not at_limit:
        raise SkippedCheck("No episode could be made to last max_turns turns.")
    return {"truncated episodes": num_truncated}


def _played(subject: Subject) -> Iterator[tuple[AnyEnv, dict[str, Any]]]:
    """Yield (environment at the end of an episode, last step) for several kinds of actors."""
    env = subject()
    for _, actor in _starts(env):
        yield env, play(env, actor)[-1]


def _starts(env: AnyEnv) -> Iterator[tuple[int, Actor]]:
    """Reset an environment for several kinds of actors; yield the seed and the actor."""
    for seed in SEEDS:
        rng = random.Random(seed)
        scripted = [scripted_actor(policy, rng) for policy in env.scripted_policies]
        # One source of chance for all: scripted policies then differ between episodes.
        # An empty list can be read: what it costs is another branch of the rules than silence.
        for actor in (mixed_actor(rng), always(""), always("#### []"), *scripted):
            env.reset(seed=seed)
            yield seed, actor
