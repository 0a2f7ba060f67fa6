"""Coalitions of a team's players, and how much each counts for one of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import combinations

from pettingllms.env import role_of

Coalition = frozenset[str]
"""Players that keep their present policies."""


def players_of(agents: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return player -> its agents: the roles of a team, or the agents of one role."""
    roles = dict.fromkeys(map(role_of, agents))
    if len(roles) == 1:
        return {agent: (agent,) for agent in agents}
    return {role: tuple(a for a in agents if role_of(a) == role) for role in roles}


def coalitions_of(players: Iterable[str]) -> list[Coalition]:
    """Return all coalitions of players, the empty one first and that of all last."""
    names = tuple(players)
    return [frozenset(kept) for size in range(len(names) + 1) for kept in combinations(names, size)]


def shapley_weights(player: str, players: Sequence[str]) -> dict[Coalition, float]:
    """Return coalition -> its weight in what is lost by keeping a player's policy.

    Args:
        player: One of the players.
        players: All of them, n.

    Returns:
        All 2**n coalitions S of players that keep their policies: `|S|! (n - |S| - 1)! / n!` for
        one without the player, minus the weight of that coalition for one with the player.
    """
    n = len(players)
    weights: dict[Coalition, float] = {}
    for kept in coalitions_of(one for one in players if one != player):
        weight = math.factorial(len(kept)) * math.factorial(n - len(kept) - 1) / math.factorial(n)
        weights[kept] = weight
        weights[kept | {player}] = -weight
    return weights
