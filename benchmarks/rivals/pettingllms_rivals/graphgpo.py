"""GraphGPO: an answer is worth by how much it comes nearer to the goal, on the graph of states."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import chain, pairwise

from pydantic import Field

from pettingllms_trainers.algorithms.base import Groups, Played, WholeEpisodes
from pettingllms_trainers.algorithms.grpo import by_episode
from pettingllms_trainers.config.algorithm import Member, StepContext
from pettingllms_trainers.types import RolloutTree

_State = tuple[int, str]
"""Level and key of a moment; `goal` stands for the end with success, `end` for that without."""


class GraphGpo(WholeEpisodes):
    """K whole episodes; the advantage of an episode plus that of its steps on the graph of states.

    Take it for comparison with state returns: it sees success and no reward of a step.

    Source:
        GraphGPO (arXiv 2605.26684): a step is credited by how much nearer it comes to the goal on
        the graph of all episodes of a level. Ours: gamma^d(s') - gamma^d(s), with d the decisions
        from a state to success (0 if there is no way), compared per agent and level; the weight.
    """

    name: str = "graphgpo"
    """Which algorithm."""
    step_weight: float = Field(default=1.0, ge=0)
    """Weight of the comparison of steps beside that of episodes."""
    gamma: float = Field(default=0.95, gt=0, lt=1)
    """What a state is worth less than one that is a decision nearer to the goal."""

    def groups(self, played: Sequence[Played], context: StepContext) -> Groups:
        yield from by_episode(played, "agent", 1.0)
        paths = {tree.episode: _path(tree) for tree, _ in played}
        before: dict[_State, set[_State]] = defaultdict(set)
        for state, after in chain.from_iterable(map(pairwise, paths.values())):
            # Edges of all episodes of a level: one that failed may lead into one that did not.
            before[after].add(state)
        near = {(tree.env_seed, "goal") for tree, _ in played}
        worth, value = dict[_State, float](), 1.0
        while near:  # backwards, breadth first
            worth |= dict.fromkeys(near, value)
            near = {state for after in near for state in before[after]} - worth.keys()
            value *= self.gamma
        for index, (tree, decision) in enumerate(played):
            state, after = paths[tree.episode][decision.key.position :][:2]
            gain = worth.get(after, 0.0) - worth.get(state, 0.0)
            group = tree.env_seed, decision.key.agent, "graph"
            yield group, Member(gain, ((index, 0),), self.step_weight)


def _path(tree: RolloutTree) -> list[_State]:
    end = "goal" if tree.outcome is not None and tree.outcome.success else "end"
    return [(tree.env_seed, key) for key in (*(one.state_key for one in tree.decisions), end)]
