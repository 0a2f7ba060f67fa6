"""What the updates of simulated rollouts read, and in how many optimizer steps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from pettingllms_trainers.config import Config
from pettingllms_trainers.config.policies import base_groups
from pettingllms_trainers.fleet.workload import Workload
from pettingllms_trainers.types import Decision, RolloutTree


def learnt_tokens(
    config: Config, workload: Workload, trees: Sequence[RolloutTree]
) -> tuple[dict[str, float], dict[str, float]]:
    """Return the tokens that updates of each base model read, and what of them are answers.

    A prompt is read once for its candidates.
    """
    base = {name: group[0] for group in base_groups(config.models) for name in group}
    tokens: defaultdict[str, float] = defaultdict(float)
    answers: defaultdict[str, float] = defaultdict(float)
    for decision in (decision for tree in trees for decision in tree.decisions):
        written = sum(len(candidate.completion.token_ids) for candidate in decision.candidates)
        copies = 1 if config.optimizer.packing else len(decision.candidates)
        used = config.optimizer.num_epochs * _share_used(workload, decision)
        tokens[base[decision.policy]] += used * (copies * len(decision.prompt_ids) + written)
        answers[base[decision.policy]] += used * written
    return tokens, answers


def _share_used(workload: Workload, decision: Decision) -> float:
    return workload.share_used(decision.key.agent, len(decision.candidates))


def optimizer_steps(
    config: Config, workload: Workload, trees: Sequence[RolloutTree]
) -> dict[str, int]:
    """Return the optimizer steps of each base model, all its policies together."""
    groups: defaultdict[str, float] = defaultdict(float)
    completions: defaultdict[str, float] = defaultdict(float)
    for decision in (decision for tree in trees for decision in tree.decisions):
        used = _share_used(workload, decision)
        groups[decision.policy] += used
        completions[decision.policy] += used * len(decision.candidates)
    base = {name: group[0] for group in base_groups(config.models) for name in group}
    found: defaultdict[str, int] = defaultdict(int)
    for name, num in completions.items():
        steps = config.optimizer.num_minibatches(round(num), round(groups[name]))
        found[base[name]] += config.optimizer.num_epochs * steps
    return dict(found)
