"""What V is to predict: tree backups and path returns of finished trees. Pure Python, no torch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean

from pettingllms_trainers.errors import GroupError
from pettingllms_trainers.types import RolloutStatus, RolloutTree, ValueExample

__all__ = ["value_examples"]


def value_examples(
    trees: Sequence[RolloutTree], *, gamma: float, path_weight: float
) -> dict[str, list[ValueExample]]:
    """Return examples for V of every policy, in play order.

    The target of a decision is ``(1 - w) * mean_k(r_k + value_k) + w * G``: over its K candidates,
    `value` already holding the discounted V of what follows, and with G the discounted sum of the
    rewards of the acting agents from there to the end of the followed path. The first part is
    unbiased for the policies whichever branch is followed, as far as V is right; the second is of
    what was played, with greedy branches the best of K.

    Args:
        trees: Rollouts of a train step; those whose status is not `ok` are left out.
        gamma: Discount per decision, in (0, 1].
        path_weight: w in [0, 1]; 1 while V is not used yet.

    Raises:
        GroupError: A decision has no chosen candidate.

    Source:
        Ours. The tree backup is that of Precup, Sutton and Singh 2000 with samples of the policy
        instead of its probabilities; the mixture stands for the lambda of TD(lambda).
    """
    examples: dict[str, list[ValueExample]] = defaultdict(list)
    for tree in trees:
        if tree.status is not RolloutStatus.OK:
            continue
        found: list[tuple[str, ValueExample]] = []
        path = 0.0
        for decision in reversed(tree.decisions):
            if decision.chosen is None:
                raise GroupError(f"decision {tuple(decision.key)} has no chosen candidate")
            path = decision.candidates[decision.chosen].reward + gamma * path
            backup = fmean(c.reward + c.value for c in decision.candidates)
            # With a single candidate no value was asked for, so that there is no backup.
            weight = path_weight if len(decision.candidates) > 1 else 1.0
            target = (1 - weight) * backup + weight * path
            if decision.prompt_ids:
                found.append((decision.policy, ValueExample(decision.prompt_ids, target)))
        for policy, example in reversed(found):
            examples[policy].append(example)
    return dict(examples)
