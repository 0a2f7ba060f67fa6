"""Checks of rewards: their parts, the ends of episodes, and what doing no work earns."""

from __future__ import annotations

import math
import random

from pettingllms.testing.play import (
    SEEDS,
    AnyEnv,
    Factory,
    Player,
    mixed_player,
    play,
    reference_player,
    require,
)

DEGENERATE_PLAYERS: dict[str, Player] = {
    "silence": lambda _env, _agent: "",
    "a constant": lambda _env, _agent: "0",
    "an empty list": lambda _env, _agent: "#### []",
    "echoing the prompt": lambda env, agent: str(env.observe(agent)),
}
"""Players that do no work; each must earn less than the oracle."""


def check_rewards(factory: Factory) -> None:
    """rewards[i] = alpha * team + local for the acting agent, alpha * team for all others."""
    for seed in SEEDS:
        env = factory()
        env.reset(seed=seed)
        for step in play(env, mixed_player(random.Random(seed))):
            parts = step["info"]["reward_parts"]
            for agent, reward in step["rewards"].items():
                expected = parts["team"] + (parts["local"] if agent == step["agent"] else 0.0)
                require(
                    math.isclose(reward, expected, abs_tol=1e-12),
                    f"rewards[{agent!r}] is {reward}, its parts sum to {expected}",
                )


def check_ending(factory: Factory) -> None:
    """All agents end in the same step with one kind of flag; a time-out is not a success."""
    for seed in SEEDS:
        for player in _players(factory(), seed):
            env = factory()
            env.reset(seed=seed)
            last = play(env, player)[-1]
            flags = {(env.terminations[a], env.truncations[a]) for a in env.possible_agents}
            require(len(flags) == 1, f"agents ended differently: {flags}")
            require(flags != {(True, True)}, "terminated and truncated at once")
            require(last["info"]["turn"] < env.max_turns, "more turns were played than max_turns")
            if last["truncated"]:
                require(not last["info"]["success"], "a time-out is counted as success")
                at_limit = env.turn == env.max_turns
                require(at_limit, "truncated before max_turns turns were played")
            for _ in env.possible_agents:
                env.step(None)
            require(not env.agents, "agents are left after each has been given None")


def check_incentives(factory: Factory) -> None:
    """Silence, constants, repetition and echoes earn less than the oracle (if there is one)."""
    env = factory()
    if "oracle" not in env.reference_policies:
        return
    oracle = _returns(env, reference_player("oracle", random.Random(0)), must_solve=True)
    for name, player in DEGENERATE_PLAYERS.items():
        for agent, poor in _returns(env, player).items():
            require(
                poor < oracle[agent],
                f"{name} earns {agent} {poor:.3f} in {len(SEEDS)} episodes, "
                f"the oracle {oracle[agent]:.3f}",
            )


def _players(env: AnyEnv, seed: int) -> list[Player]:
    rng = random.Random(seed)
    return [mixed_player(rng), *(reference_player(p, rng) for p in env.reference_policies)]


def _returns(env: AnyEnv, player: Player, must_solve: bool = False) -> dict[str, float]:
    """Return agent -> sum of its rewards over the episodes of all test seeds."""
    totals = dict.fromkeys(env.possible_agents, 0.0)
    for seed in SEEDS:
        env.reset(seed=seed)
        steps = play(env, player)
        solved = bool(steps[-1]["info"]["success"])
        require(solved or not must_solve, f"the oracle did not solve the episode of seed {seed}")
        for agent in totals:
            totals[agent] += math.fsum(step["rewards"][agent] for step in steps)
    return totals
