"""Returns: what decisions were worth, by what came after them."""

from __future__ import annotations

from collections.abc import Sequence

from pettingllms_trainers.errors import GroupError
from pettingllms_trainers.types import RolloutTree


def returns_to_go(rewards: Sequence[float], gamma: float = 1.0) -> list[float]:
    """The discounted sum of each reward and all later ones.

    Args:
        rewards: [N] rewards along one trajectory, in play order.
        gamma: Discount per reward, in (0, 1].

    Returns:
        [N] returns-to-go; the first is the return of the trajectory.
    """
    found: list[float] = []
    total = 0.0
    for reward in reversed(rewards):
        total = reward + gamma * total
        found.append(total)
    return found[::-1]


def path_returns(tree: RolloutTree, agent: str, gamma: float) -> list[float]:
    """An agent's return-to-go at each decision of the path: team parts and its own local."""
    rewards: list[float] = []
    for decision in tree.decisions:
        if decision.chosen is None:
            raise GroupError(
                f"decision {tuple(decision.key)} has no chosen candidate to credit a return"
            )
        candidate = decision.candidates[decision.chosen]
        is_own = decision.key.agent == agent
        rewards.append(candidate.reward if is_own else candidate.reward - candidate.local)
    return returns_to_go(rewards, gamma)
