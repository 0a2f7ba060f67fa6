"""Episodes that continue from the best of them, once it is shown that who leads also wins."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from statistics import fmean
from typing import Any, Literal, NamedTuple

from pydantic import Field

from pettingllms.seeding import derive_seed
from pettingllms_trainers.algorithms.base import Groups, Played
from pettingllms_trainers.algorithms.reinforce import Reinforce
from pettingllms_trainers.config.algorithm import StepContext, Strategy
from pettingllms_trainers.learning.groups import has_signal
from pettingllms_trainers.rollout.candidates import together
from pettingllms_trainers.rollout.player import Player
from pettingllms_trainers.types import Decision, RolloutTree

_FADING = 0.9
"""Weight of evidence one train step later: policies change, and with them who wins."""
_SURE = 2.0
"""Standard errors above 0."""


class Lockstep(Reinforce):
    """K episodes of a level that follow the best of them once it is shown that who leads also wins.

    They take their decisions together. In levels in which nobody moved, those that have earned more
    so far are compared with the others, by role: if they are surely solved more often, episodes of
    the other levels continue from the best. If not, nobody moves, and nothing counts but success.
    Rewards are also followed while there is no telling, since hardly anything was solved of late:
    success would teach nothing. In the first train step nobody moves, and success alone counts.

    Take it when you do not know what the rewards of steps mean. It has to know what a success is:
    rewards that are to replace it (`reward_scale = 0`) count only once they are shown to lead to
    it, or while there is hardly any success. By chance those that mean nothing are followed in
    about one of forty train steps.

    Source:
        Go with the winners (Aldous and Vazirani, FOCS 1994), and AT-GRPO (arXiv 2510.11062,
        algorithm 1) for which of them is followed; states are merged as in GiGPO (arXiv 2505.10978)
        and GraphGPO (arXiv 2605.26684). Changed: nobody continues from another unless
        the rewards tell them apart, and Lemma 1 of AT-GRPO, that the best reward of a step is best
        in the end, is tested instead of assumed.
    """

    name: str = "lockstep"
    """Which algorithm."""
    norm: Literal["std", "batch", "none"] = "std"
    """What divides: the standard deviation of the group (std); that of all groups of the step, per
    role (batch), to which levels that never move contribute most, so that steps teach little; or
    nothing."""
    credit: Literal["state_return"] = "state_return"
    """By what: the return from there on, with what follows averaged over the episodes that were in
    the state it led to. Those that continue from another have not earned what comes after."""
    free_share: float = Field(default=0.25, ge=0, lt=1)
    """Share of the levels whose episodes never move; 0: nothing is tested, and rewards of steps are
    followed whatever they mean."""

    @property
    def trusts_rewards(self) -> bool:
        return not self.free_share

    def strategy(self, context: StepContext) -> Strategy:
        def may_move(latest: Sequence[Decision]) -> bool:
            return not self.free_share or all(_is_followed(context, one.role) for one in latest)

        return GoWithTheWinners(self.num_candidates, may_move, self.free_share)

    def groups(self, played: Sequence[Played], context: StepContext) -> Groups:
        if not self.free_share:
            return super().groups(played, context)
        # Once per episode, of which every decision names its tree.
        trees = {tree.episode: tree for tree, _ in played}
        counted = {episode: _counted(tree, context) for episode, tree in trees.items()}
        paths = ((counted[tree.episode], decision.key.position) for tree, decision in played)
        return super().groups([(tree, tree.decisions[at]) for tree, at in paths], context)

    def remember(self, trees: Sequence[RolloutTree], context: StepContext) -> Mapping[str, Any]:
        """Evidence of levels in which nobody moved, by role."""
        if not self.free_share:
            return {}
        found = {role: Evidence(*sums).faded(_FADING) for role, sums in context.memory.items()}
        for level in _unmoved(trees):
            solved = [tree.outcome is not None and tree.outcome.success for tree in level]
            leads = _leads(level)
            for role in sorted({one.role for tree in level for one in tree.decisions}):
                known, own = found.get(role, Evidence()), leads.get(role, {})
                found[role] = known.with_level([*own.values()], [solved[index] for index in own])
        return {role: list(evidence) for role, evidence in found.items()}

    def metrics(self, memory: Mapping[str, Any]) -> dict[str, float]:
        """How sure it is that those win that lead."""
        found = ((role, Evidence(*sums).z) for role, sums in memory.items())
        return {f"{role}/lead_z": z for role, z in found if z is not None}


def _is_followed(context: StepContext, role: str) -> bool:
    """Whether rewards of a role are shown to lead to success, or there is no telling.

    After a single success that was luck, a run that waits for others would learn nothing for ever.
    In the first train step, rewards that mislead would be learnt from as if they were known.
    """
    if role not in context.memory:
        return False
    evidence = Evidence(*context.memory[role])
    return evidence.is_shown or not evidence.can_tell


def _counted(tree: RolloutTree, context: StepContext) -> RolloutTree:
    """An episode in which rewards that are not followed are those of success."""
    end = len(tree.decisions) - 1

    def counted(decision: Decision, position: int) -> Decision:
        if _is_followed(context, decision.role):
            return decision
        is_solved = position == end and tree.outcome is not None and tree.outcome.success
        candidates = (
            replace(candidate, reward=float(is_solved), local=0.0)
            for candidate in decision.candidates
        )
        return replace(decision, candidates=tuple(candidates))

    decisions = (counted(one, position) for position, one in enumerate(tree.decisions))
    return replace(tree, decisions=tuple(decisions))


def _unmoved(trees: Sequence[RolloutTree]) -> list[list[RolloutTree]]:
    """The episodes of the levels in which all were played to an end of their own."""
    levels: dict[int, list[RolloutTree]] = defaultdict(list)
    for tree in trees:
        levels[tree.env_seed].append(tree)
    return [
        level
        for level in levels.values()
        if not any(tree.num_given_up or tree.prefix or tree.outcome is None for tree in level)
    ]


def _leads(level: Sequence[RolloutTree]) -> dict[str, dict[int, float]]:
    """Return role -> episode -> by how much it was ahead, on average over the role's stages.

    One number per episode: what it had earned by one turn hangs on what it had by the last, and
    turns would count as if each were an episode of its own. The last stage is left out: what it
    earns says how the episode has ended, and nobody moves after it.
    """
    earned: dict[tuple[str, int], dict[int, float]] = defaultdict(dict)
    for index, tree in enumerate(level):
        so_far = accumulate(decision.candidates[0].reward for decision in tree.decisions)
        roles = set[str]()
        for decision, total in zip(tree.decisions[:-1], so_far, strict=False):
            roles.add(decision.role)
            if not decision.within_stage:  # only now can anybody move
                for role in roles:
                    earned[role, decision.key.position][index] = total
                roles = set()
    ahead: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for (role, _), of_episode in earned.items():
        mean = fmean(of_episode.values())
        for index, total in of_episode.items():
            ahead[role][index].append(total - mean)
    return {role: {at: fmean(own) for at, own in found.items()} for role, found in ahead.items()}


class GoWithTheWinners:
    """Plays the episodes of a level so that they take their decisions together; see `Strategy`.

    Whenever those that still play have earned different amounts since they were last in one state,
    all of them continue from the state of the best. So a reward of every step makes of them a tree
    that follows its best candidate, as AT-GRPO does; and if nothing is paid before the end, they
    are whole episodes that nobody interrupts. Those that are over stay as they are.

    Args:
        num_episodes: Of a level.
        may_move: Whether episodes that have just taken these decisions may continue from another.
        free_share: Share of the levels whose episodes never move, in [0, 1).

    """

    def __init__(
        self,
        num_episodes: int,
        may_move: Callable[[Sequence[Decision]], bool],
        free_share: float,
    ) -> None:
        self.num_together = num_episodes
        self._may_move = may_move
        self._free_share = free_share

    async def play(self, players: Sequence[Player]) -> None:
        await together(player.attempt(player.start()) for player in players)
        # Drawn with the first episode's seed: the same in a resumed run, whatever is played beside.
        is_free = derive_seed(players[0].spec.seed, "free") < self._free_share * 2**53
        begin = 0  # position of the first decision since all that play were in one state
        while playing := [player for player in players if player.is_playing]:
            await together(player.attempt(player.step()) for player in playing)
            playing = [player for player in playing if player.is_playing]
            earned = [_earned(player, begin) for player in playing]
            # Within a stage, agents have been asked about the moment before it.
            if any(player.is_within_stage for player in playing) or not has_signal(earned):
                continue
            if is_free or not self._may_move([player.decisions[-1] for player in playing]):
                continue
            # The first of the best stays itself, and is where all others continue.
            best = playing[earned.index(max(earned))]
            others = [player for player in playing if player is not best]
            await together(other.attempt(other.move_to(best.here)) for other in others)
            begin = len(best.decisions)


def _earned(player: Player, begin: int) -> float:
    """What those who acted have earned since a position."""
    return sum(decision.candidates[0].reward for decision in player.decisions[begin:])


class Evidence(NamedTuple):
    """Does who leads now win in the end? Sums over levels, in each of which both are compared.

    Only within a level, so that easy ones, which pay more and are solved more often, say nothing.
    Where leads mean nothing, one answer in forty is wrong. The variance is exact where episodes
    lead from the first turn to the last, and too small where many end early.

    Source:
        Mantel's extension of the test of Mantel and Haenszel (Journal of the American Statistical
        Association 58, 1963): levels are its strata, and leads its scores. Changed: earlier train
        steps count less.
    """

    total: float = 0.0
    """Sum of the products of lead and success, each centred within its level."""
    variance: float = 0.0
    """Of that sum, if it were drawn at random which of a level's episodes are solved."""
    num_solved: float = 0.0
    """Episodes that were solved; earlier train steps count less."""

    def faded(self, share: float) -> Evidence:
        """The same evidence with a share of its weight."""
        return Evidence(share * self.total, share**2 * self.variance, share * self.num_solved)

    def with_level(self, leads: Sequence[float], solved: Sequence[bool]) -> Evidence:
        """The evidence with that of a level.

        Args:
            leads: [N] by how much each episode was ahead of the others.
            solved: [N]
        """
        # Successes count also where nobody led: there was something to learn from.
        num_solved = self.num_solved + sum(solved)
        if not has_signal(leads):
            return self._replace(num_solved=num_solved)
        xs, ys = _centred(leads), _centred(solved)
        # Of a sum over a draw without replacement, hence the N - 1.
        variance = _product(xs, xs) * _product(ys, ys) / (len(xs) - 1)
        return Evidence(self.total + _product(xs, ys), self.variance + variance, num_solved)

    @property
    def z(self) -> float | None:
        """The sum in units of its standard error; None where leads or successes never differed."""
        return self.total / math.sqrt(self.variance) if self.variance > 0 else None

    @property
    def can_tell(self) -> bool:
        """Whether success was there of late, and leads to compare it with."""
        return self.z is not None and self.num_solved >= 1

    @property
    def is_shown(self) -> bool:
        """Whether those that lead are surely solved more often."""
        return self.z is not None and self.z > _SURE


def _centred(values: Sequence[float]) -> list[float]:
    mean = fmean(values)
    return [value - mean for value in values]


def _product(xs: Sequence[float], ys: Sequence[float]) -> float:
    return math.fsum(x * y for x, y in zip(xs, ys, strict=True))
