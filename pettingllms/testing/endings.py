"""Checks of the ends of episodes: flags, success, time-outs."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Any

from pettingllms.testing.play import (
    SEEDS,
    Actor,
    AnyEnv,
    mixed_actor,
    play,
    require,
    scripted_actor,
)
from pettingllms.testing.report import SkippedCheck
from pettingllms.testing.subject import Subject

ADDED_TURNS = 2
"""Turns by which episodes are made longer, to see whether they become so."""


def check_ending(subject: Subject) -> None:
    """All agents end in the same step with one kind of flag, within max_turns turns."""
    for env, last in _played(subject):
        flags = {(env.terminations[a], env.truncations[a]) for a in env.possible_agents}
        require(len(flags) == 1, f"Agents ended with different flags: {flags}.")
        require(flags != {(True, True)}, "An episode was terminated and truncated at once.")
        require(last["info"]["turn"] < env.max_turns, "More than max_turns turns were played.")
        if last["truncated"]:
            at_limit = env.turn == env.max_turns
            require(at_limit, "An episode was truncated before max_turns turns were played.")
        for _ in env.possible_agents:
            env.step(None)
        require(not env.agents, "Agents are left after each has been given None.")


def check_success_ends(subject: Subject) -> None:
    """Success terminates the episode, and all agents are informed of it."""
    env = subject()
    for seed in SEEDS:
        for actor in _actors(env, seed):
            env.reset(seed=seed)
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
    """Return the turns that teams which solve nothing play at most."""
    most = 0
    actors: list[Actor] = [lambda _env, _agent: "", mixed_actor(random.Random(seed))]
    for actor in actors:
        env.reset(seed=seed)
        last = play(env, actor)[-1]
        most = max(most, 0 if last["info"]["success"] else last["info"]["turn"] + 1)
    return most


def check_timeouts(subject: Subject) -> dict[str, float]:
    """Running out of turns is not a success, for teams that say nothing least of all."""
    env = subject()
    at_limit = num_truncated = 0
    for name, text in (("silent", ""), ("talking", "so " * 50)):
        for seed in SEEDS:
            env.reset(seed=seed)
            last = play(env, lambda _env, _agent, text=text: text)[-1]
            success = any(info["success"] for info in env.infos.values())
            require(not success, f"Seed {seed}: the episode of a {name} team is a success.")
            at_limit += last["info"]["turn"] == env.max_turns - 1
            num_truncated += last["truncated"]
    for env, last in _played(subject):
        if last["truncated"]:
            success = any(info["success"] for info in env.infos.values())
            require(not success, "A time-out is counted as success.")
            num_truncated += 1
    if not at_limit:
        raise SkippedCheck("No episode could be made to last max_turns turns.")
    return {"truncated episodes": num_truncated}


def _played(subject: Subject) -> Iterator[tuple[AnyEnv, dict[str, Any]]]:
    """Yield (environment at the end of an episode, last step) for several kinds of actors."""
    for seed in SEEDS:
        for actor in _actors(subject(), seed):
            env = subject()
            env.reset(seed=seed)
            yield env, play(env, actor)[-1]


def _actors(env: AnyEnv, seed: int) -> list[Actor]:
    rng = random.Random(seed)
    references = [scripted_actor(policy, rng) for policy in env.scripted_policies]
    return [mixed_actor(rng), lambda _env, _agent: "", *references]
