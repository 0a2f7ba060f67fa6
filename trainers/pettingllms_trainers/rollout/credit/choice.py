"""From the key `advantage.credit` to what computes it."""

from __future__ import annotations

from pettingllms_trainers.policies.pool import PolicyPool
from pettingllms_trainers.rollout.answers import Answers
from pettingllms_trainers.rollout.credit.by_continuation import ByContinuation
from pettingllms_trainers.rollout.credit.by_reward import ByReward
from pettingllms_trainers.rollout.credit.by_value import ByValue
from pettingllms_trainers.rollout.credit.seam import CreditOfRollout
from pettingllms_trainers.rollout.episode import Episodes
from pettingllms_trainers.rollout.settings import RolloutSettings

__all__ = ["credit_of"]


def credit_of(
    settings: RolloutSettings, episodes: Episodes, pool: PolicyPool, answers: Answers
) -> CreditOfRollout:
    """Return what finds the values of candidates while episodes are played.

    Credits of whole episodes (`return_to_go`, `episode`) need nothing then: they are computed from
    the rewards of finished trees.
    """
    if settings.credit == "value":
        return ByValue(episodes, pool, settings.gamma)
    if settings.credit == "continuation":
        return ByContinuation(episodes, answers, settings.num_continuations, settings.gamma)
    return ByReward()
