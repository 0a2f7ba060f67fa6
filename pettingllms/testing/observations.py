"""Checks of observations: free of side effects, and about the present state."""

from __future__ import annotations

import random
from typing import Any

from pettingllms.testing.play import (
    SEEDS,
    Actor,
    AnyEnv,
    episode,
    has_ended,
    mixed_actor,
    require,
)
from pettingllms.testing.report import NotPromised
from pettingllms.testing.subject import Subject


def check_observe(subject: Subject) -> None:
    """`observe` and `messages` change nothing, agree, and work at any time."""
    env = subject()
    env.reset(seed=2)
    actor = mixed_actor(random.Random(2))
    for _ in range(6 * len(env.possible_agents)):
        before, rewards = env.state_hash(), dict(env.rewards)
        for agent in env.possible_agents:
            observation = env.observe(agent)
            joined = "\n\n".join(m["content"] for m in env.messages(agent))
            require(observation == env.observe(agent), "observe twice gave two observations.")
            require(observation == joined, "messages and observation differ.")
            inside = env.observation_space(agent).contains(observation)
            require(inside, "An observation is outside of the observation space.")
        require(before == env.state_hash(), "observe changed the state.")
        require(rewards == env.rewards, "observe changed the rewards.")
        if has_ended(env):
            return
        env.step(actor(env, env.agent_selection))


def check_watching(subject: Subject) -> None:
    """An episode is the same whether or not it is watched: looking has no side effects."""
    env = subject()
    for seed in SEEDS:
        unwatched = _outcomes(env, seed, mixed_actor(random.Random(seed)))
        actor = mixed_actor(random.Random(seed))
        watched = _outcomes(env, seed, lambda env, agent, actor=actor: _look(env, agent, actor))
        require(
            unwatched == watched,
            f"Seed {seed}: the same actions had other results after observe, messages, last, "
            "state_hash, ansi rendering and scripted_action were called.",
        )


def check_reading(subject: Subject) -> None:
    """What every agent reads depends on the level and on what was done before."""
    env = subject()
    shows_seed = env.metadata.get("seed_shows", True)
    by_moment: dict[tuple[str, int], list[str]] = {}
    for seed in range(20, 32):
        for step in episode(env, seed):
            moment = (step["agent"], step["info"]["turn"])
            by_moment.setdefault(moment, []).append(step["observation"])
    for agent in env.possible_agents:
        # Who seldom has the floor may be seen but once at every moment.
        readings = [s for (reader, _), s in by_moment.items() if reader == agent and len(s) > 1]
        require(
            not readings or not shows_seed or max(len(set(seen)) for seen in readings) > 1,
            f"{agent} reads the same in every episode: its prompt does not depend on the state.",
        )
    num_pairs, num_different = _compare_branches(subject)
    if not num_pairs:
        raise NotPromised("No agent reads anything after an action has changed the state.")
    require(
        num_different > 0,
        f"In {num_pairs} pairs of branches with different states, every agent reads the same in "
        "both: prompts do not depend on the state.",
    )


def _compare_branches(subject: Subject) -> tuple[int, int]:
    """Return the pairs of branches with different states, and those that agents can distinguish."""
    num_pairs = num_different = 0
    for seed in SEEDS:
        env = subject()
        env.reset(seed=seed)
        actor = mixed_actor(random.Random(seed))
        while not has_ended(env):
            one, other = env.fork(), env.fork()
            _pass_stage(one, mixed_actor(random.Random(seed)))
            _pass_stage(other, lambda _env, _agent: "")
            readers = one.acting()
            if readers and readers == other.acting() and one.state_hash() != other.state_hash():
                num_pairs += 1
                num_different += any(one.observe(a) != other.observe(a) for a in readers)
            env.step(actor(env, env.agent_selection))
    return num_pairs, num_different


def _pass_stage(env: AnyEnv, actor: Actor) -> None:
    for _ in env.acting():
        if not has_ended(env):
            env.step(actor(env, env.agent_selection))


def _look(env: AnyEnv, agent: str, actor: Actor) -> str:
    """Call everything that must change nothing, then answer."""
    for other in env.possible_agents:
        env.observe(other)
        env.messages(other)
        for policy in env.scripted_policies:
            env.scripted_action(other, policy, random.Random(0))
    env.last()
    env.acting()
    env.state_hash()
    env.render_mode = "ansi"
    env.render()
    return actor(env, agent)


def _outcomes(env: AnyEnv, seed: int, actor: Actor) -> list[dict[str, Any]]:
    """Return what the actions of an episode did, without a look at observations or hashes."""
    env.reset(seed=seed)
    outcomes: list[dict[str, Any]] = []
    while not has_ended(env) and len(outcomes) < 10_000:
        agent = env.agent_selection
        env.step(actor(env, agent))
        outcomes.append({"agent": agent, "rewards": dict(env.rewards), "info": env.infos[agent]})
    return [*outcomes, {"final": env.state_hash()}]
