"""Whole episodes that branch where the policy was least sure: TreeRL, ARPO."""

from __future__ import annotations

from statistics import fmean

from pettingllms_trainers.algorithms.tree_grpo import Branchings, TreeGrpo
from pettingllms_trainers.config.algorithm import StepContext, Strategy
from pettingllms_trainers.types import Decision


class EntropyBranching(TreeGrpo):
    """`tree_grpo`, whose branchings are the decisions of highest entropy instead of any.

    Take it for comparison with branchings at random.

    Source:
        TreeRL (arXiv 2506.11902), which forks at the tokens of highest entropy, and ARPO (arXiv
        2507.19849), which forks after steps that raise it. Changed: whole decisions fork, by the
        mean entropy of the tokens of the answer that was played, and their candidates are compared
        with each other alone.
    """

    name: str = "entropy_branching"
    """Which algorithm."""

    def strategy(self, context: StepContext) -> Strategy:
        return Branchings(self, prefer=entropy)


def entropy(decision: Decision) -> float:
    """The mean entropy of the tokens that were played, in nats.

    Of an engine that returns none it is their mean surprise, of which entropy is the expectation.
    """
    played = decision.candidates[0].completion
    return fmean(played.entropies or [-one for one in played.logprobs] or [0.0])
