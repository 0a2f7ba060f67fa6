"""Rollout trees as JSON that a person can read: texts, rewards and what was chosen."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from pettingllms_trainers.types import Decision, RolloutTree

__all__ = ["tree_to_json"]


def tree_to_json(tree: RolloutTree, scored: Iterable[Decision] = ()) -> dict[str, Any]:
    """Return a rollout tree as JSON data; token ids are left out.

    Args:
        tree: The tree.
        scored: Groups with advantages; those of other trees are ignored.
    """
    scored_ones = {decision.key: decision for decision in scored}
    return {
        "episode": tree.episode,
        "env_seed": tree.env_seed,
        "initial_state_hash": tree.initial_state_hash,
        "status": str(tree.status),
        "cause": tree.cause,
        "outcome": None if tree.outcome is None else asdict(tree.outcome),
        "decisions": [_decision(scored_ones.get(own.key, own)) for own in tree.decisions],
    }


def _decision(decision: Decision) -> dict[str, Any]:
    return {
        "agent": decision.key.agent,
        "turn": decision.key.turn,
        "policy": decision.policy,
        "observation": decision.observation,
        "chosen": decision.chosen,
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
            for candidate in decision.candidates
        ],
    }
