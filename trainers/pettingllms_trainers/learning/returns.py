"""Returns: what decisions were worth, by what came after them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean

from pettingllms_trainers.errors import GroupError
from pettingllms_trainers.types import Decision, RolloutTree

_END = ""
"""In the place of a key: the episode is over."""


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


class StateReturns:
    """What the decisions of the episodes of one level were worth, estimated from all of them.

    A decision is worth its reward and the value of the state that it led to; the value of a state
    is the mean of what the decisions taken in it were worth. Where no two episodes were in one
    state this is the return-to-go.

    Args:
        trees: The episodes, each a path of decisions with one followed candidate.
        gamma: Discount per decision.

    Source:
        The tree backup of Monte Carlo search, on the states that K episodes reached. GiGPO (arXiv
        2505.10978) compares answers that were given in one of them (anchor states), GraphGPO (arXiv
        2605.26684) backs distances to the goal up over their graph. Unbiased for episodes that are
        played on their own and prompts that the state decides, with less variance than the
        return-to-go; HGPO (arXiv 2602.22817) warns of equal states whose histories differ.

    Raises:
        GroupError: A decision has no chosen candidate.
    """

    def __init__(self, trees: Sequence[RolloutTree], gamma: float) -> None:
        self._paths = {tree.episode: tree.decisions for tree in trees}
        self._gamma = gamma
        self._of_agent: dict[str, dict[int, list[float]]] = {}
        for path in self._paths.values():
            for decision in path:
                if decision.chosen is None:
                    raise GroupError(
                        f"decision {tuple(decision.key)} has no chosen candidate to credit a return"
                    )

    def of(self, episode: int, agent: str) -> list[float]:
        """What each decision of an episode was worth to an agent, in order.

        Args:
            episode: Its id.
            agent: Gets its own rewards whole and the team part of those of others.
        """
        if agent not in self._of_agent:
            self._of_agent[agent] = self._backed_up(agent)
        return self._of_agent[agent][episode]

    def _backed_up(self, agent: str) -> dict[int, list[float]]:
        # States of different positions differ: the moment is part of a state's key.
        by_position: dict[int, list[tuple[int, Decision, str]]] = defaultdict(list)
        for episode, path in self._paths.items():
            keys = [*(decision.state_key for decision in path[1:]), _END]
            for position, (decision, after) in enumerate(zip(path, keys, strict=True)):
                by_position[position].append((episode, decision, after))
        values: dict[str, float] = {_END: 0.0}
        worth: dict[int, list[float]] = defaultdict(list)
        for position in sorted(by_position, reverse=True):
            in_state: dict[str, list[float]] = defaultdict(list)
            for episode, decision, after in by_position[position]:
                found = _reward(decision, agent) + self._gamma * values[after]
                worth[episode].append(found)
                in_state[decision.state_key].append(found)
            values = {_END: 0.0} | {state: fmean(found) for state, found in in_state.items()}
        return {episode: found[::-1] for episode, found in worth.items()}


def _reward(decision: Decision, agent: str) -> float:
    candidate = decision.candidates[decision.chosen or 0]
    return candidate.reward if decision.key.agent == agent else candidate.reward - candidate.local


def state_returns(trees: Sequence[RolloutTree], gamma: float) -> dict[int, StateReturns]:
    """The state returns of every level, by its seed.

    Args:
        trees: Episodes of some levels; one may occur several times.
        gamma: Discount per decision.
    """
    of_level: dict[int, dict[int, RolloutTree]] = defaultdict(dict)
    for tree in trees:
        of_level[tree.env_seed][tree.episode] = tree
    return {level: StateReturns([*own.values()], gamma) for level, own in of_level.items()}
