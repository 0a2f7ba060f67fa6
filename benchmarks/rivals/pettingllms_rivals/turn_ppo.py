"""Turn-PPO, and MAPPO by turns: whole episodes with a learnt V as the baseline."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean

from pydantic import Field

from pettingllms_rivals.alone_valued import ValuedEpisodes
from pettingllms_trainers.algorithms.base import Groups, Played
from pettingllms_trainers.config.algorithm import Member, StepContext
from pettingllms_trainers.learning.returns import returns_to_go
from pettingllms_trainers.types import RolloutTree


class TurnPpo(ValuedEpisodes):
    """K whole episodes; an answer is worth its generalised advantage over V, in the whole batch.

    Take it for comparison with a critic. V warms up first: until then no policy learns.

    Source:
        Turn-PPO (arXiv 2512.17008): PPO whose actions are turns; the advantage of GAE (arXiv
        1506.02438, eq. 16); a V that all roles share as in MAPPO (arXiv 2103.01955). Changed: V is
        read from the prompt of the agent that acts, and V of the first state of a level is the mean
        over its episodes of reward plus V of what came next.
    """

    name: str = "turn_ppo"
    """Which algorithm."""
    gae_lambda: float = Field(default=0.95, ge=0, le=1)
    """lambda: how far what was earned counts, and not V of what comes next; 1: it alone."""

    def groups(self, played: Sequence[Played], context: StepContext) -> Groups:
        if self.value.is_warming_up(context):
            return
        trees = {tree.episode: tree for tree, _ in played}
        of = {episode: self._gae(tree, trees.values()) for episode, tree in trees.items()}
        for index, (tree, decision) in enumerate(played):
            value = of[tree.episode][decision.key.position]
            yield decision.role, Member(value, ((index, 0),))

    def _gae(self, tree: RolloutTree, trees: Iterable[RolloutTree]) -> list[float]:
        level = [one for one in trees if one.env_seed == tree.env_seed]
        firsts = [one.decisions[0].candidates[0] for one in level]
        played = [decision.candidates[0] for decision in tree.decisions]
        # A candidate carries the discounted V of what came next: V of the state is without it.
        values = [one.value / self.gamma for one in played[:-1]]
        values = [fmean(one.reward + one.value for one in firsts), *values]
        deltas = [one.reward + one.value - v for one, v in zip(played, values, strict=True)]
        return returns_to_go(deltas, self.gamma * self.gae_lambda)
