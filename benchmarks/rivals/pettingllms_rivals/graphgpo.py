"""GraphGPO: an answer is worth by how much it comes nearer to the goal, on the graph of states."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from itertools import pairwise

from pydantic import Field

from pettingllms_trainers.algorithms.group_relative import Played
from pettingllms_trainers.algorithms.whole_episodes import WholeEpisodes, by_episode
from pettingllms_trainers.config.algorithm import Member, Moment
from pettingllms_trainers.types import RolloutTree

_GOAL, _END = "goal", "end"
"""In the place of a key: the episode is over, with success or without."""


class GraphGpo(WholeEpisodes):
    """K whole episodes; the advantage of an episode plus that of its steps on the graph of states.

    Take it for comparison with state returns: it sees success and no reward of a step.

    Source:
        GraphGPO (arXiv 2605.26684): all episodes of a level make one graph of states, and a step is
        credited by how much nearer it comes to the goal. Computed here: gamma^d(s') - gamma^d(s),
        with d the fewest decisions from a state to success on the graph (0 if none leads there),
        compared with the other steps of the agent on the level, beside the return of its episode.
        That form, the weight, and a state being one of a moment are ours.
    """

    name: str = "graphgpo"
    """Which algorithm."""
    step_weight: float = Field(default=1.0, ge=0)
    """Weight of the comparison of steps beside that of episodes."""
    gamma: float = Field(default=0.95, gt=0, lt=1)
    """What a state is worth less than one that is a decision nearer to the goal."""

    def groups(self, found: Sequence[Played], moment: Moment) -> Iterable[tuple[Hashable, Member]]:
        """See `Algorithm.groups`."""
        yield from by_episode(found, "agent", 1.0)
        paths = {(tree.env_seed, tree.episode): _path(tree) for tree, _ in found}
        before: dict[tuple[int, str], set[str]] = defaultdict(set)
        for (level, _), path in paths.items():
            for state, after in pairwise(path):
                before[level, after].add(state)
        worth: dict[tuple[int, str], float] = {}
        for level in dict.fromkeys(level for level, _ in paths):
            near, value = {_GOAL}, 1.0
            while near:  # backwards, breadth first
                worth |= {(level, state): value for state in near}
                reached = {state for after in near for state in before[level, after]}
                near = {state for state in reached if (level, state) not in worth}
                value *= self.gamma
        for index, (tree, decision) in enumerate(found):
            level, start = tree.env_seed, decision.key.position
            state, after = paths[level, tree.episode][start : start + 2]
            gain = worth.get((level, after), 0.0) - worth.get((level, state), 0.0)
            key = level, decision.key.agent, "graph"
            yield key, Member(gain, ((index, 0),), self.step_weight)


def _path(tree: RolloutTree) -> list[str]:
    is_solved = tree.outcome is not None and tree.outcome.success
    return [*(one.state_key for one in tree.decisions), _GOAL if is_solved else _END]
