"""Rollout trees as JSON that a person can read: texts, rewards and what was chosen."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from pettingllms_trainers.types import Group, GroupKey, RolloutTree

__all__ = ["tree_to_json"]


def tree_to_json(tree: RolloutTree, scored: Iterable[Group] = ()) -> dict[str, Any]:
    """Return a rollout tree as JSON data; token ids are left out.

    Args:
        tree: The tree.
        scored: Groups with advantages; those of other trees are ignored.
    """
    by_key = {group.key: group for group in scored}
    return {
        "episode": tree.episode,
        "env_seed": tree.env_seed,
        "initial_state_hash": tree.initial_state_hash,
        "status": str(tree.status),
        "cause": tree.cause,
        "outcome": None if tree.outcome is None else asdict(tree.outcome),
        "nodes": [_node(by_key.get(node.key, node), node.key) for node in tree.nodes],
    }


def _node(group: Group, key: GroupKey) -> dict[str, Any]:
    return {
        "agent": key.agent,
        "turn": key.turn,
        "policy": group.policy,
        "observation": group.observation,
        "chosen": group.chosen,
        "candidates": [
            {
                "text": candidate.completion.text,
                "num_tokens": len(candidate.completion.token_ids),
                "finish_reason": candidate.completion.finish_reason,
                "reward": candidate.reward,
                "team": candidate.team,
                "local": candidate.local,
                "parse_error": candidate.parse_error,
                "success": candidate.success,
                "advantage": candidate.advantage,
            }
            for candidate in group.candidates
        ],
    }
