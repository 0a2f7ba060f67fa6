"""Episodes that continue from the best of them, once it is shown that who leads also wins."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from statistics import fmean
from typing import Any, Literal

from pydantic import Field

from pettingllms_trainers.algorithms.group_relative import Played
from pettingllms_trainers.algorithms.reinforce import Reinforce
from pettingllms_trainers.config.algorithm import Member, Moment, Strategy
from pettingllms_trainers.learning.evidence import Evidence
from pettingllms_trainers.rollout.strategies.winners import GoWithTheWinners
from pettingllms_trainers.types import Decision, RolloutTree

_KEPT = 0.9
"""Weight of evidence one train step later: policies change, and with them who wins."""


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
        """See `Algorithm.trusts_rewards`."""
        return not self.free_share

    def strategy(self, moment: Moment) -> Strategy:
        """See `Algorithm.strategy`."""

        def may_move(latest: Sequence[Decision]) -> bool:
            return not self.free_share or all(_is_followed(moment, one.role) for one in latest)

        return GoWithTheWinners(self.num_candidates, may_move, self.free_share)

    def groups(self, found: Sequence[Played], moment: Moment) -> Iterable[tuple[Hashable, Member]]:
        """See `Algorithm.groups`."""
        if not self.free_share:
            return super().groups(found, moment)
        counted = {tree.episode: _counted(tree, moment) for tree, _ in found}
        paths = ((counted[tree.episode], decision.key.position) for tree, decision in found)
        return super().groups([(tree, tree.decisions[at]) for tree, at in paths], moment)

    def remember(self, trees: Sequence[RolloutTree], moment: Moment) -> Mapping[str, Any]:
        """See `Algorithm.remember`: evidence of levels in which nobody moved, by role."""
        if not self.free_share:
            return {}
        found = {role: Evidence(*sums).kept(_KEPT) for role, sums in moment.memory.items()}
        for level in _unmoved(trees):
            solved = [tree.outcome is not None and tree.outcome.success for tree in level]
            leads = _leads(level)
            for role in sorted({one.role for tree in level for one in tree.decisions}):
                known, own = found.get(role, Evidence()), leads.get(role, {})
                found[role] = known.with_level([*own.values()], [solved[index] for index in own])
        return {role: list(evidence) for role, evidence in found.items()}

    def metrics(self, memory: Mapping[str, Any]) -> dict[str, float]:
        """See `Algorithm.metrics`: how sure it is that those win that lead."""
        found = ((role, Evidence(*sums).z) for role, sums in memory.items())
        return {f"{role}/lead_z": z for role, z in found if z is not None}


def _is_followed(moment: Moment, role: str) -> bool:
    """Return whether rewards of a role are shown to lead to success, or there is no telling.

    After a single success that was luck, a run that waits for others would learn nothing for ever.
    In the first train step, rewards that mislead would be learnt from as if they were known.
    """
    if role not in moment.memory:
        return False
    evidence = Evidence(*moment.memory[role])
    return evidence.is_shown or not evidence.can_tell


def _counted(tree: RolloutTree, moment: Moment) -> RolloutTree:
    """Return an episode in which rewards that are not followed are those of success."""
    end = len(tree.decisions) - 1

    def counted(decision: Decision, position: int) -> Decision:
        if _is_followed(moment, decision.role):
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
    """Return the episodes of the levels in which all were played to an end of their own."""
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
