"""Turn-PPO, and MAPPO by turns: whole episodes with a learnt V as the baseline."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from statistics import fmean

from pydantic import Field

from pettingllms_rivals.alone_valued import AloneValued
from pettingllms_trainers.algorithms.group_relative import Played
from pettingllms_trainers.algorithms.whole_episodes import WholeEpisodes
from pettingllms_trainers.config.algorithm import Member, Moment, Strategy, ValueConfig
from pettingllms_trainers.learning.targets import value_examples
from pettingllms_trainers.rollout.credit.value import ByValue
from pettingllms_trainers.types import RolloutTree, ValueExample


class TurnPpo(WholeEpisodes):
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
    gamma: float = Field(default=1.0, gt=0, le=1)
    """Discount per decision, of any role."""
    gae_lambda: float = Field(default=0.95, ge=0, le=1)
    """lambda: how far what was earned counts, and not V of what comes next; 1: it alone."""
    value: ValueConfig = ValueConfig()

    def strategy(self, moment: Moment) -> Strategy:
        """See `Algorithm.strategy`."""
        return AloneValued(ByValue(self.gamma))

    @property
    def critic(self) -> ValueConfig:
        """See `Algorithm.critic`."""
        return self.value

    def value_examples(
        self, trees: Sequence[RolloutTree], moment: Moment
    ) -> dict[str, list[ValueExample]]:
        """See `Algorithm.value_examples`: returns of whole episodes."""
        return value_examples(trees, gamma=self.gamma, path_weight=1.0)

    def groups(self, found: Sequence[Played], moment: Moment) -> Iterable[tuple[Hashable, Member]]:
        """See `Algorithm.groups`."""
        if self.value.is_warming_up(moment):
            return
        trees = {tree.episode: tree for tree, _ in found}
        starts: dict[int, list[float]] = defaultdict(list)
        for tree in trees.values():
            first = tree.decisions[0].candidates[0]
            starts[tree.env_seed].append(first.reward + first.value)
        of = {name: self._gae(tree, fmean(starts[tree.env_seed])) for name, tree in trees.items()}
        for index, (tree, decision) in enumerate(found):
            value = of[tree.episode][decision.key.position]
            yield decision.role, Member(value, ((index, 0),))

    def _gae(self, tree: RolloutTree, start: float) -> list[float]:
        played = [decision.candidates[0] for decision in tree.decisions]
        values = [start, *(one.value / self.gamma for one in played[:-1])]
        found, later = list[float](), 0.0
        for one, value in zip(reversed(played), reversed(values), strict=True):
            later = one.reward + one.value - value + self.gamma * self.gae_lambda * later
            found.append(later)
        return found[::-1]
